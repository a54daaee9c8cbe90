package exchange

import "github.com/moongate-dev/moongate/internal/observe"

// Panicked ends an exchange through which a panic passed, and is called by the deferred function that has recovered v. What
// it had from the backend is closed and not used again; the client's connection or stream is the caller's to
// end, and the Exchange must not be used any more.
func (x *Exchange) Panicked(v any) {
	e := x.Client.Engine
	e.Observer.Panicked("exchange", v)
	if x.start.IsZero() {
		return // it had finished, or not begun
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

// guard has a panic of f end f only.
func (x *Exchange) guard(f func()) {
	defer func() {
		if v := recover(); v != nil {
			x.Client.Engine.Observer.Panicked("exchange", v)
		}
	}()
	f()
}
