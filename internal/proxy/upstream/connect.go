package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"
)

// waiter is a request that waits for a connection.
type waiter struct {
	patient bool          // waits up to the connect timeout, whatever other endpoints there are
	ready   chan struct{} // closed when what follows is set
	conn    *Conn         // the backend chose HTTP/1.1, and this request is the one that gets it
	place   *Shared
	err     *DialError // where all three are nil the backend chose HTTP/1.1: dial
}

// Connect makes a connection for a request that has found none by Idle and Place: a Conn to use
// alone, or a place on one that is shared, which may be one that is there by now. All of it, waiting for others
// and the dial, ends by the connect timeout and by deadline (zero: none), or when ctx ends. Make a context only for this: it is the way to give up when the
// client vanishes. The error is a *DialError; nothing was sent. A Conn may be Reused, and was alive just now; a request that is
// not repeatable gets only what IdleRecent would give it.
func (e *Endpoint) Connect(ctx context.Context, deadline time.Time, repeatable bool) (*Conn, *Shared, error) {
	return e.connectBy(ctx, e.connectLimit(deadline), repeatable)
}

// connectBy is Connect.
func (e *Endpoint) connectBy(ctx context.Context, limit dialLimit, repeatable bool) (_ *Conn, _ *Shared, failed error) {
	pending, err := e.beginPending()
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if failed == nil { // an endpoint that refuses connections is not to be asked for spare ones
			e.preconnect()
		}
	}()
	if pending != nil {
		defer pending.pending.Add(-1)
	}
	for e.multiplexes() {
		conn, place, err := e.await(ctx, limit)
		switch {
		case limit.patient && isSlow(err):
			continue
		case err != nil:
			return nil, nil, err
		case conn != nil || place != nil:
			return conn, place, nil
		}
		limit.spent = true
	}
	p := forRequest
	if repeatable {
		p = forRepeatable
	}
	c, err := e.dialInTurn(ctx, limit, p, nil)
	if err != nil {
		return nil, nil, err
	}
	if c.Reused || !e.speaksHTTP2(c) {
		return c, nil, nil
	}
	// The backend has changed its mind since it chose HTTP/1.1.
	e.sharing.mu.Lock()
	defer e.sharing.mu.Unlock()
	e.sharing.exclusive.Store(false)
	s := e.share(c)
	if s == nil {
		return nil, nil, e.dialError(ReasonGone, true, context.Canceled)
	}
	if !s.take() {
		return nil, nil, e.dialError(ReasonFailed, true, errNoStreams)
	}
	return nil, s, nil
}

// ConnectTunnel makes a connection for a tunnel, on which nothing was sent before; over TLS no protocol was agreed on by ALPN. It waits for its turn among the
// requests by HTTP/1.1, within the connect timeout; ctx is that of Connect, and the error a *DialError. connected is called as soon as there is a socket, before
// the TLS handshake.
func (e *Endpoint) ConnectTunnel(ctx context.Context, connected func(*net.TCPConn)) (*Conn, error) {
	c, err := e.connectOwn(ctx, e.connectLimit(time.Time{}), connected)
	if o := e.health.outlier.Load(); o != nil && err == nil { // nothing else is known of what becomes of a tunnel
		o.responded(e.whole(), http.StatusOK)
	}
	return c, err
}

// ConnectOwn is ConnectTunnel for a request that may leave HTTP, by deadline too (zero: none), and with patiently as by ConnectPatiently. The connection
// has TCP keepalive. What becomes of the request is for the caller to report.
func (e *Endpoint) ConnectOwn(ctx context.Context, deadline time.Time, patiently bool) (*Conn, error) {
	limit := e.connectLimit(deadline)
	limit.patient = patiently
	c, err := e.connectOwn(ctx, limit, nil)
	if err == nil {
		c.KeepAlive()
	}
	return c, err
}

func (e *Endpoint) connectOwn(ctx context.Context, limit dialLimit, connected func(*net.TCPConn)) (*Conn, error) {
	pending, err := e.beginPending()
	if err != nil {
		return nil, err
	}
	if pending != nil {
		defer pending.pending.Add(-1)
	}
	return e.dialInTurn(ctx, limit, forTunnel, connected)
}

// multiplexes tells whether a new connection can be expected to be shared.
func (e *Endpoint) multiplexes() bool {
	t := e.transport
	return t.http2 || t.tls != nil && !e.sharing.exclusive.Load()
}

// speaksHTTP2 reports whether HTTP/2 is spoken on a new connection. On one that served requests by HTTP/1.1 it is not, whatever
// the configuration says by now.
func (e *Endpoint) speaksHTTP2(c *Conn) bool {
	if c.secure != nil {
		return c.speaksHTTP2()
	}
	return e.transport.http2
}

