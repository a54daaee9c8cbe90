package exchange

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
)

// streamLimits end an exchange of a rule that says for how long nothing may move, or how long a stream may last; tunnels and what is suspended too. They cost an exchange a timer,
// which begins anew at most once for each time that it runs out, and each part that moves a look at the clock. They are of one exchange alone: its timer may be late.
type streamLimits struct {
	engine *Engine
	watch  *Watch
	idle   time.Duration // 0 is no limit
	until  time.Time     // zero is no limit

	moved atomic.Int64 // when something has moved last, in nanoseconds since began
	began time.Time
	held  atomic.Int32 // bodies that wait for their time, as their rule's bandwidth has it: what is held up is not idle
	// lapsed is the observe.Reason of the limit that has run out; 0 while none has.
	lapsed atomic.Uint32

	mu    sync.Mutex
	timer *time.Timer // nil once the exchange has ended
}

// limitStream begins what the rule says of streams.
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
	x.mayNeed().limits = l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.left(), l.expire)
}

// left is how long until a limit runs out, if nothing moves.
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

// expire is the timer's, whose goroutine is nobody else's.
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

// end comes before the end of the exchange.
func (l *streamLimits) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
	l.timer = nil
}

// limits returns what the rule says of streams, nil where that is nothing.
func (x *Exchange) limits() *streamLimits {
	if x.seldom == nil {
		return nil
	}
	return x.seldom.limits
}

// movedNow notes that something has moved, to the backend or from it.
func (x *Exchange) movedNow() {
	if l := x.limits(); l != nil {
		l.moved.Store(int64(time.Since(l.began)))
	}
}

// hold notes that a body waits for its time, until moveOn; nil does nothing.
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

// endLimits comes before the end of the exchange.
func (x *Exchange) endLimits() {
	if l := x.limits(); l != nil {
		l.end()
		x.seldom.limits = nil
	}
}

// lapsed returns the reason of the limit that has run out; false is that none has.
func (x *Exchange) lapsed() (observe.Reason, bool) {
	l := x.limits()
	if l == nil {
		return 0, false
	}
	reason := observe.Reason(l.lapsed.Load())
	return reason, reason != 0
}

// limitWrite has a write to the client fail that takes longer than nothing may move.
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
