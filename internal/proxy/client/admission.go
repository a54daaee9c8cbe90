package client

import (
	"cmp"
	"encoding/binary"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
)

// ConnectionLimits bounds how many connections a Set may have at a time. 0 means no limit.
type ConnectionLimits struct {
	Total int
	// PerClient is the limit for one client address. IPv6 addresses count as one if their first 64 bits are equal,
	// because a client usually has all the addresses of such a network.
	PerClient int
}

const (
	// clientParts is the number of parts into which the counts by client are divided, each with its own lock.
	clientParts = 64
	// keepClients is the largest number of clients for which a part keeps its map after all of them have left.
	keepClients = 64
	// refusalLogEvery is the shortest time between two log lines about refused connections.
	refusalLogEvery = 10 * time.Second
	// scarce sets when connections count as scarce: when fewer than 1/scarce of the total are left. Then connections
	// without a request are closed to make room for new ones, 1/(2*scarce) of the total at a time.
	scarce = 16
)

// clientKey identifies a client address in the counts by client.
type clientKey struct {
	bits uint64
	ipv4 bool
}

func keyOf(addr netip.Addr) clientKey {
	if addr.Is4() || addr.Is4In6() {
		b := addr.As4()
		return clientKey{uint64(binary.BigEndian.Uint32(b[:])), true}
	}
	if !addr.IsValid() { // the client has already left
		return clientKey{}
	}
	b := addr.As16()
	return clientKey{binary.BigEndian.Uint64(b[:8]), false}
}

// admission counts connections and refuses those beyond the limits. The counts are exact.
type admission struct {
	limits ConnectionLimits
	open   atomic.Int64
	// ending is the number of connections that makeRoom has begun to end and that have not ended yet. open does not
	// include them.
	ending atomic.Int64
	parts  [clientParts]clientPart

	room   sync.Mutex   // held while makeRoom runs
	roomAt atomic.Int64 // when makeRoom may search again, by the coarse clock

	refused atomic.Int64 // connections refused since the last log line
	logAt   atomic.Int64 // when the next line may be logged, by the coarse clock
}

type clientPart struct {
	mu   sync.Mutex
	open map[clientKey]int
	most int            // largest size of open so far
	_    [128 - 24]byte // padding: the locks of two parts share no cache line
}

func (a *admission) part(k clientKey) *clientPart {
	return &a.parts[k.bits*0x9e3779b97f4a7c15>>58]
}

// enter counts a connection, or returns the limit that is reached and false. If it returns true, leave must be called
// once. The limit per client does not apply to a trusted proxy, whose connections are moved to the counts of its
// clients by recount.
func (a *admission) enter(k clientKey, proxy bool) (limit observe.ConnectionLimit, ok bool) {
	perClient := a.limits.PerClient
	if proxy {
		perClient = 0
	}
	if a.byClient() && !a.part(k).enter(k, perClient) {
		return observe.LimitPerClient, false
	}
	if n := a.open.Add(1); a.limits.Total > 0 && n > int64(a.limits.Total) {
		a.leave(k)
		return observe.LimitTotal, false
	}
	return 0, true
}

// enterAnyway counts a connection even if it exceeds the limits. leave must be called once afterwards.
func (a *admission) enterAnyway(k clientKey) {
	a.open.Add(1)
	if a.byClient() {
		a.part(k).enter(k, 0)
	}
}

func (a *admission) leave(k clientKey) {
	a.open.Add(-1)
	if a.byClient() {
		a.part(k).leave(k)
	}
}

// byClient reports whether connections are counted by client: to enforce PerClient, and to find the clients with the
// most connections when the total is reached.
func (a *admission) byClient() bool { return a.limits.PerClient > 0 || a.limits.Total > 0 }

// counts returns the number of connections of each client.
func (a *admission) counts() map[clientKey]int {
	all := make(map[clientKey]int)
	for i := range a.parts {
		p := &a.parts[i]
		p.mu.Lock()
		maps.Copy(all, p.open)
		p.mu.Unlock()
	}
	return all
}

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
func (a *admission) isScarce() bool {
	total := int64(a.limits.Total)
	return total > 0 && a.open.Load() > total-max(total/scarce, 1)
}

