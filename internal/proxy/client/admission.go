package client

import (
	"encoding/binary"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
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
	// scarce is the part of all connections that remains when connections which idle begin to be closed for new ones.
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
	parts  [clientParts]clientPart

	room atomic.Uint32 // the shard where makeRoom looks next

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

// enter counts a connection; false is that limit is reached. leave must follow once where it is true.
func (a *admission) enter(k clientKey) (limit observe.ConnectionLimit, ok bool) {
	if a.limits.PerClient > 0 && !a.part(k).enter(k, a.limits.PerClient) {
		return observe.LimitPerClient, false
	}
	if n := a.open.Add(1); a.limits.Total > 0 && n > int64(a.limits.Total) {
		a.leave(k)
		return observe.LimitTotal, false
	}
	return 0, true
}

func (a *admission) leave(k clientKey) {
	a.open.Add(-1)
	if a.limits.PerClient > 0 {
		a.part(k).leave(k)
	}
}

// isScarce reports whether connections that idle should end so that others can be accepted.
func (a *admission) isScarce() bool {
	total := int64(a.limits.Total)
	return total > 0 && a.open.Load() > total-max(total/scarce, 1)
}

func (p *clientPart) enter(k clientKey, limit int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.open[k]
	if n >= limit {
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

// CloseIdle ends connections that idle, some of those that have done so for longest: memory is scarce.
func (s *Set) CloseIdle() {
	for i := range s.shards {
		for range closeEach {
			if !s.shards[i].expireFirst() {
				break
			}
		}
	}
}

// makeRoom ends a connection that idles: one that has been parked longest in one of the shards.
func (s *Set) makeRoom() {
	for range shards {
		if s.shards[s.admission.room.Add(1)%shards].expireFirst() {
			return
		}
	}
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
