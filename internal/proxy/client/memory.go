package client

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
)

// closeEach is the largest number of connections of one shard that CloseIdle ends in a call.
const closeEach = 16

// CloseIdle ends some of the connections that have been idle the longest. It is called when memory is scarce. Most
// dormant connections hold almost no memory, so it ends them only if it finds no others; those that hold more it ends too.
func (s *Set) CloseIdle() {
	now := s.engine.Now()
	endsNow := func(d *dormant) bool { return d.endsNow(now) }
	ended := s.dormants.endLarge(s, closeEach*shards, endsNow)
	for i := range s.shards {
		ended += s.shards[i].end(closeEach, (*Conn).endIdle)
	}
	if ended == 0 {
		s.dormants.endSome(s, closeEach*shards, endsNow)
	}
}

// largeHold is the number of bytes that a connection must hold for CutLargest to end it.
const largeHold = 1 << 20

// CutLargest ends the connections that hold the most bytes of bodies, even if they are in use, until the ended ones
// have held that many bytes together. It returns the number of ended connections.
func (s *Set) CutLargest(bytes uint64) (cut int) {
	type held struct {
		c *Conn
		n int
	}
	defer s.lend()()
	var large []held
	s.Each(func(c *Conn) {
		if n := c.Held(); n >= largeHold {
			large = append(large, held{c, n})
		}
	})
	slices.SortFunc(large, func(a, b held) int { return b.n - a.n })
	for sum := uint64(0); cut < len(large) && sum < bytes; cut++ {
		sum += uint64(large[cut].n)
		large[cut].c.cut(observe.ReasonOverloaded)
	}
	return cut
}

// Held returns an upper bound of the bytes that the connection holds: request bodies (for HTTP/1 only the bytes counted
// in exchange.Engine.Kept) and, for tunnels, what one side has not taken yet.
func (c *Conn) Held() int {
	n := int(c.kept.Load())
	h := c.http2.Load()
	if h == nil {
		return n + c.tunnel().held()
	}
	n += h.Held()
	c.tunnels.each(func(d *stream) { n += d.tunnel().held() })
	return n
}

// Resume makes HTTP/2 connections accept the data that they held back while memory was scarce.
func (s *Set) Resume() {
	s.Each(func(c *Conn) {
		if h := c.http2.Load(); h != nil {
			h.Resume()
		}
	})
}

const (
	// tunnelUnused is how long a tunnel must have moved nothing before it may be ended to make room for others.
	tunnelUnused = time.Minute
	// stuckFor is how long a client, or a side of a tunnel, must have left one write untaken before the connection may
	// be ended to free the buffer of that write. A peer that takes a little from time to time counts as using the
	// connection, although it holds as much memory.
	stuckFor = 5 * time.Second
	// EndUnusedTunnels ends 1/tunnelPart of the unused tunnels in a call, but at least tunnelsLeast.
	tunnelPart, tunnelsLeast = 4, 16
)

// EndStuckTunnels ends tunnels that hold data which one side has not taken for stuckFor, the longest stuck first, until
// the ended ones have held that many bytes together. It returns their number and the bytes they held. It is called when
// memory is scarce.
func (s *Set) EndStuckTunnels(bytes uint64) (ended int, freed uint64) {
	defer s.lend()()
	for _, t := range s.tunnelsSince(stuckFor, moments.stuck) {
		if freed >= bytes {
			break
		}
		if n := t.held(); n > 0 && t.end() { // otherwise it has moved data meanwhile, or has ended
			freed += uint64(n)
			ended++
		}
	}
	return ended, freed
}

// EndStuckResponses ends connections whose client has not taken the current write of a response for stuckFor and has
// acknowledged nothing since the last call, the longest stuck first, until the buffers of those writes amount to that
// many bytes. It returns the number of ended connections and the least number of bytes they held. It is called by the
// sweeper when memory is scarce.
func (s *Set) EndStuckResponses(bytes uint64) (ended int, freed uint64) {
	type stuck struct {
		c     *Conn
		since int64
	}
	defer s.lend()()
	var all []stuck
	s.Each(func(c *Conn) {
		if since, ok := c.stuck(); ok {
			all = append(all, stuck{c, since})
		}
	})
	slices.SortFunc(all, func(a, b stuck) int { return cmp.Compare(a.since, b.since) })
	for i := 0; i < len(all) && freed < bytes; i++ {
		c := all[i].c
		if since, ok := c.stuckSince(); ok && since == all[i].since { // otherwise the client has taken the write meanwhile
			freed += exchange.Holds(c.little.Load())
			c.endInUse()
			ended++
		}
	}
	return ended, freed
}

