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

// ConnectionLimits bounds how many connections a Set has at a time; 0 is no limit.
type ConnectionLimits struct {
	Total int
	// PerClient is for one client address; IPv6 addresses that have the first 64 bits in common count as one, because
	// a client has as many of them as it likes.
	PerClient int
}

const (
	// clientParts is how many parts the counts by client have, each with a lock.
	clientParts = 64
	// keepClients is for how many clients a part keeps the memory when all have gone.
	keepClients = 64
	// refusalLogEvery is how often refused connections are logged.
	refusalLogEvery = 10 * time.Second
	// scarce is the part of all connections that remains when connections without a request begin to be closed for new
	// ones, half of that part at a time.
	scarce = 16
)

// clientKey is a client address as it is counted.
type clientKey struct {
	bits uint64
	ipv4 bool
}

func keyOf(addr netip.Addr) clientKey {
	if addr.Is4() || addr.Is4In6() {
		b := addr.As4()
		return clientKey{uint64(binary.BigEndian.Uint32(b[:])), true}
	}
	if !addr.IsValid() { // the client has gone already
		return clientKey{}
	}
	b := addr.As16()
	return clientKey{binary.BigEndian.Uint64(b[:8]), false}
}

// admission counts connections and refuses those that are too many. Counts are exact.
type admission struct {
	limits ConnectionLimits
	open   atomic.Int64
	// ending is how many connections makeRoom ends that have not ended yet. They are not among open.
	ending atomic.Int64
	parts  [clientParts]clientPart

	room   sync.Mutex   // makeRoom is under way
	roomAt atomic.Int64 // when makeRoom may look again, by the coarse clock

	refused atomic.Int64 // since the last line of the log
	logAt   atomic.Int64 // when the next line may be logged, by the coarse clock
}

type clientPart struct {
	mu   sync.Mutex
	open map[clientKey]int
	most int            // that open has held
	_    [128 - 24]byte // a part's lock shares no cache line with another's
}

func (a *admission) part(k clientKey) *clientPart {
	return &a.parts[k.bits*0x9e3779b97f4a7c15>>58]
}

// enter counts a connection; false is that limit is reached. leave must follow once where it is true. The limit for each client is not one for a proxy,
// whose connections become those of its clients, see recount.
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

// enterAnyway counts a connection beyond all limits. leave must follow once.
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

// byClient reports whether the connections of each client are counted: for its limit, and to find who has most.
func (a *admission) byClient() bool { return a.limits.PerClient > 0 || a.limits.Total > 0 }

// counts returns how many connections each client has.
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

// level returns to how many connections those clients that have more must come down, so that there are want less. each is what they
// have, sorted from most to least.
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

// isScarce reports whether connections without a request should end so that others can be accepted.
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

// closeEach is how many connections of a shard CloseIdle ends at most.
const closeEach = 16

// CloseIdle ends connections that idle, some of those that have done so for longest: memory is scarce. It ends dormant ones only if there are no others, since they hold
// next to nothing.
func (s *Set) CloseIdle() {
	ended := 0
	for i := range s.shards {
		ended += s.shards[i].end(closeEach, (*Conn).endIdle)
	}
	if ended == 0 {
		s.dormants.endSome(s, closeEach*shards, func(*dormant) bool { return true })
	}
}

// largeHold is how many bytes a connection holds at least that CutLargest ends.
const largeHold = 1 << 20

// CutLargest ends the connections that hold most of request bodies, whatever they do, until they have held so many bytes
// together, and returns how many it has ended.
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

// Held is how many bytes the connection holds, or may hold: of request bodies, by HTTP/1 as far as they are larger than any may be, and of tunnels what was not taken yet.
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

// Resume has HTTP/2 connections take on what was withheld while memory was scarce.
func (s *Set) Resume() {
	s.Each(func(c *Conn) {
		if h := c.http2.Load(); h != nil {
			h.Resume()
		}
	})
}

