package upstream

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/moongate-dev/moongate/internal/proxy/cores"
)

const (
	// spreadAt is how many times cores must have met at an endpoint since the last Sweep for it to be spread: below,
	// waiting for each other costs them less than a ten-thousandth of their time.
	spreadAt = 1000
	// spreadOver is the least number of cores for which spreading pays: with fewer, moving a cache line between them is
	// no slower than the additional bookkeeping.
	spreadOver = 4
	// gatherBelow is the number of requests since the last Sweep below which a spread endpoint is gathered again, so
	// that the load of an endpoint with few requests is known exactly.
	gatherBelow = 1000
	// unreported is the largest number of requests in flight by which a core may differ from what it has reported to
	// the others.
	unreported = 8
)

// shard is where the requests of one core find an endpoint's idle connections and are counted. An endpoint has one for
// all cores, until these are found to wait for each other there.
type shard struct {
	mu      sync.Mutex // guards idle and retired
	idle    []*Conn    // a stack: the last released is taken first, so that an unused pool shrinks
	retired bool       // the endpoint was removed from the configuration

	count atomic.Int64  // len(idle), readable without mu
	busy  atomic.Int64  // requests in flight in addition to Endpoint.inFlight; may be negative
	begun atomic.Uint64 // requests since the last Sweep; only in a core's shard
}

// coreShard is a shard padded so that no two share a cache line; the hardware fetches two lines at a time.
type coreShard struct {
	shard
	_ [64]byte
}

// take takes the connection that was released last. It returns nil if there is none or it was released before since.
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

// keep puts c on the stack. It returns false if the shard takes no more.
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

// retire makes the shard take no more connections, and returns the present ones.
func (s *shard) retire() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.idle
	s.idle, s.retired = nil, true
	s.count.Store(0)
	return all
}

// Begin counts a request as in flight until End. It must be called right after Pick, before a connection is requested,
// so that a slow connect counts too.
func (e *Endpoint) Begin() {
	if e.suspect.Load() != notSuspect || e.health.marks.Load()&markEjected != 0 {
		e.tries()
	}
	u := e.use()
	if u.spread.Load() {
		s := u.here()
		s.begun.Add(1)
		u.countNearby(s, 1)
		return
	}
	if old := u.inFlight.Load(); !u.inFlight.CompareAndSwap(old, old+1) {
		u.inFlight.Add(1)
		u.met.Add(1)
	}
}

// End ends the request counted by Begin.
func (e *Endpoint) End() {
	u := e.use()
	if u.spread.Load() {
		u.countNearby(u.here(), -1)
		return
	}
	u.inFlight.Add(-1)
}

// countNearby counts in this core's shard. Requests begin and end at about the same rate, so the shard rarely has to
// report to the shared count.
func (u *endpointUse) countNearby(s *shard, n int64) {
	if b := s.busy.Add(n); (b >= unreported || b <= -unreported) && s.busy.CompareAndSwap(b, 0) {
		u.inFlight.Add(b)
	}
}

// load returns how many requests are in flight, as far as this core knows: exactly if the endpoint is not spread,
// otherwise with what other cores have reported.
func (e *Endpoint) load() int64 {
	u := e.soFar()
	n := u.inFlight.Load()
	if u.spread.Load() {
		n += u.here().busy.Load()
	}
	return n
}

// here returns this core's shard.
func (u *endpointUse) here() *shard {
	shards := u.coreShards()
	return &shards[indexHere(shards)].shard
}

// indexHere returns the index of this core's shard.
func indexHere(shards []coreShard) int { return int(cores.Here()) & (len(shards) - 1) }

// coreShards returns the shards created when the endpoint was first spread; their number is a power of two. It is empty
// if it never was.
func (u *endpointUse) coreShards() []coreShard {
	if p := u.shards.Load(); p != nil {
		return *p
	}
	return nil
}

// Idle takes the idle connection that was released last, or returns nil. If the endpoint is spread, it prefers one that
// this core has released. The connection may have been closed since; see Conn.Alive.
func (e *Endpoint) Idle() *Conn { return e.idleSince(math.MinInt64) }

// IdleRecent is like Idle, for a request that may not be sent again: between the check of the connection and the
// arrival of the request the endpoint may close it, because of its own timeout or because it ends. So it only returns
// connections that were used less than two Sweep intervals ago, and none of a terminating endpoint.
func (e *Endpoint) IdleRecent() *Conn {
	if e.terminating.Load() {
		return nil
	}
	return e.idleSince(e.backend.set.recent.Load())
}

