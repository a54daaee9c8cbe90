// Package signal wakes a goroutine that waits, under a lock, for something to change or a deadline. It exists because
// a sync.Cond knows no deadlines.
//
// It imports sync and time only.
package signal

import (
	"sync"
	"time"
)

// Signal is for one goroutine that waits at a time, and any number that send. Make makes one.
type Signal struct {
	c     chan struct{}
	timer *time.Timer // nil before the first wait with a deadline
}

// Make makes a signal that was not sent.
func Make() Signal { return Signal{c: make(chan struct{}, 1)} }

// Send wakes who waits, or else who waits next.
func (w *Signal) Send() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// Clear takes back a Send that nobody has waited for.
func (w *Signal) Clear() {
	select {
	case <-w.c:
	default:
	}
}

// Wait gives mu away until the signal or the deadline comes; false is the deadline, and zero none. Who is woken looks whether it
// is what was waited for.
func (w *Signal) Wait(mu *sync.Mutex, deadline time.Time) bool {
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
