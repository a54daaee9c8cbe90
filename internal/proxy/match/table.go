package match

import (
	"iter"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// Table holds the routes of one listener. It is immutable; nil and the zero value are empty. It is safe for concurrent
// use.
type Table[V any] struct {
	hosts  Hosts[[]*group[V]] // by effective hostname; groups by precedence
	routes pmap[placed[V]]    // by config.Route key
}

// placed records where a route was added, to find it again when it is removed.
type placed[V any] struct {
	route     *Route[V]
	hostnames []*config.Hostname
}

// group holds the matches of one effective and one original hostname. A hostname has few groups: the originals equal
// the effective hostname or cover it.
type group[V any] struct {
	effective, original string
	requests            paths[V]  // of HTTPRoutes
	calls               *paths[V] // of GRPCRoutes; nil if there are none
}

// paths holds matches by their paths.
type paths[V any] struct {
	exact  pmap[candidates[V]]
	regex  candidates[V]
	prefix prefixMap[V]
	n      int // number of matches in all three
}

// Lookup returns the rule that matches the request, or nil. It reads Method, Host, MatchHost, Path, Query and Header,
// keeps none of them and does not allocate. The only error is ErrMatchLimit.
func (t *Table[V]) Lookup(req *message.Request) (*Rule[V], error) {
	if t == nil {
		return nil, nil
	}
	left := stepsLeft(maxSteps)
	hosts := t.hosts.fitting(req.MatchHost)
	for groups := hosts.next(); groups != nil; groups = hosts.next() {
		for _, g := range *groups {
			m := g.lookup(req, &left)
			if left.exceeded() {
				return nil, ErrMatchLimit
			}
			if m != nil {
				return &m.Rule, nil
			}
		}
	}
	return nil, nil
}

func (g *group[V]) lookup(req *message.Request, b *stepsLeft) *match[V] {
	if g.calls == nil {
		return g.requests.lookup(req, b)
	}
	first, second := g.inOrder(req)
	if m := first.lookup(req, b); m != nil || b.exceeded() {
		return m
	}
	return second.lookup(req, b)
}

// inOrder returns the matches of the request's kind of route first. There must be some of GRPCRoutes.
func (g *group[V]) inOrder(req *message.Request) (first, second *paths[V]) {
	if isCall(req) {
		return g.calls, &g.requests
	}
	return &g.requests, g.calls
}

func (g *group[V]) empty() bool { return g.requests.n == 0 && g.calls == nil }

func (p *paths[V]) lookup(req *message.Request, b *stepsLeft) *match[V] {
	if c := p.exact.find(req.Path); c != nil {
		if m := c.first(req, b); m != nil {
			return m
		}
	}
	if m := p.regex.first(req, b); m != nil {
		return m
	}
	prefixes := p.prefix.fitting(req.Path)
	for c := prefixes.next(); c != nil; c = prefixes.next() {
		if m := c.first(req, b); m != nil {
			return m
		}
	}
	return nil
}

// Len returns the number of routes.
func (t *Table[V]) Len() int {
	if t == nil {
		return 0
	}
	return t.routes.n
}

// Get returns the route with that config.Route key, or nil.
func (t *Table[V]) Get(key string) *Route[V] {
	if t == nil {
		return nil
	}
	if p := t.routes.find([]byte(key)); p != nil {
		return p.route
	}
	return nil
}

// Routes yields all routes in the order of their keys.
func (t *Table[V]) Routes() iter.Seq[*Route[V]] {
	return func(yield func(*Route[V]) bool) {
		if t == nil {
			return
		}
		for _, l := range t.routes.sorted() {
			if !yield(l.value.route) {
				return
			}
		}
	}
}
