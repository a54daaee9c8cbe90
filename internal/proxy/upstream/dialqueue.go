package upstream

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// dialQueue limits how many connections of an endpoint are made at a time for HTTP/1.1 requests and for tunnels. Others
// wait in the order of their arrival for their turn or, in the case of requests, for a connection that is released.
//
// Tunnels may have most of the turns and of the waiting places, but not all: each waits until it can dial, up to the
// connect timeout, even if its client has sent its last byte and left, so they could block all requests.
type dialQueue struct {
	// numWaiting is len(waiting), readable without mu.
	numWaiting atomic.Int64

	mu      sync.Mutex
	dialing int
	waiting []*dialWaiter
	// tunnelsDialing and tunnelsWaiting are how many of dialing and waiting are for tunnels.
	tunnelsDialing, tunnelsWaiting int
	blocked                        blockedQueue
}

// mostTunnels returns how many of n turns or places tunnels may have.
func mostTunnels(n int) int { return max(n-(n+3)/4, 1) }

// mayDial reports whether one of the turns is free for the purpose. mu must be held.
func (q *dialQueue) mayDial(p purpose, turns int) bool {
	return q.dialing < turns && (p != forTunnel || q.tunnelsDialing < mostTunnels(turns))
}

// mayWait reports whether one of the places is free for the purpose. mu must be held.
func (q *dialQueue) mayWait(p purpose, places int) bool {
	return len(q.waiting) < places && (p != forTunnel || q.tunnelsWaiting < mostTunnels(places))
}

// count adds n to the dials for the purpose: 1 when one begins, -1 when it ends. mu must be held.
func (q *dialQueue) count(p purpose, n int) {
	q.dialing += n
	if p == forTunnel {
		q.tunnelsDialing += n
	}
}

// purpose is what a connection is for. A later one accepts every connection that an earlier one accepts.
type purpose uint8

const (
	forTunnel     purpose = iota // nothing may have been sent on it
	forRequest                   // an HTTP/1.1 request that must not be sent again: see IdleRecent
	forRepeatable                // an HTTP/1.1 request that may be sent again
)

// dialWaiter is a request or tunnel that waits for a connection.
type dialWaiter struct {
	ready   chan struct{} // closed when conn is set, or it may dial
	conn    *Conn
	purpose purpose
}

var errTooManyWaiting = errors.New("too many requests wait for a connection to the endpoint")

// dialInTurn makes a connection for an HTTP/1.1 request or for a tunnel, when it is its turn. A request may get a
// connection that was released meanwhile, and was just found to be alive. connected is as in dialBy.
func (e *Endpoint) dialInTurn(ctx context.Context, limit dialLimit, p purpose, connected func(*net.TCPConn)) (*Conn, error) {
	q, o := &e.use().dials, &e.backend.set.options
	for again := false; ; again = true {
		q.mu.Lock()
		by := q.blocked.by // the new one waits for the same limit, behind the others
		if by == notLimited && q.mayDial(p, o.MaxDials) {
			if by = e.reserve(); by == notLimited {
				q.count(p, 1)
				q.mu.Unlock()
				break
			}
		}
		if by != notLimited && (limit.noWait || e.isDropped()) {
			q.mu.Unlock()
			if !e.makeRoom(by) {
				return nil, e.refused(by)
			}
			continue
		}
		if !again && !q.mayWait(p, o.MaxWaiting) {
			q.mu.Unlock()
			return nil, e.tooManyWaiting()
		}
		w := &dialWaiter{ready: make(chan struct{}), purpose: p}
		at := len(q.waiting)
		if again { // it has already had its turn
			at = 0
		}
		q.insert(at, w)
		q.blocked.set(by)
		q.mu.Unlock()
		if by != notLimited {
			e.backend.serveBlocked() // there may be room by now
		}
		limit = limit.queued()
		if c := e.aliveIdle(p); c != nil { // a connection may have been released before w was in the queue
			if !q.abandon(w) {
				e.pass(w)
			}
			return c, nil
		}
		if err := e.awaitTurn(ctx, limit, w); err != nil {
			return nil, err
		}
		if w.conn == nil {
			break
		}
		if w.conn.Alive() {
			return w.conn, nil
		}
		w.conn.Close()
	}
	defer e.dialDone(p)
	c, err := e.dialBy(ctx, limit, p, connected)
	if err == nil && p == forRequest {
		e.replaceIdle()
	}
	return c, err
}

// aliveIdle is like idleFor, but only returns a connection that is alive.
func (e *Endpoint) aliveIdle(p purpose) *Conn {
	for {
		c := e.idleFor(p)
		if c == nil || c.Alive() {
			return c
		}
		c.Close()
	}
}

// idleFor takes an idle connection that is suitable for the purpose. It returns nil if there is none.
func (e *Endpoint) idleFor(p purpose) *Conn {
	switch p {
	case forRepeatable:
		return e.Idle()
	case forRequest:
		return e.IdleRecent()
	}
	return nil
}

