package upstream

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// This file limits file descriptors: each connection to an endpoint needs one, and a request that needs one is more
// important than an idle connection.

const (
	// evictBatch is the largest number of connections closed at a time, so that a request that waits for one does not
	// wait for thousands.
	evictBatch = 256
	// evictPause is how long the search for idle connections is not repeated after one that found none.
	evictPause = 5 * time.Millisecond
)

// evictAges are how long connections must have been idle to be closed. A shorter age is used only if no connection has
// a longer one.
var evictAges = [...]time.Duration{10 * time.Second, 2 * time.Second, 0}

// errDescriptors means that Options.MaxOpen is reached by connections in use.
var errDescriptors = errors.New("the limit on open files allows no more connections to backends")

// IsExhausted reports whether err means that the process or the system has no file descriptors left.
func IsExhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// mostOfBackend returns how many of most connections one Backend may have, so that an unresponsive one leaves some to
// the others.
func mostOfBackend(most int64) int64 { return most - most/8 }

// acquireSocket counts a connection that is to be made, until releaseSocket. It returns false if the limit is reached.
// With evict it closes idle connections to make room.
func (e *Endpoint) acquireSocket(evict bool) bool {
	s, root := e.backend.set, e.backend.root()
	most, ofBackend := int64(s.options.MaxOpen), mostOfBackend(int64(s.options.MaxOpen))
	if most == 0 {
		most, ofBackend = math.MaxInt64, math.MaxInt64
	}
	if sockets := &root.use().sockets; !enter(sockets, ofBackend, evict, root.evictIdle) {
		sockets.Add(-1)
		return false
	}
	if !enter(&s.sockets, most, evict, s.EvictIdle) {
		e.releaseSocket()
		return false
	}
	return true
}

// enter increments n and reports whether it is within most. With evict it calls free to make room, also for others that
// have entered meanwhile.
func enter(n *atomic.Int64, most int64, evict bool, free func() bool) bool {
	n.Add(1)
	for n.Load() > most {
		if !evict || !free() {
			return n.Load() <= most // a concurrent eviction may have just ended
		}
	}
	return true
}

// releaseSocket must be called after acquireSocket when no connection was made, or when it is closed.
func (e *Endpoint) releaseSocket() {
	e.backend.set.sockets.Add(-1)
	e.backend.root().use().sockets.Add(-1)
}

// eviction merges concurrent searches for idle connections into one.
type eviction struct {
	notBefore atomic.Int64 // Unix nanoseconds, see evictPause
	passes    atomic.Int64

	mu    sync.Mutex
	freed bool // result of the last pass
}

// run closes the connections that take returns, and reports whether there were any. If another goroutine does so at the
// moment, it waits for that.
func (v *eviction) run(take func() []*Conn) bool {
	passes := v.passes.Load()
	if time.Now().UnixNano() < v.notBefore.Load() {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.passes.Load() != passes {
		return v.freed
	}
	conns := take()
	for _, c := range conns {
		c.Close()
	}
	if v.freed = len(conns) > 0; !v.freed {
		v.notBefore.Store(time.Now().Add(evictPause).UnixNano())
	}
	v.passes.Add(1)
	return v.freed
}

// EvictIdle closes at most a few hundred idle connections, the longest idle first, because file descriptors are scarce.
// It reports whether there were any.
func (s *Set) EvictIdle() bool {
	return s.eviction.run(func() []*Conn {
		s.mu.Lock()
		all := make([]*Backend, 0, len(s.backends)+len(s.removed))
		for _, b := range s.backends {
			all = append(all, b)
		}
		for _, b := range s.removed {
			all = append(all, b.Backend)
		}
		s.mu.Unlock()
		return oldestIdle(all, s.clock.Load())
	})
}

// evictIdle is like EvictIdle, for one Backend.
func (b *Backend) evictIdle() bool {
	return b.use().eviction.run(func() []*Conn { return oldestIdle([]*Backend{b}, b.set.clock.Load()) })
}

// oldestIdle removes idle connections from the lists and returns them. If there are none, it ends HTTP/2 connections
// without streams, which close a moment later and are not in the result.
func oldestIdle(backends []*Backend, now int64) (oldest []*Conn) {
	each := func(f func(*Endpoint)) {
		for _, b := range backends {
			for e := range b.everyEndpoint() {
				for _, e := range append(e.innerList(), e) {
					f(e)
				}
			}
		}
	}
	for _, age := range evictAges {
		before := now - int64(age)
		if age == 0 {
			before = math.MaxInt64
		}
		each(func(e *Endpoint) {
			e.soFar().everyShard(func(s *shard) { oldest = s.takeOldest(oldest, before, evictBatch-len(oldest)) })
		})
		if len(oldest) > 0 {
			return oldest
		}
	}
	ended := 0
	each(func(e *Endpoint) {
		for _, s := range e.soFar().sharing.list() {
			if ended < evictBatch && s.endIdle() {
				ended++
			}
		}
	})
	return nil
}

// replaceIdle closes an idle connection after a connection was made because the idle ones were too old for a request,
// see IdleRecent. Otherwise each such request would leave one more connection than are ever used at a time.
func (e *Endpoint) replaceIdle() {
	before := e.backend.set.recent.Load()
	if e.terminating.Load() {
		before = math.MaxInt64
	}
	var old []*Conn
	e.use().everyShard(func(s *shard) { old = s.takeOldest(old, before, 1-len(old)) })
	for _, c := range old {
		c.Close()
	}
}

// takeOldest appends to list up to n of the connections released before a time, the longest idle first.
func (s *shard) takeOldest(list []*Conn, before int64, n int) []*Conn {
	if n <= 0 || s.count.Load() == 0 {
		return list
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := 0
	for taken < min(n, len(s.idle)) && s.idle[taken].released < before {
		taken++
	}
	list = append(list, s.idle[:taken]...)
	kept := copy(s.idle, s.idle[taken:])
	clear(s.idle[kept:])
	s.idle = s.idle[:kept]
	s.count.Store(int64(kept))
	return list
}
