package client

import (
	"cmp"
	"slices"
	"time"
)

// openTunnel is a tunnel: a connection, a stream or a connection driven by a loop.
type openTunnel struct {
	c  *Conn
	d  *stream // nil if the tunnel is the whole connection
	l4 *l4Conn // set for a connection driven by a loop; c and d are nil then
}

// moments returns when a tunnel was last used or has become stuck, by the coarse clock. The second result is false if
// it is no tunnel, or not stuck.
type moments interface {
	used() (ms int64, tunnel bool)
	stuck() (ms int64, stuck bool)
}

func (t openTunnel) key() clientKey {
	if t.l4 != nil {
		return t.l4.key
	}
	return t.c.key
}

func (t openTunnel) held() int {
	if t.l4 != nil {
		return t.l4.held()
	}
	return t.waits().held()
}

func (t openTunnel) waits() tunnelWaits {
	if t.d == nil {
		return t.c.tunnel()
	}
	return tunnelWaits{t.c.set, &t.d.toClient, &t.d.toBackend}
}

// end ends the tunnel and reports whether it was still open.
func (t openTunnel) end() bool {
	if t.l4 != nil {
		return t.l4.end()
	}
	if t.d != nil {
		return t.c.tunnels.end(t.d)
	}
	open := t.c.state.Load() == countedOpen
	t.c.endInUse()
	return open
}

// tunnelsSince returns the tunnels for which since returns a time at least that long ago, by the coarse clock, the
// oldest time first. The connections must be lent to the caller, see lend.
func (s *Set) tunnelsSince(least time.Duration, since func(moments) (ms int64, ok bool)) []openTunnel {
	at := make(map[openTunnel]int64)
	look := func(t openTunnel) {
		if ms, ok := since(t.waits()); ok {
			at[t] = ms
		}
	}
	s.Each(func(c *Conn) {
		switch {
		case c.http2.Load() != nil:
			c.tunnels.each(func(d *stream) { look(openTunnel{c: c, d: d}) })
		case c.state.Load() == countedOpen:
			look(openTunnel{c: c})
		}
	})
	s.l4.each(func(c *l4Conn) {
		if ms, ok := since(c); ok && c.state.Load() == countedOpen {
			at[openTunnel{l4: c}] = ms
		}
	})
	var all []openTunnel
	for t, ms := range at {
		if ms <= s.engine.Now()-least.Milliseconds() {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b openTunnel) int { return cmp.Compare(at[a], at[b]) })
	return all
}
