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

// PickInfo is what a load balancer knows of a request. The zero value means that it knows nothing.
type PickInfo struct {
	// Hash is the hash of the request by consistent hashing. It is valid if Hashed is set.
	Hash   uint64
	Hashed bool
	// overrides are the endpoints named in the request, at most maxOverrides.
	overrides [maxOverrides]netip.AddrPort
	named     int
	looked    int // number of list entries that AddOverrides has parsed
}

// maxOverrides is the largest number of addresses of a request that are parsed.
const maxOverrides = 16

var comma = []byte(",")

// longestAddrPort is the length of "[<39 characters>]:65535".
const longestAddrPort = 47

// AddOverrides adds the endpoints named in a header field value: addresses with a port, IPv6 addresses in brackets,
// separated by commas. Invalid entries are skipped.
func (p *PickInfo) AddOverrides(value []byte) {
	for len(value) > 0 && p.looked < maxOverrides {
		p.looked++
		var text []byte
		text, value, _ = bytes.Cut(value, comma)
		if text = bytes.TrimSpace(text); len(text) == 0 || len(text) > longestAddrPort {
			continue
		}
		// The string is not retained: an error, which would contain it, is dropped.
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
	list     []*Endpoint // the usable endpoints
	// byAddress is list sorted by address; nil unless requests may name an endpoint.
	byAddress []*Endpoint
	all       *pool                  // of list, without spare
	spare     *pool                  // the endpoints of zones of weight 0; nil if there are none, or no others
	zones     []*pool                // of list, sorted by zone; nil if zones are not considered
	shares    atomic.Pointer[shares] // of zones; nil means that all endpoints are in the draw
	lookup    atomic.Pointer[lookup] // of a consistent hash; nil until its table is computed

	mu  sync.Mutex // held by refresh
	due int64      // when the weights from reports are computed next; guarded by mu
}

// pool is a set of endpoints from which one is chosen.
type pool struct {
	zone string
	kind config.LoadBalancing
	list []*Endpoint
	// weights is nil if all endpoints have equal weights.
	weights atomic.Pointer[weights]

	_    [64]byte
	turn atomic.Uint64 // of round robin; every request writes to it
	_    [56]byte
}

// newBalancer returns the balancer for a list, nil if the backend has none. before is that of the previous list, or
// nil. Set.mu must be held.
func (b *Backend) newBalancer(usable []*Endpoint, before *balancer) *balancer {
	settings := b.balancing.Load()
	if settings == nil {
		return nil
	}
	l := &balancer{settings: settings, set: b.set, list: usable}
	weighted, rest := withWeight(usable, settings.zoneWeights)
	if l.all = newPool(settings.kind, "", weighted); len(rest) > 0 {
		l.spare = newPool(settings.kind, "", rest)
	}
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
	if before != nil { // the turn is kept, since endpoints change all the time
		l.all.turn.Store(before.all.turn.Load())
		if l.spare != nil && before.spare != nil {
			l.spare.turn.Store(before.spare.turn.Load())
		}
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

// fit reports whether an endpoint is fit and was not tried already.
func fit(e *Endpoint, tried *Tried) bool { return !tried.Has(e) && e.fit() }

// pick implements Backend.PickFor. info may be nil.
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
	list := l.all.list
	if l.usesSpare() {
		if e := l.spare.pick(seed, tried); e != nil {
			return e
		}
		list = l.list
	}
	return leastBad(list, int(index(Random(seed), len(list))), tried)
}

// usesSpare reports whether endpoints of zones of weight 0 take part, because they are fit and no others are, or all others are barred.
// A request that has tried all others is no reason.
func (l *balancer) usesSpare() bool {
	if l.spare == nil || slices.ContainsFunc(l.all.list, (*Endpoint).fit) {
		return false
	}
	return slices.ContainsFunc(l.spare.list, (*Endpoint).fit) || !slices.ContainsFunc(l.all.list, func(e *Endpoint) bool { return !e.barred() })
}

// at returns the usable endpoint with an address, nil if there is none.
func (l *balancer) at(a netip.AddrPort) *Endpoint {
	i, found := slices.BinarySearchFunc(l.byAddress, a, func(e *Endpoint, a netip.AddrPort) int { return e.address.Compare(a) })
	if !found {
		return nil
	}
	return l.byAddress[i]
}

// index maps the lower half of a random number to an index below n.
func index(r uint64, n int) uint64 { return (r & 0xffffffff) * uint64(n) >> 32 }

// pick chooses a fit endpoint. It returns nil if there is none.
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

// random chooses one of the fit endpoints with equal probability.
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

// leastRequest is like Backend.Pick, with weights: two endpoints are drawn in proportion to their weights, and the one
// with fewer requests in flight per weight is chosen, so that the shares follow the weights whether the endpoints are
// busy or not.
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

// scan returns the fit endpoint with the fewest requests in flight, a random one of several. It returns nil if there is
// none.
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

// roundRobin takes the next turn, and further ones if an endpoint is not fit, so that no neighbour gets the share of an
// unfit one.
func (p *pool) roundRobin(seed *uint64, tried *Tried) *Endpoint {
	for range p.list {
		if e := p.list[(p.turn.Add(1)-1)%uint64(len(p.list))]; fit(e, tried) {
			return e
		}
	}
	return p.scan(seed, tried) // other requests may have taken the turns of fit endpoints meanwhile
}

// weightedTurn is roundRobin in which an endpoint takes part in a number of rounds proportional to its weight: the
// static stride scheduler of gRPC (gRFC A58). An endpoint with the greatest weight takes part in all rounds.
func (p *pool) weightedTurn(w *weights, seed *uint64, tried *Tried) *Endpoint {
	n := uint64(len(p.list))
	for range 4*n + 16 {
		turn := p.turn.Add(1) - 1
		at, round := turn%n, turn/n
		weight := uint64(w.list[at])
		// Each endpoint has another offset, so that endpoints with equal weights do not take part in the same rounds.
		if (weight*round+at*(maxWeight/2))%maxWeight < maxWeight-weight {
			continue
		}
		if e := p.list[at]; fit(e, tried) {
			return e
		}
	}
	return p.scan(seed, tried)
}
