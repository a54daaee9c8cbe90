package ratelimit

import (
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
)

// Bounds of the distinct values of global limits that have keys of their own in Redis, by this proxy. The values beyond share keys.
const (
	// maxValues bounds those of one limit in its period, in 16 MiB, and maxValuesOfAll those of all limits together.
	maxValues      = 1 << 20
	maxValuesOfAll = 4 << 20
	// leastValues are those that each limit may have whatever others have, as long as those of all limits are not more than maxValuesOfAll. They are beyond that
	// bound, so that twice as many are kept at most.
	leastValues = 4096
)

// values are the distinct values of a global limit that have come in its present period, by their digests. Each has a key in Redis, so that these are bounded
// whatever clients send.
type values struct {
	kept   *valuesKept
	period int64 // the seconds of one, at least 1
	shards [shardCount]valuesShard
}

type valuesShard struct {
	mu     sync.Mutex
	period int64 // the number of that in which now has come
	gcra   bool
	// now has the values of the period, and before those of the one before it, which GCRA may have keys of still.
	now, before hashSet
}

// hashSet is a set of hashes that clients cannot choose, by open addressing. It is half full at most. The zero value is empty.
type hashSet struct {
	slots []uint64 // a power of two of them; 0 is a free one
	n     int
}

// at is where a hash is, or belongs.
func (s *hashSet) at(h uint64) int {
	i := int(h/shardCount) & (len(s.slots) - 1)
	for s.slots[i] != 0 && s.slots[i] != h {
		i = (i + 1) & (len(s.slots) - 1)
	}
	return i
}

func (s *hashSet) has(h uint64) bool { return s.n > 0 && s.slots[s.at(h)] == h }

// add adds a hash that is not in the set.
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
	own   atomic.Int64 // of the limit
}

// full reports whether the limit may have no more values, because of what all limits have.
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

// newValues are none, of a limit with periods of so many seconds; 0 is 1.
func (s *Store) newValues(period uint32) *values {
	v := &values{kept: &valuesKept{store: s}, period: max(1, int64(period))}
	s.keeping.Add(1)
	runtime.AddCleanup(v, func(k *valuesKept) {
		k.add(-int(k.own.Load()))
		k.store.keeping.Add(-1)
	}, v.kept)
	return v
}

// own reports whether a value has a key of its own at a time, in seconds of the Unix epoch. Keys of GCRA live for as long as a period from when they were used last,
// others until its end.
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

// turn lets go what has no keys any more in the period of that number.
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

// sweep lets go values of periods that are over, which nobody may ask again.
func (v *values) sweep(now int64) {
	for i := range v.shards {
		s := &v.shards[i]
		s.mu.Lock()
		s.turn(now/v.period, v.kept)
		s.mu.Unlock()
	}
}
