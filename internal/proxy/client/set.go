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
	// goneAfter is how long a request must have waited for its backend before its client's hang-up
	// ends it. It spares short requests the system call that has hang-ups reported, and
	// gives the answer to clients that half-close right after they asked.
	goneAfter = 500 * time.Millisecond
	// watchEach is for how many connections of a shard one Sweep makes that system call, so that a crowd of
	// requests does not hold up the clock.
	watchEach = 128
	// parkAfter is how long a connection may idle with a goroutine and pooled memory. One that is used
	// more often pays nothing for being parked.
	parkAfter = time.Second
	// dormantAfter is how long a connection idles before it becomes dormant, and dormantEach how many of a shard do so in one Sweep.
	dormantAfter = 5 * time.Second
	dormantEach  = 32
	// suspendAfter is how long nothing must have moved through a tunnel before it gives up its goroutines.
	suspendAfter = time.Second
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
	Tunnel    time.Duration // without a byte in either direction, where HTTP was left; default 1 h
	// TunnelWrite is how long an end of a tunnel may leave one write to it untaken, of up to 78 KiB, or of 256 KiB between sockets: so long the memory is
	// held that it stands in; default 10 min.
	TunnelWrite time.Duration
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

// of returns the timeouts with those of a port in their place; t itself where it has none.
func (t *Timeouts) of(port *snapshot.Connections) *Timeouts {
	if port.Idle == 0 && port.Head == 0 && port.BodyIdle == 0 {
		return t
	}
	own := *t
	own.Idle, own.Head, own.BodyIdle = cmp.Or(port.Idle, t.Idle), cmp.Or(port.Head, t.Head), cmp.Or(port.BodyIdle, t.BodyIdle)
	return &own
}

// Set holds all client connections. One touches a part of it when it is accepted, parked and ends.
type Set struct {
	engine     *exchange.Engine
	timeouts   Timeouts
	plainIO    bool
	rest       time.Duration // how long HTTP/2 without streams has a goroutine; 0 is to its end
	logger     *slog.Logger
	idlePoller atomic.Pointer[poller] // nil before the first connection idles, and where there can be none
	hangUps    atomic.Pointer[poller] // reports hang-ups; nil before the first long wait for a backend, and where there can be none
	shards     [shards]shard
	l4         l4Loops  // connections that have no Conn
	dormants   dormants // idle ones, which have no Conn either

	admission admission

	mu        sync.Mutex
	noPoller  bool          // there is no idlePoller and will be none
	noHangUps bool          // there is no hangUps and will be none
	done      chan struct{} // closed when the set is empty; nil while nobody waits
	awaited   atomic.Bool   // done is not nil
}

// NewSet makes an empty Set. plainIO makes connections be read by way of net.Conn on Linux too, on a
// goroutine each. Close must be called in the end.
func NewSet(engine *exchange.Engine, timeouts Timeouts, plainIO bool) *Set {
	s := &Set{engine: engine, timeouts: timeouts.withDefaults(), plainIO: plainIO, noPoller: plainIO || !rawIO, logger: discard}
	if !s.noPoller {
		s.rest = parkAfter
	}
	return s
}

// Limit sets how many connections there may be. Those that are refused are logged now and then. It must be called
// before Serve.
func (s *Set) Limit(l ConnectionLimits, logger *slog.Logger) {
	s.admission.limits, s.logger = l, logger
}

// Close ends what runs beside the connections. The set must be empty, and remain so.
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

// openIdlePoller returns idlePoller, made if need be; nil where there can be none.
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

// openHangUps returns hangUps, made if need be; nil where there can be none.
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
		if c.peerGone() { // the event may be of an earlier connection with the same descriptor
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

// peerGone reports whether the client has left. One that only half-closes a connection of a layer-4 route has said all that it has to say, and wants
// the answer.
func (c *Conn) peerGone() bool {
	if c.side.Mode.L4() {
		return listen.PeerReset(c.raw)
	}
	return listen.PeerGone(c.raw)
}

// Serve starts a connection on a goroutine of its own, or closes it where there are too many. When it returns, Empty
// sees the connection.
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
		tcp.ResetOnClose() // so that the kernel keeps nothing of it either
		tcp.Close()
		return
	}
	c := newConn(s, socket, tcp, port.Mode, s.timeouts.of(&port.Connections))
	c.setPeer(peer)
	c.key, c.proxied = key, proxied
	s.begin(c, (*Conn).start)
}