const (
	// tunnelUnused is how long nothing has moved through a tunnel that is ended for others.
	tunnelUnused = time.Minute
	// stuckFor is how long a client, or a side of a tunnel, has not taken what one write to it carries that is ended for the memory which that stands
	// in. Who takes some of it now and then uses the connection, but holds as much.
	stuckFor = 5 * time.Second
	// tunnelPart is which part of unused tunnels EndUnusedTunnels ends at a time, and tunnelsLeast how many at least.
	tunnelPart, tunnelsLeast = 4, 16
)

// EndStuckTunnels ends tunnels that hold what one side has not taken for stuckFor, those first that have done so for longest, until they have
// held so many bytes together, and returns how many, and what they have held: memory is scarce.
func (s *Set) EndStuckTunnels(bytes uint64) (ended int, freed uint64) {
	for _, t := range s.tunnelsSince(stuckFor, moments.stuck) {
		if freed >= bytes {
			break
		}
		if n := t.held(); n > 0 && t.end() { // else it has moved meanwhile, or has ended
			freed += uint64(n)
			ended++
		}
	}
	return ended, freed
}

// EndStuckResponses ends connections whose client has not taken what one write carries of its responses for stuckFor, and of what the kernel holds for it
// nothing since the last call, those first that have not for longest, until the buffers in which such parts stand have had so many bytes together. It returns how many
// it has ended, and what they have held at least: memory is scarce. It is the sweeper's.
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
		if since, ok := c.stuckSince(); ok && since == all[i].since { // else it has taken the part meanwhile
			freed += exchange.Holds(c.little.Load())
			c.endInUse()
			ended++
		}
	}
	return ended, freed
}

// EndStarvedStreams is EndStuckResponses for streams of HTTP/2 that wait for room in a window, of which their client has granted none for stuckFor since it was first called:
// it ends them alone, and not their connections.
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

// heldUpFor is how long a client has not taken what one write carries that HeldUp tells of, and JudgedFor how long at most: EndStuckResponses has judged it by then.
const heldUpFor, JudgedFor = time.Second, stuckFor + 5*time.Second

// HeldUp reports whether there are responses that clients are slow to take, so that EndStuckResponses or EndStarvedStreams may find some soon: by JudgedFor. Clients that take
// something now and then may look so for ever.
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

// stuck is stuckSince, but for clients that have taken something since it was last asked.
func (c *Conn) stuck() (since int64, ok bool) {
	if since, ok = c.stuckSince(); !ok {
		return 0, false
	}
	// Where much is sent, the kernel takes no more of it before the client has taken a third of the megabytes that it holds.
	unsent := listen.Unsent(c.raw)
	ok = c.untaken == untaken{since, unsent}
	c.untaken = untaken{since, unsent}
	return since, ok
}

// stuckSince is WritingSince where that is stuckFor ago at least, by the coarse clock.
func (c *Conn) stuckSince() (ms int64, ok bool) {
	ms, ok = c.WritingSince()
	return ms, ok && ms <= c.set.engine.Now()-stuckFor.Milliseconds() && c.counts.Load() == countsOpen
}

// WritingSince is since when the client has not taken what one write to it carries, be it TLS's own, in Unix milliseconds; false where nothing is written. By HTTP/2 a stream
// whose window is used up is not written.
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

// untaken is what EndStuckResponses has seen of a connection the last time: since when it was stuck, and how many bytes the client had not acknowledged.
type untaken struct {
	since  int64
	unsent int
}

// EndUnusedTunnels ends some of the tunnels through which nothing has moved for a while, those first that were used last the longest ago, and
// returns how many: memory is scarce, and there may be many of them.
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

// openTunnel is a connection that is a tunnel, or a stream of one.
type openTunnel struct {
	c  *Conn
	d  *stream // nil where it is the connection
	l4 *l4Conn // of a loop, in place of both
}

// moments tells when something was last seen of a tunnel, by the coarse clock; false where it was not.
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

