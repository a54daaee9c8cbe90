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

// dialQueue bounds how many connections of an endpoint are being made at a time for requests by HTTP/1.1 and for tunnels. Others wait, in
// the order in which they came, for their turn or, requests alone, for a connection that is given back.
//
// Tunnels have most of the turns and of the places to wait in, but not all: each waits until it can dial, for as long as the connect timeout, also when
// its client has sent its last and left, and requests would not get past them.
type dialQueue struct {
	// hungry is len(waiting), to be read without mu.
	hungry atomic.Int64

	mu      sync.Mutex
	dialing int
	waiting []*dialWaiter
	// tunnelsDialing and tunnelsWaiting are how many of those are for tunnels.
	tunnelsDialing, tunnelsWaiting int
	blocked                        blockedQueue
}

// mostTunnels is how many of n turns or places tunnels may have.
func mostTunnels(n int) int { return max(n-(n+3)/4, 1) }

// mayDial reports whether there is a turn for the purpose, of so many; mu is held.
func (q *dialQueue) mayDial(p purpose, turns int) bool {
	return q.dialing < turns && (p != forTunnel || q.tunnelsDialing < mostTunnels(turns))
}

// mayWait reports whether there is a place for the purpose, of so many; mu is held.
func (q *dialQueue) mayWait(p purpose, places int) bool {
	return len(q.waiting) < places && (p != forTunnel || q.tunnelsWaiting < mostTunnels(places))
}

// count counts a dial for the purpose that begins, or ends with -1; mu is held.
func (q *dialQueue) count(p purpose, n int) {
	q.dialing += n
	if p == forTunnel {
		q.tunnelsDialing += n
	}
}

// purpose is what a connection is wanted for. A later one is content with every connection that an earlier one may have.
type purpose uint8

const (
	forTunnel     purpose = iota // nothing may have been sent on it
	forRequest                   // by HTTP/1.1, not to be sent again: see IdleRecent
	forRepeatable                // by HTTP/1.1, which may be sent again
)

// dialWaiter is who waits for a connection.
type dialWaiter struct {
	ready   chan struct{} // closed when conn is set, or it may dial
	conn    *Conn
	purpose purpose
}

var errCrowded = errors.New("too many requests wait for a connection to the endpoint")

