package proxy

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/listen"
)

// Timing of the sweeper.
const (
	// tick is the precision of the coarse clock and of the timeouts that hang on it.
	tick = 250 * time.Millisecond
	// goneAfter is how long a request must have waited for its backend before the sweeper looks
	// whether its client is still there. It spares short requests the system call, and
	// gives the answer to clients that half-close right after they asked.
	goneAfter = 500 * time.Millisecond
	// shrinkAfter is how long a connection may idle with pooled memory.
	shrinkAfter = 2 * time.Second
	// drainIdle is how long a connection idles during a drain before it is closed. A
	// client that uses it often gets its Connection: close with a response instead and
	// never meets a closing connection with a request.
	drainIdle = 2 * time.Second
)

// sweep advances the coarse clock and interrupts what has waited too long. It is one
// goroutine instead of a timer for each request.
func (p *Proxy) sweep() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for round := 0; ; round++ {
		select {
		case <-p.stop:
			return
		case now := <-t.C:
			ms := now.UnixMilli()
			p.clock.Store(ms)
			p.conns.each(func(c *conn) { c.sweep(ms) })
			if round%4 == 0 {
				p.upstreams.Sweep(now)
			}
		}
	}
}

// sweep looks at one connection.
func (c *conn) sweep(now int64) {
	kind, at, seen := c.wait.get()
	switch kind {
	case waitIdle:
		since := at - c.proxy.timeouts.Idle.Milliseconds()
		switch {
		case now >= at, c.proxy.draining.Load() && now >= since+drainIdle.Milliseconds():
			c.expire(&c.wait, seen, false)
		case now >= since+goneAfter.Milliseconds() && now <= since+2*goneAfter.Milliseconds() && listen.PeerGone(c.raw):
			c.expire(&c.wait, seen, false) // see rawStep: it may not have been told
		case c.holding.Load() && now >= since+shrinkAfter.Milliseconds():
			c.expire(&c.wait, seen, true)
		}
	case waitHandshake, waitRead, waitWrite:
		if now >= at {
			c.expire(&c.wait, seen, false)
		}
	case waitUpstream:
		if now >= at+goneAfter.Milliseconds() && listen.PeerGone(c.raw) {
			c.interruptUpstream()
		}
	}
	if kind, at, seen := c.bodyWait.get(); kind == waitRead && now >= at {
		c.expire(&c.bodyWait, seen, false)
	}
}

// expire interrupts a wait on the client unless it ended meanwhile.
func (c *conn) expire(s *waitState, seen uint64, shrink bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.claim(seen) {
		return
	}
	c.shrink = shrink
	switch waitKind(seen >> 56) {
	case waitHandshake:
		c.tcp.SetDeadline(longAgo)
	case waitWrite:
		c.tcp.SetWriteDeadline(longAgo)
	default:
		c.tcp.SetReadDeadline(longAgo)
	}
}

// cut ends a connection whatever it does.
func (c *conn) cut() {
	c.mu.Lock()
	c.wasCut = true
	c.mu.Unlock()
	c.interruptUpstream()
	go c.tcp.Close() // which waits for the step that is under way, see runRaw
}

// cutNow tells whether Shutdown has ended the connection.
func (c *conn) cutNow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wasCut
}

// connSet holds all client connections. It is touched when one is accepted and when it ends.
type connSet struct {
	mu   sync.Mutex
	all  map[*conn]struct{}
	done chan struct{} // closed when the set is empty; nil while nobody waits
}

func (s *connSet) add(c *conn) {
	s.mu.Lock()
	if s.all == nil {
		s.all = map[*conn]struct{}{}
	}
	s.all[c] = struct{}{}
	s.mu.Unlock()
}

func (s *connSet) remove(c *conn) {
	s.mu.Lock()
	delete(s.all, c)
	if len(s.all) == 0 && s.done != nil {
		close(s.done)
		s.done = nil
	}
	s.mu.Unlock()
}

// each calls f for all connections there are; f must not block nor add or remove one.
func (s *connSet) each(f func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		f(c)
	}
}

// empty is closed as soon as there is no connection.
func (s *connSet) empty() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if s.done == nil {
		s.done = make(chan struct{})
	}
	return s.done
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
