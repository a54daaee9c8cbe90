// Package explain tells which way a request or a connection would take, and why: by the proxy's own parser,
// tables and balancer, so that it cannot differ from what the proxy does.
//
// It must not import source or cli.
package explain

import (
	"github.com/moongate-dev/moongate/internal/config"
)

// World is what a request would meet.
type World struct {
	// Resources are the configuration.
	Resources []*config.Resource
	// Items are the objects with their statuses, for complaints that may be why a request fails.
	Items []any
	// Refused are the documents that could not be used, as a line each. What they were meant to be is missing here.
	Refused []string
	// Gateway is the one whose proxies get the request, as "<namespace>/<name>"; "" where all Gateways share their ports.
	Gateway string
	// ControllerName is ours.
	ControllerName string
	// UnknownRedis is the address that global rate limits have where it is not known whether they have a Redis; "" where that is known.
	UnknownRedis string
	// Zone is which zone the proxy is in, "" where that is not known.
	Zone string
	// Place is where an object is written, as file:line; "" if nobody knows.
	Place func(kind, namespace, name string) string
	// Suggest rewrites the message of a complaint of an object in a namespace, as show.Suggest has it; nil leaves all as they are.
	Suggest func(message, namespace string) string
}