// end reports whether the tunnel ends by it.
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

// tunnelsSince returns the tunnels for which since returns a moment, by the coarse clock, that is so long ago at least, the longest ago first.
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

// endInUse evicts and ends a connection that is in use, as a tunnel or for a response.
func (c *Conn) endInUse() {
	c.set.evict(&c.counted)
	c.cut(observe.ReasonOverloaded)
}

// makeRoom ends connections that have had no request for a while, of the clients that have most, or where it finds few of these, tunnels that
// are unused, and reports whether it found any. They count no more from then on; how many there may be that are ending is bounded. A search goes
// through all connections, so one that finds few is the last for a while.
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
		for want, to := batch, 1; ended < (batch+1)/2 && to > 0; want *= 2 { // those that have most may have requests on nearly all
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

// endAbove ends up to most connections without a request, of clients that have more than level, and returns how many. It takes them out
// of counts.
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

// endTunnelsAbove is endAbove for tunnels that are unused.
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

// counted is a connection as admission counts it, or a stream that is a tunnel.
type counted struct {
	key    clientKey
	counts atomic.Uint32 // countsOpen and so on
}

// How a connection counts.
const (
	countsOpen   uint32 = iota // among admission.open
	countsEnding               // among admission.ending
	countsNot
)

// recount has a connection that counts as a proxy's count as its client's; false is that this one has too many. The connection is in its shard.
func (s *Set) recount(c *Conn, client clientKey) bool {
	c.shard.mu.Lock() // who ends connections without a request reads their keys with it held
	defer c.shard.mu.Unlock()
	a := &s.admission
	if !a.byClient() || c.counts.Load() != countsOpen {
		c.key = client
		return true
	}
	a.part(c.key).leave(c.key) // first: where the proxy is the client, the connection must not be one beside itself
	if !a.part(client).enter(client, a.limits.PerClient) {
		a.part(c.key).enter(c.key, 0)
		return false
	}
	c.key = client
	return true
}

// admit is enter, which makes room where there is little.
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

// evict has a connection that is being ended not count any more.
func (s *Set) evict(c *counted) {
	if c.counts.CompareAndSwap(countsOpen, countsEnding) {
		s.admission.ending.Add(1)
		s.admission.leave(c.key)
	}
}

// readmit has a connection count again that was to be ended and goes on, be it one too many.
func (s *Set) readmit(c *counted) {
	if c.counts.CompareAndSwap(countsEnding, countsOpen) {
		s.admission.ending.Add(-1)
		s.admission.enterAnyway(c.key)
	}
}

// leave has a connection that has ended not count any more.
func (s *Set) leave(c *counted) {
	switch c.counts.Swap(countsNot) {
	case countsOpen:
		s.admission.leave(c.key)
	case countsEnding:
		s.admission.ending.Add(-1)
	}
}

// endIdle ends the connection if it has idled for parkAfter at least, and reports whether it does. A client of HTTP/2 may send frames while it
// still receives the end of a response; closing the connection then would reset it and lose that end, so such a client gets WriteIdle.
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

// endHTTP2 ends the connection if it has had no stream for so long at least, and reports whether it does.
func (c *Conn) endHTTP2(h *http2.Conn, least time.Duration) bool {
	if !h.EndIfIdle(least) {
		return false
	}
	if c.claim() { // it is parked, and ends once it goes on
		go c.resume()
	}
	return true
}

// endWithoutRequest evicts the connection if it has waited for a request, the rest of a head or a handshake for parkAfter at least, and reports
// whether it does.
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
	case kind == waitIdle: // a request may come at this moment, and is carried out then
		return c.interrupt(&c.wait, seen, func() { c.set.evict(&c.counted) })
	case !c.wait.claim(seen):
		return false
	}
	c.set.evict(&c.counted)
	go c.tcp.Close() // which ends the wait
	return true
}

// refuse logs that a connection was refused; not each, because who attacks must not fill the log.
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
