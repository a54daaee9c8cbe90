package exchange

import (
	"cmp"
	"errors"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

const (
	// maxConnects is the largest number of endpoints to which a request tries to connect, if its rule does not
	// configure retries.
	maxConnects = 3
	// maxGone is how many endpoints it may try in addition because they were removed from the configuration meanwhile,
	// which says nothing about the remaining ones.
	maxGone = 16
	// maxMoves is how many times a request that waits for a connection may move to another endpoint without an attempt
	// being counted.
	maxMoves = 2
	// maxReplays is how many times a request is sent again that a backend has not received or, if its rule does not
	// configure retries, has certainly not processed.
	maxReplays = 3
	// defaultBackoff is the first wait before a retry if the rule has no retry.backoff: an immediate second request
	// does not help a backend that answers 503.
	defaultBackoff = 25 * time.Millisecond
	// maxBackoffs is the longest wait before a retry, in base intervals.
	maxBackoffs = 10
)

// failure is how an attempt without a response for the client has ended.
type failure struct {
	kind   failureKind
	reason observe.Reason // of the response, if no other attempt follows
	// silent means that the client gets no response, because it has left.
	silent bool
	// unsent means that nothing of the request can have reached the backend.
	unsent bool
}

type failureKind uint8

const (
	notFailed         failureKind = iota
	failedFinally                 // no other attempt can help
	failedToConnect               // nothing was sent
	failedGone                    // nothing was sent, because the endpoint was removed from the configuration
	failedSlow                    // nothing was sent, because connecting took long and there was another endpoint
	failedStale                   // nothing was sent, because the idle connection was closed
	failedUnsent                  // nothing was sent, because an HTTP/2 connection ended or takes fewer streams
	failedUnprocessed             // the backend reports that it has not processed the request
	failedOnIdle                  // a connection that was idle was closed before any response: perhaps it was closed already
	failedByLoss                  // the request is not acknowledged, and may be sent to another endpoint
	failedByReset                 // the connection broke
	failedByTimeout               // timeouts.backendRequest ran out
	failedByStatus                // the rule requests a retry for the status of the response
	failedMalformed               // the response is malformed
)

// retryState is what decide knows of the attempts of a request so far.
type retryState struct {
	tried upstream.Tried
	// fresh means that the next attempt needs a new connection, since all idle ones may be closed.
	fresh bool
	// needsOther means that the next attempt needs an endpoint that was not tried.
	needsOther bool
	// interim means that an interim response other than 100 was relayed to the client.
	interim bool
	// gone and replays count attempts, up to maxGone and maxReplays.
	gone, replays uint8
	moves         uint8 // up to maxMoves
	// uncounted is the number of attempts that do not count towards maxConnects.
	uncounted int
	retries   int // retries that the rule has allowed
}

// retryDecision is what follows a failure.
type retryDecision struct {
	again bool
	pause time.Duration // before the next attempt
	// reason is the reason of a request whose response is relayed although its status asks for a retry.
	reason observe.Reason
	// refused means that the backend's retry budget allows no retry: the client gets a 503, whatever the failure was
	// (GEP-3388).
	refused bool
}

// decideFailure returns the decision of decide, and f as it is reported to the client if no other attempt follows.
func (x *Exchange) decideFailure(f failure) (failure, retryDecision) {
	v := x.decide(f)
	if v.refused {
		f = failure{kind: failedFinally, reason: observe.ReasonRetryBudgetExhausted}
	}
	return f, v
}

// decide decides what follows a failure of the current attempt. It is the only place that does.
func (x *Exchange) decide(f failure) (v retryDecision) {
	r, p := &x.retry, x.rule.Retry
	r.needsOther = false
	counted := func() bool { return int(x.rec.Attempts)-r.uncounted < maxConnects }
	switch f.kind {
	case failedToConnect:
		if p != nil {
			if p.Triggers == 0 || p.Triggers.Any(snapshot.OnConnectFailure) {
				return x.retryByRule(f)
			}
			return v
		}
		v.again = r.connectsAgain(f.kind, x.endpoint, int(x.rec.Attempts))
	case failedGone:
		v.again = r.connectsAgain(f.kind, x.endpoint, int(x.rec.Attempts))
	case failedSlow:
		// Not a retry, since nothing was sent. A request that has moved often enough asks further endpoints only as the
		// rule's retry allows.
		if p.Disabled() || r.moves == maxMoves && p != nil {
			return x.retryByRule(f)
		}
		r.move(x.endpoint)
		v.again = counted()
	case failedStale:
		// This was no attempt, unless a new connection was requested and one was returned that another request had just
		// used: then it counts, so that the loop ends.
		if !r.fresh {
			r.uncounted++
		}
		r.fresh = true
		v.again = counted()
	case failedUnprocessed, failedUnsent:
		if p != nil && f.kind == failedUnprocessed { // whatever its triggers are, since the backend has done nothing
			if r.interim {
				return v
			}
			return x.retryByRule(f)
		}
		r.uncounted++
		r.fresh = false
		v.again = r.replays < maxReplays
		r.replays++
	case failedOnIdle:
		r.fresh = true
		v.again = counted() && x.countReplay()
	case failedByLoss:
		// As for failedOnIdle: the backend may have the request, but its responses do not arrive.
		r.tried.Add(x.endpoint)
		r.fresh, r.needsOther = false, true
		v.again = counted() && x.countReplay()
	case failedByReset, failedByTimeout, failedMalformed:
		// The backend may have processed the request, or may process it now.
		if p != nil && p.Triggers != 0 { // a rule with triggers asks for a retry nevertheless
			on := snapshot.OnReset
			if f.unsent {
				on = snapshot.OnUnsent
			}
			if p.Triggers.Any(on) && !r.interim && x.body.atHand() {
				return x.retryByRule(f)
			}
			return v
		}
		if p != nil && f.kind != failedMalformed && !r.interim && (f.unsent || x.idempotent() && x.body.atHand()) {
			return x.retryByRule(f)
		}
	case failedByStatus:
		switch {
		case r.interim || p.Attempts == 0:
		case !x.body.pin(): // its sender is still running
			v.reason = observe.ReasonRetryBodyTooLarge
			return v
		default:
			if v = x.retryByRule(f); !v.again && !v.refused {
				v.reason = observe.ReasonRetriesExhausted
			}
			return v
		}
		v.reason = observe.ReasonOK
	}
	return v
}

// mayReplay reports whether the rule allows the request to be sent again without a trigger.
func (x *Exchange) mayReplay() bool {
	return x.rule.Retry == nil || x.retry.retries < x.rule.Retry.Attempts
}

// countReplay is like mayReplay, and counts the attempt as one of the rule's retries: a backend that reads a request
// and then closes the connection cannot be told from one that had closed it before.
func (x *Exchange) countReplay() bool {
	if !x.mayReplay() {
		return false
	}
	if x.rule.Retry != nil {
		x.retry.retries++
		x.retry.uncounted++
		x.retry.tried.Add(x.endpoint)
	}
	return true
}

// move makes the next attempt use another endpoint than ep, which takes long, if there is another one.
func (r *retryState) move(ep *upstream.Endpoint) {
	r.tried.Add(ep)
	r.fresh, r.needsOther = false, false
	if r.moves < maxMoves {
		r.moves++
		r.uncounted++
	}
}

// connectsAgain reports whether another endpoint is tried after no connection could be made to ep in the given number
// of attempts, if no retry of a rule applies.
func (r *retryState) connectsAgain(kind failureKind, ep *upstream.Endpoint, attempts int) bool {
	switch kind {
	case failedSlow:
		r.move(ep)
		return attempts-r.uncounted < maxConnects
	case failedToConnect, failedGone:
	default:
		return false
	}
	r.tried.Add(ep)
	r.fresh, r.needsOther = false, true
	if kind == failedGone && r.gone < maxGone {
		r.gone++
		r.uncounted++
	}
	return attempts-r.uncounted < maxConnects
}

// maxWithoutPause is how many endpoints that accept no connection are tried without a pause.
const maxWithoutPause = 8

// leastAttempt is the time that timeouts.request must leave for another attempt. With less, the present response would
// be replaced by a timeout.
const leastAttempt = 5 * time.Millisecond

// retryByRule allows another attempt within the limits of the rule's retry. It allows none that could not begin within
// timeouts.request, none while memory is scarce, and none in place of a response if no endpoint may be asked.
func (x *Exchange) retryByRule(f failure) (v retryDecision) {
	r, p := &x.retry, x.rule.Retry
	if r.retries >= p.Attempts || x.Client.Watch.goneNow() || x.Client.Engine.Refuses() {
		return v
	}
	if f.kind == failedByStatus && x.backend.AllBarred() { // this response may be what has the last endpoint ejected
		return v
	}
	r.retries++
	r.uncounted++
	r.fresh = false
	r.tried.Add(x.endpoint)
	if p.Triggers != 0 {
		v.pause = x.jitteredBackoff(p)
	} else if p.Backoff > 0 {
		v.pause = x.backoff(p.Backoff)
	} else if f.kind != failedToConnect || r.retries > maxWithoutPause || !x.backend.HasOther(&r.tried) {
		v.pause = x.backoff(defaultBackoff)
	}
	v.again = x.deadline.IsZero() || time.Until(x.deadline) > v.pause+leastAttempt
	x.endRetry()
	if v.again && x.rare != nil { // otherwise no retry was limited when the request began
		x.rare.retryBreaker, v.again = x.backend.AdmitRetry()
	}
	if budget := x.backend.RetryBudget(); v.again && budget != nil && !budget.Retry() {
		v.again, v.refused = false, true
	}
	return v
}

// backoff returns the wait before the current retry: base, doubled for each earlier retry, plus a random part of up to
// half of that, so that requests which failed at the same time are not repeated at the same time.
func (x *Exchange) backoff(base time.Duration) time.Duration {
	limit := base * maxBackoffs
	if limit/maxBackoffs != base { // overflow: base is years
		return base
	}
	d := base
	for i := 1; i < x.retry.retries && d < limit; i++ {
		d *= 2
	}
	d = min(d, limit)
	return d + time.Duration(upstream.Random(&x.fx.Seed)%uint64(d/2+1))
}

// jitteredBackoff returns the wait before the current retry if the rule has triggers: a random time from 0 up to the
// base interval, doubled for each earlier retry, as in Envoy (full jitter).
func (x *Exchange) jitteredBackoff(p *snapshot.Retry) time.Duration {
	base := cmp.Or(p.Backoff, defaultBackoff)
	limit := p.MaxBackoff
	if limit == 0 {
		if limit = base * maxBackoffs; limit/maxBackoffs != base { // overflow: base is years
			limit = base
		}
	}
	d := min(base, limit)
	for i := 1; i < x.retry.retries && d < limit; i++ {
		d = min(d*2, limit)
	}
	return time.Duration(upstream.Random(&x.fx.Seed) % uint64(max(d, 1)))
}

// pause waits. It returns false if the client has left.
func (x *Exchange) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	w := x.beginWait()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
	return !w.end()
}

