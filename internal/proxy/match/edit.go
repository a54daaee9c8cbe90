package match

import (
	"slices"

	"github.com/moongate-dev/moongate/internal/config"
)

// Edit is a table that is being changed, by one goroutine.
type Edit[V any] struct {
	t  Table[V]
	by *owner // of the nodes that were created since Table was called
}

// Edit starts a change of the table; t itself does not change.
func (t *Table[V]) Edit() *Edit[V] {
	if t == nil {
		return &Edit[V]{by: &owner{}}
	}
	return &Edit[V]{*t, &owner{}}
}

// Table returns the result so far. The Edit may be used further; the returned
// table does not change.
func (e *Edit[V]) Table() *Table[V] {
	t := e.t
	e.by = &owner{}
	return &t
}

// Add adds a route for the hostnames in its config.Attachment to the listener. It replaces a route with the same
// config.Route key.
func (e *Edit[V]) Add(route *Route[V], hostnames []*config.Hostname) {
	key := route.Config.Key
	e.Remove(key)
	hostnames = distinct(hostnames)
	e.t.routes.set(key, placed[V]{route, hostnames}, e.by)
	for _, h := range hostnames {
		e.change(h, func(g *group[V]) {
			for _, m := range route.matches {
				g.add(m)
			}
		})
	}
}

// Remove removes the route with that config.Route key, if it exists.
func (e *Edit[V]) Remove(key string) {
	p := e.t.routes.find([]byte(key))
	if p == nil {
		return
	}
	for _, h := range p.hostnames {
		e.change(h, func(g *group[V]) {
			for _, m := range p.route.matches {
				g.remove(m)
			}
		})
	}
	e.t.routes = e.t.routes.without(key)
}

// change applies f to a copy of the hostname's group, which is created if missing and dropped if it becomes empty.
func (e *Edit[V]) change(h *config.Hostname, f func(*group[V])) {
	groups, _ := e.t.hosts.Get(h.Effective)
	i, found := slices.BinarySearchFunc(groups, h.Original, func(g *group[V], original string) int {
		return compareHostnames(g.original, original)
	})
	next := &group[V]{effective: h.Effective, original: h.Original}
	if found {
		*next = *groups[i]
	}
	f(next)
	switch {
	case next.empty() && !found:
		return
	case next.empty():
		groups = removed(groups, i)
	case found:
		groups = replaced(groups, i, next)
	default:
		groups = inserted(groups, i, next)
	}
	if len(groups) == 0 {
		e.t.hosts = *e.t.hosts.Without(h.Effective)
		return
	}
	e.t.hosts.set(h.Effective, groups, e.by)
}

func (g *group[V]) add(m *match[V]) { g.edit(m, (*paths[V]).add) }

func (g *group[V]) remove(m *match[V]) { g.edit(m, (*paths[V]).remove) }

// edit applies f to the part of the group that contains m, or is to contain it.
func (g *group[V]) edit(m *match[V], f func(*paths[V], *match[V])) {
	if !m.call {
		f(&g.requests, m)
		return
	}
	var calls paths[V]
	if g.calls != nil {
		calls = *g.calls
	}
	f(&calls, m)
	if g.calls = &calls; calls.n == 0 {
		g.calls = nil
	}
}

func (p *paths[V]) add(m *match[V]) {
	p.n++
	switch m.path.kind {
	case exactPath:
		p.exact = withMatch(p.exact, m)
	case regexPath:
		p.regex = p.regex.with(m)
	case prefixPath:
		p.prefix = p.prefix.with(m)
	}
}

func (p *paths[V]) remove(m *match[V]) {
	p.n--
	switch m.path.kind {
	case exactPath:
		p.exact = withoutMatch(p.exact, m)
	case regexPath:
		p.regex = p.regex.without(m)
	case prefixPath:
		p.prefix = p.prefix.without(m)
	}
}

// distinct drops repetitions, which the control plane does not send.
func distinct(hostnames []*config.Hostname) []*config.Hostname {
	same := func(a, b *config.Hostname) bool {
		return a.Effective == b.Effective && a.Original == b.Original
	}
	var out []*config.Hostname
	for _, h := range hostnames {
		if !slices.ContainsFunc(out, func(o *config.Hostname) bool { return same(o, h) }) {
			out = append(out, h)
		}
	}
	return out
}
