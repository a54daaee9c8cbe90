package exchange

import "github.com/moongate-dev/moongate/internal/observe"

// Panicked ends an exchange that has panicked. The deferred function that has recovered v must call it. The connection
// to the backend is closed and not reused. The caller must end the client's connection or stream, and must not use the
// Exchange any more.
func (x *Exchange) Panicked(v any) {
	e := x.Client.Engine
	e.Observer.Panicked("exchange", v)
	if x.start.IsZero() {
		return // it has already finished, or has not begun
	}
	x.guard(func() {
		x.body.detach(&x.attempt)
		x.body.finish(&x.attempt, false)
		x.endMirrors(false)
	})
	x.guard(func() {
		x.Client.Watch.since.Store(0)
		x.Client.Watch.end()
		if x.joined != nil {
			x.joined.breakOff()
		}
		x.attempt.end(false)
	})
	x.guard(x.body.release)
	if x.endpoint != nil {
		x.endEndpoint()
	}
	x.endRetry()
	x.guard(x.endLimits)
	x.guard(x.endPacing)
	x.guard(func() {
		x.rec.Reason = observe.ReasonInternal
		x.endAdmission()
		x.finish()
	})
}

// guard calls f and recovers if it panics.
func (x *Exchange) guard(f func()) {
	defer func() {
		if v := recover(); v != nil {
			x.Client.Engine.Observer.Panicked("exchange", v)
		}
	}()
	f()
}
