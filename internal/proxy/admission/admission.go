// Package admission turns requests away while too many of those before them have failed, with the probability that Envoy's admission control filter has: so a backend that cannot
// keep up gets less to do, and more again as it recovers, without a threshold at which everything changes. It exists apart from exchange because it is arithmetic on a window of
// time, which tests give any clock.
//
// It imports nothing of Moongate.
package admission

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// slots are the parts of a window: a thirty-second of it is forgotten at a time.
const slots = 32

// Window counts requests, and which of them have succeeded, over a time that slides. It is safe for concurrent use, and takes a lock only where one of its parts begins.
type Window struct {
	width time.Duration // of a slot
	mu    sync.Mutex    // held where a slot begins
	slots [slots]slot
}

// slot counts what has ended within a part of the window.
type slot struct {
	number           atomic.Int64 // of the part since the clock began, from 1 on; 0 is none yet
	total, successes atomic.Int64
}

// NewWindow returns an empty window of a length, at least 1 s.
func NewWindow(length time.Duration) *Window {
	return &Window{width: max(length/slots, 1)}
}

// Record counts a request that has ended now, by a clock that only goes forward. A request that ends in the moment in which its slot is used anew may count in either.
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

// begin makes the slot that of a part; false is that a later one has it.
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

// Counts returns how many requests the window has and how many of them have succeeded, and for how long there have been any.
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

// Settings say which requests are rejected, and what a success is.
type Settings struct {
	MinSuccess   float64 // share of successes below which requests are rejected, above 0 and up to 1
	Aggression   float64 // at least 1
	MinRate      float64 // requests a second below which none is rejected
	MaxRejection float64 // the most that the probability is, 0-1
	HTTP         []int   // status codes of successes; none are those below 500
	GRPC         []int   // status codes of gRPC; none are those that are not the server's fault
}

// Control rejects requests by what a window has of those before. It is immutable, and safe for concurrent use.
type Control struct {
	window   *Window
	settings Settings
	exponent float64
	http     [10]uint64 // a bit for each status code that is a success
	grpc     uint32
}

// notServers are the codes of gRPC that are successes where nothing is said, as Envoy has them: OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS,
// FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED and UNAUTHENTICATED.
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

// Probability is that with which a request is rejected after so many, of which so many have succeeded.
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

// Admits reports whether a request that comes now may go on, where random is any number. What is rejected must not be recorded.
func (c *Control) Admits(now time.Duration, random uint64) bool {
	total, successes, since := c.window.Counts(now)
	if c.settings.MinRate > 0 && float64(total)/max(since, time.Second).Seconds() < c.settings.MinRate {
		return true
	}
	p := c.Probability(total, successes)
	return p == 0 || float64(random>>11)/(1<<53) >= p
}

// RecordHTTP counts a request that is answered with a status now; 0 is that it was not.
func (c *Control) RecordHTTP(now time.Duration, status int) {
	c.window.Record(now, status > 0 && status < len(c.http)*64 && c.http[status/64]&(1<<(status%64)) != 0)
}

// RecordGRPC counts a call of gRPC that ends with a code now; less than 0 is that it has none.
func (c *Control) RecordGRPC(now time.Duration, code int) {
	c.window.Record(now, code >= 0 && code < 32 && c.grpc&(1<<code) != 0)
}
