package match

import (
	"iter"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// Rule is what a request is routed by: one match of one rule. It is shared by
// all tables that hold its route and must not be changed.
type Rule[V any] struct {
	Route  *config.Route
	Config *config.Rule
	Match  *config.Match // the one of Config.Matches that the request satisfied
	Value  V             // what Compile's caller made of Config; the same for all its matches
}

// Route is a compiled config.Route. It is immutable and can be in many tables.
type Route[V any] struct {
	Config *config.Route
}

// Compile prepares route for tables. It calls values once for every rule. An
// error names route, rule and match; only regular expressions that are not RE2
// and path types we do not know cause one.
func Compile[V any](route *config.Route, values func(rule *config.Rule) V) (*Route[V], error) {
	return &Route[V]{Config: route}, nil
}

// Table holds the routes of one listener. It is immutable; nil and the zero value are
// empty. Any number of goroutines may read it.
type Table[V any] struct{}

// Lookup returns the rule that takes the request, or nil. It reads Method, Host,
// MatchHost, Path, Query and Header, keeps none of them and does not allocate.
func (t *Table[V]) Lookup(req *message.Request) *Rule[V] { return nil }

// Len is the number of routes.
func (t *Table[V]) Len() int { return 0 }

// Get returns the route with that config.Route key, or nil.
func (t *Table[V]) Get(key string) *Route[V] { return nil }

// Routes yields all routes in the order of their keys.
func (t *Table[V]) Routes() iter.Seq[*Route[V]] { return func(func(*Route[V]) bool) {} }

// Edit starts a change of the table; t itself stays as it is.
func (t *Table[V]) Edit() *Edit[V] { return &Edit[V]{} }

// Edit is a table under change, for one goroutine.
type Edit[V any] struct{}

// Add puts a route in, for the hostnames that its config.Attachment to the
// listener lists. It replaces a route with the same config.Route key.
func (e *Edit[V]) Add(route *Route[V], hostnames []*config.Hostname) {}

// Remove takes out the route with that config.Route key, if it is there.
func (e *Edit[V]) Remove(key string) {}

// Table returns the result so far. The Edit may be used further; the returned
// table does not change.
func (e *Edit[V]) Table() *Table[V] { return &Table[V]{} }
