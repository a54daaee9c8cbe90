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
	// ControllerName is ours.
	ControllerName string
	// Place is where an object is written, as file:line; "" if nobody knows.
	Place func(kind, namespace, name string) string
}
