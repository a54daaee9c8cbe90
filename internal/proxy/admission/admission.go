// Package admission rejects requests while too many earlier ones have failed, with the probability of Envoy's admission
// control filter: a backend that cannot keep up gets fewer requests, and more again as it recovers, without a threshold
// at which everything changes. It is separate from exchange because it is arithmetic on a window of time, for which
// tests can use any clock.
//
// It imports nothing of Moongate.
package admission

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// slots is the number of parts of a window, which expire one at a time.
const slots = 32

// Window counts requests and successes over a sliding time. It is safe for concurrent use, and takes a lock only when
// one of its parts begins.
type Window struct {
	width time.Duration // of a slot
	mu    sync.Mutex    // held to begin a slot
	slots [slots]slot
}

// slot counts the requests that have ended within a part of the window.
type slot struct {
	number           atomic.Int64 // number of the part since the clock began, from 1 on; 0 means none yet
	total, successes atomic.Int64
}

// NewWindow returns an empty window of the given length, which must be at least 1 s.
func NewWindow(length time.Duration) *Window {
	return &Window{width: max(length/slots, 1)}
}

// Record counts a request that ends at now, by a monotonic clock. A request that ends just when its slot is reused may
// count in either part.
func (w *Window) Record(now time.Duration, success bool) {
	number := int64(now/w.width) + 1
	s := &w.slots[number%slots]
	if s.number.Load() != number && !w.begin(s, number) {
		return
	}
	s.total.Add(1)
	if success {
		s.successes.Add(1)
	}
}

// begin resets the slot for a part. It returns false if it already belongs to a later one.
func (w *Window) begin(s *slot, number int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := s.number.Load(); at >= number {
		return at == number
	}
	s.total.Store(0)
	s.successes.Store(0)
	s.number.Store(number)
	return true
}

// Counts returns how many requests the window has, how many of them have succeeded, and for how long there have been
// any.
func (w *Window) Counts(now time.Duration) (total, successes int64, since time.Duration) {
	number := int64(now/w.width) + 1
	oldest := number
	for i := range w.slots {
		s := &w.slots[i]
		at := s.number.Load()
		if at <= number-slots || at > number || at == 0 {
			continue
		}
		n := s.total.Load()
		total += n
		successes += min(s.successes.Load(), n)
		if n > 0 {
			oldest = min(oldest, at)
		}
	}
	return total, successes, now - time.Duration(oldest-1)*w.width
}

// Settings define which requests are rejected, and what a success is.
type Settings struct {
	MinSuccess   float64 // share of successes below which requests are rejected; above 0 and at most 1
	Aggression   float64 // at least 1
	MinRate      float64 // requests per second below which none is rejected
	MaxRejection float64 // largest rejection probability, 0-1
	HTTP         []int   // status codes of successes; empty means those below 500
	GRPC         []int   // gRPC status codes of successes; empty means those that are not the server's fault
}

// Control rejects requests by the outcomes of earlier ones in a window. It is immutable, and safe for concurrent use.
type Control struct {
	window   *Window
	settings Settings
	exponent float64
	http     [10]uint64 // a bit for each status code that is a success
	grpc     uint32
}

// notServers are the gRPC codes that are successes by default, as in Envoy: OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT,
// NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED and UNAUTHENTICATED.
var notServers = []int{0, 1, 2, 3, 5, 6, 9, 11, 12, 16}

// New returns a Control that counts in window.
func New(s Settings, window *Window) *Control {
	c := &Control{window: window, settings: s, exponent: 1 / s.Aggression}
	for code := range len(c.http) * 64 {
		if len(s.HTTP) == 0 && code < 500 {
			c.http[code/64] |= 1 << (code % 64)
		}
	}
	for _, code := range s.HTTP {
		if code >= 0 && code < len(c.http)*64 {
			c.http[code/64] |= 1 << (code % 64)
		}
	}
	codes := s.GRPC
	if len(codes) == 0 {
		codes = notServers
	}
	for _, code := range codes {
		if code >= 0 && code < 32 {
			c.grpc |= 1 << code
		}
	}
	return c
}

// Probability returns the probability with which a request is rejected, given the numbers of earlier requests and
// successes.
func (c *Control) Probability(total, successes int64) float64 {
	p := (float64(total) - float64(successes)/c.settings.MinSuccess) / (float64(total) + 1)
	if p <= 0 {
		return 0
	}
	if c.exponent != 1 {
		p = math.Pow(p, c.exponent)
	}
	return min(p, c.settings.MaxRejection)
}

// Admits reports whether a request at now may go on; random is a random number. A rejected request must not be
// recorded.
func (c *Control) Admits(now time.Duration, random uint64) bool {
	total, successes, since := c.window.Counts(now)
	if c.settings.MinRate > 0 && float64(total)/max(since, time.Second).Seconds() < c.settings.MinRate {
		return true
	}
	p := c.Probability(total, successes)
	return p == 0 || float64(random>>11)/(1<<53) >= p
}

// RecordHTTP counts a request that is answered with a status at now; 0 means that it was not answered.
func (c *Control) RecordHTTP(now time.Duration, status int) {
	c.window.Record(now, status > 0 && status < len(c.http)*64 && c.http[status/64]&(1<<(status%64)) != 0)
}

// RecordGRPC counts a gRPC call that ends with a code at now; a negative code means that it has none.
func (c *Control) RecordGRPC(now time.Duration, code int) {
	c.window.Record(now, code >= 0 && code < 32 && c.grpc&(1<<code) != 0)
}
