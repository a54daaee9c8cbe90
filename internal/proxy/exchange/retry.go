package exchange

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

const (
	// maxConnects bounds how many endpoints a request asks for a connection, where its rule says nothing of retries.
	maxConnects = 3
	// maxGone bounds how many more it asks for endpoints that have left the configuration meanwhile: that
	// says nothing of those which came.
	maxGone = 16
	// maxMoves bounds how often a request that waits for a connection goes on to another endpoint without an attempt being counted.
	maxMoves = 2
	// maxReplays bounds how often a request is sent again that a backend has not got, or, where its rule says nothing of retries, has surely not processed.
	maxReplays = 3
	// defaultBackoff is what retries of a rule without retry.backoff wait for at first: a backend that answers 503 is not helped by a
	// second request at once.
	defaultBackoff = 25 * time.Millisecond
	// maxBackoffs bounds the wait for a retry, in base intervals.
	maxBackoffs = 10
)

// failure is how an attempt ended that left no response for the client.
type failure struct {
	kind   failureKind
	reason observe.Reason // of the answer, where no other attempt follows
	// silent reports whether the client is not to be answered: it has left.
	silent bool
	// unsent reports whether nothing of the request can have reached the backend.
	unsent bool
}

type failureKind uint8

const (
	notFailed         failureKind = iota
	failedFinally                 // no other attempt can help
	failedToConnect               // nothing was sent
	failedGone                    // likewise, because the endpoint has left the configuration
	failedSlow                    // likewise, because it took long and there was another endpoint
	failedStale                   // likewise, because the connection that had idled was closed
	failedUnsent                  // likewise, because an HTTP/2 connection ended or takes fewer streams
	failedUnprocessed             // the backend says that it has not processed the request
	failedOnIdle                  // a connection that had idled was closed before anything came back: maybe it was closed already
	failedByLoss                  // what was sent is not acknowledged, and the request may be sent to another endpoint
	failedByReset                 // the connection broke
	failedByTimeout               // timeouts.backendRequest ran out
	failedByStatus                // the response has a status for which the rule wants a retry
	failedMalformed               // what came is no response
)

// retryState is what judge knows of the attempts that a request has had.
type retryState struct {
	tried upstream.Tried
	// fresh reports whether the next attempt needs a new connection: idle ones may all be dead.
	fresh bool
	// needsOther reports whether the next attempt needs an endpoint that was not tried.
	needsOther bool
	// interim reports whether the client was sent an interim response, other than 100, of a backend.
	interim bool
	// gone and replays count attempts up to maxGone and maxReplays.
	gone, replays uint8
	moves         uint8 // up to maxMoves
	// uncounted are the attempts that do not count towards maxConnects.
	uncounted int
	retries   int // those that the rule's retry allows
}

// verdict is what follows a failure.
type verdict struct {
	again bool
	pause time.Duration // before that
	// reason is how a request ends whose response is relayed though its status asks for a retry.
	reason observe.Reason
	// refused is that the backend's retry budget allows none: the client is answered 503, whatever the failure was (GEP-3388).
	refused bool
}

// judged is judge, and f as the client is told of it where nothing follows.
func (x *Exchange) judged(f failure) (failure, verdict) {
	v := x.judge(f)
	if v.refused {
		f = failure{kind: failedFinally, reason: observe.ReasonRetryBudgetExhausted}
	}
	return f, v
}

