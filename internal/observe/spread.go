package observe

import (
	"runtime"
	"sync/atomic"
)

const (
	// maxCopies is the maximum number of copies of a counter.
	maxCopies = 64
	// A counter gets copies if cores wait for each other at it this often within so many nanoseconds. At 16 a second the waiting is
	// negligible; a counter that is used by one core at a time gets none, so that thousands of rules only need the memory of
	// thousands of counters.
	meetings      = 16
	meetingWindow = 1e9
)

// spread gives each core its own copy of a counter at which cores were seen to wait for each other. T fills whole pairs of cache
// lines, so that two copies share none. What was counted before stays where it is: the total includes both.
type spread[T any] struct {
	copies atomic.Pointer[[]T] // a power of two of them; nil until they are needed, then never changed
	met    atomic.Uint32       // in the present window
	since  atomic.Int64        // when the window began, in Unix nanoseconds
}

// at returns the copy of a shard, nil as long as there are none.
func (s *spread[T]) at(shard uint32) *T {
	p := s.copies.Load()
	if p == nil {
		return nil
	}
	list := *p
	return &list[shard&uint32(len(list)-1)]
}

// all returns the copies.
func (s *spread[T]) all() []T {
	if p := s.copies.Load(); p != nil {
		return *p
	}
	return nil
}

// meet records that two cores wrote at the same time; now is in Unix nanoseconds.
func (s *spread[T]) meet(now int64) {
	if age := now - s.since.Load(); age < -meetingWindow || age > meetingWindow {
		s.since.Store(now)
		s.met.Store(1)
		return
	}
	if s.met.Add(1) < meetings || s.copies.Load() != nil {
		return
	}
	n := 1
	for n < runtime.GOMAXPROCS(0) && n < maxCopies {
		n *= 2
	}
	if n > 1 {
		list := make([]T, n)
		s.copies.CompareAndSwap(nil, &list)
	}
}

// increment adds 1 and reports whether another core wrote at the same time. Without contention it costs as much as an addition.
func increment(n *atomic.Uint64) (met bool) {
	if old := n.Load(); n.CompareAndSwap(old, old+1) {
		return false
	}
	n.Add(1)
	return true
}