// enter counts a connection that was accepted; false is that there are too many.
func (s *Set) enter(socket *snapshot.Socket, client netip.Addr, port *snapshot.Port) (key clientKey, ok bool) {
	key = keyOf(client)
	limit := observe.LimitMemory
	open := socket.Open.Add(1)
	if most := port.Connections.Max; most > 0 && open > most {
		limit = observe.LimitPort
	} else if !s.engine.Refuses() {
		limit, ok = s.admit(key, port.Connections.ProxyProtocol)
	}
	if !ok {
		socket.Open.Add(-1)
		socket.Stats.ConnectionRefused(limit)
		s.refuse(limit, client)
	}
	return key, ok
}

// begin adds a connection to the Set, and has run carry it on.
func (s *Set) begin(c *Conn, run func(*Conn)) {
	// The port is what differs most; connect takes the even ones first.
	c.shard = &s.shards[c.side.Peer.Port()/2%shards]
	c.shard.add(c)
	go run(c)
}

// Each calls f for all connections that have a Conn; f must not block nor end one.
func (s *Set) Each(f func(*Conn)) {
	for i := range s.shards {
		s.shards[i].each(f)
	}
}

// Sweep interrupts what has waited too long. It is called a few times a second, instead of a
// timer for each request; now is the coarse clock. Parked connections cost it nothing.
func (s *Set) Sweep(now int64) {
	t := sweepTimes{now: now, idleEnd: now}
	if s.engine.Draining.Load() {
		t.idleEnd = max(now, now+(s.timeouts.Idle-drainIdle).Milliseconds())
	} else if now >= s.dormants.notBefore.Load() {
		t.idledSince = now - dormantAfter.Milliseconds()
	}
	s.l4.sweep(now)
	s.dormants.sweep(s, t)
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
			if t.idledSince == 0 { // one of the same shard has failed
				c.parkAgain()
			} else if !c.goDormant() {
				s.dormants.notBefore.Store(now + dormantAfter.Milliseconds())
				t.idledSince = 0
			}
		}
	}
}

// Cut ends all connections, whatever they do: the drain has lasted too long.
func (s *Set) Cut() {
	s.l4.cut(observe.ReasonShuttingDown) // before the others, which one may become
	s.dormants.cut(s)                    // likewise
	s.Each(func(c *Conn) { c.cut(observe.ReasonShuttingDown) })
}

// Empty is closed as soon as there is no connection.
func (s *Set) Empty() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := s.done
	if done == nil {
		done = make(chan struct{})
		s.done = done
		s.awaited.Store(true) // before the look: who removes the last one looks too
	}
	s.signalEmpty()
	return done
}

// signalEmpty closes done where the set is empty; mu is held.
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

// wakeEmpty follows the end of a connection.
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

// sweep looks at one connection, and reports whether its hang-up must be watched for: nobody else may find out that the
// client of a request has left while its backend is waited for.
func (c *Conn) sweep(now int64) (watch bool) {
	c.sweepWire(now)
	if h := c.http2.Load(); h != nil { // which looks after its timeouts itself
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
		case !c.rests.Load() && t.rests(now):
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
	case kind == waitExpired: // still: a deadline that was set in the same moment has undone it
		c.tcp.SetWriteDeadline(longAgo)
	}
}

// expire interrupts a wait on the client unless it ended meanwhile.
func (c *Conn) expire(s *waitState, seen uint64, idled bool) {
	c.interrupt(s, seen, func() { c.idled = idled })
}

// interrupt is expire, and reports whether it did; note is called before anybody can see that, with mu held.
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

// cut ends a connection whatever it does; the reason is that of its requests.
func (c *Conn) cut(reason observe.Reason) {
	c.watch.Cut(reason)
	_, tunnel := c.tunnel().used()
	if _, writing := c.WritingSince(); tunnel || writing {
		// Nobody must take this for the end of a body without a length or of what the other side of a tunnel has sent, and the kernel need not keep the rest.
		c.tcp.ResetOnClose()
	}
	go func() {
		c.tcp.Close() // from then on it cannot be parked, and what waits for the client ends
		if c.claim() {
			c.unpark()
			c.end()
		}
	}()
}