// judge decides what follows a failure of the present attempt. It is the one place where that is done.
func (x *Exchange) judge(f failure) (v verdict) {
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
		// No retry either: nothing was sent. Who has moved often asks the next endpoints as others do.
		if p.Disabled() || r.moves == maxMoves && p != nil {
			return x.retryByRule(f)
		}
		r.move(x.endpoint)
		v.again = counted()
	case failedStale:
		// That was no attempt, unless we asked for a new connection and were given one that another had just used: then
		// it counts, so that this ends.
		if !r.fresh {
			r.uncounted++
		}
		r.fresh = true
		v.again = counted()
	case failedUnprocessed, failedUnsent:
		if p != nil && f.kind == failedUnprocessed { // whatever its triggers are, since nothing has been done
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
		// As failedOnIdle: the backend may have the request, but then none of its answers comes through.
		r.tried.Add(x.endpoint)
		r.fresh, r.needsOther = false, true
		v.again = counted() && x.countReplay()
	case failedByReset, failedByTimeout, failedMalformed:
		// The backend may have processed the request, or do so now.
		if p != nil && p.Triggers != 0 { // then whoever has set them wants it sent again nevertheless
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
		case !x.body.pin(): // its sender is at work still
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

// mayReplay reports whether the rule lets the request be sent again without a reason of its own for that.
func (x *Exchange) mayReplay() bool {
	return x.rule.Retry == nil || x.retry.retries < x.rule.Retry.Attempts
}

// countReplay is mayReplay, and counts that as one of the rule's retries: a backend that reads a request and then closes the connection looks like one that had
// closed it before.
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

// move has the next attempt made at another endpoint than one that takes long, if there is one.
func (r *retryState) move(ep *upstream.Endpoint) {
	r.tried.Add(ep)
	r.fresh, r.needsOther = false, false
	if r.moves < maxMoves {
		r.moves++
		r.uncounted++
	}
}

// connectsAgain reports, of an endpoint to which no connection could be made, by so many attempts, whether another one is asked, without a rule's retry.
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

// maxWithoutPause is how many endpoints are asked one after the other that accept no connection.
const maxWithoutPause = 8

// leastAttempt is what timeouts.request must leave for another attempt: with less the response at hand would be given up for a timeout.
const leastAttempt = 5 * time.Millisecond

// retryByRule allows another attempt as far as the rule's retry goes, but none that timeouts.request would not let begin, and none while
// memory is scarce, nor one in place of a response where no endpoint may be asked.
func (x *Exchange) retryByRule(f failure) (v verdict) {
	r, p := &x.retry, x.rule.Retry
	if r.retries >= p.Attempts || x.Client.Watch.goneNow() || x.Client.Engine.Refuses() {
		return v
	}
	if f.kind == failedByStatus && x.backend.AllBarred() { // it may be this response that has the last one ejected
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
	if v.again && x.seldom != nil { // else nothing was bounded when the request began
		x.seldom.retry, v.again = x.backend.AdmitRetry()
	}
	if budget := x.backend.RetryBudget(); v.again && budget != nil && !budget.Retry() {
		v.again, v.refused = false, true
	}
	return v
}

// backoff is the wait before the present retry: base, doubled for each one before it, and up to half of that more, so that requests which failed at the same
// moment do not come back at the same moment.
func (x *Exchange) backoff(base time.Duration) time.Duration {
	limit := base * maxBackoffs
	if limit/maxBackoffs != base { // it is years
		return base
	}
	d := base
	for i := 1; i < x.retry.retries && d < limit; i++ {
		d *= 2
	}
	d = min(d, limit)
	return d + time.Duration(upstream.Random(&x.fx.Seed)%uint64(d/2+1))
}

// jitteredBackoff is the wait before the present retry where the rule has triggers: anything from 0 up to the base interval, doubled for each retry before it, as
// Envoy has it (full jitter).
func (x *Exchange) jitteredBackoff(p *snapshot.Retry) time.Duration {
	base := cmp.Or(p.Backoff, defaultBackoff)
	limit := p.MaxBackoff
	if limit == 0 {
		if limit = base * maxBackoffs; limit/maxBackoffs != base { // it is years
			limit = base
		}
	}
	d := min(base, limit)
	for i := 1; i < x.retry.retries && d < limit; i++ {
		d = min(d*2, limit)
	}
	return time.Duration(upstream.Random(&x.fx.Seed) % uint64(max(d, 1)))
}

// pause waits; false is that the client has left.
func (x *Exchange) pause(d time.Duration) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := time.NewTimer(d)
	defer timer.Stop()
	x.Client.Watch.begin(interrupterFunc(cancel))
	x.attempt.waits()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	x.attempt.waited()
	return !x.Client.Watch.end()
}

// failureOf is what an error means that came instead of a final response head. lost is what Watch.settle has returned.
func (x *Exchange) failureOf(a *attempt, err error, gone, lost bool) failure {
	var toClient errClientWrite
	switch {
	case errors.Is(err, upstream.ErrStale):
		return failure{kind: failedStale, reason: observe.ReasonUpstreamReset, unsent: true}
	case x.body.failed() != nil:
		return failure{kind: failedFinally} // forward asks the body why
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

// timeoutFailure is that a timeout ran out: that of the attempt, or that of the request.
func (x *Exchange) timeoutFailure(unsent bool) failure {
	f := failure{kind: failedByTimeout, reason: x.timeoutReason(), unsent: unsent}
	if f.reason != observe.ReasonBackendTimeout {
		f.kind = failedFinally
	}
	return f
}

// discard gives up a response whose head was read. The connection is used again where all of it is there.
func (x *Exchange) discard(a *attempt) {
	sent := x.body.wholeSent(a)
	x.noteSent(sent)
	gone := x.Client.Watch.end()
	x.body.detach(a)
	a.end(a.transport.atEnd() && sent && !gone)
}
