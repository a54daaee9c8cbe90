package proxy

import (
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// upsertL4Route adds a layer-4 route, or replaces the one with its key.
func (a *applying) upsertL4Route(c *config.L4Route) error {
	r, err := a.p.compiler.L4Route(c)
	if err != nil {
		return err
	}
	a.removeL4Route(c.Key)
	a.p.state.l4Routes[c.Key] = r
	for _, at := range c.Attachments {
		a.l4Of(at.Listener).add(r, at.Hostnames)
	}
	return nil
}

// removeL4Route removes a layer-4 route from its listeners. Its existing connections continue.
func (a *applying) removeL4Route(key string) {
	old := a.p.state.l4Routes[key]
	if old == nil {
		return
	}
	for _, at := range old.Config.Attachments {
		a.l4Of(at.Listener).remove(key, at.Hostnames)
	}
	delete(a.p.state.l4Routes, key)
	a.replaced = append(a.replaced, old)
}

// l4Of returns the layer-4 routes of a listener for a change.
func (a *applying) l4Of(listener string) *attachedL4 {
	a.l4Edits[listener] = struct{}{}
	return &a.p.state.listener(listener).l4
}

// attachedL4 are the layer-4 routes of a listener.
type attachedL4 struct {
	routes int
	hosts  *match.Hosts[*snapshot.L4Route] // the first route of each hostname
	// of has all routes of a hostname, by key: when the first one is removed, the next one gets the hostname.
	of map[string][]*snapshot.L4Route
}

func (l *attachedL4) add(r *snapshot.L4Route, hostnames []*config.Hostname) {
	l.routes++
	for _, h := range hostnames {
		all := l.of[h.Effective]
		at, found := slices.BinarySearchFunc(all, r.Config.Key, byRouteKey)
		if found {
			continue
		}
		if l.of == nil {
			l.of = map[string][]*snapshot.L4Route{}
		}
		l.of[h.Effective] = slices.Insert(all, at, r)
		if at == 0 {
			l.hosts = l.hosts.With(h.Effective, r)
		}
	}
}

func (l *attachedL4) remove(key string, hostnames []*config.Hostname) {
	l.routes--
	for _, h := range hostnames {
		all := l.of[h.Effective]
		at, found := slices.BinarySearchFunc(all, key, byRouteKey)
		switch {
		case !found:
		case len(all) == 1:
			delete(l.of, h.Effective)
			l.hosts = l.hosts.Without(h.Effective)
		default:
			l.of[h.Effective] = slices.Delete(all, at, at+1)
			if at == 0 {
				l.hosts = l.hosts.With(h.Effective, all[0])
			}
		}
	}
}

func byRouteKey(r *snapshot.L4Route, key string) int { return strings.Compare(r.Config.Key, key) }
