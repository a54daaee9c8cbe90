package client

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
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

// connectionCounts counts connections and refuses those beyond the limits. The counts are exact.
type connectionCounts struct {
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

func (a *connectionCounts) part(k clientKey) *clientPart {
	return &a.parts[k.bits*0x9e3779b97f4a7c15>>58]
}

// enter counts a connection, or returns the limit that is reached and false. If it returns true, leave must be called
// once. The limit per client does not apply to a trusted proxy, whose connections are moved to the counts of its
// clients by recount.
func (a *connectionCounts) enter(k clientKey, proxy bool) (limit observe.ConnectionLimit, ok bool) {
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
func (a *connectionCounts) enterAnyway(k clientKey) {
	a.open.Add(1)
	if a.byClient() {
		a.part(k).enter(k, 0)
	}
}

func (a *connectionCounts) leave(k clientKey) {
	a.open.Add(-1)
	if a.byClient() {
		a.part(k).leave(k)
	}
}

// byClient reports whether connections are counted by client: to enforce PerClient, and to find the clients with the
// most connections when the total is reached.
func (a *connectionCounts) byClient() bool { return a.limits.PerClient > 0 || a.limits.Total > 0 }

// byClientCounts returns the number of connections of each client.
func (a *connectionCounts) byClientCounts() map[clientKey]int {
	all := make(map[clientKey]int)
	for i := range a.parts {
		p := &a.parts[i]
		p.mu.Lock()
		maps.Copy(all, p.open)
		p.mu.Unlock()
	}
	return all
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

// counted is what connectionCounts counts: a connection, or a stream that is a tunnel.
type counted struct {
	key   clientKey
	state atomic.Uint32 // one of the constants below
}

// Values of counted.state.
const (
	countedOpen   uint32 = iota // included in connectionCounts.open
	countedEnding               // included in connectionCounts.ending
	countedNot
)

// recount moves a connection from the count of the proxy that opened it to that of its client. It returns false if the
// client is over its limit. c must be in its shard.
func (s *Set) recount(c *Conn, client clientKey) bool {
	c.shard.mu.Lock() // the functions that end connections without a request read their keys under this lock
	defer c.shard.mu.Unlock()
	a := &s.connections
	if !a.byClient() || c.state.Load() != countedOpen {
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

// countConnection is like enter, but makes room if connections are scarce.
func (s *Set) countConnection(k clientKey, proxy bool) (limit observe.ConnectionLimit, ok bool) {
	limit, ok = s.connections.enter(k, proxy)
	if !ok && limit == observe.LimitTotal && s.makeRoom() {
		limit, ok = s.connections.enter(k, proxy)
	}
	if ok && s.connections.isScarce() {
		s.makeRoom()
	}
	return limit, ok
}

// evict stops counting a connection as open because it is being ended.
func (s *Set) evict(c *counted) {
	if c.state.CompareAndSwap(countedOpen, countedEnding) {
		s.connections.ending.Add(1)
		s.connections.leave(c.key)
	}
}

// readmit counts a connection as open again because it is not ended after all, even if it exceeds the limits.
func (s *Set) readmit(c *counted) {
	if c.state.CompareAndSwap(countedEnding, countedOpen) {
		s.connections.ending.Add(-1)
		s.connections.enterAnyway(c.key)
	}
}

// leave stops counting a connection that has ended.
func (s *Set) leave(c *counted) {
	switch c.state.Swap(countedNot) {
	case countedOpen:
		s.connections.leave(c.key)
	case countedEnding:
		s.connections.ending.Add(-1)
	}
}

// refuse logs that a connection was refused, at most once per refusalLogEvery so that an attacker cannot fill the log.
func (s *Set) refuse(limit observe.ConnectionLimit, client netip.Addr) {
	a := &s.connections
	a.refused.Add(1)
	now, at := s.engine.Now(), a.logAt.Load()
	if now < at || !a.logAt.CompareAndSwap(at, now+refusalLogEvery.Milliseconds()) {
		return
	}
	s.logger.Warn("connections refused", "reason", observe.ReasonOverloaded.String(), "limit", limit.String(),
		"client", client.String(), "open", a.open.Load(), "refused", a.refused.Swap(0))
}