func (p *clientPart) enter(k clientKey, limit int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.open[k]
	if limit > 0 && n >= limit {
		return false
	}
	if p.open == nil {
		p.open = make(map[clientKey]int)
	}
	p.open[k] = n + 1
	p.most = max(p.most, len(p.open))
	return true
}

func (p *clientPart) leave(k clientKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.open[k]; n > 1 {
		p.open[k] = n - 1
		return
	}
	if delete(p.open, k); len(p.open) == 0 && p.most > keepClients {
		p.open, p.most = nil, 0 // a map does not shrink
	}
}

// closeEach is the largest number of connections of one shard that CloseIdle ends in a call.
const closeEach = 16

// CloseIdle ends some of the connections that have been idle the longest. It is called when memory is scarce. It ends
// dormant connections only if there are no others, since they hold almost no memory.
func (s *Set) CloseIdle() {
	ended := 0
	for i := range s.shards {
		ended += s.shards[i].end(closeEach, (*Conn).endIdle)
	}
	if ended == 0 {
		s.dormants.endSome(s, closeEach*shards, func(*dormant) bool { return true })
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
	return ms, ok && ms <= c.set.engine.Now()-stuckFor.Milliseconds() && c.counts.Load() == countsOpen
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
	all := s.tunnelsSince(tunnelUnused, moments.used)
	all = all[:min(len(all), max(len(all)/tunnelPart, tunnelsLeast))]
	for _, t := range all {
		if t.end() {
			ended++
		}
	}
	return ended
}

// openTunnel is a tunnel: a connection, a stream or a connection driven by a loop.
type openTunnel struct {
	c  *Conn
	d  *stream // nil if the tunnel is the whole connection
	l4 *l4Conn // set for a connection driven by a loop; c and d are nil then
}

// moments returns when a tunnel was last used or has become stuck, by the coarse clock. The second result is false if
// it is no tunnel, or not stuck.
type moments interface {
	used() (ms int64, tunnel bool)
	stuck() (ms int64, stuck bool)
}

func (t openTunnel) key() clientKey {
	if t.l4 != nil {
		return t.l4.key
	}
	return t.c.key
}

func (t openTunnel) held() int {
	if t.l4 != nil {
		return t.l4.held()
	}
	return t.waits().held()
}

func (t openTunnel) waits() tunnelWaits {
	if t.d == nil {
		return t.c.tunnel()
	}
	return tunnelWaits{t.c.set, &t.d.toClient, &t.d.toBackend}
}

// end ends the tunnel and reports whether it was still open.
func (t openTunnel) end() bool {
	if t.l4 != nil {
		return t.l4.end()
	}
	if t.d != nil {
		return t.c.tunnels.end(t.d)
	}
	open := t.c.counts.Load() == countsOpen
	t.c.endInUse()
	return open
}

// tunnelsSince returns the tunnels for which since returns a time at least that long ago, by the coarse clock, the
// oldest time first.
func (s *Set) tunnelsSince(least time.Duration, since func(moments) (ms int64, ok bool)) []openTunnel {
	at := make(map[openTunnel]int64)
	look := func(t openTunnel) {
		if ms, ok := since(t.waits()); ok {
			at[t] = ms
		}
	}
	s.Each(func(c *Conn) {
		switch {
		case c.http2.Load() != nil:
			c.tunnels.each(func(d *stream) { look(openTunnel{c: c, d: d}) })
		case c.counts.Load() == countsOpen:
			look(openTunnel{c: c})
		}
	})
	s.l4.each(func(c *l4Conn) {
		if ms, ok := since(c); ok && c.counts.Load() == countsOpen {
			at[openTunnel{l4: c}] = ms
		}
	})
	var all []openTunnel
	for t, ms := range at {
		if ms <= s.engine.Now()-least.Milliseconds() {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b openTunnel) int { return cmp.Compare(at[a], at[b]) })
	return all
}

// endInUse ends a connection that is in use, as a tunnel or for a response, and stops counting it.
func (c *Conn) endInUse() {
	c.set.evict(&c.counted)
	c.cut(observe.ReasonOverloaded)
}

// makeRoom ends connections that have had no request for a while, of the clients that have the most connections; if it
// finds too few, it also ends unused tunnels. It reports whether it ended any. They are no longer counted as open. The
// number of connections that are ending at a time is bounded. A search visits all connections, so after one that finds
// too few there is none for a while.
func (s *Set) makeRoom() bool {
	a := &s.admission
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
	counts := a.counts()
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
		if counts[d.key] <= level {
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

// counted is what admission counts: a connection, or a stream that is a tunnel.
type counted struct {
	key    clientKey
	counts atomic.Uint32 // one of the constants below
}

// Values of counted.counts.
const (
	countsOpen   uint32 = iota // included in admission.open
	countsEnding               // included in admission.ending
	countsNot
)

// recount moves a connection from the count of the proxy that opened it to that of its client. It returns false if the
// client is over its limit. c must be in its shard.
func (s *Set) recount(c *Conn, client clientKey) bool {
	c.shard.mu.Lock() // the functions that end connections without a request read their keys under this lock
	defer c.shard.mu.Unlock()
	a := &s.admission
	if !a.byClient() || c.counts.Load() != countsOpen {
		c.key = client
		return true
	}
	a.part(c.key).leave(c.key) // first, so that the connection is not counted twice if the client is the proxy itself
	if !a.part(client).enter(client, a.limits.PerClient) {
		a.part(c.key).enter(c.key, 0)
		return false
	}
	c.key = client
	return true
}

// admit is like enter, but makes room if connections are scarce.
func (s *Set) admit(k clientKey, proxy bool) (limit observe.ConnectionLimit, ok bool) {
	limit, ok = s.admission.enter(k, proxy)
	if !ok && limit == observe.LimitTotal && s.makeRoom() {
		limit, ok = s.admission.enter(k, proxy)
	}
	if ok && s.admission.isScarce() {
		s.makeRoom()
	}
	return limit, ok
}

// evict stops counting a connection as open because it is being ended.
func (s *Set) evict(c *counted) {
	if c.counts.CompareAndSwap(countsOpen, countsEnding) {
		s.admission.ending.Add(1)
		s.admission.leave(c.key)
	}
}

// readmit counts a connection as open again because it is not ended after all, even if it exceeds the limits.
func (s *Set) readmit(c *counted) {
	if c.counts.CompareAndSwap(countsEnding, countsOpen) {
		s.admission.ending.Add(-1)
		s.admission.enterAnyway(c.key)
	}
}

// leave stops counting a connection that has ended.
func (s *Set) leave(c *counted) {
	switch c.counts.Swap(countsNot) {
	case countsOpen:
		s.admission.leave(c.key)
	case countsEnding:
		s.admission.ending.Add(-1)
	}
}

// endIdle ends the connection if it has been idle for at least parkAfter, and reports whether it does. An HTTP/2 client
// may send frames while it still receives the end of a response. Closing the connection then would reset it and lose
// that end, so such a client gets WriteIdle.
func (c *Conn) endIdle() bool {
	if h := c.http2.Load(); h != nil {
		least := parkAfter
		idle, used := h.Idle(least)
		if !idle {
			return false
		}
		if used && listen.Unsent(c.raw) > 0 {
			least = c.timeouts.WriteIdle
		}
		return c.endHTTP2(h, least)
	}
	if !c.claim() {
		return false
	}
	go c.expireParked()
	return true
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

// refuse logs that a connection was refused, at most once per refusalLogEvery so that an attacker cannot fill the log.
func (s *Set) refuse(limit observe.ConnectionLimit, client netip.Addr) {
	a := &s.admission
	a.refused.Add(1)
	now, at := s.engine.Now(), a.logAt.Load()
	if now < at || !a.logAt.CompareAndSwap(at, now+refusalLogEvery.Milliseconds()) {
		return
	}
	s.logger.Warn("connections refused", "reason", observe.ReasonOverloaded.String(), "limit", limit.String(),
		"client", client.String(), "open", a.open.Load(), "refused", a.refused.Swap(0))
}

var discard = slog.New(slog.DiscardHandler)
