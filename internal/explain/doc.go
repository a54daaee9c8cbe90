// Package explain determines the route of a request or a connection, and why: it uses the proxy's own parser, tables and balancer,
// so that the result cannot differ from what the proxy does.
//
// It must not import source or cli.
package explain

import (
	"github.com/moongate-dev/moongate/internal/config"
)

// World is the configuration and the objects for which a question is answered.
type World struct {
	// Resources are the configuration.
	Resources []*config.Resource
	// Items are the objects with their statuses, for complaints that may be why a request fails.
	Items []any
	// Refused are the documents that could not be used, one line each. What they define is missing in Resources.
	Refused []string
	// Gateway is the one whose proxies receive the request, as "<namespace>/<name>"; "" if all Gateways share their ports.
	Gateway string
	// ControllerName is that of this controller.
	ControllerName string
	// UnknownRedis is the address of global rate limits if it is not known whether there is a Redis server for them; "" if that is
	// known.
	UnknownRedis string
	// Zone is the zone of the proxy, "" if it is not known.
	Zone string
	// Place returns the place of an object, as file:line; "" if it is not known.
	Place func(kind, namespace, name string) string
	// Suggest rewrites the message of a complaint of an object in a namespace, see show.Suggest; may be nil.
	Suggest func(message, namespace string) string
}
