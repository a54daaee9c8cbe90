package ratelimit

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

var rates = []rate{
	newRate(1, time.Second), newRate(3, time.Second), newRate(7, time.Minute), newRate(1000, time.Second), newRate(1, 365*24*time.Hour), newRate(100, time.Hour),
	newRate(math.MaxUint32, time.Second), newRate(math.MaxUint32, 365*24*time.Hour), newRate(999_999_937, time.Minute),
}

// TestBurst: of a burst from many goroutines as many pass as the limit says, of one bucket and of that of a value, while others come and go.
func TestBurst(t *testing.T) {
	for _, n := range []uint32{1, 100, 1000} {
		r := newRate(n, time.Hour)
		var b bucket
		s := &Store{}
		of := s.newBuckets(r, true)
		var one, value, refunded atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 500 {
					if _, ok := b.take(&r, r.at(time.Minute), 1); ok {
						one.Add(1)
					}
					if _, ok := of.table.take(77, r.at(time.Minute), 1); ok {
						value.Add(1)
					}
					other := rand.Uint64()
					if _, ok := of.table.take(other, r.at(time.Minute), 1); ok {
						of.table.give(other, r.back(1, 0, 0))
						refunded.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if one.Load() != int64(n) || value.Load() != int64(n) || refunded.Load() != 4000 {
			t.Errorf("of a limit of %d, %d and %d passed; of others %d", n, one.Load(), value.Load(), refunded.Load())
		}
	}
}

// TestRate: while requests come more often than the limit allows as many pass as fill the bucket, to one and a part. A bucket of one token is full in the time until the next
// request, and so loses some of it.
func TestRate(t *testing.T) {
	for _, r := range rates {
		start := time.Duration(rand.Int64N(int64(9 * 365 * 24 * time.Hour)))
		word, _ := r.take(0, r.at(start), r.requests)
		passed, now := 0, start
		for range 5000 {
			if now > 10*365*24*time.Hour {
				break
			}
			now += time.Duration(rand.Int64N(1 + int64(r.period)/int64(r.requests)))
			var ok bool
			if word, ok = r.take(word, r.at(now), 1); ok {
				passed++
			}
		}
		filled := float64(now-start) / float64(r.period) * float64(r.requests)
		least := filled - 1
		if r.requests == 1 {
			least = filled/2 - 1
		}
		part := 1 / float64(uint64(1)<<r.shift) // both times are rounded down to parts
		if float64(passed) > filled+part+1e-6 || float64(passed) < least-part-1e-6 {
			t.Errorf("%d in %v: %d passed in %v, want %v to %v", r.requests, r.period, passed, now-start, least, filled)
		}
	}
}

// TestFullBucket: any rate lets exactly its number pass at one moment, at the beginning and after years, and the next one when a token is there again and not before.
func TestFullBucket(t *testing.T) {
	for _, r := range rates {
		for _, start := range []time.Duration{0, time.Second, 9 * 365 * 24 * time.Hour} {
			now := r.at(start)
			word, ok := r.take(0, now, r.requests)
			if !ok {
				t.Errorf("%d in %v: a full bucket does not hold its tokens", r.requests, r.period)
			}
			for _, cost := range []uint32{0, 1} {
				if _, ok := r.take(word, now, cost); ok {
					t.Errorf("%d in %v: a cost of %d passes an empty bucket", r.requests, r.period, cost)
				}
			}
			token := time.Duration(math.Ceil(float64(r.period) / float64(r.requests)))
			if _, ok := r.take(word, r.at(start+token+time.Nanosecond), 1); !ok {
				t.Errorf("%d in %v: no token after %v", r.requests, r.period, token)
			}
			if before := token - 2; before > 0 {
				if _, ok := r.take(word, r.at(start+before), 1); ok {
					t.Errorf("%d in %v: a token after %v already", r.requests, r.period, before)
				}
			}
			if left, seconds := r.left(word, now); left != 0 || time.Duration(seconds)*time.Second != r.period {
				t.Errorf("%d in %v: of an empty bucket %d are left, and it is full in %d s", r.requests, r.period, left, seconds)
			}
			if left, seconds := r.left(word, r.at(start+r.period+time.Second)); left != r.requests || seconds != 0 {
				t.Errorf("%d in %v: after the period %d are left, and it is full in %d s", r.requests, r.period, left, seconds)
			}
		}
	}
}

// TestNothingPasses: a limit of 0 lets nothing pass, and a cost above what a bucket holds never passes.
func TestNothingPasses(t *testing.T) {
	none, three := newRate(0, time.Second), newRate(3, time.Second)
	for _, now := range []time.Duration{0, time.Hour} {
		for _, cost := range []uint32{0, 1, math.MaxUint32} {
			if _, ok := none.take(0, none.at(now), cost); ok {
				t.Errorf("a cost of %d passes a limit of 0", cost)
			}
		}
		if _, ok := three.take(0, three.at(now), 4); ok {
			t.Error("a cost of 4 passes a limit of 3")
		}
	}
}

// TestTableIsBounded: random values do not have a table grow beyond its bound, and do not push out the bucket of a value that has used its limit up; values whose buckets are full again need no room.
func TestTableIsBounded(t *testing.T) {
	s := &Store{}
	r := newRate(10, time.Hour)
	table := s.newTable(r)
	now := r.at(time.Hour)
	const busy = 12345
	for range 10 {
		table.take(busy, now, 1)
	}
	for range 4 * maxSlots {
		if _, ok := table.take(rand.Uint64(), now, 1); !ok {
			t.Fatal("a new value does not pass")
		}
	}
	slots := 0
	for i := range table.shards {
		slots += len(table.shards[i].sets)
	}
	if slots > maxSlots || slots < maxSlots/2 || int64(slots) != s.slots.Load() {
		t.Errorf("%d slots, counted are %d, and %d are the bound", slots, s.slots.Load(), maxSlots)
	}
	if _, ok := table.take(busy, now, 1); ok {
		t.Error("a value that had used its limit up passes again")
	}

	calm := s.newTable(r)
	later := time.Duration(0)
	for range maxSlots {
		later += r.period
		calm.take(rand.Uint64(), r.at(later), 1)
	}
	if n := calm.used.own.Load(); n != shardCount*firstSets*setSize {
		t.Errorf("values that come one after the other have taken %d slots", n)
	}
}

// TestTableShrinks: slots that many values needed for a while are let go, and values that have used their limit up keep their buckets.
func TestTableShrinks(t *testing.T) {
	s := &Store{}
	r := newRate(10, time.Hour)
	table := s.newTable(r)
	now := time.Hour
	for range maxSlots {
		table.take(rand.Uint64(), r.at(now), 1)
	}
	if n := s.slots.Load(); n < maxSlots/2 {
		t.Fatalf("%d slots", n)
	}
	busy := make([]uint64, 100)
	now += 6 * time.Minute // the buckets of all others are full again
	for i := range busy {
		busy[i] = rand.Uint64()
		for range 10 {
			table.take(busy[i], r.at(now), 1)
		}
	}
	for range 3 { // something comes, of each shard
		now += sweepPause + time.Second
		for i := range uint64(shardCount) {
			table.take(1<<32+i, r.at(now), 1)
		}
	}
	slots := 0
	for i := range table.shards {
		slots += len(table.shards[i].sets)
	}
	if slots > 16*len(busy) || int64(slots) != s.slots.Load() || int64(slots) != table.used.own.Load() {
		t.Errorf("%d slots are left, counted are %d and %d", slots, s.slots.Load(), table.used.own.Load())
	}
	for _, v := range busy {
		if _, ok := table.take(v, r.at(now), 1); ok {
			t.Error("a value that had used its limit up passes again")
		}
	}
	now += 2 * time.Hour
	for i := range uint64(shardCount) {
		table.take(1<<33+i, r.at(now), 0)
	}
	if n := s.slots.Load(); n > shardCount*firstSets*setSize {
		t.Errorf("%d slots are left when nothing counts", n)
	}
}

// TestGiveBackLater: with what is given back after a wait no more passes than without that it was taken.
func TestGiveBackLater(t *testing.T) {
	r := newRate(10, 10*time.Second)
	var b bucket
	now := r.at(time.Hour)
	if _, ok := b.take(&r, now, 5); !ok {
		t.Fatal("a full bucket does not hold 5")
	}
	later, passed := r.at(time.Hour+3*time.Second), 0
	for {
		if _, ok := b.take(&r, later, 1); !ok {
			break
		}
		passed++
	}
	b.give(r.back(5, now, later))
	for {
		if _, ok := b.take(&r, later, 1); !ok {
			break
		}
		passed++
	}
	if passed != 10 {
		t.Errorf("%d pass at one moment, want 10", passed)
	}

	for range 2000 { // random ones, of two traces with and without a request that is given back
		var with, without bucket
		r := rates[rand.IntN(len(rates))]
		cost := 1 + rand.Uint32N(r.requests)
		at := time.Hour
		taken := r.at(at)
		_, ok := with.take(&r, taken, cost)
		for range rand.IntN(20) {
			at += time.Duration(rand.Int64N(int64(r.period)))
			n := 1 + rand.Uint32N(r.requests)
			if _, ok := with.take(&r, r.at(at), n); ok {
				without.take(&r, r.at(at), n)
			}
		}
		if ok {
			with.give(r.back(cost, taken, r.at(at)))
		}
		if w, o := max(with.word.Load(), r.at(at)), max(without.word.Load(), r.at(at)); w < o {
			t.Fatalf("%d in %v: %d more are there than without", r.requests, r.period, o-w)
		}
	}
}

// TestTablesAreBoundedTogether: where all slots are used, a table has its least ones alone, and is exact for values that find room. What nobody asks any more is let go,
// so that it has more soon.
func TestTablesAreBoundedTogether(t *testing.T) {
	s := &Store{}
	r := newRate(2, time.Hour)
	s.slots.Store(maxSlotsOfAll)
	s.swept.Store(math.MaxInt64 / 2) // not now
	table := s.newTable(r)
	for range 10 * leastSlots {
		table.take(rand.Uint64(), r.at(time.Hour), 1)
	}
	if n := table.used.own.Load(); n > leastSlots || n < leastSlots/2 {
		t.Errorf("it has %d slots, want %d", n, leastSlots)
	}
	for i := range 3 {
		if _, ok := table.take(1, r.at(time.Hour), 1); ok != (i < 2) {
			t.Errorf("request %d: %v", i, ok)
		}
	}
	s.tables.Store(maxSlotsOfAll)
	many := s.newTable(r)
	for range 10 * leastSlots {
		many.take(rand.Uint64(), r.at(time.Hour), 1)
	}
	if n := many.used.own.Load(); n != shardCount*firstSets*setSize {
		t.Errorf("one of many has %d slots", n)
	}
}

// TestIdleTablesAreSwept: slots of a limit that nobody asks any more are there for others.
func TestIdleTablesAreSwept(t *testing.T) {
	s := &Store{}
	quick, r := newRate(1000, time.Second), newRate(10, time.Hour)
	idle, done := s.buckets.Take("idle", func() *buckets { return s.newBuckets(quick, true) })
	defer done()
	for range maxSlots {
		idle.table.take(rand.Uint64(), quick.at(sinceEpoch()), 1000)
	}
	if n := idle.table.used.own.Load(); n < maxSlots/8 {
		t.Fatalf("it has %d slots", n)
	}
	s.slots.Add(maxSlotsOfAll)
	busy := s.newTable(r)
	testkit.Eventually(t, "the idle table has let go its slots", func() bool {
		for range leastSlots {
			busy.take(rand.Uint64(), r.at(time.Hour), 1)
		}
		return idle.table.used.own.Load() == 0
	})
}

// TestTableKeepsWhatItHas: a table that grows forgets nothing.
func TestTableKeepsWhatItHas(t *testing.T) {
	s := &Store{}
	r := newRate(1, time.Hour)
	table := s.newTable(r)
	values := make([]uint64, 10000)
	for i := range values {
		values[i] = rand.Uint64()
		if _, ok := table.take(values[i], r.at(time.Hour), 1); !ok {
			t.Fatal("the first request of a value does not pass")
		}
	}
	for _, v := range values {
		if _, ok := table.take(v, r.at(time.Hour), 1); ok {
			t.Fatal("a second request of a value passes")
		}
	}
}
