package upstream

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/moongate-dev/moongate/internal/proxy/cores"
)

const (
	// spreadAt is how often cores must have met at an endpoint since the last Sweep for it to be
	// spread: below, waiting for each other costs them less than a ten-thousandth of their time.
	spreadAt = 1000
	// spreadOver is the least number of cores that gain by it: between two, a cache line travels in the
	// time that the larger bookkeeping takes.
	spreadOver = 4
	// gatherBelow is with how few requests since the last Sweep it is gathered again. So an endpoint
	// that few requests go to is known exactly by all of them.
	gatherBelow = 1000
	// unreported is by how many requests in flight a core may differ from what it has reported to the others.
	unreported = 8
)

// shard is where the requests of one core find an endpoint's idle connections and count themselves. An
// endpoint has one for all cores, until they are seen to wait for each other there.
type shard struct {
	mu      sync.Mutex // guards idle and retired
	idle    []*Conn    // a stack: the last released is the next taken, so a quiet pool shrinks
	retired bool       // the endpoint is no longer in the configuration

	count atomic.Int64  // len(idle), to be read without mu
	busy  atomic.Int64  // requests in flight beyond Endpoint.inFlight; may be below 0
	begun atomic.Uint64 // requests since the last Sweep; of a core's shard only
}

// coreShard is a shard that shares no cache line with another, of which the hardware fetches two at a time.
type coreShard struct {
	shard
	_ [64]byte
}

// take takes the connection that was put there last, nil where there is none or it was released before since.
func (s *shard) take(since int64) *Conn {
	if s.count.Load() == 0 {
		return nil
	}
	var c *Conn
	s.mu.Lock()
	if n := len(s.idle); n > 0 && s.idle[n-1].released >= since {
		c = s.idle[n-1]
		s.idle[n-1] = nil
		s.idle = s.idle[:n-1]
		s.count.Store(int64(n - 1))
	}
	s.mu.Unlock()
	return c
}

// keep puts c on the stack; false is that the shard takes no more.
func (s *shard) keep(c *Conn, limit int) bool {
	s.mu.Lock()
	room := !s.retired && len(s.idle) < limit
	if room {
		s.idle = append(s.idle, c)
		s.count.Store(int64(len(s.idle)))
	}
	s.mu.Unlock()
	return room
}

// retire takes no connections from now on, and returns those that are there.
func (s *shard) retire() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.idle
	s.idle, s.retired = nil, true
	s.count.Store(0)
	return all
}

// Begin counts a request as in flight; End ends that. Call Begin right after
// Pick, before a connection is asked for, so that a slow connect counts too.
func (e *Endpoint) Begin() {
	if e.suspect.Load() != notSuspect || e.health.marks.Load()&markEjected != 0 {
		e.tries()
	}
	if e.spread.Load() {
		s := &e.coreShards()[e.here()].shard
		s.begun.Add(1)
		e.countNearby(s, 1)
		return
	}
	if old := e.inFlight.Load(); !e.inFlight.CompareAndSwap(old, old+1) {
		e.inFlight.Add(1)
		e.met.Add(1)
	}
}

// End is the counterpart of Begin.
func (e *Endpoint) End() {
	if e.spread.Load() {
		e.countNearby(&e.coreShards()[e.here()].shard, -1)
		return
	}
	e.inFlight.Add(-1)
}

// countNearby counts in this core's shard. Requests begin and end at about the same rate, so that it seldom has
// to tell the others.
func (e *Endpoint) countNearby(s *shard, n int64) {
	if b := s.busy.Add(n); (b >= unreported || b <= -unreported) && s.busy.CompareAndSwap(b, 0) {
		e.inFlight.Add(b)
	}
}

// load is how many requests are in flight, as far as this core knows: exactly where the endpoint is
// not spread, and else what the others have told of theirs.
func (e *Endpoint) load() int64 {
	n := e.inFlight.Load()
	if e.spread.Load() {
		n += e.coreShards()[e.here()].busy.Load()
	}
	return n
}

// here is the number of this core's shard.
func (e *Endpoint) here() uint32 { return cores.Here() & uint32(len(e.coreShards())-1) }

// coreShards are those made when the endpoint was first spread; a power of two, or none.
func (e *Endpoint) coreShards() []coreShard {
	if p := e.shards.Load(); p != nil {
		return *p
	}
	return nil
}

// Idle takes the connection that was released last, or returns nil; where the endpoint is spread, the one that
// was released last by this core, or any other. It may have died since; see Conn.Alive.
func (e *Endpoint) Idle() *Conn { return e.idleSince(math.MinInt64) }