// await waits for a place. Neither a connection nor an error is that the backend speaks HTTP/1.1.
func (e *Endpoint) await(ctx context.Context, limit dialLimit) (*Conn, *Shared, error) {
	h := &e.sharing
	h.mu.Lock()
	if s := e.place(); s != nil {
		h.mu.Unlock()
		return nil, s, nil
	}
	if !limit.patient && h.onlySlow() && e.HasAlternative() {
		h.mu.Unlock()
		return nil, nil, e.dialError(ReasonSlow, true, errSlow)
	}
	if len(h.waiting) >= e.backend.set.options.MaxWaiting {
		h.mu.Unlock()
		return nil, nil, e.crowded()
	}
	w := &waiter{patient: limit.patient, ready: make(chan struct{})}
	h.waiting = append(h.waiting, w)
	h.hungry.Store(int64(len(h.waiting)))
	e.dialMore()
	blocked := h.blocked.by != notLimited
	h.mu.Unlock()
	if blocked {
		e.backend.serveBlocked() // as in dialInTurn
	}
	t := time.NewTimer(time.Until(limit.at))
	defer t.Stop()
	var gaveUp *DialError
	select {
	case <-w.ready:
	case <-t.C:
		// That a dial was given up early for another endpoint is no reason for one who waits patiently, and would have it ask again.
		if gaveUp = h.failure.Load(); gaveUp == nil || limit.reason == ReasonDeadline || limit.patient && isSlow(gaveUp) {
			gaveUp = e.passed(limit)
		}
		if limit.reason == ReasonTimeout && h.isBlocked() {
			gaveUp = e.breakerOpen()
		}
	case <-ctx.Done():
		gaveUp = e.dialError(ReasonCanceled, false, ctx.Err())
	}
	if gaveUp != nil && h.abandon(w) {
		return nil, nil, gaveUp
	}
	if w.err != nil {
		return nil, nil, w.err
	}
	return w.conn, w.place, nil
}

// abandon gives up waiting; false is that the waiter has been served.
func (h *sharing) abandon(w *waiter) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.waiting, w)
	if i < 0 {
		return false
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	h.hungry.Store(int64(len(h.waiting)))
	if len(h.waiting) == 0 {
		h.blocked.set(notLimited)
	}
	return true
}

// next takes the first waiter, who must be served; mu is held.
func (h *sharing) next() *waiter {
	w := h.waiting[0]
	h.waiting[0] = nil
	h.waiting = h.waiting[1:]
	if len(h.waiting) == 0 {
		h.waiting = nil
		h.blocked.set(notLimited)
	}
	h.hungry.Store(int64(len(h.waiting)))
	return w
}

// endWaits ends the wait of all waiters; mu is held.
func (h *sharing) endWaits(err *DialError) {
	for len(h.waiting) > 0 {
		w := h.next()
		w.err = err
		close(w.ready)
	}
}

var errPanic = errors.New("internal error, see the log")

var errNoStreams = errors.New("the endpoint allows no streams on a new connection")

// presumed is how many streams a connection is expected to carry while nothing is known.
const presumed = 100

// dialMore makes as many connections as those who wait will need, and no more at a time than is allowed; mu is held.
func (e *Endpoint) dialMore() {
	h := &e.sharing
	each := int(h.limit.Load())
	if each <= 0 {
		each = presumed
	}
	if l := e.backend.root().breaker.limits.Load(); l != nil && l.perConnection > 0 {
		each = int(min(int64(each), l.perConnection))
	}
	if h.dialling == 0 {
		h.failure.Store(nil) // it may be hours old
	}
	for h.dialling*each < len(h.waiting) && h.dialling < e.backend.set.options.MaxDials {
		by := e.reserve()
		h.blocked.set(by)
		if by != notLimited {
			if e.isDropped() {
				h.endWaits(e.breakerOpen())
			}
			return
		}
		h.dialling++
		limit := e.connectLimit(time.Time{})
		limit.patient = slices.ContainsFunc(h.waiting, func(w *waiter) bool { return w.patient })
		go e.dialShared(limit)
	}
}

// onlySlow reports whether all connects that are under way take longer than others do; mu is held.
func (h *sharing) onlySlow() bool { return h.slow > 0 && h.slow == h.dialling }

// endImpatient ends the waits that are not patient, where another endpoint is quicker maybe; mu is held.
func (h *sharing) endImpatient(err *DialError) {
	if !h.onlySlow() {
		return
	}
	h.waiting = slices.DeleteFunc(h.waiting, func(w *waiter) bool {
		if w.patient {
			return false
		}
		w.err = err
		close(w.ready)
		return true
	})
	h.hungry.Store(int64(len(h.waiting)))
	if len(h.waiting) == 0 {
		h.waiting = nil
		h.blocked.set(notLimited)
	}
}

