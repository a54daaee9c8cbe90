package proxy

import (
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// upsertL4Route puts a layer-4 route in the place of the one of its key; the listeners that it is attached to are made anew with the sockets.
func (a *applying) upsertL4Route(c *config.L4Route) error {
	r, err := a.p.compiler.L4Route(c)
	if err != nil {
		return err
	}
	a.removeL4Route(c.Key)
	a.p.state.l4Routes[c.Key] = r
	return nil
}

// removeL4Route takes a layer-4 route off its listeners; connections that it has begun go on.
func (a *applying) removeL4Route(key string) {
	if old := a.p.state.l4Routes[key]; old != nil {
		delete(a.p.state.l4Routes, key)
		a.replaced = append(a.replaced, old)
	}
	a.relisten = true
}

// attachedL4 are the layer-4 routes of a listener.
type attachedL4 struct {
	routes int
	hosts  *match.Hosts[*snapshot.L4Route]
}

// l4Of returns the layer-4 routes by the key of the listener that they are attached to.
func (s *state) l4Of() map[string]attachedL4 {
	of := make(map[string]attachedL4, len(s.l4Routes))
	for _, key := range sortedKeys(s.l4Routes) {
		r := s.l4Routes[key]
		for _, at := range r.Config.Attachments {
			l := of[at.Listener]
			l.routes++
			for _, h := range at.Hostnames {
				if _, taken := l.hosts.Get(h.Effective); !taken {
					l.hosts = l.hosts.With(h.Effective, r)
				}
			}
			of[at.Listener] = l
		}
	}
	return of
}
