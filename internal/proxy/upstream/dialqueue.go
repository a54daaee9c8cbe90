package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// dialQueue bounds how many connections of an endpoint are being made at a time for requests by HTTP/1.1. Others wait, in
// the order in which they came, for their turn or for a connection that is given back.
type dialQueue struct {
	// hungry is len(waiting), to be read without mu.
	hungry atomic.Int64

	mu      sync.Mutex
	dialing int
	waiting []*dialWaiter
}

// dialWaiter is a request that waits.
type dialWaiter struct {
	ready chan struct{} // closed when conn is set, or it may dial
	conn  *Conn
}

var errCrowded = errors.New("too many requests wait for a connection to the endpoint")

// dialInTurn is Dial for a request by HTTP/1.1. The connection may be one that was given back meanwhile.
func (e *Endpoint) dialInTurn(ctx context.Context, limit dialLimit) (*Conn, error) {
	q, o := &e.dials, &e.backend.set.options
	q.mu.Lock()
	switch {
	case q.dialing < o.MaxDials:
		q.dialing++
		q.mu.Unlock()
	case len(q.waiting) >= o.MaxWaiting:
		q.mu.Unlock()
		return nil, e.crowded()
	default:
		w := &dialWaiter{ready: make(chan struct{})}
		q.waiting = append(q.waiting, w)
		q.hungry.Store(int64(len(q.waiting)))
		q.mu.Unlock()
		limit = limit.queued()
		if err := e.awaitTurn(ctx, limit, w); err != nil {
			return nil, err
		}
		if w.conn != nil {
			return w.conn, nil
		}
	}
	defer q.done()
	return e.dialBy(ctx, limit)
}

// crowded counts a request that is refused.
func (e *Endpoint) crowded() *DialError {
	e.backend.refused.Add(1)
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

// abandon gives up waiting; false is that the waiter has been served.
func (q *dialQueue) abandon(w *dialWaiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, w)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.hungry.Store(int64(len(q.waiting)))
	return true
}

// done ends a dial, and lets the next one dial.
func (q *dialQueue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.next(); w != nil {
		close(w.ready) // who dials in place of this one
		return
	}
	q.dialing--
}

// next takes the first that waits, or nil; mu is held.
func (q *dialQueue) next() *dialWaiter {
	if len(q.waiting) == 0 {
		return nil
	}
	w := q.waiting[0]
	q.waiting[0] = nil
	if q.waiting = q.waiting[1:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	q.hungry.Store(int64(len(q.waiting)))
	return w
}

// hand gives a connection that was released to the first that waits; false where none does.
func (q *dialQueue) hand(c *Conn) bool {
	if q.hungry.Load() == 0 {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.next()
	if w == nil {
		return false
	}
	c.Reused = true
	w.conn = c
	close(w.ready)
	return true
}