// dialInTurn is Dial for a request by HTTP/1.1, or for a tunnel. For a request the connection may be one that was given back meanwhile, and was
// alive just now. connected is dialBy's.
func (e *Endpoint) dialInTurn(ctx context.Context, limit dialLimit, p purpose, connected func(*net.TCPConn)) (*Conn, error) {
	q, o := &e.dials, &e.backend.set.options
	for again := false; ; again = true {
		q.mu.Lock()
		by := q.blocked.by // for which the new one waits behind the others
		if by == notLimited && q.mayDial(p, o.MaxDials) {
			if by = e.reserve(); by == notLimited {
				q.count(p, 1)
				q.mu.Unlock()
				break
			}
		}
		if by != notLimited && e.isDropped() {
			q.mu.Unlock()
			if !e.makeRoom(by) {
				return nil, e.refused(by)
			}
			continue
		}
		if !again && !q.mayWait(p, o.MaxWaiting) {
			q.mu.Unlock()
			return nil, e.crowded()
		}
		w := &dialWaiter{ready: make(chan struct{}), purpose: p}
		at := len(q.waiting)
		if again { // it had its turn
			at = 0
		}
		q.insert(at, w)
		q.blocked.set(by)
		q.mu.Unlock()
		if by != notLimited {
			e.backend.serveBlocked() // there may be room by now
		}
		limit = limit.queued()
		if c := e.aliveIdle(p); c != nil { // given back before it could be seen that we wait
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

// aliveIdle is idleFor for a connection that is alive.
func (e *Endpoint) aliveIdle(p purpose) *Conn {
	for {
		c := e.idleFor(p)
		if c == nil || c.Alive() {
			return c
		}
		c.Close()
	}
}

// idleFor takes an idle connection that is good for the purpose, or returns nil.
func (e *Endpoint) idleFor(p purpose) *Conn {
	switch p {
	case forRepeatable:
		return e.Idle()
	case forRequest:
		return e.IdleRecent()
	}
	return nil
}

// serveWaiting hands idle connections to requests that wait. It follows keep: a request that began to wait after hand had seen
// none may have looked for idle connections before this one was kept.
func (e *Endpoint) serveWaiting() {
	for e.dials.hungry.Load() > 0 {
		c := e.idleFor(e.dials.leastDemanding())
		if c == nil || e.dials.hand(c) {
			return
		}
		if !e.keep(c) {
			c.Close()
		}
	}
}

// crowded counts a request that is refused.
func (e *Endpoint) crowded() *DialError {
	e.backend.totals().refused.Add(1)
	return e.dialError(ReasonOverloaded, true, errCrowded)
}

// awaitTurn returns when w is served, or an error when it has given up.
func (e *Endpoint) awaitTurn(ctx context.Context, limit dialLimit, w *dialWaiter) error {
	t := time.NewTimer(time.Until(limit.at))
	defer t.Stop()
	var gaveUp func() *DialError
	select {
	case <-w.ready:
		return nil
	case <-t.C:
		gaveUp = func() *DialError { return e.passed(limit) }
		if limit.reason == ReasonOverloaded && e.dials.isBlocked() {
			gaveUp = e.breakerOpen
		}
	case <-ctx.Done():
		gaveUp = func() *DialError { return e.dialError(ReasonCanceled, false, ctx.Err()) }
	case <-e.life.Done():
		gaveUp = func() *DialError { return e.dialError(ReasonGone, true, context.Canceled) }
	}
	if !e.dials.abandon(w) { // it was served at the same moment
		return nil
	}
	return gaveUp()
}

// insert has w wait in a place; mu is held.
func (q *dialQueue) insert(at int, w *dialWaiter) {
	q.waiting = slices.Insert(q.waiting, at, w)
	q.hungry.Store(int64(len(q.waiting)))
	if w.purpose == forTunnel {
		q.tunnelsWaiting++
	}
}

// abandon gives up waiting; false is that the waiter has been served.
func (q *dialQueue) abandon(w *dialWaiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.take(func(other *dialWaiter) bool { return other == w }) != nil
}

// dialDone ends a dial for a purpose, and lets the next one dial.
func (e *Endpoint) dialDone(p purpose) {
	q := &e.dials
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count(p, -1)
	e.dialNext()
}

// dialNext lets those dial who wait, as far as there are turns and the Breaker allows it; the queue's mu is held.
func (e *Endpoint) dialNext() {
	q, turns := &e.dials, e.backend.set.options.MaxDials
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

// isBlocked reports whether those who wait do so for a limit of the Breaker.
func (q *dialQueue) isBlocked() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.blocked.by != notLimited
}

// pass gives what w was served with to others, as it needs it no more.
func (e *Endpoint) pass(w *dialWaiter) {
	if w.conn != nil {
		w.conn.giveBack()
	} else {
		e.release()
		e.dialDone(w.purpose)
	}
}

// take takes the first that waits and that fits, or nil; mu is held.
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
	q.hungry.Store(int64(len(q.waiting)))
	if w.purpose == forTunnel {
		q.tunnelsWaiting--
	}
	return w
}

// leastDemanding is the latest purpose of those who wait.
func (q *dialQueue) leastDemanding() (p purpose) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.waiting {
		p = max(p, w.purpose)
	}
	return p
}

// hand gives a connection that was released to the first request that waits, or to the first that is repeatable where IdleRecent would not
// give it; false where there is none.
func (q *dialQueue) hand(c *Conn) bool {
	if q.hungry.Load() == 0 {
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
