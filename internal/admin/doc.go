// Package admin is the HTTP server for people and machines that look after the
// gateway: health, readiness, metrics, status, configuration, profiles and a page to
// look at. It exists so that an operator can see what is served and why
// something is not, without a cluster and without a client.
//
// It only reads: every method but GET and HEAD is refused. It gets all it shows through
// callbacks and must never import the proxy, the translator or a source.
package admin
