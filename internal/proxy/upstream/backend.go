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

// Backend is one port of a Service, or an XBackend, shared by all rules that refer to it.
type Backend struct {
	key  string
	set  *Set
	list atomic.Pointer[endpointList] // never nil

	config       atomic.Pointer[config.Backend]
	budget       atomic.Pointer[RetryBudget]      // nil in a variant: its base has it
	sessions     atomic.Pointer[session.Settings] // nil in a variant: its base has it
	sessionID    uint64
	transport    atomic.Pointer[transport] // never nil
	hasEndpoints bool                      // an Endpoints resource exists; guarded by set.mu
	unread       bool                      // its resource has unknown fields, so that transport stays unknown; guarded by set.mu
	begun        bool                      // there have been endpoints; guarded by set.mu
	host         *externalHost             // nil in a variant; guarded by set.mu
	resolving    atomic.Pointer[resolving] // until the first DNS answer; nil in a variant
	balancing    atomic.Pointer[Balancing] // nil without a load balancer; variants have the same
	tables       tables                    // guarded by set.mu

	health backendHealth                 // unused in a variant
	limits atomic.Pointer[breakerLimits] // nil without a circuit breaker, and in variants
	used   atomic.Pointer[backendUse]    // nil before the first use, and in variants
	// connections is nil if no policy configures them, and in variants.
	connections atomic.Pointer[connections]
	// variants are the other Backends that As returns, one for each Identity; nil means none. The slice is replaced
	// with set.mu held.
	variants atomic.Pointer[[]*Backend]
	base     *Backend  // the Backend of which this is a variant, or nil
	identity *Identity // set in a variant
}

// totals are counters that outlive the endpoints on which they were counted.
type totals struct {
	open, dialled, failures atomic.Int64
	// refused counts requests that were refused because too many others waited already.
	refused atomic.Int64
	// retries counts the attempts of requests after their first one.
	retries atomic.Int64
	// mirrorsDropped counts the copies of requests to this backend that were dropped, by reason.
	mirrorsDropped [mirrorDrops]atomic.Int64
	// spansSent and spansDropped count the spans for this backend as a collector.
	spansSent, spansDropped atomic.Int64
	// sessions counts the requests with session persistence.
	sessions [observe.SessionMoved + 1]atomic.Int64
	// ejections counts the ejections of endpoints, by reason.
	ejections [ejections]atomic.Int64
	// active health checks that passed and failed (ActiveHealthCheck), and lines for which its log had no room
	checksPassed, checksFailed, eventsDropped atomic.Int64
}

// totals returns the counters of the Backend, which its variants share, to be changed.
func (b *Backend) totals() *totals { return &b.root().use().totals }

// MirrorDrop is why a backend did not get a copy of a request, or did not get all of it.
type MirrorDrop uint8

// The reasons of MirrorDropped.
const (
	MirrorFailed     MirrorDrop = iota
	MirrorOverloaded            // too many copies, or bytes of one copy, waited
	MirrorLooped                // the request has already passed a Moongate proxy
	mirrorDrops
)

// MirrorDropped counts a copy of a request that the backend did not get completely.
func (b *Backend) MirrorDropped(why MirrorDrop) { b.totals().mirrorsDropped[why].Add(1) }

// SpansSent counts spans that the backend has accepted as a collector.
func (b *Backend) SpansSent(n int) { b.totals().spansSent.Add(int64(n)) }

// SpansDropped counts spans that the backend has not received or not accepted.
func (b *Backend) SpansDropped(n int) { b.totals().spansDropped.Add(int64(n)) }

// endpointList is immutable once published.
type endpointList struct {
	all    []*Endpoint // in the order of the Endpoints resource
	usable []*Endpoint // the ready ones, or the terminating ones if none is ready
	// bySession is all endpoints, sorted by SessionID.
	bySession []*Endpoint
	balancer  *balancer // nil without a load balancer
	// byAddress is the health of all endpoints. Only variants need it.
	byAddress     map[endpointKey]*health
	byAddressOnce sync.Once
}

// Retried counts a further attempt of a request.
func (b *Backend) Retried() { b.totals().retries.Add(1) }

// Key returns config.Backend.key.
func (b *Backend) Key() string { return b.key }

// Upgrades reports whether requests may ask the backend to switch to protocol.
func (b *Backend) Upgrades(protocol []byte) bool {
	t := b.transport.Load()
	return t.upgrade != "" && strings.EqualFold(t.upgrade, string(protocol))
}

// OnlyHTTP2 reports whether requests are sent to the backend only over HTTP/2.
func (b *Backend) OnlyHTTP2() bool { return b.transport.Load().http2 }

// Config returns the Backend resource, nil as long as only its Endpoints exist.
func (b *Backend) Config() *config.Backend { return b.config.Load() }