func (e *Endpoint) idleSince(since int64) *Conn {
	u := e.soFar()
	for {
		c := u.own.take(since)
		if c == nil {
			if !u.spread.Load() {
				return nil
			}
			if c = u.idleNearby(since); c == nil {
				return nil
			}
		}
		if c.worn() { // it has become so while it was idle
			c.Close()
			continue
		}
		c.Reused = true // a connection that has been idle since it was made needs the same checks
		e.preconnect()
		return c
	}
}

// idleNearby searches all shards, beginning with this core's. That one is rarely empty for long, because a connection
// returns to the core on which a request ends.
func (u *endpointUse) idleNearby(since int64) *Conn {
	shards := u.coreShards()
	for i, from := 0, indexHere(shards); i < len(shards); i++ {
		if c := shards[(from+i)&(len(shards)-1)].take(since); c != nil {
			return c
		}
	}
	return nil
}

// keep makes c available to other requests. It returns false if c must be closed instead.
func (e *Endpoint) keep(c *Conn) bool {
	u, most := e.use(), e.backend.set.options.MaxIdle
	if !u.spread.Load() {
		return u.own.keep(c, most)
	}
	shards := u.coreShards()
	for i, from := 0, indexHere(shards); i < len(shards); i++ {
		at := (from + i) & (len(shards) - 1)
		if s, limit := &shards[at].shard, share(most, len(shards), at); int(s.count.Load()) < limit && s.keep(c, limit) {
			return true
		}
	}
	return false
}

// share returns how many of the idle connections that an endpoint may keep belong to shard i of n.
func share(most, n, i int) int {
	limit := most / n
	if i < most%n {
		limit++
	}
	return limit
}

// balance spreads the endpoint if cores have met often, and gathers it if they no longer would. It is called by Sweep.
func (e *Endpoint) balance() {
	u := e.use()
	met := u.met.Load()
	if met > 0 {
		u.met.Store(0)
	}
	if !u.spread.Load() {
		if n := cores.Count(); met >= spreadAt && n >= spreadOver {
			e.spreadTo(n)
		} else if u.shards.Load() != nil {
			e.gather() // connections and counts that were in transit when it was gathered
		}
		return
	}
	begun, shards := uint64(0), u.coreShards()
	for i := range shards {
		begun += shards[i].begun.Swap(0)
	}
	if begun < gatherBelow {
		e.gather()
	}
}

// spreadTo gives each of n cores, a power of two, a shard, and distributes the idle connections among them.
func (e *Endpoint) spreadTo(n int) {
	u := e.use()
	u.own.mu.Lock()
	if u.own.retired { // new shards would not be retired
		u.own.mu.Unlock()
		return
	}
	if u.shards.Load() == nil {
		shards := make([]coreShard, n)
		u.shards.Store(&shards)
	}
	u.spread.Store(true)
	u.own.mu.Unlock()
	e.deal()
}

// deal distributes the connections of the common shard among the cores' shards one by one, so that few requests find
// none meanwhile.
func (e *Endpoint) deal() {
	u, most := e.use(), e.backend.set.options.MaxIdle
	shards := u.coreShards()
	for i := 0; ; i++ {
		c := u.own.take(math.MinInt64)
		if c == nil {
			return
		}
		at := i & (len(shards) - 1)
		if !shards[at].keep(c, share(most, len(shards), at)) {
			c.Close()
		}
	}
}

// gather undoes spreadTo. It may be called repeatedly.
func (e *Endpoint) gather() {
	u := e.use()
	u.spread.Store(false)
	shards := u.coreShards()
	for i := range shards {
		s := &shards[i].shard
		for c := s.take(math.MinInt64); c != nil; c = s.take(math.MinInt64) {
			if !u.own.keep(c, e.backend.set.options.MaxIdle) {
				c.Close()
			}
		}
		u.inFlight.Add(s.busy.Swap(0))
	}
}

// everyShard calls f for all shards, whether they are in use or not.
func (u *endpointUse) everyShard(f func(*shard)) {
	f(&u.own)
	shards := u.coreShards()
	for i := range shards {
		f(&shards[i].shard)
	}
}

// idleCount returns how many connections are idle.
func (e *Endpoint) idleCount() (n int64) {
	e.soFar().everyShard(func(s *shard) { n += s.count.Load() })
	return n
}

// inFlightNow returns how many requests are between Begin and End.
func (e *Endpoint) inFlightNow() int64 {
	u := e.soFar()
	n := u.inFlight.Load()
	u.everyShard(func(s *shard) { n += s.busy.Load() })
	return n
}
