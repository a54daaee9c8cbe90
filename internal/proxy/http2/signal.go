package http2

import (
	"sync"
	"time"
)

// signal wakes a goroutine that waits, under a lock, for a change or a deadline; sync.Cond has no deadlines. Only one
// goroutine may wait at a time, and any number may send.
type signal struct {
	c     chan struct{}
	timer *time.Timer // nil before the first wait with a deadline
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
	select {
	case <-w.c:
	default:
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
	d := time.Until(deadline)
	if d <= 0 {
		return false
	}
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
	mu.Unlock()
	defer mu.Lock()
	select {
	case <-w.c:
		w.timer.Stop()
		return true
	case <-w.timer.C:
		return false
	}
}
