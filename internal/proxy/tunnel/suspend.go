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
	// meets: who leaves the wait goes to the tunnel's meeting. Guarded by mu.
	meets bool
}

// meeting is where both directions of a tunnel say whether they have anything to do.
type meeting struct {
	came int
	busy bool
	over chan struct{} // closed when busy is final
}

// longAgo as a deadline interrupts a blocked read.
var longAgo = time.Unix(1, 0)

// begin lets wake end what follows, until leave.
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

// leave ends the wait, which nothing has come in, and reports whether that was woken and found nothing. The deadline of Interrupt stays.
func (t *Tunnel) leave(d *direction, nothing bool) (woken bool) {
	d.mu.Lock()
	woken, meets := d.woken, d.meets
	d.waiting, d.woken, d.meets = false, false, false
	d.mu.Unlock()
	if !woken {
		return false
	}
	d.from.(Socket).SetReadDeadline(time.Time{}) //nolint:errcheck // as in wakeUp
	if t.interrupted.Load() {                    // maybe before the deadline was cleared
		d.from.Interrupt()
	}
	if meets {
		d.rests = t.meet(!nothing)
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
	if t.end.Err != nil || t.meeting != nil {
		return
	}
	t.meeting = &meeting{over: make(chan struct{})}
	for _, d := range [...]*direction{a, b} {
		d.meets = true
		d.wakeUp()
	}
}

// meet reports whether the tunnel is suspended: both directions have come, and neither is busy.
func (t *Tunnel) meet(busy bool) (suspended bool) {
	t.mu.Lock()
	m := t.meeting
	if m == nil { // it was cancelled
		t.mu.Unlock()
		return false
	}
	m.came++
	m.busy = m.busy || busy
	if m.came == 2 {
		t.meeting = nil
		close(m.over)
	}
	t.mu.Unlock()
	<-m.over
	return !m.busy
}

// cancelMeeting is for a direction that does not come; mu is held.
func (t *Tunnel) cancelMeeting() {
	if m := t.meeting; m != nil {
		m.busy, t.meeting = true, nil
		close(m.over)
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

// goOn wakes who awaits the tunnel, if anybody does.
func (t *Tunnel) goOn() (awaited bool) {
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
