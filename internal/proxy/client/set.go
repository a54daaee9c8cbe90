package client

import (
	"cmp"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/socket"
)

// Timing of the sweeper.
const (
	// goneAfter is how long a request must have waited for its backend before its client's hang-up ends it. Short
	// requests are spared the system call that watches for hang-ups, and clients that half-close right after the
	// request still get the response.
	goneAfter = 500 * time.Millisecond
	// watchEach is the largest number of connections of a shard for which one Sweep makes that system call, so that
	// many requests do not delay the clock.
	watchEach = 128
	// parkAfter is how long a connection may be idle with a goroutine and pooled memory. A connection that is used more
	// often is never parked.
	parkAfter = time.Second
	// dormantAfter is how long a connection is idle before it becomes dormant, and dormantEach how many connections of
	// a shard may do so in one Sweep.
	dormantAfter = 5 * time.Second
	dormantEach  = 32
	// suspendAfter is how long a tunnel must have moved nothing before it releases its goroutines.
	suspendAfter = time.Second
	// drainIdle is how long a connection is idle during a drain before it is closed. A client that uses it more often
	// gets Connection: close with a response, so it does not send a request on a connection that is just being closed.
	drainIdle = 2 * time.Second
)

// Timeouts bounds how long a client may make the proxy wait. A zero field takes the default. Timeouts are precise to a
// quarter of a second.
type Timeouts struct {
	Handshake time.Duration // the whole TLS handshake; default 10 s
	Idle      time.Duration // between requests of a connection; default 75 s
	Head      time.Duration // from the first byte of a request head to its last; default 15 s
	BodyIdle  time.Duration // without a byte of the request body; default 60 s
	WriteIdle time.Duration // for the client to take one write of up to 78 KiB; default 60 s
	Tunnel    time.Duration // without a byte in either direction of a tunnel; default 1 h
	// TunnelWrite is how long an end of a tunnel may leave one write untaken, of up to 78 KiB, or of 256 KiB between
	// sockets. The memory of the write is held until then. Default 10 min.
	TunnelWrite time.Duration
	// Linger is how long bytes of a client that has already been answered are discarded so that the response is not
	// lost to a reset (RFC 9112 section 9.6); default 2 s.
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
		{&t.Tunnel, time.Hour},
		{&t.TunnelWrite, 10 * time.Minute},
		{&t.Linger, 2 * time.Second},
	} {
		if *f.d <= 0 {
			*f.d = f.def
		}
	}
	return t
}

// of returns t with the timeouts of a port in place of its own; t itself if the port has none.
func (t *Timeouts) of(port *snapshot.Connections) *Timeouts {
	if port.Idle == 0 && port.Head == 0 && port.BodyIdle == 0 {
		return t
	}
	own := *t
	own.Idle, own.Head, own.BodyIdle = cmp.Or(port.Idle, t.Idle), cmp.Or(port.Head, t.Head), cmp.Or(port.BodyIdle, t.BodyIdle)
	return &own
}

// Set holds all client connections. A connection locks a part of it when it is accepted, is parked and ends.
type Set struct {
	engine         *exchange.Engine
	timeouts       Timeouts
	plainIO        bool
	parkHTTP2After time.Duration // how long HTTP/2 without streams keeps a goroutine; 0 means until its end
	logger         *slog.Logger
	idlePoller     atomic.Pointer[poller] // nil before the first connection is idle, and if there can be none
	hangUps        atomic.Pointer[poller] // reports hang-ups; nil before the first long wait for a backend, and if there can be none
	shards         [shards]shard
	l4             l4Loops  // connections without a Conn that loops drive
	dormants       dormants // idle connections without a Conn

	connections connectionCounts
	lent        atomic.Int32 // while positive, no Conn is reused, see lend

	mu        sync.Mutex
	noPoller  bool          // there will be no idlePoller
	noHangUps bool          // there will be no hangUps
	done      chan struct{} // closed when the set is empty; nil while nothing waits for that
	awaited   atomic.Bool   // done is not nil
}

// NewSet creates an empty Set. plainIO makes connections be read through net.Conn even on Linux, on a goroutine each.
// Close must be called in the end.
func NewSet(engine *exchange.Engine, timeouts Timeouts, plainIO bool) *Set {
	s := &Set{engine: engine, timeouts: timeouts.withDefaults(), plainIO: plainIO, noPoller: plainIO || !rawIO, logger: discard}
	if !s.noPoller {
		s.parkHTTP2After = parkAfter
	}
	return s
}

// Limit sets how many connections there may be. Refused connections are logged to logger from time to time. It must be
// called before Serve.
func (s *Set) Limit(l ConnectionLimits, logger *slog.Logger) {
	s.connections.limits, s.logger = l, logger
}

// Close ends the pollers and loops. The set must be empty, and remain so.
func (s *Set) Close() {
	s.mu.Lock()
	s.noPoller = true
	s.noHangUps = true
	pollers := []*poller{s.idlePoller.Swap(nil), s.hangUps.Swap(nil)}
	s.mu.Unlock() // a goroutine that is waited for below may have ended the last connection, and then takes the lock in wakeEmpty
	for _, l := range pollers {
		if l != nil {
			l.close()
		}
	}
	s.l4.close()
	s.dormants.close()
	s.engine.HangUps.Close()
}

