package exchange

import (
	"math"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// injectFault delays or answers the request, as its rule randomly decides. answered means that the request has ended;
// read is the result of handle then.
func (x *Exchange) injectFault(f *snapshot.FaultInjection) (answered, read bool) {
	if f.Delays(&x.fx.Seed) {
		begun := time.Now()
		reason := x.await(f.Delay)
		x.rec.InjectedDelayMillis = uint32(min(max(time.Since(begun).Milliseconds(), 1), math.MaxUint32))
		switch reason {
		case observe.ReasonOK:
		case observe.ReasonClientClosed:
			x.rec.Reason = reason
			return true, false
		default:
			return true, x.fail(reason)
		}
	}
	switch {
	case !f.Aborts(&x.fx.Seed):
		return false, false
	case f.GRPCStatus < 0:
		return true, x.failWith(f.HTTPStatus, observe.ReasonFaultInjected)
	case x.grpc:
		return true, x.failGRPCWith(f.GRPCStatus, HTTPStatusOf(f.GRPCStatus), observe.ReasonFaultInjected)
	}
	// grpc-status means nothing to other clients, which must not take the fault for a success.
	return true, x.failWith(HTTPStatusOf(f.GRPCStatus), observe.ReasonFaultInjected)
}

// await waits before any backend is asked. It returns ReasonOK when d has passed, or earlier the reason for which the
// request ends: the client has left, or a limit on the request's time has expired.
func (x *Exchange) await(d time.Duration) observe.Reason {
	atDeadline := false
	if !x.deadline.IsZero() {
		if left := time.Until(x.deadline); left <= d {
			d, atDeadline = left, true
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	w := x.beginWait()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
	if w.endNotForBackend() {
		return observe.ReasonClientClosed
	}
	if reason, lapsed := x.lapsed(); lapsed {
		return reason
	}
	if atDeadline {
		return x.deadlineReason
	}
	return observe.ReasonOK
}
