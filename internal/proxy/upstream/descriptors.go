package upstream

import (
	"errors"
	"syscall"
)

// This file is for descriptors: each connection to an endpoint needs one, and an idle one is worth less than a request that cannot be sent for want of it.

// mostOfBackend is how many of so many connections one Backend may have, so that one that does not answer leaves some to the others.
func mostOfBackend(most int64) int64 { return most - most/8 }

// errDescriptors is that Options.MaxOpen is reached by connections that are in use.
var errDescriptors = errors.New("there are as many connections to backends as the limit on open files leaves room for")

// IsExhausted reports whether the process or the system has no descriptor left.
func IsExhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// admit counts a connection that is to be made, until closed or unadmit; false is that there is no room, also after closing what idles.
func (e *Endpoint) admit() bool {
	s, root := e.backend.set, e.backend.root()
	most := int64(s.options.MaxOpen)
	if most > 0 && root.own.open.Load() >= mostOfBackend(most) && !root.freeIdle() {
		return false
	}
	if n := s.sockets.Add(1); most == 0 || n <= most || s.FreeIdle() && s.sockets.Load() <= most {
		return true
	}
	s.sockets.Add(-1)
	return false
}

// unadmit ends admit where no connection was made.
func (s *Set) unadmit() { s.sockets.Add(-1) }

// FreeIdle closes the half of the idle connections of each endpoint that have idled for longest, because descriptors are short. It reports whether there are any
// fewer now than when it was called.
func (s *Set) FreeIdle() bool {
	before := s.relief.times.Load()
	s.relief.mu.Lock()
	defer s.relief.mu.Unlock()
	if s.relief.times.Load() != before { // another has done it meanwhile
		return true
	}
	s.mu.Lock()
	all := make([]*Backend, 0, len(s.backends)+len(s.leaving))
	for _, b := range s.backends {
		all = append(all, b)
	}
	for _, b := range s.leaving {
		all = append(all, b.Backend)
	}
	s.mu.Unlock()
	freed := false
	for _, b := range all {
		freed = b.freeIdle() || freed
	}
	if freed {
		s.relief.times.Add(1)
	}
	return freed
}

// freeIdle is FreeIdle for one Backend, without a pause.
func (b *Backend) freeIdle() (freed bool) {
	for e := range b.everyEndpoint() {
		for _, e := range append(e.innerList(), e) {
			e.everyShard(func(s *shard) { freed = closeAll(s.takeOldest((int(s.count.Load())+1)/2)) || freed })
		}
	}
	return freed
}

// replaceIdle makes room for a connection that a request needs for which those that idle are too old, see IdleRecent: else there would be more with each
// such request than are ever used at a time.
func (e *Endpoint) replaceIdle() {
	for done, shards := closeAll(e.own.takeOldest(1)), e.coreShards(); !done && len(shards) > 0; shards = shards[1:] {
		done = closeAll(shards[0].takeOldest(1))
	}
}

// takeOldest takes up to n connections that have idled for longest.
func (s *shard) takeOldest(n int) []*Conn {
	if s.count.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, len(s.idle))
	oldest := append([]*Conn(nil), s.idle[:n]...)
	kept := copy(s.idle, s.idle[n:])
	clear(s.idle[kept:])
	s.idle = s.idle[:kept]
	s.count.Store(int64(kept))
	return oldest
}

func closeAll(conns []*Conn) bool {
	for _, c := range conns {
		c.Close()
	}
	return len(conns) > 0
}