// Endpoints returns the endpoints, including terminating ones. The slice must not be changed.
func (b *Backend) Endpoints() []*Endpoint { return b.list.Load().all }

// everyEndpoint iterates over the endpoints of the Backend and of its variants.
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

// replace publishes the list next and returns the endpoints that are no longer in it. Endpoints that stay are the same
// objects as before. The Set's mu must be held.
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
		if e != nil && e.SessionID() != p.sessionID { // another endpoint has the address now
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
		e.setZone(p.zone)
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

// publish publishes a list. The Set's mu must be held.
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

// setTransport publishes next. If existing connections cannot be used with it, all endpoints are replaced by new ones
// and the old ones are returned. The Set's mu must be held.
func (b *Backend) setTransport(next *transport) (gone []*Endpoint) {
	if b.transport.Load().same(next) {
		return nil // keeps the TLS sessions that can be resumed
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

// Tried are the endpoints that a request has tried without success: the last maxTried of them. The zero value is empty.
type Tried struct {
	list [maxTried]*Endpoint
	n    int // number of endpoints added, which may exceed maxTried
}

// maxTried is approximately the number of endpoints that a request asks in the time that clients wait.
const maxTried = 8

// Add adds an endpoint, in place of the oldest one if there is no room.
func (t *Tried) Add(e *Endpoint) {
	if !t.Has(e) {
		t.list[t.n%maxTried] = e
		t.n++
	}
}

// Has reports whether e is in t.
func (t *Tried) Has(e *Endpoint) bool {
	for i := range min(t.n, maxTried) {
		if t.list[i] == e {
			return true
		}
	}
	return false
}

// Pick chooses an endpoint for a request without PickInfo, see PickFor. Without a load balancer, it takes two random
// endpoints and chooses the one with fewer requests in flight, because that needs no shared state except the counters,
// and keeps the longest queue close to the shortest. Terminating endpoints are used only if none is ready. Endpoints
// that are not fit (the last connect failed less than a second ago, or the endpoint is unhealthy) and endpoints in
// tried are used only if there is no other. Pick returns nil if there is no endpoint or all are barred. seed is the
// state of the exchange's random numbers, see Random.
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

// PickFor chooses an endpoint for a request as the backend's load balancer is configured, and without one as Pick does.
// info may be nil. Endpoints that are unfit or in tried are chosen only if there is no other.
func (b *Backend) PickFor(seed *uint64, tried *Tried, info *PickInfo) *Endpoint {
	if l := b.list.Load().balancer; l != nil {
		return l.pick(seed, tried, info)
	}
	return b.Pick(seed, tried)
}

// leastBad examines every endpoint that is not barred, beginning at start. It returns the one with the fewest requests
// in flight among the fit ones, else among those not in tried, else among all. It returns nil if all are barred.
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

// HasOther reports whether there is an endpoint that is not in tried and not barred.
func (b *Backend) HasOther(tried *Tried) bool {
	for _, e := range b.list.Load().usable {
		if !tried.Has(e) && !e.barred() {
			return true
		}
	}
	return false
}

// AllBarred reports whether there are endpoints and all of them are barred, so that Pick returns nil.
func (b *Backend) AllBarred() bool { return len(b.list.Load().usable) > 0 && !b.HasOther(new(Tried)) }

// Stats are the statistics of an endpoint or a backend.
type Stats struct {
	Open     int64 // open connections, including idle ones
	Idle     int64 // connections that wait for a request
	InFlight int64 // requests between Begin and End
	Dialled  int64 // connections made since the start
	Failures int64 // failed connects since the start, except those that the caller gave up
	Waiting  int64 // requests that wait for a connection
	Refused  int64 // requests since the start that were refused because too many waited; only of a backend
	Retries  int64 // attempts since the start after the first one of a request; only of a backend
	// MirrorsRefused, MirrorsFailed and MirrorsLooped are the copies of requests dropped since the start, see
	// MirrorDrop; only of a backend.
	MirrorsRefused, MirrorsFailed, MirrorsLooped int64
	// SessionsBegun, SessionsKept and SessionsMoved are requests with session persistence since the start, see
	// observe.Session; only of a backend.
	SessionsBegun, SessionsKept, SessionsMoved int64
	// SpansSent and SpansDropped are the spans since the start that the backend has and has not accepted as a
	// collector; only of a backend.
	SpansSent, SpansDropped int64
}

// Stats returns the backend's statistics. Dialled and Failures never decrease, and Open includes connections to
// endpoints that were removed. Idle and InFlight are sums over the current endpoints.
func (b *Backend) Stats() Stats {
	t := &b.root().soFar().totals
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

// Random returns the next number of a random sequence (SplitMix64). *seed is its state, which may start with any value,
// including 0. One seed per exchange serves all its random decisions, without a lock.
func Random(seed *uint64) uint64 {
	*seed += 0x9e3779b97f4a7c15
	return mix(*seed)
}
