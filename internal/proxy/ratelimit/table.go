package ratelimit

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of the distinct values with buckets. A value whose bucket is full again is equivalent to a new one, and has
// none.
const (
	shardCount = 16
	setSize    = 8 // number of slots that a value may be in
	// maxSlots is the largest number of slots of one limit, whatever clients send. Beyond it a new value replaces the
	// one of the eight in its set that has the most left and so loses least: a value at its limit stays in preference
	// to those that have occurred once.
	maxSlots = 64 << 10
	// maxSlotsOfAll is the largest number of slots of all limits together, in 64 MiB. Beyond it tables do not grow,
	// except for leastSlots that each may have in any case, until the sum is below maxSlotsOfAll again.
	maxSlotsOfAll = 4 << 20
	leastSlots    = 4096
	firstSets     = 2 // for each shard
	// sweepPause is the longest time between two checks whether the values with buckets still need that many slots.
	// Limits whose buckets fill faster are checked once in that time.
	sweepPause = time.Minute
)

// slot is the bucket of a value.
type slot struct {
	hash uint64
	word int64 // see rate
}

// table holds the buckets of a limit that counts each value separately. Values are identified by their hashes, which
// use a secret seed: that two of them share a bucket is as likely as guessing a 64-bit random number.
type table struct {
	rate   rate
	used   *slotsUsed
	shards [shardCount]shard
}

type shard struct {
	mu   sync.Mutex
	sets []slot // a power of two of sets, one after the other; nil if no value has a bucket
	// swept is when sets was last swept, as a time of rate.
	swept int64
	_     [24]byte
}

// slotsUsed counts slots, for a bound over all tables.
type slotsUsed struct {
	store *Store
	own   atomic.Int64 // of the table
}

// grow reports whether n more slots may be used, and counts them.
func (u *slotsUsed) grow(n int) bool {
	own, all := u.own.Add(int64(n)), u.store.slots.Add(int64(n))
	if own <= maxSlots {
		if all <= maxSlotsOfAll {
			return true
		}
		u.store.sweepSoon()
		if own <= min(leastSlots, maxSlotsOfAll/u.store.tables.Load()) {
			return true
		}
	}
	u.add(-n)
	return false
}

// add counts n slots, which may be negative, whatever the bounds are.
func (u *slotsUsed) add(n int) {
	u.own.Add(int64(n))
	u.store.slots.Add(int64(n))
}

// newTable returns a table without buckets.
func (s *Store) newTable(r rate) *table {
	t := &table{rate: r, used: &slotsUsed{store: s}}
	s.tables.Add(1)
	runtime.AddCleanup(t, func(u *slotsUsed) {
		u.add(-int(u.own.Load()))
		u.store.tables.Add(-1)
	}, t.used)
	return t
}

// take is bucket.take for a value.
func (t *table) take(hash uint64, now int64, cost uint32) (word int64, ok bool) {
	r, s := &t.rate, &t.shards[hash%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets != nil && now-s.swept > r.at(min(r.period, sweepPause)) {
		s.sweep(now, t.used)
	}
	sl := s.find(hash)
	if sl == nil {
		// Nothing is stored for a value that is refused at once, or takes nothing.
		next, ok := r.take(0, now, cost)
		if !ok || cost == 0 {
			return 0, ok
		}
		s.place(hash, now, t.used).word = next
		return next, true
	}
	sl.word, ok = r.take(sl.word, now, cost)
	return sl.word, ok
}

// give is bucket.give for a value, if it still has a bucket.
func (t *table) give(hash uint64, back int64) {
	s := &t.shards[hash%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl := s.find(hash); sl != nil {
		sl.word -= back
	}
}

func (s *shard) set(hash uint64) []slot {
	at := int(hash/shardCount) & (len(s.sets)/setSize - 1) * setSize
	return s.sets[at : at+setSize]
}

func (s *shard) find(hash uint64) *slot {
	if s.sets == nil {
		return nil
	}
	set := s.set(hash)
	for i := range set {
		if set[i].hash == hash {
			return &set[i]
		}
	}
	return nil
}

// place creates a slot for a value that has none.
func (s *shard) place(hash uint64, now int64, used *slotsUsed) *slot {
	if s.sets == nil {
		s.sets = make([]slot, firstSets*setSize)
		s.swept = now
		used.add(firstSets * setSize) // within leastSlots
	}
	for {
		set := s.set(hash)
		fullest := &set[0]
		for i := range set {
			if set[i].word < fullest.word {
				fullest = &set[i]
			}
		}
		if fullest.word > now && used.grow(len(s.sets)) {
			s.double()
			continue
		}
		*fullest = slot{hash: hash}
		return fullest
	}
}

// double doubles the sets. Each is split in two, so that all values find room.
func (s *shard) double() { s.resize(2*len(s.sets), 0) }

// resize moves the values whose buckets are not full at a time to new slots. It reports whether there was room for all;
// otherwise nothing has changed.
func (s *shard) resize(slots int, now int64) bool {
	old := s.sets
	s.sets = make([]slot, slots)
next:
	for _, sl := range old {
		if sl.word <= now {
			continue
		}
		set := s.set(sl.hash)
		for i := range set {
			if set[i].word == 0 {
				set[i] = sl
				continue next
			}
		}
		s.sets = old
		return false
	}
	return true
}

// sweep sweeps all shards, which may not be used again.
func (t *table) sweep() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		if s.sets != nil {
			s.sweep(t.rate.at(sinceEpoch()), t.used)
		}
		s.mu.Unlock()
	}
}

// sweep lets slots go of which seven in eight are not needed any more, as after many values have come once.
func (s *shard) sweep(now int64, used *slotsUsed) {
	s.swept = now
	before := len(s.sets)
	if before == firstSets*setSize {
		return
	}
	needed := 0 // whose buckets are not full
	for i := range s.sets {
		if s.sets[i].word > now {
			needed++
		}
	}
	if needed == 0 {
		s.sets = nil
	}
	for slots := firstSets * setSize; needed > 0 && needed*8 <= before && slots < before; slots *= 2 {
		if slots >= 4*needed && s.resize(slots, now) {
			break
		}
	}
	used.add(len(s.sets) - before)
}
