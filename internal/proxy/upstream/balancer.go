package upstream

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/moongate-dev/moongate/internal/config"
)

// PickInfo is what a load balancer is told of a request. The zero value tells nothing.
type PickInfo struct {
	// Hash is that of what makes the request equal to others, where Hashed is set.
	Hash   uint64
	Hashed bool
	// overrides are the endpoints that the request names, the first ones of maxOverrides.
	overrides [maxOverrides]netip.AddrPort
	named     int
	looked    int // entries of lists that AddOverrides has looked at
}

// maxOverrides bounds how many addresses in a request are looked at.
const maxOverrides = 16

var comma = []byte(",")

// longestAddrPort is the length of "[<39 characters>]:65535".
const longestAddrPort = 47

// AddOverrides takes in a field that may name endpoints: addresses with a port, IPv6 in brackets, with commas between. What is no address is skipped.
func (p *PickInfo) AddOverrides(value []byte) {
	for len(value) > 0 && p.looked < maxOverrides {
		p.looked++
		var text []byte
		text, value, _ = bytes.Cut(value, comma)
		if text = bytes.TrimSpace(text); len(text) == 0 || len(text) > longestAddrPort {
			continue
		}
		// The string is in nothing that is kept: an error, which would have it, is dropped.
		if a, err := netip.ParseAddrPort(unsafe.String(unsafe.SliceData(text), len(text))); err == nil && a.Addr().Zone() == "" {
			p.overrides[p.named] = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
			p.named++
		}
	}
}

// balancer chooses among the usable endpoints of one endpointList. Backends without a load balancer have none.
type balancer struct {
	settings *Balancing
	set      *Set
	list     []*Endpoint // the usable ones
	// byAddress is list sorted by address, where requests may name an endpoint.
	byAddress []*Endpoint
	all       *pool
	zones     []*pool                // of list, sorted by zone; nil where zones do not count
	shares    atomic.Pointer[shares] // of zones; nil: all is drawn from
	lookup    atomic.Pointer[lookup] // of a consistent hash; nil until its table is made

	mu  sync.Mutex // held by refresh
	due int64      // when the weights of reports are computed next; guarded by mu
}

// pool is a number of endpoints that one is chosen of.
type pool struct {
	zone string
	kind config.LoadBalancing
	list []*Endpoint
	// weights are nil where all are equal.
	weights atomic.Pointer[weights]

	_    [64]byte
	turn atomic.Uint64 // of round robin; it is written to by every request
	_    [56]byte
}

// newBalancer returns the one for a list, nil where the backend has none; Set.mu is held. before is that of the list before, or nil.
func (b *Backend) newBalancer(usable []*Endpoint, before *balancer) *balancer {
	settings := b.balancing.Load()
	if settings == nil {
		return nil
	}
	l := &balancer{settings: settings, set: b.set, list: usable, all: newPool(settings.kind, "", usable)}
	if len(settings.OverrideHeaders) > 0 {
		l.byAddress = slices.Clone(usable)
		slices.SortFunc(l.byAddress, func(a, b *Endpoint) int { return a.address.Compare(b.address) })
	}
	if settings.zoned() && settings.Hash == nil {
		of := map[string][]*Endpoint{}
		for _, e := range usable {
			of[e.Zone()] = append(of[e.Zone()], e)
		}
		if len(of) > 1 {
			for zone, list := range of {
				l.zones = append(l.zones, newPool(settings.kind, zone, list))
			}
			slices.SortFunc(l.zones, func(a, b *pool) int { return strings.Compare(a.zone, b.zone) })
		}
	}
	if before != nil { // endpoints come and go all the time: the turn goes on
		l.all.turn.Store(before.all.turn.Load())
		for _, z := range l.zones {
			for _, old := range before.zones {
				if old.zone == z.zone {
					z.turn.Store(old.turn.Load())
				}
			}
		}
	}
	l.refresh(b.set.tick.Load())
	return l
}

func newPool(kind config.LoadBalancing, zone string, list []*Endpoint) *pool {
	p := &pool{zone: zone, kind: kind, list: list}
	seed := uint64(len(list))
	for _, e := range list {
		seed ^= e.hash
	}
	p.turn.Store(Random(&seed) >> 32)
	return p
}

// fit reports whether an endpoint is neither passed over for its failures nor tried already.
func fit(e *Endpoint, tried *Tried) bool { return !tried.Has(e) && e.fit() }

