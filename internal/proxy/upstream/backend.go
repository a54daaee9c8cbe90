package upstream

import (
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/session"
)

// Backend is one port of a Service, or an XBackend, as all rules that refer to it see it.
type Backend struct {
	key  string
	set  *Set
	list atomic.Pointer[endpointList] // never nil

	config       atomic.Pointer[config.Backend]
	budget       atomic.Pointer[RetryBudget]      // of a variant none: its base has it
	sessions     atomic.Pointer[session.Settings] // likewise
	sessionID    uint64
	transport    atomic.Pointer[transport] // never nil
	hasEndpoints bool                      // an Endpoints resource is there; guarded by set.mu
	unread       bool                      // its resource has fields that are unknown here, so that transport stays unknown; guarded by set.mu
	host         *externalHost             // of a variant none; guarded by set.mu
	resolving    atomic.Pointer[resolving] // until DNS has answered for the first time; of a variant none
	balancing    atomic.Pointer[Balancing] // nil where endpoints are chosen as without a load balancer; of variants the same
	tables       tables                    // guarded by set.mu
	begun        bool                      // there have been endpoints; guarded by set.mu

	own      totals        // of a variant none: its base has them
	health   backendHealth // likewise
	breaker  Breaker       // likewise
	sockets  atomic.Int64  // likewise: connections that are open or being made, see acquireSocket
	eviction eviction      // likewise
	// connections are nil where no policy says anything of them; of a variant always.
	connections atomic.Pointer[connections]
	// variants are what As returns besides, each for another Identity; replaced with set.mu held. nil is none.
	variants atomic.Pointer[[]*Backend]
	base     *Backend  // of which this is a variant, or nil
	identity *Identity // of a variant
}

// totals outlive the endpoints that they were counted on.
type totals struct {
	open, dialled, failures atomic.Int64
	// refused counts requests for which too many others waited already.
	refused atomic.Int64
	// retries counts attempts of requests beyond their first ones.
	retries atomic.Int64
	// mirrorsDropped are the copies of requests to this backend that were dropped.
	mirrorsDropped [mirrorDrops]atomic.Int64
	// spansSent and spansDropped are those of requests that were to be sent to this backend, a collector.
	spansSent, spansDropped atomic.Int64
	// sessions are the requests of persistent sessions.
	sessions [observe.SessionMoved + 1]atomic.Int64
	// ejections are those of endpoints, by their reasons.
	ejections [ejections]atomic.Int64
	// checks are those that have succeeded and failed (ActiveHealthCheck), and eventsDropped lines that its log had no room for.
	checksPassed, checksFailed, eventsDropped atomic.Int64
}

// totals are those of the Backend and its variants together.
func (b *Backend) totals() *totals {
	if b.base != nil {
		return &b.base.own
	}
	return &b.own
}

// MirrorDrop is why a backend did not get a copy of a request, or not all of it.
type MirrorDrop uint8

// The reasons of MirrorDropped.
const (
	MirrorFailed     MirrorDrop = iota
	MirrorOverloaded            // too many copies, or bytes of one, waited for it
	MirrorLooped                // the request has passed a proxy of Moongate before
	mirrorDrops
)

// MirrorDropped counts a copy of a request that the backend did not get, or not all of.
func (b *Backend) MirrorDropped(why MirrorDrop) { b.totals().mirrorsDropped[why].Add(1) }

// SpansSent counts spans that the backend has taken as a collector, SpansDropped those that it has not, for whatever reason.
func (b *Backend) SpansSent(n int) { b.totals().spansSent.Add(int64(n)) }

// SpansDropped counts the other spans, see SpansSent.
func (b *Backend) SpansDropped(n int) { b.totals().spansDropped.Add(int64(n)) }

// endpointList is immutable once published.
type endpointList struct {
	all    []*Endpoint // in the order of the Endpoints resource
	usable []*Endpoint // the ready ones; the terminating ones where none is ready
	// bySession is all, sorted by SessionID.
	bySession []*Endpoint
	balancer  *balancer // nil without a load balancer
	// byAddress is the health of all, made for variants alone.
	byAddress     map[endpointKey]*health
	byAddressOnce sync.Once
}

// Retried counts an attempt of a request that had one already.
func (b *Backend) Retried() { b.totals().retries.Add(1) }

// Key is config.Backend.key.
func (b *Backend) Key() string { return b.key }

// Upgrades reports whether a request may ask the backend to switch to a protocol.
func (b *Backend) Upgrades(protocol []byte) bool {
	t := b.transport.Load()
	return t.upgrade != "" && strings.EqualFold(t.upgrade, string(protocol))
}

// OnlyHTTP2 reports whether requests are sent to the backend by HTTP/2 and nothing else.
func (b *Backend) OnlyHTTP2() bool { return b.transport.Load().http2 }

// Config is the Backend resource, nil as long as only its Endpoints are there.
func (b *Backend) Config() *config.Backend { return b.config.Load() }

// Endpoints lists the endpoints, the terminating ones included; not to be changed.
func (b *Backend) Endpoints() []*Endpoint { return b.list.Load().all }

