// Package bandwidth says when bytes may pass of which only so many may in a second. It exists apart from exchange because it is arithmetic on a clock, which tests give any.
//
// It imports nothing of Moongate.
package bandwidth

import (
	"math"
	"sync"
	"time"
)

const (
	// catchUp is for how long a limiter may be behind its rate and make up for it: so a goroutine that is woken late slows nothing down. It bounds what passes at once after a pause.
	catchUp = 50 * time.Millisecond
	// leastWait is the least that is waited for: less is made up for by later parts, and would cost more than it holds up.
	leastWait = time.Millisecond
	// partsPerSecond are the parts that a second's bytes are sent in, within the bounds below: few enough to cost little, and enough for streams to take turns.
	partsPerSecond      = 50
	leastPart, mostPart = 64, 64 << 10
)

// Forever is the wait of those before which others wait: they are woken when it is their turn.
const Forever time.Duration = math.MaxInt64

// Limiter bounds bytes in time, for any number of streams together: these take turns, a part at a time, in the order in which they ask. It is safe for concurrent use.
type Limiter struct {
	mu   sync.Mutex
	rate int64 // bytes a second
	// next is when the next byte may pass, by the clock; it is never more than catchUp behind. Only what has passed is counted, so that nobody waits for those who have left.
	next        time.Duration
	first, last *Waiter // who waits, in order
}

// Waiter is the place of a stream among those that wait. It is of one limiter at a time.
type Waiter struct {
	// Wake is called when it is the waiter's turn to ask again, maybe more often. It may be called by any goroutine, and must not block; it is set before Take, and stays.
	Wake func()

	queued         bool // what follows is guarded by mu of the limiter
	before, behind *Waiter
}

// New returns a limiter of a rate in bytes a second, at least 1, that has let nothing pass before now.
func New(rate int64, now time.Duration) *Limiter { return &Limiter{rate: max(rate, 1), next: now} }

// SetRate changes the rate, from the next part on. What has passed more than it should by now is made up for at the new rate.
func (l *Limiter) SetRate(rate int64, now time.Duration) {
	l.mu.Lock()
	rate = max(rate, 1)
	if ahead := l.next - now; ahead > 0 {
		l.next = now + time.Duration(math.Ceil(float64(ahead)*float64(l.rate)/float64(rate)))
	}
	l.rate = rate
	first := l.first
	l.mu.Unlock()
	first.wake()
}

// Part is how many bytes pass at a time.
func (l *Limiter) Part() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(min(max(l.rate/partsPerSecond, leastPart), mostPart))
}

// Take returns 0 where n bytes, Part at most, may pass now, and counts them. Else w waits from now on: it is to ask again after what is returned, or when it is woken, until
// they may pass, or it leaves.
func (l *Limiter) Take(now time.Duration, w *Waiter, n int) (wait time.Duration) {
	l.mu.Lock()
	start := max(l.next, now-catchUp)
	switch {
	case l.first != nil && l.first != w:
		wait = Forever
	case start-now >= leastWait:
		wait = start - now
	default:
		l.next = start + max(time.Duration(math.Ceil(float64(n)*float64(time.Second)/float64(l.rate))), 1)
		next := l.remove(w)
		l.mu.Unlock()
		next.wake()
		return 0
	}
	if !w.queued {
		w.queued, w.before = true, l.last
		if l.last == nil {
			l.first = w
		} else {
			l.last.behind = w
		}
		l.last = w
	}
	l.mu.Unlock()
	return wait
}

// Leave has w wait no more; it may not wait at all.
func (l *Limiter) Leave(w *Waiter) {
	l.mu.Lock()
	next := l.remove(w)
	l.mu.Unlock()
	next.wake()
}

// remove takes w out of those that wait, if it is there, and returns whose turn it is by that, nil where that changes nothing; mu is held.
func (l *Limiter) remove(w *Waiter) (next *Waiter) {
	if !w.queued {
		return nil
	}
	if w.before == nil {
		l.first, next = w.behind, w.behind
	} else {
		w.before.behind = w.behind
	}
	if w.behind == nil {
		l.last = w.before
	} else {
		w.behind.before = w.before
	}
	w.queued, w.before, w.behind = false, nil, nil
	return next
}

// wake wakes a waiter; nil does nothing.
func (w *Waiter) wake() {
	if w != nil {
		w.Wake()
	}
}