// IdleRecent is Idle for a request that may not be sent again: between a look at the connection and the arrival of the request the
// endpoint may close it, which it does after a time of its own and when it ends. So it gives only what was in use a moment
// ago, which is less than two intervals between Sweeps, and nothing of an endpoint that is terminating.
func (e *Endpoint) IdleRecent() *Conn {
	if e.terminating.Load() {
		return nil
	}
	return e.idleSince(e.backend.set.recent.Load())
}

func (e *Endpoint) idleSince(since int64) *Conn {
	for {
		c := e.own.take(since)
		if c == nil {
			if !e.spread.Load() {
				return nil
			}
			if c = e.idleNearby(since); c == nil {
				return nil
			}
		}
		if c.worn() { // it has become so while it idled
			c.Close()
			continue
		}
		c.Reused = true // or it has idled since it was made, which is the same
		e.preconnect()
		return c
	}
}

// idleNearby looks at all shards, from this core's on. The first seldom is empty for long, because a
// connection comes back to where a request ends.
func (e *Endpoint) idleNearby(since int64) *Conn {
	shards := e.coreShards()
	for i, from := 0, int(e.here()); i < len(shards); i++ {
		if c := shards[(from+i)&(len(shards)-1)].take(since); c != nil {
			return c
		}
	}
	return nil
}

// keep makes c available to others; false if it must be closed instead.
func (e *Endpoint) keep(c *Conn) bool {
	most := e.backend.set.options.MaxIdle
	if !e.spread.Load() {
		return e.own.keep(c, most)
	}
	shards := e.coreShards()
	for i, from := 0, int(e.here()); i < len(shards); i++ {
		at := (from + i) & (len(shards) - 1)
		if s, limit := &shards[at].shard, share(most, len(shards), at); int(s.count.Load()) < limit && s.keep(c, limit) {
			return true
		}
	}
	return false
}

// share is the part that shard i of n has of the idle connections that an endpoint may keep.
func share(most, n, i int) int {
	limit := most / n
	if i < most%n {
		limit++
	}
	return limit
}

// balance spreads the endpoint where cores have met often, and gathers it where they have no cause to meet. It is
// Sweep's.
func (e *Endpoint) balance() {
	met := e.met.Load()
	if met > 0 {
		e.met.Store(0)
	}
	if !e.spread.Load() {
		if n := cores.Count(); met >= spreadAt && n >= spreadOver {
			e.spreadTo(n)
		} else if e.shards.Load() != nil {
			e.gather() // what was on its way when it was gathered
		}
		return
	}
	begun, shards := uint64(0), e.coreShards()
	for i := range shards {
		begun += shards[i].begun.Swap(0)
	}
	if begun < gatherBelow {
		e.gather()
	}
}

// spreadTo gives each of n cores, a power of two, a shard, and deals the idle connections out to them.
func (e *Endpoint) spreadTo(n int) {
	e.own.mu.Lock()
	if e.own.retired { // shards made now would not be retired
		e.own.mu.Unlock()
		return
	}
	if e.shards.Load() == nil {
		shards := make([]coreShard, n)
		e.shards.Store(&shards)
	}
	e.spread.Store(true)
	e.own.mu.Unlock()
	e.deal()
}

// deal hands the connections of the shard that all share out to the cores' shards, one by one, so that
// hardly a request misses them.
func (e *Endpoint) deal() {
	shards, most := e.coreShards(), e.backend.set.options.MaxIdle
	for i := 0; ; i++ {
		c := e.own.take(math.MinInt64)
		if c == nil {
			return
		}
		at := i & (len(shards) - 1)
		if !shards[at].keep(c, share(most, len(shards), at)) {
			c.Close()
		}
	}
}

// gather undoes spreadTo; it may be called again and again.
func (e *Endpoint) gather() {
	e.spread.Store(false)
	shards := e.coreShards()
	for i := range shards {
		s := &shards[i].shard
		for c := s.take(math.MinInt64); c != nil; c = s.take(math.MinInt64) {
			if !e.own.keep(c, e.backend.set.options.MaxIdle) {
				c.Close()
			}
		}
		e.inFlight.Add(s.busy.Swap(0))
	}
}

// everyShard calls f for all shards, in use or not.
func (e *Endpoint) everyShard(f func(*shard)) {
	f(&e.own)
	shards := e.coreShards()
	for i := range shards {
		f(&shards[i].shard)
	}
}

// idleCount is how many connections are idle.
func (e *Endpoint) idleCount() (n int64) {
	e.everyShard(func(s *shard) { n += s.count.Load() })
	return n
}

// inFlightNow is how many requests are between Begin and End.
func (e *Endpoint) inFlightNow() int64 {
	n := e.inFlight.Load()
	e.everyShard(func(s *shard) { n += s.busy.Load() })
	return n
}
