package client

import (
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
)

// A connection that idles is parked: it gives back what came from pools, its goroutine ends, and the idle poller
// watches it. What comes next (bytes, the end of its idle time, a cut) claims it, which only one
// can, and goes on with it on a new goroutine.

// parked instead of a head's length says that nothing has come for a while, and nothing is unread.
const parked = -2

// retire parks the connection. False means that this could not be done, and it goes on as it was; true
// that it belongs to somebody else by now.
func (c *Conn) retire() bool {
	l := c.set.openIdlePoller()
	if l == nil || l.admit(c) != nil {
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

// retireHTTP2 is retire for a connection of HTTP/2 that rests.
func (c *Conn) retireHTTP2(h *http2.Conn) bool {
	left := h.IdleLeft()
	c.until = c.set.engine.Now() + left.Milliseconds()
	c.disordered = left < c.timeouts.Idle-2*parkAfter // the client has sent frames since its last request
	if !c.retire() {
		return false
	}
	if h.Woken() && c.claim() { // who told it to end could not claim it before
		c.unpark()
		return false
	}
	return true
}

// parkAgain undoes the claim of a parked connection.
func (c *Conn) parkAgain() {
	c.unpark()
	c.retireAgain()
}

// retireAgain parks a connection again that has had no request since it was parked before.
func (c *Conn) retireAgain() {
	c.disordered = true
	if !c.retire() {
		go c.goOn()
	}
}

// idleEnded reports whether the idle time of a parked connection is over, by the coarse clock.
func (c *Conn) idleEnded(now int64) bool { return c.set.idleEnded(c.until, c.timeouts, now) }

func (s *Set) idleEnded(until int64, t *Timeouts, now int64) bool {
	since := until - t.Idle.Milliseconds()
	return now >= until || s.engine.Draining.Load() && now >= since+drainIdle.Milliseconds()
}

// claim takes a parked connection over; false where it is not parked, or somebody else was first.
func (c *Conn) claim() bool {
	kind, _, seen := c.wait.get()
	return kind == waitParked && c.wait.v.CompareAndSwap(seen, 0)
}

// unpark follows a claim.
func (c *Conn) unpark() {
	c.shard.unpark(c)
	c.set.idlePoller.Load().forget(c)
}

// resume goes on with a connection that was claimed because of what the client did.
func (c *Conn) resume() {
	defer c.recovered()
	c.unpark()
	if c.http2.Load() != nil {
		c.runHTTP2(nil)
		return
	}
	c.disordered = true // should nothing have come
	c.serve()
}

// goOn runs a connection of HTTP/1 that waits for a request.
func (c *Conn) goOn() {
	defer c.recovered()
	c.serve()
}

// expireParked ends a connection that was claimed because its idle time is over.
func (c *Conn) expireParked() {
	defer c.recovered()
	c.unpark()
	if h := c.http2.Load(); h != nil {
		if c.set.engine.Draining.Load() {
			h.Drain()
		}
		c.runHTTP2(nil) // which knows how to end it
		return
	}
	if listen.Readable(c.raw) { // a request has come before the connection was claimed
		c.set.readmit(&c.counted)
		c.disordered = true
		c.serve()
		return
	}
	c.sayClose()
	c.end()
}