// serveWaiting hands idle connections to waiting requests. It must be called after keep: a request that began to wait
// after hand had seen no waiters may have looked for idle connections before this one was kept.
func (e *Endpoint) serveWaiting() {
	q := &e.use().dials
	for q.numWaiting.Load() > 0 {
		c := e.idleFor(q.leastDemanding())
		if c == nil || q.hand(c) {
			return
		}
		if !e.keep(c) {
			c.Close()
		}
	}
}

// tooManyWaiting counts a refused request and returns its error.
func (e *Endpoint) tooManyWaiting() *DialError {
	e.backend.totals().refused.Add(1)
	return e.dialError(ReasonOverloaded, true, errTooManyWaiting)
}

// awaitTurn waits until w is served, or returns the error with which it has given up.
func (e *Endpoint) awaitTurn(ctx context.Context, limit dialLimit, w *dialWaiter) error {
	u := e.use()
	t := time.NewTimer(time.Until(limit.at))
	defer t.Stop()
	var gaveUp func() *DialError
	select {
	case <-w.ready:
		return nil
	case <-t.C:
		gaveUp = func() *DialError { return e.passed(limit) }
		if limit.reason == ReasonOverloaded && u.dials.isBlocked() {
			gaveUp = e.breakerOpen
		}
	case <-ctx.Done():
		gaveUp = func() *DialError { return e.dialError(ReasonCanceled, false, ctx.Err()) }
	case <-u.life.Done():
		gaveUp = func() *DialError { return e.dialError(ReasonGone, true, context.Canceled) }
	}
	if !u.dials.abandon(w) { // it was served at the same moment
		return nil
	}
	return gaveUp()
}

// insert adds w to the queue at a position. mu must be held.
func (q *dialQueue) insert(at int, w *dialWaiter) {
	q.waiting = slices.Insert(q.waiting, at, w)
	q.numWaiting.Store(int64(len(q.waiting)))
	if w.purpose == forTunnel {
		q.tunnelsWaiting++
	}
}

// abandon gives up the wait. It returns false if the waiter has been served.
func (q *dialQueue) abandon(w *dialWaiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.take(func(other *dialWaiter) bool { return other == w }) != nil
}

// dialDone ends a dial for a purpose, and lets the next waiters dial.
func (e *Endpoint) dialDone(p purpose) {
	q := &e.use().dials
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count(p, -1)
	e.dialNext()
}

// dialNext lets waiters dial as far as there are turns and the Breaker allows it. The queue's mu must be held.
func (e *Endpoint) dialNext() {
	q, turns := &e.use().dials, e.backend.set.options.MaxDials
	mayDial := func(w *dialWaiter) bool { return q.mayDial(w.purpose, turns) }
	for slices.ContainsFunc(q.waiting, mayDial) {
		by := e.reserve()
		q.blocked.set(by)
		if by != notLimited {
			return
		}
		w := q.take(mayDial)
		q.count(w.purpose, 1)
		close(w.ready)
	}
}

// isBlocked reports whether the queue waits for a limit of the Breaker.
func (q *dialQueue) isBlocked() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.blocked.by != notLimited
}

// pass hands on what w was served with, since it is not needed any more.
func (e *Endpoint) pass(w *dialWaiter) {
	if w.conn != nil {
		w.conn.giveBack()
	} else {
		e.release()
		e.dialDone(w.purpose)
	}
}

// take removes and returns the first waiter that fits, or nil. mu must be held.
func (q *dialQueue) take(fits func(*dialWaiter) bool) *dialWaiter {
	i := slices.IndexFunc(q.waiting, fits)
	if i < 0 {
		return nil
	}
	w := q.waiting[i]
	if i == 0 {
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
	} else {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	if len(q.waiting) == 0 {
		q.waiting = nil
		q.blocked.set(notLimited)
	}
	q.numWaiting.Store(int64(len(q.waiting)))
	if w.purpose == forTunnel {
		q.tunnelsWaiting--
	}
	return w
}

// leastDemanding returns the latest purpose of the waiters.
func (q *dialQueue) leastDemanding() (p purpose) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.waiting {
		p = max(p, w.purpose)
	}
	return p
}

// hand hands a released connection to the first waiting request, or to the first repeatable one if IdleRecent would not
// return the connection. It returns false if there is none.
func (q *dialQueue) hand(c *Conn) bool {
	if q.numWaiting.Load() == 0 {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	least := forRepeatable
	if !c.endpoint.terminating.Load() && c.released >= c.endpoint.backend.set.recent.Load() {
		least = forRequest
	}
	w := q.take(func(w *dialWaiter) bool { return w.purpose >= least })
	if w == nil {
		return false
	}
	c.Reused = true
	w.conn = c
	close(w.ready)
	return true
}