// everyEndpoint are the endpoints, those of the variants among them.
func (b *Backend) everyEndpoint() iter.Seq[*Endpoint] {
	return func(yield func(*Endpoint) bool) {
		for _, e := range b.list.Load().all {
			if !yield(e) {
				return
			}
		}
		for _, v := range b.variantList() {
			for _, e := range v.list.Load().all {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// replace publishes the list next and returns the endpoints that are gone; the
// Set's mu is held. Endpoints that stay are the same objects as before.
func (b *Backend) replace(next []parsedEndpoint) (gone []*Endpoint) {
	old := b.list.Load().all
	staying := make(map[endpointKey]*Endpoint, len(old))
	for _, e := range old {
		staying[e.address] = e
	}
	all := make([]*Endpoint, 0, len(next))
	listed := make(map[endpointKey]bool, len(next))
	var usable, terminating []*Endpoint
	for _, p := range next {
		if listed[p.address] {
			continue
		}
		listed[p.address] = true
		e := staying[p.address]
		if e != nil && e.SessionID() != p.sessionID { // another is behind the address now
			gone = append(gone, e)
			e = nil
		}
		fresh := e == nil
		if fresh {
			e = newEndpoint(b, p.address)
		}
		all = append(all, e)
		if fresh {
			if e.born = p.born; e.born == 0 && b.begun {
				e.born = b.set.tick.Load()
			}
			e.askForReports(b.balancing.Load())
		}
		e.terminating.Store(p.terminating)
		e.sessionID.Store(p.sessionID)
		e.zone.Store(&p.zone)
		if p.terminating {
			terminating = append(terminating, e)
		} else {
			usable = append(usable, e)
		}
	}
	if len(usable) == 0 {
		usable = terminating
	}
	b.begun = b.begun || len(all) > 0
	b.publish(all, usable)
	for _, e := range old {
		if !listed[e.address] {
			gone = append(gone, e)
		}
	}
	b.countHealth(gone)
	for _, v := range b.variantList() {
		gone = append(gone, v.replace(next)...)
	}
	return gone
}

// publish puts a list in force; the Set's mu is held.
func (b *Backend) publish(all, usable []*Endpoint) {
	l := newEndpointList(all, usable)
	b.wantTable(usable)
	if l.balancer = b.newBalancer(usable, b.list.Load().balancer); l.balancer != nil {
		base := b
		if b.base != nil {
			base = b.base
		}
		l.balancer.lookup.Store(newLookup(base.tables.current, usable))
	}
	b.list.Store(l)
}

// setTransport puts next in force. Where connections made before are no good for it, all endpoints are begun
// anew, and the old ones are returned; the Set's mu is held.
func (b *Backend) setTransport(next *transport) (gone []*Endpoint) {
	if b.transport.Load().same(next) {
		return nil // and the sessions to resume are kept
	}
	b.transport.Store(next)
	old := b.list.Load()
	var all, usable []*Endpoint
	fresh := make(map[*Endpoint]*Endpoint, len(old.all))
	for _, e := range old.all {
		fresh[e] = newEndpoint(b, e.address)
		fresh[e].terminating.Store(e.terminating.Load())
		fresh[e].sessionID.Store(e.SessionID())
		fresh[e].succeed(e)
		fresh[e].askForReports(b.balancing.Load())
		all = append(all, fresh[e])
	}
	for _, e := range old.usable {
		usable = append(usable, fresh[e])
	}
	b.publish(all, usable)
	gone = old.all
	b.countHealth(gone)
	for _, v := range b.variantList() {
		gone = append(slices.Clip(gone), v.setTransport(next.showing(v.identity.shown))...)
	}
	return gone
}

// Tried are endpoints that a request has tried in vain: the last maxTried of them. The zero value is empty.
type Tried struct {
	list [maxTried]*Endpoint
	n    int // how many were added, which may be more
}

// maxTried is about as many as a request asks in the time that clients wait.
const maxTried = 8

// Add adds an endpoint, in the place of the oldest one where there is no room.
func (t *Tried) Add(e *Endpoint) {
	if !t.Has(e) {
		t.list[t.n%maxTried] = e
		t.n++
	}
}

// Has reports whether the endpoint is among them.
func (t *Tried) Has(e *Endpoint) bool {
	for i := range min(t.n, maxTried) {
		if t.list[i] == e {
			return true
		}
	}
	return false
}

// Pick chooses an endpoint for a request of which nothing is known, as PickFor does. Without a load balancer it is of two random ones that which has
// fewer requests in flight, because that needs no shared state beyond the
// counters and keeps the longest queue close to the shortest. Terminating
// endpoints are used only where none is ready; an endpoint that is not fit (whose last connect
// failed less than a second ago, or that is unhealthy), and those that this request tried already,
// only where there is no other. nil means there is no endpoint, or all are barred.
// seed is the state of the exchange's random numbers, see Random.
func (b *Backend) Pick(seed *uint64, tried *Tried) *Endpoint {
	l := b.list.Load()
	if l.balancer != nil {
		return l.balancer.pick(seed, tried, nil)
	}
	list := l.usable
	n := uint64(len(list))
	if n < 2 {
		if n == 0 {
			return nil
		}
		if list[0].barred() {
			return nil
		}
		return list[0]
	}
	r := Random(seed)
	i := (r & 0xffffffff) * n >> 32
	j := (r >> 32) * (n - 1) >> 32
	if j >= i {
		j++
	}
	first, second := list[i], list[j]
	firstFit := !tried.Has(first) && first.fit()
	secondFit := !tried.Has(second) && second.fit()
	switch {
	case firstFit && secondFit:
		if second.load() < first.load() {
			return second
		}
		return first
	case firstFit:
		return first
	case secondFit:
		return second
	}
	return leastBad(list, int(i), tried)
}

// PickFor chooses an endpoint for a request as the backend's load balancer says, and without one as Pick does; info may be nil. Endpoints that are passed over or
// were tried already are chosen only where there is no other.
func (b *Backend) PickFor(seed *uint64, tried *Tried, info *PickInfo) *Endpoint {
	if l := b.list.Load().balancer; l != nil {
		return l.pick(seed, tried, info)
	}
	return b.Pick(seed, tried)
}

// leastBad looks at every endpoint that is not barred, from a random one on: the fewest requests in
// flight among the fit ones; else among those not tried; else among all. nil means that all are barred.
func leastBad(list []*Endpoint, start int, tried *Tried) *Endpoint {
	var fit, untried, least *Endpoint
	for k := range list {
		e := list[(start+k)%len(list)]
		if e.barred() {
			continue
		}
		if least == nil || e.load() < least.load() {
			least = e
		}
		if tried.Has(e) {
			continue
		}
		if untried == nil || e.load() < untried.load() {
			untried = e
		}
		if e.fit() && (fit == nil || e.load() < fit.load()) {
			fit = e
		}
	}
	switch {
	case fit != nil:
		return fit
	case untried != nil:
		return untried
	}
	return least
}

// HasOther reports whether there is an endpoint that was not tried and is not barred.
func (b *Backend) HasOther(tried *Tried) bool {
	for _, e := range b.list.Load().usable {
		if !tried.Has(e) && !e.barred() {
			return true
		}
	}
	return false
}

// AllBarred reports whether there are endpoints and all are barred, so that Pick returns nil.
func (b *Backend) AllBarred() bool { return len(b.list.Load().usable) > 0 && !b.HasOther(new(Tried)) }

// Stats are the figures of an endpoint or a backend.
type Stats struct {
	Open     int64 // connections that are open, idle ones included
	Idle     int64 // connections waiting for a request
	InFlight int64 // requests between Begin and End
	Dialled  int64 // connections made since the start
	Failures int64 // connects that failed since the start; not those given up by the caller
	Waiting  int64 // requests that wait for a connection
	Refused  int64 // requests since the start that were refused because too many waited; of a backend only
	Retries  int64 // attempts since the start beyond the first of a request; of a backend only
	// MirrorsRefused, MirrorsFailed and MirrorsLooped are copies of requests dropped since the start, see MirrorDrop; of a
	// backend only.
	MirrorsRefused, MirrorsFailed, MirrorsLooped int64
	// SessionsBegun, SessionsKept and SessionsMoved are requests of persistent sessions since the start, see observe.Session; of a backend only.
	SessionsBegun, SessionsKept, SessionsMoved int64
	// SpansSent and SpansDropped are spans since the start that the backend has taken, and has not, as a collector; of a backend only.
	SpansSent, SpansDropped int64
}

// Stats are the backend's figures. Dialled and Failures never go down, and Open
// counts connections to endpoints that are gone; Idle and InFlight are sums over
// the present endpoints.
func (b *Backend) Stats() Stats {
	t := b.totals()
	s := Stats{Open: t.open.Load(), Dialled: t.dialled.Load(), Failures: t.failures.Load(),
		Refused: t.refused.Load(), Retries: t.retries.Load(), MirrorsRefused: t.mirrorsDropped[MirrorOverloaded].Load(),
		MirrorsFailed: t.mirrorsDropped[MirrorFailed].Load(), MirrorsLooped: t.mirrorsDropped[MirrorLooped].Load(),
		SessionsBegun: t.sessions[observe.SessionNew].Load(), SessionsKept: t.sessions[observe.SessionKept].Load(), SessionsMoved: t.sessions[observe.SessionMoved].Load(),
		SpansSent: t.spansSent.Load(), SpansDropped: t.spansDropped.Load()}
	for e := range b.everyEndpoint() {
		s.Idle += e.idleNow()
		s.InFlight += e.inFlightNow()
		s.Waiting += e.waiting()
	}
	return s
}

// Random is the next of a sequence of random numbers whose state is *seed, any
// start value included 0 (SplitMix64). One seed per exchange decides everything
// that is left to chance, without a lock.
func Random(seed *uint64) uint64 {
	*seed += 0x9e3779b97f4a7c15
	return mix(*seed)
}