// failureOf returns the failure for an error in place of a final response head. lost is the result of Watch.endTry.
func (x *Exchange) failureOf(a *attempt, err error, gone, lost bool) failure {
	var toClient errClientWrite
	switch {
	case errors.Is(err, upstream.ErrStale):
		return failure{kind: failedStale, reason: observe.ReasonUpstreamReset, unsent: true}
	case x.body.failed() != nil:
		return failure{kind: failedFinally} // forward takes the reason from the body
	case lost && isTimeout(err):
		if x.retry.interim {
			return failure{kind: failedByReset, reason: observe.ReasonUpstreamReset}
		}
		return failure{kind: failedByLoss, reason: observe.ReasonUpstreamReset}
	case gone:
		return failure{kind: failedFinally, reason: observe.ReasonClientClosed, silent: true}
	case http2.Unsent(err) && x.body.atHand():
		return failure{kind: failedUnsent, reason: observe.ReasonUpstreamReset, unsent: true}
	case http2.Unprocessed(err) && x.body.atHand():
		return failure{kind: failedUnprocessed, reason: observe.ReasonUpstreamReset}
	case errors.As(err, &toClient):
		return failure{kind: failedFinally, reason: x.writeFailed(toClient.error), silent: true}
	case isMalformed(err):
		return failure{kind: failedMalformed, reason: observe.ReasonUpstreamMalformed}
	case isTimeout(err):
		return x.timeoutFailure(false)
	case x.callIsOver(err):
		return failure{kind: failedFinally, reason: observe.ReasonGRPCTimeout}
	case !a.fresh && a.reused && !a.received && !http2.Reset(err) && x.idempotent() && x.body.atHand():
		return failure{kind: failedOnIdle, reason: observe.ReasonUpstreamReset}
	}
	return failure{kind: failedByReset, reason: observe.ReasonUpstreamReset}
}

// timeoutFailure returns the failure for an expired timeout: that of the attempt, or that of the request.
func (x *Exchange) timeoutFailure(unsent bool) failure {
	f := failure{kind: failedByTimeout, reason: x.timeoutReason(), unsent: unsent}
	if f.reason != observe.ReasonBackendTimeout {
		f.kind = failedFinally
	}
	return f
}

// discard discards a response whose head was read. The connection is reused if all of the response has arrived.
func (x *Exchange) discard(a *attempt) {
	sent := x.body.wholeSent(a)
	x.noteSent(sent)
	gone := x.Client.Watch.end()
	x.body.detach(a)
	a.end(a.transport.atEnd() && sent && !gone)
}
