// Package session keeps the requests of a client's session at one endpoint of each backend that they are sent to (GEP-1619), without the proxy remembering
// anything: a token says which endpoints they are and since when, and the client brings it back in a cookie or a header field. Keys of its Gateway
// sign it, so that a client cannot choose an endpoint, nor use a session that is over, nor one of another cookie or Gateway. What is in it is no
// secret, and says nothing to whoever does not know the pods' UIDs.
//
// Which backend a request is for is decided before, and no token changes that: weights hold whatever clients bring.
//
// It imports config and message, and never upstream, the engine or Kubernetes.
package session
