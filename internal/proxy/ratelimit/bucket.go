package ratelimit

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// rate is how fast the buckets of a limit fill: by as many tokens in a period as they hold. The state of a bucket is
// one word, the time at which it is full again if nothing is taken meanwhile (the theoretical arrival time of GCRA).
// Times are counted in parts of tokens since epoch, so that no rate is rounded; the word 0 is a full bucket.
type rate struct {
	requests uint32        // tokens of a full bucket
	period   time.Duration // in which an empty one fills
	shift    uint          // a token has 1<<shift parts
}

// epoch is the origin of times. It is monotonic.
var epoch = time.Now()

// sinceEpoch returns the current time.
func sinceEpoch() time.Duration { return time.Since(epoch) }

// longest is how long a process may run, in seconds, so that times are less than 1<<62. A part then takes less than a
// nanosecond, whatever the rate.
const longest = 10 * 365 * 24 * 3600

func newRate(requests uint32, period time.Duration) rate {
	r := rate{requests: requests, period: max(period, time.Second)}
	seconds := uint64(r.period / time.Second)
	for max(uint64(requests), 1)<<(r.shift+1) < (1<<62)/(longest/seconds+1) {
		r.shift++
	}
	return r
}

// at converts a time, rounded down so that no token is available early.
func (r *rate) at(t time.Duration) int64 {
	high, low := bits.Mul64(uint64(max(t, 0)), uint64(r.requests)<<r.shift)
	q, _ := bits.Div64(high, low, uint64(r.period)) // high is less than the period for longer than longest
	return int64(q)
}

// take returns the word of a bucket after cost tokens were taken from it. It returns false if it holds fewer, and then
// takes none. A cost of 0 asks whether there is one token.
func (r *rate) take(word, now int64, cost uint32) (next int64, ok bool) {
	if max(cost, 1) > r.requests { // such a cost could also overflow
		return word, false
	}
	full := now + int64(r.requests)<<r.shift
	if next = max(word, now) + int64(max(cost, 1))<<r.shift; next > full || cost == 0 {
		return word, next <= full
	}
	return next, true
}

// left returns how many whole tokens a bucket holds, and in how many seconds it is full.
func (r *rate) left(word, now int64) (tokens, seconds uint32) {
	missing := max(word-now, 0)
	if r.requests == 0 {
		return 0, uint32(r.period / time.Second)
	}
	missing = min(missing, int64(r.requests)<<r.shift)
	tokens = uint32((int64(r.requests)<<r.shift - missing) >> r.shift)
	high, low := bits.Mul64(uint64(missing), uint64(r.period))
	q, rest := bits.Div64(high, low, uint64(r.requests)<<r.shift)
	if rest > 0 {
		q++
	}
	return tokens, uint32((q + uint64(time.Second) - 1) / uint64(time.Second))
}

// bucket is a bucket for all requests of a limit. The zero value is full.
type bucket struct {
	word atomic.Int64
	_    [56]byte // padding: it has its own cache line
}

// take is like rate.take, and returns the word on which it decided: after the cost was taken, or unchanged.
func (b *bucket) take(r *rate, now int64, cost uint32) (word int64, ok bool) {
	for {
		word = b.word.Load()
		next, ok := r.take(word, now, cost)
		if next == word || b.word.CompareAndSwap(word, next) {
			return next, ok
		}
	}
}

// back returns how much of a cost that was taken at one time may be returned at a later one. What a full bucket has
// regained meanwhile must not be returned again.
func (r *rate) back(cost uint32, taken, now int64) int64 {
	return max(0, int64(cost)<<r.shift-max(0, now-taken))
}

// give returns tokens that were taken for a request that another limit refuses; see back.
func (b *bucket) give(back int64) { b.word.Add(-back) }
