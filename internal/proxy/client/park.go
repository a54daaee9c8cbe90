package client

import (
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
)

// An idle connection is parked: it returns its pooled memory, its goroutine ends, and the idle poller watches it. To
// handle the next event (bytes arrive, the idle time ends, a cut), a goroutine claims the connection, which only one
// can, and continues with it on a new goroutine.

// parked, in place of a head's length, means that nothing has arrived for a while and nothing is unread.
const parked = -2

// park parks the connection. It returns false if that is not possible, and the connection continues as it was. After
// it has returned true, another goroutine may own the connection.
func (c *Conn) park() bool {
	l := c.set.openIdlePoller()
	if l == nil {
		return false
	}
	c.noteReferred()
	if l.admit(c) != nil {
		return false
	}
	anew := c.watched
	c.watched = true
	raw, sh := c.raw, c.shard
	sh.park(c)
	c.wait.set(waitParked, c.until)
	if err := l.watch(raw, anew); err == nil || !c.claim() {
		return true
	}
	c.watched = anew
	c.unpark()
	return false
}

// parkHTTP2 is like park, for an HTTP/2 connection without streams.
func (c *Conn) parkHTTP2(h *http2.Conn) bool {
	left := h.IdleLeft()
	c.until = c.set.engine.Now() + left.Milliseconds()
	c.disordered = left < c.timeouts.Idle-2*parkAfter // the client has sent frames since its last request
	c.quietSince = c.set.engine.Now() - c.set.parkHTTP2After.Milliseconds()
	c.staysParked = !h.CanBeDormant()
	if !c.park() {
		return false
	}
	if h.Woken() && c.claim() { // whatever woke it could not claim it before
		c.unpark()
		return false
	}
	return true
}

// parkAgain undoes the claim of a parked connection.
func (c *Conn) parkAgain() {
	c.unpark()
	c.parkDisordered()
}

// parkDisordered parks a connection again that has had no request since it was last parked.
func (c *Conn) parkDisordered() {
	parked := false
	if h := c.http2.Load(); h != nil {
		parked = c.parkHTTP2(h)
	} else {
		c.disordered = true
		parked = c.park()
	}
	if !parked {
		go c.goOn()
	}
}

// idleEnded reports whether the idle time of a parked connection is over, by the coarse clock.
func (c *Conn) idleEnded(now int64) bool { return c.set.idleEnded(c.until, c.timeouts, now) }

func (s *Set) idleEnded(until int64, t *Timeouts, now int64) bool {
	since := until - t.Idle.Milliseconds()
	return now >= until || s.engine.Draining.Load() && now >= since+drainIdle.Milliseconds()
}

// claim takes over a parked connection. It returns false if the connection is not parked or was claimed by another
// goroutine.
func (c *Conn) claim() bool {
	kind, _, seen := c.wait.get()
	return kind == waitParked && c.wait.v.CompareAndSwap(seen, 0)
}

// unpark must be called after a claim. It takes the connection out of the parked ones.
func (c *Conn) unpark() {
	c.shard.unpark(c)
	c.set.idlePoller.Load().forget(c)
}

// resume continues a connection that was claimed because of an event from the client.
func (c *Conn) resume() {
	defer c.recovered()
	c.unpark()
	c.disordered = true // in case nothing has arrived
	c.goOn()
}

// goOn runs a connection that waits for a request.
func (c *Conn) goOn() {
	defer c.recovered()
	if c.http2.Load() != nil {
		c.goOnHTTP2()
		return
	}
	c.serve()
}

// expireParked ends a connection that was claimed because its idle time is over.
func (c *Conn) expireParked() {
	defer c.recovered()
	c.unpark()
	if c.http2.Load() != nil {
		c.goOnHTTP2() // this ends the connection
		return
	}
	if listen.Readable(c.raw) { // a request arrived before the connection was claimed
		c.set.readmit(&c.counted)
		c.disordered = true
		c.serve()
		return
	}
	c.sayClose()
	c.end()
}
