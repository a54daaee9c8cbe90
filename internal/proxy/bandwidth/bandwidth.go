// Package bandwidth decides when bytes may pass if their number per second is limited. It is separate from exchange
// because it is arithmetic on a clock, for which tests can use any value.
//
// It imports nothing of Moongate.
package bandwidth

import (
	"math"
	"sync"
	"time"
)

const (
	// catchUp is how far a limiter may be behind its rate and still catch up, so that a goroutine that is woken late
	// does not reduce the rate. It bounds what passes at once after a pause.
	catchUp = 50 * time.Millisecond
	// leastWait is the shortest wait: shorter ones are added to those of later parts, since they would cost more than
	// they delay.
	leastWait = time.Millisecond
	// partsPerSecond is the number of parts in which the bytes of a second are sent, within the bounds below: few
	// enough to be cheap, and enough for streams to take turns.
	partsPerSecond      = 50
	leastPart, mostPart = 64, 64 << 10
)

// Forever is the wait of streams behind others in the queue: they are woken when it is their turn.
const Forever time.Duration = math.MaxInt64

// Limiter limits the bytes per second of any number of streams together. The streams take turns, a part at a time, in
// the order in which they ask. It is safe for concurrent use.
type Limiter struct {
	mu   sync.Mutex
	rate int64 // bytes per second
	// next is when the next byte may pass, by the clock; it is never more than catchUp behind. Only what has passed is
	// counted, so that streams which have left delay no others.
	next        time.Duration
	first, last *Waiter // the queue
}

// Waiter is the place of a stream in the queue. It belongs to one limiter at a time.
type Waiter struct {
	// Wake is called when it is the waiter's turn to ask again, perhaps more often. It may be called by any goroutine
	// and must not block. It must be set before Take, and must not change.
	Wake func()

	queued         bool // the fields below are guarded by mu of the limiter
	before, behind *Waiter
}

// New returns a limiter of a rate in bytes per second, at least 1, that has let nothing pass before now.
func New(rate int64, now time.Duration) *Limiter { return &Limiter{rate: max(rate, 1), next: now} }

// SetRate changes the rate, from the next part on. What has passed in excess so far is compensated at the new rate.
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

// Part returns how many bytes pass at a time.
func (l *Limiter) Part() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(min(max(l.rate/partsPerSecond, leastPart), mostPart))
}

// Take returns 0 if n bytes, at most Part, may pass now, and counts them. Otherwise w is in the queue: it must ask
// again after the returned time or when it is woken, until the bytes may pass or it leaves.
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

// Leave removes w from the queue, if it is there.
func (l *Limiter) Leave(w *Waiter) {
	l.mu.Lock()
	next := l.remove(w)
	l.mu.Unlock()
	next.wake()
}

// remove removes w from the queue, if it is there. It returns the waiter whose turn it is because of that, nil if there
// is none. mu must be held.
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

// wake wakes a waiter. It does nothing if w is nil.
func (w *Waiter) wake() {
	if w != nil {
		w.Wake()
	}
}
