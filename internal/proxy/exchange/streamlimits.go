package exchange

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
)

// streamLimits end an exchange whose rule limits how long nothing may move, or how long a stream may last; this
// includes tunnels and suspended exchanges. An exchange with limits needs a timer, which is restarted at most once each
// time it expires, and reads the clock for each part that moves. They are not reused for another exchange, because the
// timer may fire late.
type streamLimits struct {
	engine *Engine
	watch  *Watch
	idle   time.Duration // 0 means no limit
	until  time.Time     // the zero time means no limit

	moved atomic.Int64 // when data last moved, in nanoseconds since began
	began time.Time
	held  atomic.Int32 // number of bodies that a bandwidth limit holds up; these do not count as idle
	// lapsed is the observe.Reason of the limit that has expired; 0 if none has.
	lapsed atomic.Uint32

	mu    sync.Mutex
	timer *time.Timer // nil once the exchange has ended
}

// limitStream starts the limits that the rule sets for streams.
func (x *Exchange) limitStream() {
	r := x.rule
	if r.MaxStreamDuration > 0 {
		if at := x.start.Add(r.MaxStreamDuration); x.deadline.IsZero() || at.Before(x.deadline) {
			x.deadline, x.deadlineReason = at, observe.ReasonStreamDurationExceeded
		}
	}
	l := &streamLimits{engine: x.Client.Engine, watch: x.Client.Watch, idle: r.StreamIdleTimeout, began: time.Now()}
	if r.MaxStreamDuration > 0 {
		l.until = x.start.Add(r.MaxStreamDuration)
	}
	x.ensureRare().limits = l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.left(), l.expire)
}

// left returns how long it takes until a limit expires, if nothing moves.
func (l *streamLimits) left() time.Duration {
	if l.idle == 0 {
		return time.Until(l.until)
	}
	if l.held.Load() > 0 {
		l.moved.Store(int64(time.Since(l.began)))
	}
	left := time.Duration(l.moved.Load()) + l.idle - time.Since(l.began)
	if l.until.IsZero() {
		return left
	}
	return min(left, time.Until(l.until))
}

// expire is called by the timer, on a goroutine on which nothing else recovers panics.
func (l *streamLimits) expire() {
	defer func() {
		if v := recover(); v != nil {
			l.engine.Observer.Panicked("exchange", v)
		}
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil {
		return
	}
	if left := l.left(); left > 0 {
		l.timer.Reset(left)
		return
	}
	reason := observe.ReasonStreamIdle
	if !l.until.IsZero() && !time.Now().Before(l.until) {
		reason = observe.ReasonStreamDurationExceeded
	}
	l.lapsed.Store(uint32(reason))
	l.watch.lapse()
}

// end must be called before the end of the exchange.
func (l *streamLimits) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
	l.timer = nil
}

// limits returns the limits that the rule sets for streams, nil if there are none.
func (x *Exchange) limits() *streamLimits {
	if x.rare == nil {
		return nil
	}
	return x.rare.limits
}

// movedNow records that data has moved, to the backend or from it.
func (x *Exchange) movedNow() {
	if l := x.limits(); l != nil {
		l.moved.Store(int64(time.Since(l.began)))
	}
}

// hold records that a bandwidth limit holds up a body, until moveOn. It does nothing if l is nil.
func (l *streamLimits) hold() {
	if l != nil {
		l.held.Add(1)
	}
}

func (l *streamLimits) moveOn() {
	if l != nil {
		l.moved.Store(int64(time.Since(l.began)))
		l.held.Add(-1)
	}
}

// endLimits must be called before the end of the exchange.
func (x *Exchange) endLimits() {
	if l := x.limits(); l != nil {
		l.end()
		x.rare.limits = nil
	}
}

// lapsed returns the reason of the limit that has expired, and false if none has.
func (x *Exchange) lapsed() (observe.Reason, bool) {
	l := x.limits()
	if l == nil {
		return 0, false
	}
	reason := observe.Reason(l.lapsed.Load())
	return reason, reason != 0
}

// pastDeadline reports whether the deadline of the exchange has passed.
func (x *Exchange) pastDeadline() bool { return !x.deadline.IsZero() && !time.Now().Before(x.deadline) }

// expired returns the reason of the deadline or the limit that has expired, and false if none has.
func (x *Exchange) expired() (observe.Reason, bool) {
	if x.pastDeadline() {
		return x.deadlineReason, true
	}
	return x.lapsed()
}

// limitWrite makes a write to the client fail that takes longer than the idle limit.
func (x *Exchange) limitWrite() {
	l := x.limits()
	if l == nil || l.idle == 0 {
		return
	}
	by := time.Now().Add(l.idle)
	if !x.deadline.IsZero() && x.deadline.Before(by) {
		by = x.deadline
	}
	x.Client.Limiter.WriteBy(by)
}
