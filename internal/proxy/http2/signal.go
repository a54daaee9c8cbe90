package http2

import (
	"sync"
	"time"
)

// signal wakes a goroutine that waits, under a lock, for something to change or a deadline, which a sync.Cond has not. It is for
// one goroutine that waits at a time, and any number that send.
type signal struct {
	c     chan struct{}
	timer *time.Timer // nil before the first wait with a deadline
}

func newSignal() signal { return signal{c: make(chan struct{}, 1)} }

// send wakes who waits, or else who waits next.
func (w *signal) send() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// clear takes back a send that nobody has waited for.
func (w *signal) clear() {
	select {
	case <-w.c:
	default:
	}
}

// wait unlocks mu until the signal or the deadline comes, and reports whether it was the signal; a zero deadline is none. Who is
// woken looks whether it is what was waited for.
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
