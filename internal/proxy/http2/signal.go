package http2

import (
	"sync"
	"time"
)

// signal wakes a goroutine that waits, under a lock, for a change or a deadline; sync.Cond has no deadlines. Only one
// goroutine may wait at a time, and any number may send.
type signal struct {
	c     chan struct{}
	alarm *alarm // nil before the first wait with a deadline
}

func newSignal() signal { return signal{c: make(chan struct{}, 1)} }

// send wakes the waiting goroutine, or else the next one to wait.
func (w *signal) send() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// clear discards a send for which no goroutine has waited.
func (w *signal) clear() {
	if w.alarm != nil {
		w.alarm.stop()
	}
	select {
	case <-w.c:
	default:
	}
}

// forget releases the memory that is needed only for waits with a deadline. No goroutine may wait.
func (w *signal) forget() {
	if w.alarm != nil {
		w.alarm.stop()
		w.alarm = nil
	}
}

// wait unlocks mu until the signal or the deadline, and reports whether it was the signal. The zero deadline means
// none. The caller must check whether what it waits for has happened.
func (w *signal) wait(mu *sync.Mutex, deadline time.Time) bool {
	if deadline.IsZero() {
		mu.Unlock()
		<-w.c
		mu.Lock()
		return true
	}
	if deadline.Equal(longAgo) {
		return false
	}
	if w.alarm == nil {
		w.alarm = &alarm{signal: *w}
	}
	if !w.alarm.set(deadline) {
		return false
	}
	mu.Unlock()
	<-w.c
	mu.Lock()
	return w.alarm.unset()
}

// alarm sends a signal when the deadline of a wait has passed. Its timer stays armed between waits, and is armed again
// when it goes off too early: starting and stopping one for each wait took a third of the CPU time of messages on open
// streams.
type alarm struct {
	signal signal // without an alarm

	mu sync.Mutex
	// until is the deadline of the wait, and due is when the timer goes off, both relative to epoch; 0 means none.
	until, due time.Duration
	passed     bool // the deadline of the wait has passed
	timer      *time.Timer
}

// epoch is the time to which alarms are relative, by the monotonic clock.
var epoch = time.Now()

// set begins a wait. It returns false if the deadline has already passed.
func (a *alarm) set(deadline time.Time) bool {
	until := max(deadline.Sub(epoch), 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.due == 0 || until < a.due {
		left := until - time.Since(epoch)
		if left <= 0 {
			return false
		}
		a.arm(until, left)
	}
	a.until, a.passed = until, false
	return true
}

func (a *alarm) arm(due, left time.Duration) {
	if a.due = due; a.timer == nil {
		a.timer = time.AfterFunc(left, a.goOff)
	} else {
		a.timer.Reset(left)
	}
}

// goOff is called by the timer.
func (a *alarm) goOff() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Since(epoch)
	switch {
	case a.due > now: // it was armed again meanwhile
	case a.until > now:
		a.arm(a.until, a.until-now)
	default:
		a.due = 0
		if a.until != 0 {
			a.passed = true
			a.signal.send()
		}
	}
}

// unset ends a wait, and reports whether the deadline had not passed.
func (a *alarm) unset() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = 0
	return !a.passed
}

// stop stops the timer. No goroutine may wait.
func (a *alarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.due != 0 {
		a.due = 0
		a.timer.Stop()
	}
}
