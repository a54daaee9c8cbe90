package exchange

import (
	"errors"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

const (
	// maxInterim is the largest number of 1xx responses before a final one.
	maxInterim = 64
	// copyLimit is the largest size in bytes at which a request body is copied after its head for a single write. Above
	// it, one system call with two pieces is cheaper.
	copyLimit = 4 << 10
)

// forward sends the request to an endpoint of the backend and the response to the client. What follows an attempt
// without a response is decided in retry.go.
func (x *Exchange) forward(b *snapshot.BackendRef) (read bool) {
	backend := b.Backend.As(x.listener.Identity)
	if backend == nil {
		return x.fail(observe.ReasonGatewayCertificateInvalid)
	}
	x.backend = backend
	leaves := x.Upgrade != nil && x.leaves(backend)
	if x.Extended && !leaves {
		return x.failWith(http.StatusNotImplemented, observe.ReasonUpgradeIgnored) // as RFC 9220 section 3 requires for an unknown protocol
	}
	if x.Streamed && x.body.begin() != nil { // before anything is sent to a backend
		return x.bodyFailed()
	}
	if x.Upgrade != nil && !leaves {
		x.Upgrade, x.upgradeNotForwarded = nil, true
	}
	if x.connects == snapshot.ForwardConnect {
		x.setConnectTarget()
	}
	x.attempt.engine, x.attempt.watch = x.Client.Engine, x.Client.Watch
	x.attempt.http2.suspends = x.Client.Suspends
	x.retry = retryState{}
	if b := x.rule.Bandwidth; b != nil {
		x.beginPacing(b)
	}
	if budget := backend.RetryBudget(); budget != nil {
		budget.Request()
	}
	x.beginSession(b)
	x.beginBalancing()
	f := failure{kind: failedFinally, reason: observe.ReasonNoEndpoints}
	for {
		if x.Client.Watch.goneNow() { // otherwise an idle connection would be closed for nothing
			f = failure{kind: failedFinally, reason: observe.ReasonClientClosed, silent: true}
			break
		}
		if reason, expired := x.expired(); expired { // filters or the wait for the body took that long
			f = failure{kind: failedFinally, reason: reason}
			break
		}
		ep := x.pick(backend)
		if ep == nil {
			f = x.unpicked(f)
			break
		}
		if x.retry.needsOther && x.retry.tried.Has(ep) {
			break
		}
		if x.rec.Attempts++; x.rec.Attempts > 1 {
			backend.Retried()
		}
		x.rec.Upstream = ep.Address()
		if !x.countAtBreaker(backend) {
			f = failure{kind: failedFinally, reason: observe.ReasonCircuitBreakerOpen}
			break
		}
		ep.Begin()
		x.endpoint = ep
		x.attempt.attemptState = attemptState{uploads: x.rule.PerTryTimeout > 0 && x.Streamed}
		x.attempt.deadline = x.attemptDeadline()
		var v retryDecision
		read, f, v = x.attemptAt(ep)
		if x.suspended {
			return false
		}
		x.endEndpoint()
		if f.kind == notFailed {
			return read
		}
		if !v.again {
			break
		}
		x.leaveSession(f)
		if v.pause > 0 && !x.pause(v.pause) {
			f = failure{kind: failedFinally, reason: observe.ReasonClientClosed, silent: true}
			break
		}
	}
	x.body.finish(&x.attempt, false)
	switch {
	case x.body.failed() != nil:
		return x.bodyFailed()
	case f.silent:
		x.rec.Reason = f.reason
		return false
	}
	return x.fail(f.reason)
}

// endEndpoint ends the current attempt at its endpoint.
func (x *Exchange) endEndpoint() {
	x.endpoint.End()
	x.endpoint = nil
	if s := x.rare; s != nil && s.attemptBreaker != nil {
		s.attemptBreaker.Done()
		s.attemptBreaker = nil
	}
}

// countAtBreaker counts an attempt at the backend. It returns false if there are too many.
func (x *Exchange) countAtBreaker(backend *upstream.Backend) (ok bool) {
	k, ok := backend.Admit()
	if k != nil {
		x.ensureRare().attemptBreaker = k
	}
	return ok
}

// endRetry ends the attempt that the rule's retry allowed last.
func (x *Exchange) endRetry() {
	if s := x.rare; s != nil && s.retryBreaker != nil {
		s.retryBreaker.RetryDone()
		s.retryBreaker = nil
	}
}

// attemptAt makes an attempt at an endpoint. If it fails, v is what follows.
//
//go:noinline
func (x *Exchange) attemptAt(ep *upstream.Endpoint) (read bool, f failure, v retryDecision) {
	if f = x.connect(ep, &x.attempt); f.kind != notFailed {
		x.noteSent(x.body.allAtHand()) // otherwise the client may have delayed the attempt
		f, v = x.decideFailure(f)
		return false, f, v
	}
	return x.try(&x.attempt)
}

// try waits for the response to a request that was begun, and relays it. If any of the response was sent to the client,
// no other attempt follows.
func (x *Exchange) try(a *attempt) (read bool, f failure, v retryDecision) {
	if x.Client.Engine.Logging { // only the access log shows it
		x.tryAt = time.Since(x.start)
	}
	if !x.deadline.IsZero() {
		x.Client.Limiter.WriteBy(x.deadline)
	}
	x.Client.Watch.beginTry(a, x.repeatable() && x.mayReplay() && !x.inSession())
	defer x.endTry(a)
	err := x.readHead(a)
	lost := x.Client.Watch.endTry()
	if lost && err == nil { // the response arrived just when the transport was interrupted
		err = os.ErrDeadlineExceeded
	}
	if err != nil {
		if x.Client.Watch.goneNow() || isTimeout(err) { // the sweeper may not have checked yet
			a.suspect()
		}
		sent, starved := x.body.wholeSent(a), x.body.starved(a)
		a.abort()
		gone := x.Client.Watch.end()
		x.body.detach(a)
		f = x.failureOf(a, err, gone, lost)
		x.reportFailure(f, err, sent, starved)
		switch f.kind {
		case failedUnprocessed, failedUnsent: // however much the client has sent
			sent = true
		case failedByReset:
			sent = sent || !starved
		}
		x.noteSent(sent)
		f, v = x.decideFailure(f)
		if !v.again {
			x.body.finish(a, false)
		}
		a.end(false)
		return false, f, v
	}
	x.movedNow()
	x.takeLoadReport(&x.resp.Header)
	x.reportStatus()
	x.ending = observe.ReasonOK
	if x.rule.Retry.Wants(&x.resp, x.grpc) {
		f = failure{kind: failedByStatus, reason: observe.ReasonNoEndpoints} // the reason if no endpoint is left for another attempt
		if f, v = x.decideFailure(f); v.again || v.refused {
			x.discard(a)
			return false, f, v
		}
		x.ending = v.reason
	}
	x.Client.Watch.answered = true
	x.endRetry() // no retry follows, and relaying may take hours
	tunnel := x.opensTunnel()
	x.recordHead()
	x.body.markFinal(a) // before endPerTryTimeout, so that the sender does not start the timeout again
	x.endPerTryTimeout(a)
	if x.rule.ResponseOverrides != nil {
		if read, answered := x.overrideBackend(a); answered {
			return read, failure{}, retryDecision{}
		}
	}
	x.filterResponse()
	x.keepSession()
	x.giveHashCookie()
	if tunnel {
		x.endSession(true)
		x.tunnel(a)
		return true, failure{}, retryDecision{}
	}
	return x.relayed(a, x.relay(a)), failure{}, retryDecision{}
}

// relayed completes the attempt after its response was relayed, unless the exchange is suspended.
func (x *Exchange) relayed(a *attempt, complete bool) (read bool) {
	if x.suspended {
		return false
	}
	uploaded := x.body.finish(a, complete)
	x.noteSent(uploaded)
	gone := x.Client.Watch.end()
	a.end(complete && uploaded && !gone)
	if complete && x.rec.Reason == observe.ReasonOK {
		x.rec.Reason = x.ending
	}
	x.endSession(complete)
	x.complete = complete || x.complete // complete is already set if the gateway itself has answered
	return uploaded || x.body.allRead()
}

// endTry is deferred by try and resumeTry.
func (x *Exchange) endTry(a *attempt) {
	if x.suspended {
		return
	}
	a.Give()
	x.endCompression()
	if !x.deadline.IsZero() || x.limits() != nil {
		x.Client.Limiter.WriteBy(time.Time{}) // the limit may have passed, and the client must still get an answer
	}
	if x.Client.Engine.Logging {
		x.rec.UpstreamDurationNano = int64(time.Since(x.start) - x.tryAt)
	}
}

func (x *Exchange) attemptDeadline() time.Time {
	if t := max(x.rule.BackendTimeout, x.rule.PerTryTimeout); t > 0 && !(x.attempt.uploads && x.body.keepsBackendWaiting()) { // at least one of the two timeouts is 0
		d := time.Now().Add(t)
		if x.deadline.IsZero() || d.Before(x.deadline) {
			return d
		}
	}
	return x.deadline
}

// startPerTryTimeout restarts the timeout of a try, which bounds the time that the backend takes, not the time for
// which the client sends the request. It is called after the last byte of a body, and after each part of a body that
// has arrived completely: a backend that takes no part for that long is treated like one that does not answer.
// requestBody.mu must be held, and the attempt must not be detached.
func (x *Exchange) startPerTryTimeout() {
	if x.attempt.uploads {
		x.setPerTryTimeout(time.Now().Add(x.rule.PerTryTimeout))
	}
}

// stopPerTryTimeout stops the timeout of a try while a bandwidth limit holds up the body of the current attempt.
// startPerTryTimeout must be called afterwards. requestBody.mu must be held.
func (x *Exchange) stopPerTryTimeout() { x.setPerTryTimeout(x.deadline) }

// setPerTryTimeout sets the time at which the try expires to d; the zero time means never. requestBody.mu must be held,
// and the attempt must not be detached.
func (x *Exchange) setPerTryTimeout(d time.Time) {
	a := &x.attempt
	if !a.uploads || x.body.final {
		return
	}
	if !x.deadline.IsZero() && x.deadline.Before(d) {
		d = x.deadline
	}
	if d.Equal(a.deadline) {
		return
	}
	a.deadline = d
	a.transport.setDeadline(d)
	if w := x.Client.Watch; w.goneNow() || w.lapsed.Load() || w.movable.Load() == isLost { // as in endPerTryTimeout
		a.interrupt()
	}
}

// endPerTryTimeout ends the timeout of a try once the head of the response to relay has arrived. The rest of the
// response is bounded by the timeout of the request.
func (x *Exchange) endPerTryTimeout(a *attempt) {
	if x.rule.PerTryTimeout == 0 || a.deadline.Equal(x.deadline) {
		return
	}
	a.deadline = x.deadline
	a.transport.setDeadline(x.deadline)
	if w := x.Client.Watch; w.goneNow() || w.lapsed.Load() { // setDeadline may have undone its interruption
		a.interrupt()
	}
}

// connect finds an idle connection or a place on a shared one, or makes a new connection, and begins the request on it.
// It uses only a new connection if one is needed.
//
//go:noinline
func (x *Exchange) connect(ep *upstream.Endpoint, a *attempt) failure {
	if ep.DiffersByClient() {
		ep = ep.At(x.connectionFor())
	}
	if x.needsOwn(ep) {
		return x.connectOwn(ep, a)
	}
	a.fresh = x.retry.fresh
	for !a.fresh {
		var u *upstream.Conn
		if x.repeatable() && x.mayReplay() {
			u = ep.Idle()
		} else {
			u = ep.IdleRecent()
		}
		if u == nil {
			break
		}
		// What arrived while the connection was idle would be taken for the response to this request: the body of a
		// response to HEAD, a 408 of a server that closes, or a smuggled response. WriteRead checks that itself.
		if x.Streamed && !u.Alive() {
			u.Close()
			continue
		}
		f, _ := x.opened(a, u, nil)
		return f
	}
	if place := ep.Place(); place != nil {
		if f, another := x.opened(a, nil, place); !another {
			return f
		}
	}
	for range maxConnects { // a connection may be used up before the stream is opened
		u, place, err := x.dial(ep, a)
		if err != nil {
			return x.dialFailure(err)
		}
		if f, another := x.opened(a, u, place); !another {
			return f
		}
	}
	return failure{kind: failedToConnect, reason: observe.ReasonConnectFailed}
}

// connectionFor returns the client for whom the connection is made, for endpoints whose connections differ by client.
func (x *Exchange) connectionFor() upstream.For {
	return upstream.For{Client: x.rec.ClientAddr, Listener: x.destination(), HTTP2: x.Client.Protocol == "HTTP/2.0" && x.Upgrade == nil}
}

// local returns the gateway's address to which the connection was made; the zero value if it is no longer known.
func (x *Exchange) local() netip.AddrPort {
	at, ok := x.Client.Response.(located)
	if !ok {
		return netip.AddrPort{}
	}
	return at.Local()
}

// destination returns the address to which the client has connected, which may be a load balancer's; the zero value if
// it is no longer known.
func (x *Exchange) destination() netip.AddrPort {
	at, ok := x.Client.Response.(located)
	if !ok {
		return netip.AddrPort{}
	}
	return at.Destination()
}

// opened begins the request on the connection u, or on place if u is nil. another means that the connection takes no
// request and another one is needed.
func (x *Exchange) opened(a *attempt, u *upstream.Conn, place *upstream.Shared) (f failure, another bool) {
	if u != nil {
		a.useHTTP1(u)
	} else {
		a.useHTTP2(place)
	}
	err := x.open(a)
	if err == nil {
		return failure{}, false
	}
	a.end(false)
	switch {
	case x.body.failed() != nil:
		return failure{kind: failedFinally}, false // forward takes the reason from the body
	case err == errForgotten && x.body.kept != nil: // it was discarded after the attempt was decided on
		return failure{kind: failedFinally, reason: observe.ReasonOverloaded}, false
	case errors.Is(err, http2.ErrHeadTooLarge):
		return failure{kind: failedFinally, reason: observe.ReasonHeadTooLarge}, false
	}
	return failure{kind: failedToConnect, reason: observe.ReasonConnectFailed}, true
}

// open begins the request.
func (x *Exchange) open(a *attempt) error {
	if x.connects != snapshot.RefuseConnect {
		a.whole = true // nothing follows until the tunnel is open: the stream must not end before
		return a.transport.open(&x.Request, nil, !a.headSent)
	}
	number, first, last := 0, x.Whole, true
	if x.Streamed {
		var err error
		if number, err = x.body.rewind(); err != nil {
			return err
		}
		if first, last = nil, false; a.headSent {
			first, last = x.body.opening()
		}
	}
	if err := a.transport.open(&x.Request, first, last); err != nil {
		return err
	}
	if a.whole = last; !last {
		x.body.start(a, number, len(first))
	} else if a.uploads {
		x.body.mu.Lock()
		x.startPerTryTimeout()
		x.body.mu.Unlock()
	}
	return nil
}

// dial waits for a connection, or until the client leaves.
func (x *Exchange) dial(ep *upstream.Endpoint, a *attempt) (*upstream.Conn, *upstream.Shared, error) {
	w := x.beginWait()
	defer w.end()
	if x.connectsPatiently() {
		return ep.ConnectPatiently(w.ctx, a.deadline, x.repeatable() && x.mayReplay())
	}
	return ep.Connect(w.ctx, a.deadline, x.repeatable() && x.mayReplay())
}

// connectsPatiently reports whether a slow connect is continued rather than given up for another endpoint, because the
// request must not move to another one.
func (x *Exchange) connectsPatiently() bool { return x.inSession() || x.rule.Retry.Disabled() }

// dialFailure returns the failure for a connection that could not be made.
func (x *Exchange) dialFailure(err error) failure {
	var dial *upstream.DialError
	if !errors.As(err, &dial) {
		return failure{kind: failedFinally, reason: observe.ReasonConnectFailed}
	}
	if dial.Reason == upstream.ReasonDeadline {
		return x.timeoutFailure(true)
	}
	f := connectFailure(dial)
	if dial.Reason == upstream.ReasonCanceled {
		if reason, lapsed := x.lapsed(); lapsed && !x.Client.Watch.goneNow() {
			f.reason, f.silent = reason, false
		}
	}
	return f
}

// connectFailure is like dialFailure, for connections that are bounded only by the connect timeout.
func connectFailure(dial *upstream.DialError) failure {
	f := failure{kind: failedFinally}
	if dial.Retryable {
		f.kind = failedToConnect
	}
	switch dial.Reason {
	case upstream.ReasonTimeout:
		f.reason = observe.ReasonConnectTimeout
	case upstream.ReasonSlow:
		f.reason, f.kind = observe.ReasonConnectTimeout, failedSlow
	case upstream.ReasonCanceled:
		f.reason, f.silent = observe.ReasonClientClosed, true
	case upstream.ReasonOverloaded:
		f.reason = observe.ReasonOverloaded
	case upstream.ReasonBreaker:
		f.reason = observe.ReasonCircuitBreakerOpen
	case upstream.ReasonTLS:
		f.reason = observe.ReasonUpstreamTLSFailed
	case upstream.ReasonGone:
		f.reason, f.kind = observe.ReasonNoEndpoints, failedGone // the reason if no other endpoint is left
	default:
		f.reason = observe.ReasonConnectFailed
	}
	return f
}

// repeatable reports whether the request may be sent again when a connection that was idle turns out to be closed, even
// if the request has been processed: its method is idempotent (RFC 9110 section 9.2.2) and all of its body is
// available.
func (x *Exchange) repeatable() bool { return x.idempotent() && x.body.allAtHand() }

func (x *Exchange) idempotent() bool {
	switch string(x.Method) {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}

// timeoutReason returns the reason of the timeout that has expired.
func (x *Exchange) timeoutReason() observe.Reason {
	if reason, expired := x.expired(); expired {
		return reason
	}
	return observe.ReasonBackendTimeout
}

// bodyFailed answers a request whose body could not be read completely.
func (x *Exchange) bodyFailed() (read bool) {
	status, reason := x.bodyFault()
	if reason == observe.ReasonClientClosed {
		x.rec.Reason = reason
		return false
	}
	return x.failWith(status, reason)
}

// bodyFault returns why the client's body, or the client itself, has ended the exchange, and the status to answer with.
// The status is unused if the client has left.
func (x *Exchange) bodyFault() (status int, reason observe.Reason) {
	var malformed *http1.Error
	limit, expired := x.expired()
	switch err := x.body.failed(); {
	case errors.As(err, &malformed):
		return malformed.Status, observe.ReasonBadRequestBody
	case errors.Is(err, ErrHeldBack):
		reason = observe.ReasonOverloaded
	case errors.Is(err, errBodyTooLarge):
		reason = observe.ReasonBodyTooLarge
	case errors.Is(err, errPanicked):
		reason = observe.ReasonInternal
	case expired: // the gateway itself may have stopped reading, whatever the error is
		reason = limit
	case isTimeout(err):
		reason = observe.ReasonClientTimeout
	default:
		reason = observe.ReasonClientClosed
	}
	return reason.Status(), reason
}
