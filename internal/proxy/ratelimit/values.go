package ratelimit

import (
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
)

// Bounds of the distinct values of global limits for which this proxy uses separate keys in Redis. Further values share
// keys.
const (
	// maxValues is the largest number for one limit in its period, in 16 MiB, and maxValuesOfAll the one for all limits
	// together.
	maxValues      = 1 << 20
	maxValuesOfAll = 4 << 20
	// leastValues is how many each limit may have in any case, as long as all limits together do not have more than
	// maxValuesOfAll of these. They are in addition to that bound, so at most twice as many are kept.
	leastValues = 4096
)

// values are the distinct values of a global limit in its current period, by their digests. Each has a key in Redis, so
// their number is bounded whatever clients send.
type values struct {
	kept   *valuesKept
	period int64 // length of a period in seconds, at least 1
	shards [shardCount]valuesShard
}

type valuesShard struct {
	mu     sync.Mutex
	period int64 // number of the period of now
	gcra   bool
	// now has the values of the period, and before those of the previous one, for which GCRA may still have keys.
	now, before hashSet
}

// hashSet is a set of hashes that clients cannot predict, with open addressing. It is at most half full. The zero value
// is empty.
type hashSet struct {
	slots []uint64 // a power of two of them; 0 means free
	n     int
}

// at returns the index of a hash, or the one where it belongs.
func (s *hashSet) at(h uint64) int {
	i := int(h/shardCount) & (len(s.slots) - 1)
	for s.slots[i] != 0 && s.slots[i] != h {
		i = (i + 1) & (len(s.slots) - 1)
	}
	return i
}

func (s *hashSet) has(h uint64) bool { return s.n > 0 && s.slots[s.at(h)] == h }

// add adds a hash, which must not be in the set.
func (s *hashSet) add(h uint64) {
	if 2*s.n >= len(s.slots) {
		old := s.slots
		s.slots = make([]uint64, max(16, 2*len(old)))
		for _, o := range old {
			if o != 0 {
				s.slots[s.at(o)] = o
			}
		}
	}
	s.slots[s.at(h)] = h
	s.n++
}

// valuesKept counts values, for a bound over all limits.
type valuesKept struct {
	store *Store
	own   atomic.Int64 // for the limit
}

// full reports whether the limit may have no more values because of the bound for all limits.
func (k *valuesKept) full() bool {
	if k.store.kept.Load() < maxValuesOfAll {
		return false
	}
	k.store.sweepSoon()
	return k.own.Load() >= min(leastValues, maxValuesOfAll/k.store.keeping.Load())
}

func (k *valuesKept) add(n int) {
	k.own.Add(int64(n))
	k.store.kept.Add(int64(n))
}

// newValues returns an empty set of values for a limit with periods of that many seconds; 0 means 1.
func (s *Store) newValues(period uint32) *values {
	v := &values{kept: &valuesKept{store: s}, period: max(1, int64(period))}
	s.keeping.Add(1)
	runtime.AddCleanup(v, func(k *valuesKept) {
		k.add(-int(k.own.Load()))
		k.store.keeping.Add(-1)
	}, v.kept)
	return v
}

// own reports whether a value has its own key at a time, in seconds of the Unix epoch. Keys of GCRA live for a period
// after their last use, others until the end of the period.
func (v *values) own(digest uint64, now int64, gcra bool) bool {
	h := max(maphash.Comparable(seed, digest), 1)
	s := &v.shards[h%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gcra = gcra
	s.turn(now/v.period, v.kept)
	if s.now.has(h) {
		return true
	}
	if s.now.n >= maxValues/shardCount || v.kept.full() {
		return gcra && s.before.has(h)
	}
	s.now.add(h)
	v.kept.add(1)
	return true
}

// turn releases the values without keys in the period with that number.
func (s *valuesShard) turn(period int64, kept *valuesKept) {
	if s.period == period {
		return
	}
	kept.add(-s.before.n)
	s.before = hashSet{}
	if s.gcra && period == s.period+1 {
		s.before = s.now
	} else {
		kept.add(-s.now.n)
	}
	s.now, s.period = hashSet{}, period
}

// sweep releases the values of periods that are over, which may not be used again.
func (v *values) sweep(now int64) {
	for i := range v.shards {
		s := &v.shards[i]
		s.mu.Lock()
		s.turn(now/v.period, v.kept)
		s.mu.Unlock()
	}
}
