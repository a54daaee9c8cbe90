package upstream

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// This file is for descriptors: each connection to an endpoint needs one, and an idle one is worth less than a request that cannot be sent for want of it.

const (
	// evictBatch bounds how many connections are closed at a time: whoever waits for one must not wait for thousands.
	evictBatch = 256
	// evictPause is how long it is taken for granted that nothing idles after a look that has found nothing.
	evictPause = 5 * time.Millisecond
)

// evictAges are how long connections must have idled to be closed; those of a later age only where there are none of an earlier one.
var evictAges = [...]time.Duration{10 * time.Second, 2 * time.Second, 0}

// errDescriptors is that Options.MaxOpen is reached by connections that are in use.
var errDescriptors = errors.New("there are as many connections to backends as the limit on open files leaves room for")

// IsExhausted reports whether an error is that the process or the system has no descriptor left.
func IsExhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// mostOfBackend is how many of so many connections one Backend may have, so that one that does not answer leaves some to the others.
func mostOfBackend(most int64) int64 { return most - most/8 }

// acquireSocket counts a connection that is to be made, until releaseSocket; false is that there is no room. With evict it closes others that idle to make room.
func (e *Endpoint) acquireSocket(evict bool) bool {
	s, root := e.backend.set, e.backend.root()
	most, ofBackend := int64(s.options.MaxOpen), mostOfBackend(int64(s.options.MaxOpen))
	if most == 0 {
		most, ofBackend = math.MaxInt64, math.MaxInt64
	}
	if !enter(&root.sockets, ofBackend, evict, root.evictIdle) {
		root.sockets.Add(-1)
		return false
	}
	if !enter(&s.sockets, most, evict, s.EvictIdle) {
		e.releaseSocket()
		return false
	}
	return true
}

// enter adds one to n, and reports whether that is within most. With evict it has free make room, for others that have entered meanwhile, too.
func enter(n *atomic.Int64, most int64, evict bool, free func() bool) bool {
	n.Add(1)
	for n.Load() > most {
		if !evict || !free() {
			return n.Load() <= most // another's eviction may have just ended
		}
	}
	return true
}

// releaseSocket ends acquireSocket: no connection was made, or it is closed.
func (e *Endpoint) releaseSocket() {
	e.backend.set.sockets.Add(-1)
	e.backend.root().sockets.Add(-1)
}

// eviction coalesces what many ask for at the same moment.
type eviction struct {
	notBefore atomic.Int64 // Unix nanoseconds, see evictPause
	passes    atomic.Int64

	mu    sync.Mutex
	freed bool // by the last pass
}

// run closes what take returns, and reports whether that was anything; where another does so at the moment, it waits for that.
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

// EvictIdle closes idle connections, a few hundred at most, because descriptors are short: those that have idled for longest. It reports whether there were any.
func (s *Set) EvictIdle() bool {
	return s.eviction.run(func() []*Conn {
		s.mu.Lock()
		all := make([]*Backend, 0, len(s.backends)+len(s.leaving))
		for _, b := range s.backends {
			all = append(all, b)
		}
		for _, b := range s.leaving {
			all = append(all, b.Backend)
		}
		s.mu.Unlock()
		return oldestIdle(all, s.clock.Load())
	})
}

// evictIdle is EvictIdle for one Backend.
func (b *Backend) evictIdle() bool {
	return b.eviction.run(func() []*Conn { return oldestIdle([]*Backend{b}, b.set.clock.Load()) })
}

// oldestIdle takes idle connections. Those by HTTP/2 that carry no stream end as well where there are no others, but a moment later, so that they are none of the result.
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
			e.everyShard(func(s *shard) { oldest = s.takeOldest(oldest, before, evictBatch-len(oldest)) })
		})
		if len(oldest) > 0 {
			return oldest
		}
	}
	ended := 0
	each(func(e *Endpoint) {
		for _, s := range e.sharing.list() {
			if ended < evictBatch && s.endIdle() {
				ended++
			}
		}
	})
	return nil
}

// replaceIdle closes an idle connection for one that was made because those that idle are too old for a request, see IdleRecent: else there would be more with each such
// request than are ever used at a time.
func (e *Endpoint) replaceIdle() {
	before := e.backend.set.recent.Load()
	if e.terminating.Load() {
		before = math.MaxInt64
	}
	var old []*Conn
	e.everyShard(func(s *shard) { old = s.takeOldest(old, before, 1-len(old)) })
	for _, c := range old {
		c.Close()
	}
}

// takeOldest appends to list up to n connections that have idled for longest, of those that were released before a time.
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
