package tunnel

import (
	"sync"
	"time"
)

// A tunnel through which nothing moves can release its goroutines, whose stacks are most of its memory. Both directions
// must agree that no data is in transit: each is woken from its wait, reports whether it has found data, and waits for
// the other's report, which takes no longer than waking it. From then on HangUps watches the sockets, until something
// arrives on either.

// wait is the state of a direction between two sockets for ending its wait.
type wait struct {
	mu      sync.Mutex
	waiting bool // guarded by mu
	// woken means that the read deadline was moved only to end the wait. Guarded by mu.
	woken bool
	// asked means that the direction must report at the tunnel's barrier, after its wait, whether it has found data.
	// Guarded by mu.
	asked bool
}

// barrier is where both directions of a tunnel report whether they have anything to do, and wait for each other.
type barrier struct {
	arrived int
	busy    bool
	passed  chan struct{} // closed when busy is final
}

// longAgo is a deadline that interrupts a blocked read.
var longAgo = time.Unix(1, 0)

// begin allows hungUp and Suspend to end the following wait, until leave.
func (w *wait) begin() {
	w.mu.Lock()
	w.waiting = true
	w.mu.Unlock()
}

// wakeUp ends the wait. mu must be held.
func (d *direction) wakeUp() {
	d.woken = true
	d.from.(Socket).SetReadDeadline(longAgo) //nolint:errcheck // closing a socket wakes the waiting goroutine too
}

// hungUp ends the wait, if there is one. It may be called at any time.
func (d *direction) hungUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting {
		d.wakeUp()
	}
}

// leave must be called after a wait. nothing means that the wait ended by a deadline and returned no bytes. It reports
// whether that was because the direction was woken. The deadline of Interrupt is kept.
func (t *Tunnel) leave(d *direction, nothing bool) (woken bool) {
	d.mu.Lock()
	woken, asked := d.woken, d.asked
	d.waiting, d.woken, d.asked = false, false, false
	d.mu.Unlock()
	if !woken {
		return false
	}
	d.from.(Socket).SetReadDeadline(time.Time{}) //nolint:errcheck // as in wakeUp
	if t.interrupted.Load() {                    // perhaps before the deadline was cleared
		d.from.Interrupt()
	}
	if asked {
		d.suspended = t.agree(!nothing)
	}
	return nothing
}

// Suspend makes Run return soon with Suspended set, if no data is in transit and both ends are sockets whose streams
// have not ended. Otherwise it does nothing. It may be called by any goroutine, at any time.
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

// agree waits until both directions have arrived at the barrier, and reports whether the tunnel is suspended because
// neither is busy.
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

// cancelBarrier is called for a direction that will not arrive. mu must be held.
func (t *Tunnel) cancelBarrier() {
	if b := t.barrier; b != nil {
		b.busy, t.barrier = true, nil
		close(b.passed)
	}
}

// Await arranges that wake is called once when a suspended tunnel is to continue with Run, and returns true; or it
// returns false if the tunnel is to continue at once. wake must not block. After that, only Interrupt, which wakes too,
// may be called until wake is called.
func (t *Tunnel) Await(wake func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.interrupted.Load() || !t.HangUps.await(t) {
		return false
	}
	t.wake = wake
	return true
}

// resume calls wake if the tunnel is awaited, and reports whether it was.
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
