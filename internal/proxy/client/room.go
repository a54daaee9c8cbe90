package client

import (
	"maps"
	"slices"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
)

// scarce sets when connections count as scarce: when fewer than 1/scarce of the total are left. Then connections
// without a request are closed to make room for new ones, 1/(2*scarce) of the total at a time.
const scarce = 16

// level returns the highest number of connections per client such that cutting every client above it down to it frees
// at least want connections. each lists the connections of each client, in descending order.
func level(each []int, want int) int {
	for i, n := range each {
		next := 0
		if i+1 < len(each) {
			next = each[i+1]
		}
		if step := (n - next) * (i + 1); step < want {
			want -= step
		} else {
			return n - (want+i)/(i+1)
		}
	}
	return 0
}

// isScarce reports whether connections without a request should be ended so that new ones can be accepted.
func (a *connectionCounts) isScarce() bool {
	total := int64(a.limits.Total)
	return total > 0 && a.open.Load() > total-max(total/scarce, 1)
}

// makeRoom ends connections that have had no request for a while, of the clients that have the most connections; if it
// finds too few, it also ends unused tunnels. It reports whether it ended any. They are no longer counted as open. The
// number of connections that are ending at a time is bounded. A search visits all connections, so after one that finds
// too few there is none for a while.
func (s *Set) makeRoom() bool {
	a := &s.connections
	now := s.engine.Now()
	if now < a.roomAt.Load() || !a.room.TryLock() {
		return false
	}
	defer a.room.Unlock()
	batch := max(a.limits.Total/scarce/2, 1)
	most := batch - int(a.ending.Load())
	if most < (batch+1)/2 {
		return false
	}
	counts := a.byClientCounts()
	each := slices.SortedFunc(maps.Values(counts), func(a, b int) int { return b - a })
	ended := 0
	search := func(end func(above, most int) int) {
		for want, to := batch, 1; ended < (batch+1)/2 && to > 0; want *= 2 { // lower the level further if the clients above it use nearly all their connections
			to = level(each, want)
			ended += end(to, most-ended)
		}
	}
	search(func(above, most int) int { return s.endAbove(counts, above, most, now) })
	if ended < (batch+1)/2 {
		defer s.lend()()
		tunnels := s.tunnelsSince(tunnelUnused, moments.used)
		search(func(above, most int) int { return endTunnelsAbove(tunnels, counts, above, most) })
	}
	if ended < most {
		a.roomAt.Store(now + 1)
	}
	return ended > 0
}

// endAbove ends up to most connections without a request, of clients with more than level connections, and returns
// their number. It subtracts them from counts.
func (s *Set) endAbove(counts map[clientKey]int, level, most int, now int64) (ended int) {
	ended = s.dormants.endSome(s, most, func(d *dormant) bool {
		if counts[d.key] <= level || !d.endsNow(now) {
			return false
		}
		counts[d.key]--
		return true
	})
	for i := range s.shards {
		ended += s.shards[i].end(most-ended, func(c *Conn) bool {
			if counts[c.key] <= level || !c.endWithoutRequest(now) {
				return false
			}
			counts[c.key]--
			return true
		})
	}
	return ended + s.l4.endAwaitingHello(counts, level, most-ended, now)
}

// endTunnelsAbove is like endAbove, for unused tunnels.
func endTunnelsAbove(tunnels []openTunnel, counts map[clientKey]int, level, most int) (ended int) {
	for _, t := range tunnels {
		if ended == most {
			break
		}
		if counts[t.key()] > level && t.end() {
			counts[t.key()]--
			ended++
		}
	}
	return ended
}

// endIdle ends the connection if it has been idle for at least parkAfter, and reports whether it does.
func (c *Conn) endIdle() bool {
	if h := c.http2.Load(); h != nil {
		idle, used := h.Idle(parkAfter)
		return idle && c.endHTTP2(h, c.leastIdle(parkAfter, used))
	}
	if !c.claim() {
		return false
	}
	go c.expireParked()
	return true
}

// leastIdle returns how long an HTTP/2 connection must have been idle to be ended: usually least. used means that it had a
// request. Its client may send frames while it still receives the end of a response. Closing the connection then would
// reset it and lose that end, so such a client gets WriteIdle.
func (c *Conn) leastIdle(least time.Duration, used bool) time.Duration {
	if used && listen.Unsent(c.raw) > 0 {
		return c.timeouts.WriteIdle
	}
	return least
}

// endHTTP2 ends the connection if it has had no stream for at least that long, and reports whether it does.
func (c *Conn) endHTTP2(h *http2.Conn, least time.Duration) bool {
	if !h.EndIfIdle(least) {
		return false
	}
	if c.claim() { // it is parked, and must be resumed to end
		go c.resume()
	}
	return true
}

// endWithoutRequest ends the connection and stops counting it if it has waited for a request, the rest of a head or a
// handshake for at least parkAfter. It reports whether it does.
func (c *Conn) endWithoutRequest(now int64) bool {
	if c.endIdle() {
		c.set.evict(&c.counted)
		return true
	}
	t, limit := c.timeouts, time.Duration(0)
	kind, at, seen := c.wait.get()
	switch kind {
	case waitIdle:
		limit = t.Idle
	case waitHandshake:
		limit = t.Handshake
	case waitHead:
		limit = t.Head
	default:
		return false
	}
	switch {
	case now < at-limit.Milliseconds()+parkAfter.Milliseconds():
		return false
	case kind == waitIdle: // a request that arrives at this moment is still carried out
		return c.interrupt(&c.wait, seen, func() { c.set.evict(&c.counted) })
	case !c.wait.claim(seen):
		return false
	}
	c.set.evict(&c.counted)
	go c.tcp.Close() // this ends the wait
	return true
}