// isBlocked reports whether those who wait do so for a limit of the Breaker.
func (h *sharing) isBlocked() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.blocked.by != notLimited
}

// dialShared makes a connection for those who wait, whoever of them is still there then, or a spare one.
func (e *Endpoint) dialShared(limit dialLimit) {
	h := &e.sharing
	dialling, slow := true, false
	done := func() { // mu is held
		h.dialling--
		if slow {
			h.slow--
		}
		dialling = false
	}
	if limit.patient {
		limit.slow = &slowDial{tell: func() {
			e.tookLong()
			h.mu.Lock()
			defer h.mu.Unlock()
			slow = true
			h.slow++
			h.endImpatient(e.dialError(ReasonSlow, true, errSlow))
		}}
	}
	defer func() {
		if v := recover(); v != nil {
			e.backend.set.options.Panicked("connect", v)
			h.mu.Lock()
			defer h.mu.Unlock()
			if dialling {
				done()
			}
			h.endWaits(e.dialError(ReasonFailed, true, errPanic))
		}
	}()
	c, err := e.dialBy(context.Background(), limit, forRequest, nil)
	var released *Conn
	defer func() {
		if released != nil { // which may make another, and takes mu for that
			released.Release()
		}
	}()
	h.mu.Lock()
	defer h.mu.Unlock()
	done()
	if err == nil {
		h.failure.Store(nil)
	}
	switch {
	case err != nil && limit.spare && len(h.waiting) > 0: // they have come since, and for them more is done
		if e.dialMore(); h.blocked.by != notLimited {
			e.backend.serveBlocked() // as in await
		}
	case err != nil:
		var dial *DialError
		if errors.As(err, &dial) {
			h.failure.Store(dial)
			if full := errors.Is(err, errDescriptors) && len(h.list()) > 0; h.dialling == 0 && !full { // else another may bring what is wanted, or the end of a stream
				h.endWaits(dial)
			}
			h.endImpatient(e.dialError(ReasonSlow, true, errSlow))
		}
	case e.speaksHTTP2(c):
		h.exclusive.Store(false)
		s := e.share(c)
		if s == nil {
			h.endWaits(e.dialError(ReasonGone, true, context.Canceled))
			return
		}
		e.feedFrom(s)
		e.dialMore()
		if e.isDropped() && s.places.Load() == 0 {
			go s.end() // which takes mu
		}
	default:
		h.exclusive.Store(true)
		if len(h.waiting) == 0 {
			released = c
			return
		}
		w := h.next()
		w.conn = c
		close(w.ready)
		h.endWaits(nil)
	}
}

// feedFrom gives places to those who wait, now that there is a new connection; who remains is told where it takes no streams. Requests that did
// not wait may have taken all of its places before. mu is held.
func (e *Endpoint) feedFrom(s *Shared) {
	h := &e.sharing
	waited := len(h.waiting)
	e.feedLocked()
	if len(h.waiting) == waited && s.places.Load() <= 0 && !s.spent.Load() {
		h.endWaits(e.dialError(ReasonFailed, true, errNoStreams))
	}
}

// feed gives places to those who wait, where there are some.
func (e *Endpoint) feed() {
	if e.sharing.hungry.Load() == 0 {
		return
	}
	e.sharing.mu.Lock()
	e.feedLocked()
	e.sharing.mu.Unlock()
}

func (e *Endpoint) feedLocked() {
	h := &e.sharing
	for len(h.waiting) > 0 {
		s := e.place()
		if s == nil {
			return
		}
		w := h.next()
		w.place = s
		close(w.ready)
	}
}

// retireShared gives no more places, and lets the streams that are open end.
func (e *Endpoint) retireShared() {
	h := &e.sharing
	h.mu.Lock()
	list := h.list()
	h.conns.Store(nil)
	h.mu.Unlock()
	for _, s := range list {
		s.retire()
	}
}

// sweepShared ends connections whose last stream ended too long ago, and has those take no streams any more that are too old.
func (e *Endpoint) sweepShared(limits sweepLimits) {
	for _, s := range e.sharing.list() {
		if s.conn.made.Before(limits.made) {
			e.sharing.forget(s)
			s.retire()
			continue
		}
		if s.left.Load() <= limits.idle && s.places.CompareAndSwap(0, shut) {
			e.sharing.forget(s)
			s.client.Drain()
		}
	}
}

// idleShared counts the connections without a stream.
func (e *Endpoint) idleShared() (n int64) {
	for _, s := range e.sharing.list() {
		if s.places.Load() == 0 {
			n++
		}
	}
	return n
}
