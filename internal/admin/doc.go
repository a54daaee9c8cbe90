// Package admin is the HTTP server for administrators and their tools: health, readiness, metrics, status, configuration, profiles
// and a dashboard. It exists so that an operator can see what is served, and why something is not, without a cluster and without a
// client program.
//
// It only reads: every method except GET and HEAD is refused. It gets everything it shows by callbacks and must never import the
// proxy, the translator or a source.
package admin
