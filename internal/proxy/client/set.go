package client

import (
	"net"
	"sync"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// Timing of the sweeper.
const (
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

// Timeouts bounds how long a client may keep the proxy waiting. Zero fields take the
// default; they are precise to a quarter of a second.
type Timeouts struct {
	Handshake time.Duration // the whole TLS handshake; default 10 s
	Idle      time.Duration // between requests of a connection; default 75 s
	Head      time.Duration // from the first byte of a request head to its last; default 15 s
	BodyIdle  time.Duration // without a byte of the request body; default 60 s
	WriteIdle time.Duration // for one write to the client, of up to 78 KiB, to be taken; default 60 s
	// Linger is how long bytes of a client that was already answered are thrown away so
	// that the answer is not lost with a reset (RFC 9112 section 9.6); default 2 s.
	Linger time.Duration
}

func (t Timeouts) withDefaults() Timeouts {
	for _, f := range []struct {
		d   *time.Duration
		def time.Duration
	}{
		{&t.Handshake, 10 * time.Second},
		{&t.Idle, 75 * time.Second},
		{&t.Head, 15 * time.Second},
		{&t.BodyIdle, 60 * time.Second},
		{&t.WriteIdle, 60 * time.Second},
		{&t.Linger, 2 * time.Second},
	} {
		if *f.d <= 0 {
			*f.d = f.def
		}
	}
	return t
}

// Set holds all client connections. It is touched when one is accepted and when it ends.
type Set struct {
	engine   *exchange.Engine
	timeouts Timeouts
	plainIO  bool

	mu   sync.Mutex
	all  map[*Conn]struct{}
	done chan struct{} // closed when the set is empty; nil while nobody waits
}

// NewSet makes an empty Set. plainIO makes connections be read by way of net.Conn on Linux too.
func NewSet(engine *exchange.Engine, timeouts Timeouts, plainIO bool) *Set {
	return &Set{engine: engine, timeouts: timeouts.withDefaults(), plainIO: plainIO, all: map[*Conn]struct{}{}}
}

// Serve starts a connection on a goroutine of its own. When it returns, Empty sees the connection.
func (s *Set) Serve(socket *snapshot.Socket, tcp *net.TCPConn, https bool) {
	c := newConn(s, socket, tcp, https)
	s.mu.Lock()
	s.all[c] = struct{}{}
	s.mu.Unlock()
	go c.serve()
}

// Each calls f for all connections there are; f must not block nor end one.
func (s *Set) Each(f func(*Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		f(c)
	}
}

// Sweep interrupts what has waited too long. It is called a few times a second, instead of a
// timer for each request; now is the coarse clock.
func (s *Set) Sweep(now int64) { s.Each(func(c *Conn) { c.sweep(now) }) }

// Cut ends all connections, whatever they do.
func (s *Set) Cut() { s.Each((*Conn).cut) }

// Empty is closed as soon as there is no connection.
func (s *Set) Empty() <-chan struct{} {
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

func (s *Set) remove(c *Conn) {
	s.mu.Lock()
	delete(s.all, c)
	if len(s.all) == 0 && s.done != nil {
		close(s.done)
		s.done = nil
	}
	s.mu.Unlock()
}

// sweep looks at one connection.
func (c *Conn) sweep(now int64) {
	if h := c.http2.Load(); h != nil { // which looks after its timeouts itself
		if c.set.engine.Draining.Load() {
			h.Drain()
		}
		return
	}
	kind, at, seen := c.wait.get()
	switch kind {
	case waitIdle:
		since := at - c.set.timeouts.Idle.Milliseconds()
		switch {
		case now >= at, c.set.engine.Draining.Load() && now >= since+drainIdle.Milliseconds():
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
	}
	if since := c.watch.Since(); since != 0 && now >= since+goneAfter.Milliseconds() && listen.PeerGone(c.raw) {
		c.watch.Interrupt()
	}
	if kind, at, seen := c.bodyWait.get(); kind == waitRead && now >= at {
		c.expire(&c.bodyWait, seen, false)
	}
}

// expire interrupts a wait on the client unless it ended meanwhile.
func (c *Conn) expire(s *waitState, seen uint64, shrink bool) {
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
func (c *Conn) cut() {
	c.watch.Cut()
	go c.tcp.Close() // which waits for the step that is under way, see runRaw
}
