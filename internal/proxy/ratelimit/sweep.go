package ratelimit

import "time"

// sweepAllPause is the shortest time between two sweeps of all limits.
const sweepAllPause = time.Second

// sweepSoon makes a goroutine release the unused state of limits, because a limit has found no room. It does not wait.
func (s *Store) sweepSoon() {
	now, last := sinceEpoch(), s.swept.Load()
	if now-time.Duration(last) >= sweepAllPause && s.swept.CompareAndSwap(last, int64(now)) {
		go s.sweep()
	}
}

// sweep releases the buckets that are full again, and the values of periods that are over.
func (s *Store) sweep() {
	var all []*values
	s.values.Each(func(_ string, v *values) { all = append(all, v) })
	now := time.Now().Unix()
	for _, v := range all {
		v.sweep(now)
	}
	var tables []*table
	s.buckets.Each(func(_ string, b *buckets) {
		if b.table != nil {
			tables = append(tables, b.table)
		}
	})
	for _, t := range tables {
		t.sweep()
	}
}
