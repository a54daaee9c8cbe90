package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"
)

// waiter is a request that waits for a shared connection.
type waiter struct {
	patient bool          // waits up to the connect timeout, whatever other endpoints there are
	ready   chan struct{} // closed when the following fields are set
	conn    *Conn         // set if the backend chose HTTP/1.1 and this request gets the connection
	place   *Shared
	err     *DialError // if all three are nil, the backend chose HTTP/1.1, and the request must dial itself
}

// Connect makes a connection for a request that has found none with Idle and Place: a Conn of its own, or a place on a
// shared connection, which may already exist by then. Waiting for other requests and the dial end together by the
// connect timeout, by deadline (the zero time means none), or when ctx ends. Only create a context for this call: it is
// for giving up when the client leaves. The error is a *DialError; nothing was sent. A Conn may be Reused, and was just
// found to be alive; a request that is not repeatable only gets a connection that IdleRecent would return.
func (e *Endpoint) Connect(ctx context.Context, deadline time.Time, repeatable bool) (*Conn, *Shared, error) {
	return e.connectBy(ctx, e.connectLimit(deadline), repeatable)
}

// connectBy is Connect with a dialLimit.
func (e *Endpoint) connectBy(ctx context.Context, limit dialLimit, repeatable bool) (_ *Conn, _ *Shared, failed error) {
	pending, err := e.beginPending()
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if failed == nil { // an endpoint that refuses connections must not get spare ones
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
	// The backend now chooses HTTP/2, after it chose HTTP/1.1 before.
	h := &e.use().sharing
	h.mu.Lock()
	defer h.mu.Unlock()
	h.exclusive.Store(false)
	s := e.share(c)
	if s == nil {
		return nil, nil, e.dialError(ReasonGone, true, context.Canceled)
	}
	if !s.take() {
		return nil, nil, e.dialError(ReasonFailed, true, errNoStreams)
	}
	return nil, s, nil
}

// ConnectTunnel makes a new, unused connection for a tunnel; with TLS no protocol is negotiated by ALPN. It waits for
// its turn among the HTTP/1.1 requests, within the connect timeout, but not for a limit of the Breaker: those who have
// the connections may keep them for hours. ctx is as in Connect, and the error is a *DialError. connected is called as
// soon as there is a socket, before the TLS handshake.
func (e *Endpoint) ConnectTunnel(ctx context.Context, connected func(*net.TCPConn)) (*Conn, error) {
	limit := e.connectLimit(time.Time{})
	limit.noWait = true
	c, err := e.connectOwn(ctx, limit, connected)
	if o := e.health.outlier.Load(); o != nil && err == nil { // nothing else is reported about tunnels
		o.responded(e.whole(), http.StatusOK)
	}
	return c, err
}

// ConnectOwn is like ConnectTunnel, for a request that may leave HTTP, also by deadline (the zero time means none).
// patiently is as in ConnectPatiently. The connection has TCP keep-alive. The caller must report the outcome of the
// request.
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

// multiplexes reports whether a new connection is expected to be shared.
func (e *Endpoint) multiplexes() bool {
	t := e.transport
	return t.http2 || t.tls != nil && !e.soFar().sharing.exclusive.Load()
}

// speaksHTTP2 reports whether HTTP/2 is used on a new connection. On one that has served HTTP/1.1 requests it is not,
// whatever the configuration is now.
func (e *Endpoint) speaksHTTP2(c *Conn) bool {
	if c.secure != nil {
		return c.speaksHTTP2()
	}
	return e.transport.http2
}

// await waits for a place on a shared connection. It returns neither a connection nor an error if the backend uses
// HTTP/1.1.
func (e *Endpoint) await(ctx context.Context, limit dialLimit) (*Conn, *Shared, error) {
	h := &e.use().sharing
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
		return nil, nil, e.tooManyWaiting()
	}
	w := &waiter{patient: limit.patient, ready: make(chan struct{})}
	h.waiting = append(h.waiting, w)
	h.numWaiting.Store(int64(len(h.waiting)))
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
		// A dial given up early in favour of another endpoint is no reason for a patient request to give up, which
		// would only ask again.
		if gaveUp = h.failure.Load(); gaveUp == nil || limit.reason == ReasonDeadline || limit.patient && isSlow(gaveUp) {
			gaveUp = e.passed(limit)
		}
		if limit.reason == ReasonTimeout && h.isBlocked() {
			gaveUp = e.breakerOpen()
		} else if limit.reason == ReasonTimeout && h.streamless() > 0 {
			gaveUp = e.dialError(ReasonTimeout, true, errStreamless)
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

// abandon gives up the wait. It returns false if the waiter has been served.
func (h *sharing) abandon(w *waiter) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.waiting, w)
	if i < 0 {
		return false
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	h.numWaiting.Store(int64(len(h.waiting)))
	if len(h.waiting) == 0 {
		h.blocked.set(notLimited)
	}
	return true
}

// next removes the first waiter, which the caller must serve. mu must be held.
func (h *sharing) next() *waiter {
	w := h.waiting[0]
	h.waiting[0] = nil
	h.waiting = h.waiting[1:]
	if len(h.waiting) == 0 {
		h.waiting = nil
		h.blocked.set(notLimited)
	}
	h.numWaiting.Store(int64(len(h.waiting)))
	return w
}

// endWaits ends the waits of all waiters with err. mu must be held.
func (h *sharing) endWaits(err *DialError) {
	for len(h.waiting) > 0 {
		w := h.next()
		w.err = err
		close(w.ready)
	}
}

var errPanic = errors.New("internal error, see the log")

var (
	errNoStreams  = errors.New("the endpoint takes no streams on a new connection")
	errStreamless = errors.New("the endpoint allows no streams on its connections (SETTINGS_MAX_CONCURRENT_STREAMS is 0)")
)

// maxStreamless is how many connections that allow no streams an endpoint may have: after the first one another is tried,
// since only the server of that one may be about to end. Then requests wait for a stream: more connections would be as
// useless, and a server should allow none for a short time only (RFC 9113 section 6.5.2).
const maxStreamless = 2

// presumed is how many streams a connection is expected to carry before the backend's limit is known.
const presumed = 100

// dialMore makes as many connections as the waiting requests will need, within MaxDials and maxStreamless. mu must be
// held. It must be called again when a connection that allows no streams has ended or allows some.
func (e *Endpoint) dialMore() {
	h := &e.use().sharing
	each := int(h.limit.Load())
	if each <= 0 {
		each = presumed
	}
	if l := e.backend.root().limits.Load(); l != nil && l.perConnection > 0 {
		each = int(min(int64(each), l.perConnection))
	}
	if h.dialling == 0 {
		h.failure.Store(nil) // it may be hours old
	}
	streamless := 0
	if len(h.waiting) > 0 {
		streamless = h.streamless()
	}
	for h.dialling*each < len(h.waiting) && h.dialling < e.backend.set.options.MaxDials {
		if streamless > 0 && streamless+h.dialling >= maxStreamless {
			h.blocked.set(notLimited)
			if h.dialling == 0 && e.hasAlternativeWithStreams() {
				h.endImpatient(e.dialError(ReasonFailed, true, errStreamless))
			}
			return
		}
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

// onlySlow reports whether all connects in progress take longer than usual. mu must be held.
func (h *sharing) onlySlow() bool { return h.slow > 0 && h.slow == h.dialling }

// endSlow ends the waits that are not patient if all connects are slow, since another endpoint may be faster. mu must be
// held.
func (e *Endpoint) endSlow() {
	if h := &e.use().sharing; h.onlySlow() {
		h.endImpatient(e.dialError(ReasonSlow, true, errSlow))
	}
}

// endImpatient ends the waits that are not patient. mu must be held.
func (h *sharing) endImpatient(err *DialError) {
	h.waiting = slices.DeleteFunc(h.waiting, func(w *waiter) bool {
		if w.patient {
			return false
		}
		w.err = err
		close(w.ready)
		return true
	})
	h.numWaiting.Store(int64(len(h.waiting)))
	if len(h.waiting) == 0 {
		h.waiting = nil
		h.blocked.set(notLimited)
	}
}

// isBlocked reports whether requests wait for a limit of the Breaker.
func (h *sharing) isBlocked() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.blocked.by != notLimited
}

// dialShared makes a connection for the waiting requests, or a spare one.
func (e *Endpoint) dialShared(limit dialLimit) {
	h := &e.use().sharing
	dialling, slow := true, false
	done := func() { // mu must be held
		h.dialling--
		if slow {
			h.slow--
		}
		dialling = false
	}
	if limit.patient {
		limit.slow = &slowDial{notify: func() {
			e.tookLong()
			h.mu.Lock()
			defer h.mu.Unlock()
			slow = true
			h.slow++
			e.endSlow()
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
		if released != nil { // Release may make another connection, and takes mu for that
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
	case err != nil && limit.spare && len(h.waiting) > 0: // requests have arrived since, for which another dial must be made
		if e.dialMore(); h.blocked.by != notLimited {
			e.backend.serveBlocked() // as in await
		}
	case err != nil:
		var dial *DialError
		if errors.As(err, &dial) {
			h.failure.Store(dial)
			if full := errors.Is(err, errDescriptors) && len(h.list()) > 0; h.dialling == 0 && !full { // otherwise another dial may succeed, or a stream may end
				h.endWaits(dial)
			}
			e.endSlow()
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
			go s.end() // end takes mu
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

// feedFrom gives places on a new connection to the waiting requests. If the connection has already ended, the remaining
// ones fail. If it allows no streams, or requests that did not wait have taken all its places, they go on waiting. mu
// must be held.
func (e *Endpoint) feedFrom(s *Shared) {
	h := &e.use().sharing
	waited := len(h.waiting)
	e.feedLocked()
	if len(h.waiting) == waited && s.places.Load() < 0 && !s.spent.Load() {
		h.endWaits(e.dialError(ReasonFailed, true, errNoStreams))
	}
}

// feed gives free places to the waiting requests.
func (e *Endpoint) feed() {
	h := &e.use().sharing
	if h.numWaiting.Load() == 0 {
		return
	}
	h.mu.Lock()
	e.feedLocked()
	h.mu.Unlock()
}

func (e *Endpoint) feedLocked() {
	h := &e.use().sharing
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

// retireShared gives out no more places, and lets the open streams end.
func (e *Endpoint) retireShared() {
	h := &e.use().sharing
	h.mu.Lock()
	list := h.list()
	h.conns.Store(nil)
	h.mu.Unlock()
	for _, s := range list {
		s.retire()
	}
}

// sweepShared closes connections whose last stream ended too long ago, and makes those that are too old take no more
// streams.
func (e *Endpoint) sweepShared(limits sweepLimits) {
	for _, s := range e.soFar().sharing.list() {
		if s.conn.made.Before(limits.made) {
			s.forget()
			s.retire()
			continue
		}
		if s.left.Load() <= limits.idle && s.places.CompareAndSwap(0, shut) {
			s.forget()
			s.client.Drain()
		}
	}
}

// idleShared returns the number of connections without a stream.
func (e *Endpoint) idleShared() (n int64) {
	for _, s := range e.soFar().sharing.list() {
		if s.places.Load() == 0 {
			n++
		}
	}
	return n
}
