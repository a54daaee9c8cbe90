// Package session keeps the requests of a client's session at one endpoint of each backend that they are sent to
// (GEP-1619), without state in the proxy: a token contains the endpoints and since when they are used, and the client
// sends it back in a cookie or a header field. It is signed with keys of its Gateway, so that a client can neither
// choose an endpoint, nor use a session that is over, nor one of another cookie or Gateway. Its contents are not
// secret, but mean nothing without the pods' UIDs.
//
// The backend of a request is chosen before, and tokens do not change it: weights apply whatever clients send.
//
// It imports config and message, and never upstream, the engine or Kubernetes.
package session