// pick is Backend.Pick. info may be nil.
func (l *balancer) pick(seed *uint64, tried *Tried, info *PickInfo) *Endpoint {
	if len(l.list) == 0 {
		return nil
	}
	if info != nil {
		for _, a := range info.overrides[:info.named] {
			if e := l.at(a); e != nil && fit(e, tried) {
				return e
			}
		}
	}
	if l.settings.Hash != nil {
		h := Random(seed)
		if info != nil && info.Hashed {
			h = info.Hash
		}
		return l.byHash(h, tried)
	}
	if s := l.shares.Load(); s != nil {
		if z := s.draw(l.zones, seed); z != nil {
			if e := z.pick(seed, tried); e != nil {
				return e
			}
		}
	}
	if e := l.all.pick(seed, tried); e != nil {
		return e
	}
	return leastBad(l.list, int(index(Random(seed), len(l.list))), tried)
}

// at returns the usable endpoint of an address, nil where there is none.
func (l *balancer) at(a netip.AddrPort) *Endpoint {
	i, found := slices.BinarySearchFunc(l.byAddress, a, func(e *Endpoint, a netip.AddrPort) int { return e.address.Compare(a) })
	if !found {
		return nil
	}
	return l.byAddress[i]
}

// index is one of n indexes by the lower half of a random number.
func index(r uint64, n int) uint64 { return (r & 0xffffffff) * uint64(n) >> 32 }

// pick chooses a fit endpoint; nil is that there is none.
func (p *pool) pick(seed *uint64, tried *Tried) *Endpoint {
	switch p.kind {
	case config.LoadBalancing_LOAD_BALANCING_RANDOM:
		return p.random(seed, tried)
	case config.LoadBalancing_LOAD_BALANCING_LEAST_REQUEST:
		return p.leastRequest(seed, tried)
	}
	if w := p.weights.Load(); w != nil {
		return p.weightedTurn(w, seed, tried)
	}
	return p.roundRobin(seed, tried)
}

// random chooses one of the fit endpoints, each as likely as another.
func (p *pool) random(seed *uint64, tried *Tried) (chosen *Endpoint) {
	if e := p.list[index(Random(seed), len(p.list))]; fit(e, tried) {
		return e
	}
	for n, i := uint64(0), 0; i < len(p.list); i++ {
		if e := p.list[i]; fit(e, tried) {
			if n++; Random(seed)%n == 0 {
				chosen = e
			}
		}
	}
	return chosen
}

// leastRequest is Backend.Pick, with weights: endpoints are drawn in proportion to them, and of two that which has fewer requests in flight for its
// weight is chosen, so that the shares follow the weights whether the endpoints are busy or not.
func (p *pool) leastRequest(seed *uint64, tried *Tried) *Endpoint {
	w, n := p.weights.Load(), len(p.list)
	if n == 1 {
		return p.scan(seed, tried)
	}
	r := Random(seed)
	i, j := index(r, n), index(r>>32, n-1)
	if w == nil {
		if j >= i {
			j++
		}
	} else {
		i, j = w.draw(r), w.draw(Random(seed))
	}
	first, second := p.list[i], p.list[j]
	firstFit, secondFit := fit(first, tried), fit(second, tried)
	switch {
	case firstFit && secondFit:
		if w == nil && second.load() < first.load() || w != nil && second.load()*int64(w.list[i]) < first.load()*int64(w.list[j]) {
			return second
		}
		return first
	case firstFit:
		return first
	case secondFit:
		return second
	}
	return p.scan(seed, tried)
}

// scan returns the fit endpoint with the fewest requests in flight, and of several one by lot; nil is that there is none.
func (p *pool) scan(seed *uint64, tried *Tried) (least *Endpoint) {
	load, n := int64(0), uint64(0)
	for _, e := range p.list {
		if !fit(e, tried) {
			continue
		}
		switch now := e.load(); {
		case least == nil || now < load:
			least, load, n = e, now, 1
		case now == load:
			if n++; Random(seed)%n == 0 {
				least = e
			}
		}
	}
	return least
}

// roundRobin takes the next turn, and those after it where an endpoint is not fit, so that no neighbour gets the share of one that is not.
func (p *pool) roundRobin(seed *uint64, tried *Tried) *Endpoint {
	for range p.list {
		if e := p.list[(p.turn.Add(1)-1)%uint64(len(p.list))]; fit(e, tried) {
			return e
		}
	}
	return p.scan(seed, tried) // others may have taken the turns of fit ones meanwhile
}

// weightedTurn is roundRobin in which an endpoint takes part in so many rounds as its weight says: the static stride scheduler of gRPC (gRFC A58). One with
// the greatest weight takes part in all of them.
func (p *pool) weightedTurn(w *weights, seed *uint64, tried *Tried) *Endpoint {
	n := uint64(len(p.list))
	for range 4*n + 16 {
		turn := p.turn.Add(1) - 1
		at, round := turn%n, turn/n
		weight := uint64(w.list[at])
		// Each endpoint begins elsewhere, so that equal ones do not take part in the same rounds.
		if (weight*round+at*(maxWeight/2))%maxWeight < maxWeight-weight {
			continue
		}
		if e := p.list[at]; fit(e, tried) {
			return e
		}
	}
	return p.scan(seed, tried)
}