// openIdlePoller returns idlePoller, which it creates if necessary; nil if there can be none.
func (s *Set) openIdlePoller() *poller {
	if l := s.idlePoller.Load(); l != nil {
		return l
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.idlePoller.Load()
	if s.noPoller || l != nil {
		return l
	}
	l, err := openPoller(func(c *Conn) {
		defer s.recovered()
		if c.claim() {
			go c.resume()
		}
	})
	if err != nil { // connections keep their goroutines
		s.noPoller = true
		return nil
	}
	s.idlePoller.Store(l)
	return l
}

// openHangUps returns hangUps, which it creates if necessary; nil if there can be none.
func (s *Set) openHangUps() *poller {
	if l := s.hangUps.Load(); l != nil {
		return l
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noHangUps {
		return nil
	}
	l, err := openPoller(func(c *Conn) {
		defer s.recovered()
		if c.peerGone() { // the event may be about an earlier connection with the same descriptor
			c.hungUp.Store(true)
		}
	})
	if err != nil { // a client that leaves is noticed when the response is written
		s.noHangUps = true
		return nil
	}
	s.hangUps.Store(l)
	return l
}

// peerGone reports whether the client has left. A client that only half-closes a connection of a layer-4 route has sent
// all its data, and still wants the answer.
func (c *Conn) peerGone() bool {
	if c.side.Mode.L4() {
		return listen.PeerReset(c.raw)
	}
	return listen.PeerGone(c.raw)
}

// Serve runs a connection on a new goroutine, or closes it if there are too many. When Serve returns, Empty takes the
// connection into account.
func (s *Set) Serve(socket *snapshot.Socket, tcp *socket.Conn, port *snapshot.Port) {
	peer := tcp.Peer()
	client, proxied := peer.Addr(), port.Connections.ProxyProtocol
	if proxied && !port.Connections.Trusted.Contains(client) {
		tcp.Close()
		s.proxyHeaderFailed(socket, peer, port.Mode, errUntrusted)
		return
	}
	key, ok := s.enter(socket, client, port)
	if !ok {
		tcp.ResetOnClose() // so that the kernel keeps no state for it either
		tcp.Close()
		return
	}
	c := newConn(s, socket, tcp, port.Mode, s.timeouts.of(&port.Connections))
	c.setPeer(peer)
	c.key, c.proxied = key, proxied
	s.begin(c, c.methods.start)
}

// enter counts an accepted connection. It returns false if there are too many.
func (s *Set) enter(socket *snapshot.Socket, client netip.Addr, port *snapshot.Port) (key clientKey, ok bool) {
	key = keyOf(client)
	limit := observe.LimitMemory
	socket.Open.Add(1)
	if most := port.Connections.Max; most > 0 && port.Open() > most {
		limit = observe.LimitPort
	} else if !s.engine.Refuses() {
		limit, ok = s.countConnection(key, port.Connections.ProxyProtocol)
	}
	if !ok {
		socket.Open.Add(-1)
		socket.Stats.ConnectionRefused(limit)
		s.refuse(limit, client)
	}
	return key, ok
}

// begin adds a connection to the Set and calls run, a method of it, on a new goroutine.
func (s *Set) begin(c *Conn, run func()) {
	// The port differs most between connections; connect(2) prefers even ports.
	c.shard = &s.shards[c.side.Peer.Port()/2%shards]
	c.shard.add(c)
	go run()
}

// Each calls f for all connections that have a Conn. f must not block and must not end any. When f has returned, nothing may refer to a
// Conn, unless lend was called before Each.
func (s *Set) Each(f func(*Conn)) {
	for i := range s.shards {
		s.shards[i].each(f)
	}
}

// Sweep interrupts what has waited too long. It is called a few times a second, instead of a timer for each request.
// now is the coarse clock. Parked connections cost it nothing.
func (s *Set) Sweep(now int64) {
	t := sweepTimes{now: now, idleEnd: now}
	if s.engine.Draining.Load() {
		t.idleEnd = max(now, now+(s.timeouts.Idle-drainIdle).Milliseconds())
	} else if now >= s.dormants.notBefore.Load() {
		t.idledSince = now - dormantAfter.Milliseconds()
	}
	s.l4.sweep(now)
	s.dormants.sweep(s, t)
	defer s.lend()()
	var waiting [watchEach]*Conn
	var dormant [dormantEach]*Conn
	for i := range s.shards {
		due := found{waiting[:0], dormant[:0]}
		s.shards[i].sweep(t, &due)
		for _, c := range due.waiting {
			if l := s.openHangUps(); l != nil {
				l.watchHangUp(c)
			}
		}
		for _, c := range due.dormant {
			if t.idledSince == 0 { // another connection of the shard has failed
				c.parkAgain()
			} else if !c.goDormant() {
				s.dormants.notBefore.Store(now + dormantAfter.Milliseconds())
				t.idledSince = 0
			}
		}
	}
}

// Cut ends all connections, even if they are in use. It is called when a drain has lasted too long.
func (s *Set) Cut() {
	s.l4.cut(observe.ReasonShuttingDown) // before the others, because one of these may become one of them
	s.dormants.cut(s)                    // for the same reason
	s.Each(func(c *Conn) { c.cut(observe.ReasonShuttingDown) })
}

// Empty returns a channel that is closed as soon as there is no connection.
func (s *Set) Empty() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := s.done
	if done == nil {
		done = make(chan struct{})
		s.done = done
		s.awaited.Store(true) // before the check, because the goroutine that removes the last connection checks too
	}
	s.signalEmpty()
	return done
}

// signalEmpty closes done if the set is empty. mu must be held.
func (s *Set) signalEmpty() {
	if !s.l4.empty() { // before the others, as in Cut
		return
	}
	if !s.dormants.emptyWith(func() bool {
		for i := range s.shards {
			if !s.shards[i].empty() {
				return false
			}
		}
		return true
	}) {
		return
	}
	close(s.done)
	s.done = nil
	s.awaited.Store(false)
}

func (s *Set) remove(c *Conn) {
	s.leave(&c.counted)
	c.side.Socket.Open.Add(-1)
	c.shard.remove(c)
	s.wakeEmpty()
}

// wakeEmpty must be called after a connection has ended. It closes done if the set is empty and Empty was called.
func (s *Set) wakeEmpty() {
	if !s.awaited.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done != nil {
		s.signalEmpty()
	}
}

// sweep checks the timeouts of one connection. It reports whether its hang-up must be watched for: while a request
// waits for its backend, nothing else would notice that the client has left.
func (c *Conn) sweep(now int64) (watch bool) {
	c.sweepWire(now)
	if h := c.http2.Load(); h != nil { // HTTP/2 checks its timeouts itself
		if c.set.engine.Draining.Load() {
			h.Drain()
		}
		c.tunnels.expire(now)
		return false
	}
	kind, at, seen := c.wait.get()
	switch kind {
	case waitIdle:
		since := at - c.timeouts.Idle.Milliseconds()
		switch {
		case now >= at, c.set.engine.Draining.Load() && now >= since+drainIdle.Milliseconds():
			c.expire(&c.wait, seen, false)
		case c.holding.Load() && now >= since+parkAfter.Milliseconds():
			c.expire(&c.wait, seen, true)
		}
	case waitHandshake, waitHead, waitRead, waitWrite:
		if now >= at {
			c.expire(&c.wait, seen, false)
		}
	case waitTunnel, waitTunnelWrite:
		switch t := c.tunnel(); {
		case t.expired(now):
			c.watch.Expire()
		case !c.suspendSettled.Load() && t.suspendDue(now):
			c.watch.Suspend()
		}
	}
	if since := c.watch.Since(); since != 0 && now >= since+goneAfter.Milliseconds() {
		if watch = !c.hangUpWatched.Load(); c.hungUp.Load() {
			c.watch.Interrupt(since)
		}
		c.watch.Look(since, now)
	}
	if kind, at, seen := c.bodyWait.get(); kind == waitRead && now >= at {
		c.expire(&c.bodyWait, seen, false)
	}
	return watch
}

// sweepWire interrupts a write of TLS that has waited too long.
func (c *Conn) sweepWire(now int64) {
	switch kind, at, seen := c.wireWait.get(); {
	case (kind == waitWrite || kind == waitTunnelWrite) && now >= at:
		c.interrupt(&c.wireWait, seen, func() {})
	case kind == waitExpired: // still blocked: a deadline set at the same moment has undone the interruption
		c.tcp.SetWriteDeadline(longAgo)
	}
}

// expire interrupts a wait for the client unless it has ended meanwhile.
func (c *Conn) expire(s *waitState, seen uint64, idled bool) {
	c.interrupt(s, seen, func() { c.idled = idled })
}

// interrupt interrupts a wait and reports whether it did so. It calls note with mu held, before other goroutines can
// see the interruption.
func (c *Conn) interrupt(s *waitState, seen uint64, note func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.claim(seen) {
		return false
	}
	note()
	switch waitKind(seen >> 56) {
	case waitHandshake:
		c.tcp.SetDeadline(longAgo)
	case waitWrite, waitTunnelWrite:
		c.tcp.SetWriteDeadline(longAgo)
	default:
		c.tcp.SetReadDeadline(longAgo)
	}
	return true
}

// cut ends a connection even if it is in use. Its requests end with the reason.
func (c *Conn) cut(reason observe.Reason) {
	c.watch.Cut(reason)
	_, tunnel := c.tunnel().used()
	if _, writing := c.WritingSince(); tunnel || writing {
		// A reset, so that the peer does not take this for the end of a body without a length or of a tunnel's stream,
		// and the kernel need not keep unsent data.
		c.tcp.ResetOnClose()
	}
	c.noteReferred()
	go func() {
		c.tcp.Close() // from then on it cannot be parked, and whatever waits for the client returns
		if c.claim() {
			c.unpark()
			c.end()
		}
	}()
}

var discard = slog.New(slog.DiscardHandler)
