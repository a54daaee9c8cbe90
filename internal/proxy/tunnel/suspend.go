package tunnel

import (
	"sync"
	"time"
)

// A tunnel through which nothing moves can give up its goroutines, whose stacks are most of what it costs. Both directions must agree that nothing is on its
// way: each comes out of its wait and says whether it found anything, and waits for the other to say so, which takes no longer than that one's wake-up.
// From then on the sockets are watched by HangUps, until something comes from either.

// wait is what a direction between two sockets waits in.
type wait struct {
	mu      sync.Mutex
	waiting bool // guarded by mu
	// woken: the read deadline is over, for no other reason than to end the wait. Guarded by mu.
	woken bool
	// asked: who leaves the wait says at the tunnel's barrier whether it found anything. Guarded by mu.
	asked bool
}

// barrier is where both directions of a tunnel say whether they have anything to do, and wait until both have.
type barrier struct {
	arrived int
	busy    bool
	passed  chan struct{} // closed when busy is final
}

// longAgo as a deadline interrupts a blocked read.
var longAgo = time.Unix(1, 0)

// begin lets hungUp and Suspend end what follows, until leave.
func (w *wait) begin() {
	w.mu.Lock()
	w.waiting = true
	w.mu.Unlock()
}

// wakeUp ends the wait; mu is held.
func (d *direction) wakeUp() {
	d.woken = true
	d.from.(Socket).SetReadDeadline(longAgo) //nolint:errcheck // a socket that is closed has woken who waits
}

// hungUp ends a wait, if one is under way; it may be called at any time.
func (d *direction) hungUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting {
		d.wakeUp()
	}
}

// leave follows a wait; nothing says that it ended by a deadline and brought no bytes. It reports whether it did so because it was woken. The deadline of
// Interrupt stays.
func (t *Tunnel) leave(d *direction, nothing bool) (woken bool) {
	d.mu.Lock()
	woken, asked := d.woken, d.asked
	d.waiting, d.woken, d.asked = false, false, false
	d.mu.Unlock()
	if !woken {
		return false
	}
	d.from.(Socket).SetReadDeadline(time.Time{}) //nolint:errcheck // as in wakeUp
	if t.interrupted.Load() {                    // maybe before the deadline was cleared
		d.from.Interrupt()
	}
	if asked {
		d.rests = t.agree(!nothing)
	}
	return nothing
}

// Suspend has Run return with Suspended set, soon, if nothing is on its way and both ends are sockets whose streams have not ended; else it does nothing. It
// may be called by any goroutine, at any time.
func (t *Tunnel) Suspend() {
	if !t.Suspends || !suspends || t.HangUps == nil {
		return
	}
	a, b := &t.toBackend, &t.toClient
	a.mu.Lock()
	defer a.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !a.waiting || a.woken || !b.waiting || b.woken {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end.Err != nil || t.barrier != nil {
		return
	}
	t.barrier = &barrier{passed: make(chan struct{})}
	for _, d := range [...]*direction{a, b} {
		d.asked = true
		d.wakeUp()
	}
}

// agree waits until both directions have arrived at the barrier, and reports whether the tunnel is suspended, since neither is busy.
func (t *Tunnel) agree(busy bool) (suspended bool) {
	t.mu.Lock()
	b := t.barrier
	if b == nil { // the other direction has failed
		t.mu.Unlock()
		return false
	}
	b.arrived++
	b.busy = b.busy || busy
	if b.arrived == 2 {
		t.barrier = nil
		close(b.passed)
	}
	t.mu.Unlock()
	<-b.passed
	return !b.busy
}

// cancelBarrier is for a direction that will not arrive; mu is held.
func (t *Tunnel) cancelBarrier() {
	if b := t.barrier; b != nil {
		b.busy, t.barrier = true, nil
		close(b.passed)
	}
}

// Await has wake called, once, when a suspended tunnel is to go on by Run, and reports true; or false where it is to at once. wake must not block. From
// then on the tunnel belongs to who is woken, but for Interrupt, which wakes too.
func (t *Tunnel) Await(wake func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.interrupted.Load() || !t.HangUps.await(t) {
		return false
	}
	t.wake = wake
	return true
}

// resume wakes who awaits the tunnel, if anybody does.
func (t *Tunnel) resume() (awaited bool) {
	t.mu.Lock()
	wake := t.wake
	t.wake = nil
	t.mu.Unlock()
	if wake == nil {
		return false
	}
	wake()
	return true
}