// EndStarvedStreams is like EndStuckResponses, for HTTP/2 streams that wait for flow-control window and whose client
// has granted none for stuckFor since the first call. It ends only these streams, not their connections.
func (s *Set) EndStarvedStreams(bytes uint64) (ended int, freed uint64) {
	type starving struct {
		h    *http2.Conn
		each uint64
	}
	var all []starving
	s.Each(func(c *Conn) {
		if h := c.http2.Load(); h != nil {
			all = append(all, starving{h, exchange.Holds(c.little.Load())})
		}
	})
	for _, c := range all {
		most := (bytes - min(bytes, freed) + c.each - 1) / c.each
		n := c.h.EndStarved(stuckFor, int(min(most, math.MaxInt32)))
		ended += n
		freed += uint64(n) * c.each
	}
	return ended, freed
}

// HeldUp considers writes that a client has left untaken for at least heldUpFor and at most JudgedFor: after JudgedFor,
// EndStuckResponses has already decided about them.
const heldUpFor, JudgedFor = time.Second, stuckFor + 5*time.Second

// HeldUp reports whether clients are slow to take responses, so that EndStuckResponses or EndStarvedStreams may find
// some to end within JudgedFor. A client that takes a little from time to time may look like this indefinitely.
func (s *Set) HeldUp() (found bool) {
	now := s.engine.Now()
	earliest, latest := now-JudgedFor.Milliseconds(), now-heldUpFor.Milliseconds()
	s.Each(func(c *Conn) {
		if found {
			return
		}
		since, ok := c.WritingSince()
		h := c.http2.Load()
		found = ok && since <= latest && since >= earliest || h != nil && h.Starves(JudgedFor)
	})
	return found
}

// stuck is like stuckSince, but returns false if the client has acknowledged anything since the last call.
func (c *Conn) stuck() (since int64, ok bool) {
	if since, ok = c.stuckSince(); !ok {
		return 0, false
	}
	// When much is being sent, the kernel takes no more until the client has taken a third of the megabytes already
	// buffered. So the acknowledged bytes show progress that the write itself does not.
	unsent := listen.Unsent(c.raw)
	ok = c.untaken == untaken{since, unsent}
	c.untaken = untaken{since, unsent}
	return since, ok
}

// stuckSince is like WritingSince, but returns false unless the write began at least stuckFor ago, by the coarse clock,
// and the connection counts as open.
func (c *Conn) stuckSince() (ms int64, ok bool) {
	ms, ok = c.WritingSince()
	return ms, ok && ms <= c.set.engine.Now()-stuckFor.Milliseconds() && c.state.Load() == countedOpen
}

// WritingSince returns when the write that the client has not taken yet began, in Unix milliseconds. The write may be
// one of TLS itself. It returns false if nothing is being written; an HTTP/2 stream that waits for its window is not
// being written.
func (c *Conn) WritingSince() (ms int64, ok bool) {
	if h := c.http2.Load(); h != nil {
		if ms = h.WritingSince(); ms > 0 {
			return ms, true
		}
	}
	kind, at, _ := c.wait.get()
	if kind != waitWrite {
		kind, at, _ = c.wireWait.get()
	}
	return at - c.timeouts.WriteIdle.Milliseconds(), kind == waitWrite
}

// untaken is what EndStuckResponses last saw of a connection: when its write began, and the number of bytes that the
// client had not acknowledged.
type untaken struct {
	since  int64
	unsent int
}

// EndUnusedTunnels ends some of the tunnels that have moved nothing for tunnelUnused, the longest unused first, and
// returns their number. It is called when memory is scarce.
func (s *Set) EndUnusedTunnels() (ended int) {
	defer s.lend()()
	all := s.tunnelsSince(tunnelUnused, moments.used)
	all = all[:min(len(all), max(len(all)/tunnelPart, tunnelsLeast))]
	for _, t := range all {
		if t.end() {
			ended++
		}
	}
	return ended
}

// endInUse ends a connection that is in use, as a tunnel or for a response, and stops counting it.
func (c *Conn) endInUse() {
	c.set.evict(&c.counted)
	c.cut(observe.ReasonOverloaded)
}
