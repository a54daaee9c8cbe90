package upstream

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/moongate-dev/moongate/internal/config"
)

// A Breaker limits what is in progress to a Backend at a time, for all rules and all client certificates together (a
// circuit breaker). Requests and retries are counted by one atomic each, and only while there are limits
// (Backend.limits): those that began before are not counted. Connections are always counted.
//
// A request for which there is no connection, and none may be made, waits for one that is released at its endpoint, or
// for one that is closed at any endpoint of the Backend. While such a request waits, idle connections are closed to
// make room.
type Breaker struct {
	requests, pending, retries atomic.Int64
	overflows                  [breakerLimitCount]atomic.Int64

	// blocked counts the queues of endpoints in which a request waits for a limit on connections, starved those of them
	// whose requests wait for the limit of the whole Backend.
	blocked, starved atomic.Int64
	// serving is above 0 while a goroutine serves blocked queues.
	serving atomic.Int64

	// mu guards making, and the field of that name of all endpoints. No other lock may be taken while it is held.
	mu     sync.Mutex
	making int64 // connections being made
}

// BreakerLimit is a limit of a Breaker.
type BreakerLimit uint8

// The values of BreakerLimit.
const (
	notLimited BreakerLimit = iota
	LimitConnections
	LimitPending
	LimitRequests
	LimitRetries
	LimitEndpointConnections
	breakerLimitCount
)

var breakerLimitWords = [breakerLimitCount]string{
	LimitConnections: "connections", LimitPending: "pending_requests", LimitRequests: "requests", LimitRetries: "retries",
	LimitEndpointConnections: "endpoint_connections",
}

// String returns the word used in metrics.
func (l BreakerLimit) String() string { return breakerLimitWords[l] }

// breakerLimits is a compiled config.CircuitBreaker. Limits that are not configured are unbounded.
type breakerLimits struct {
	connections, endpointConnections, pending, requests, retries int64
	// perConnection is how many requests a connection carries before it is closed; 0 means no limit.
	perConnection int64
	budget        *parallelRetryBudget // used instead of retries; nil means none
}

const unbounded = math.MaxInt64

// parallelRetryBudget is a compiled config.ParallelRetryBudget.
type parallelRetryBudget struct{ numerator, denominator, least int64 }

// mostRetries returns how many retries may be in progress at the given number of requests.
func (l *breakerLimits) mostRetries(requests int64) int64 {
	if b := l.budget; b != nil {
		return max(b.least, requests*b.numerator/b.denominator)
	}
	return l.retries
}

// parseBreaker validates and compiles the circuit breaker of a Backend. It returns nil if there is none.
func parseBreaker(b *config.Backend) (*breakerLimits, error) {
	c := b.GetTraffic().GetCircuitBreaker()
	if c == nil {
		return nil, nil
	}
	limit := func(n *uint32) int64 {
		if n == nil {
			return unbounded
		}
		return int64(*n)
	}
	l := &breakerLimits{
		connections: limit(c.MaxConnections), endpointConnections: limit(c.MaxConnectionsPerEndpoint), pending: limit(c.MaxPendingRequests),
		requests: limit(c.MaxParallelRequests), retries: limit(c.MaxParallelRetries), perConnection: int64(c.MaxRequestsPerConnection),
	}
	if r := c.RetryBudget; r != nil {
		if r.Denominator == 0 {
			return nil, fmt.Errorf("upstream: Backend %s: circuit_breaker.retry_budget has the denominator 0: give one from 1 on", b.Key)
		}
		l.budget = &parallelRetryBudget{int64(r.Numerator), int64(r.Denominator), int64(r.MinRetryConcurrency)}
	}
	return l, nil
}

// root returns the Backend of which this is a variant, or b itself.
func (b *Backend) root() *Backend {
	if b.base != nil {
		return b.base
	}
	return b
}

// setBreaker publishes limits; nil means none.
func (b *Backend) setBreaker(l *breakerLimits) {
	b.limits.Store(l)
	b.serveBlocked()
}

// Admit counts an attempt of a request to the backend, until Done is called on the Breaker that it returns, which is
// nil if there are no limits. It returns false if there are too many.
func (b *Backend) Admit() (*Breaker, bool) {
	b = b.root()
	l := b.limits.Load()
	if l == nil {
		return nil, true
	}
	k := &b.use().breaker
	return k.increment(&k.requests, l.requests, LimitRequests)
}

// Done ends the attempt counted by Admit.
func (k *Breaker) Done() { k.requests.Add(-1) }

// AdmitRetry counts a retry that is about to begin, until RetryDone is called on the Breaker that it returns. Its
// results are as those of Admit.
func (b *Backend) AdmitRetry() (*Breaker, bool) {
	b = b.root()
	l := b.limits.Load()
	if l == nil {
		return nil, true
	}
	k := &b.use().breaker
	return k.increment(&k.retries, l.mostRetries(k.requests.Load()), LimitRetries)
}

// RetryDone ends the retry counted by AdmitRetry.
func (k *Breaker) RetryDone() { k.retries.Add(-1) }

// increment adds one to a count, unless it has reached most.
func (k *Breaker) increment(count *atomic.Int64, most int64, limit BreakerLimit) (*Breaker, bool) {
	for {
		n := count.Load()
		if n >= most {
			k.overflows[limit].Add(1)
			return nil, false
		}
		if count.CompareAndSwap(n, n+1) {
			return k, true
		}
	}
}

var errBreaker = errors.New("a limit of the backend's circuit breaker is reached")

// beginPending counts a request that waits for a connection. The caller must decrement pending of the Breaker that it
// returns afterwards. It returns nil if there are no limits.
func (e *Endpoint) beginPending() (*Breaker, error) {
	root := e.backend.root()
	l := root.limits.Load()
	if l == nil {
		return nil, nil
	}
	k := &root.use().breaker
	if l.connections == 0 || l.endpointConnections == 0 { // waiting would be in vain
		limit := LimitConnections
		if l.connections > 0 {
			limit = LimitEndpointConnections
		}
		k.overflows[limit].Add(1)
		return nil, e.breakerOpen()
	}
	k, ok := k.increment(&k.pending, l.pending, LimitPending)
	if !ok {
		return nil, e.breakerOpen()
	}
	return k, nil
}

func (e *Endpoint) breakerOpen() *DialError {
	return e.dialError(ReasonBreaker, false, errBreaker)
}

// reserve counts a connection that is to be made; dialBy or release must be called afterwards. It returns the limit
// that prevents the connection, or notLimited.
func (e *Endpoint) reserve() BreakerLimit {
	root, w := e.backend.root(), e.whole()
	u, l := root.use(), root.limits.Load()
	k := &u.breaker
	k.mu.Lock()
	defer k.mu.Unlock()
	if l != nil && !e.Gone() { // otherwise the dial fails and reports why
		switch { // the endpoint's limit first, since a connection closed at another endpoint would not help then
		case w.health.open.Load()+w.health.making >= l.endpointConnections:
			return LimitEndpointConnections
		case u.totals.open.Load()+k.making >= l.connections:
			return LimitConnections
		}
	}
	k.making++
	w.health.making++
	return notLimited
}

// reserveAnyway is like reserve, whatever the limits are.
func (e *Endpoint) reserveAnyway() {
	k := &e.backend.root().use().breaker
	k.mu.Lock()
	defer k.mu.Unlock()
	k.making++
	e.whole().health.making++
}

// release undoes reserve if no connection was made.
func (e *Endpoint) release() {
	root := e.backend.root()
	k := &root.use().breaker
	k.mu.Lock()
	k.making--
	e.whole().health.making--
	k.mu.Unlock()
	root.serveBlocked()
}

// made must be called after reserve if the connection was made.
func (e *Endpoint) made() {
	u := e.backend.root().use()
	k := &u.breaker
	k.mu.Lock()
	defer k.mu.Unlock()
	k.making--
	w := e.whole()
	w.health.making--
	w.use().open.Add(1)
	w.health.open.Add(1)
	u.totals.open.Add(1)
}

// closed counts the end of a connection.
func (e *Endpoint) closed() {
	e.releaseSocket()
	w := e.whole()
	w.use().open.Add(-1)
	w.health.open.Add(-1)
	e.backend.totals().open.Add(-1)
}

// mayKeep reports whether a connection for which no request at its endpoint waits may be idle, instead of being closed
// for a request that waits elsewhere.
func (e *Endpoint) mayKeep() bool {
	root := e.backend.root()
	if root.limits.Load() == nil {
		return true
	}
	k := &root.use().breaker
	if k.blocked.Load() == 0 {
		return true
	}
	// Another client may wait for the endpoint's limit, or a request with another client certificate.
	return k.starved.Load() == 0 && e.use().dials.numWaiting.Load() == 0 && e.inner == nil && len(root.variantList()) == 0
}

// blockedQueue is the state of a queue for connections in a Breaker. The queue's lock guards it.
type blockedQueue struct {
	backend *Backend     // whose Breaker it is
	by      BreakerLimit // the limit for which at least the first request in the queue waits; notLimited if it waits for something else
}

func (q *blockedQueue) set(by BreakerLimit) {
	if q.by == by {
		return
	}
	q.count(-1)
	q.by = by
	q.count(1)
	if by != notLimited {
		q.backend.use().breaker.overflows[by].Add(1)
	}
}

func (q *blockedQueue) count(n int64) {
	if q.by == notLimited {
		return
	}
	k := &q.backend.use().breaker
	k.blocked.Add(n)
	if q.by == LimitConnections {
		k.starved.Add(n)
	}
}

// serveBlocked makes connections for the requests that wait for a limit, as far as it allows them by now, or closes
// idle ones to make room. It does so on another goroutine, since its callers may hold locks of the queues.
func (b *Backend) serveBlocked() {
	b = b.root()
	k := &b.soFar().breaker
	if k.blocked.Load() == 0 || k.serving.Add(1) > 1 {
		return
	}
	go func() {
		defer func() {
			if v := recover(); v != nil {
				b.set.options.Panicked("connect", v)
				k.serving.Store(0)
			}
		}()
		for {
			n := k.serving.Load()
			b.serveBlockedNow()
			if k.serving.CompareAndSwap(n, 0) {
				return
			}
		}
	}()
}

func (b *Backend) serveBlockedNow() {
	all := slices.Collect(b.everyEndpoint())
	for _, e := range all {
		all = append(all, e.innerList()...)
	}
	if len(all) == 0 {
		return
	}
	first := rand.IntN(len(all)) // a random start, so that no endpoint is always the last
	for i := range all {
		e := all[(first+i)%len(all)]
		for by := e.tryBlocked(); by != notLimited && b.closeIdleFor(e, by, all); by = e.tryBlocked() {
		}
	}
}

// makeRoom closes an idle connection to make room for one that cannot wait for a limit, and reports whether there was
// one. At a dropped Endpoint nothing can wait, because serveBlocked does not handle it.
func (e *Endpoint) makeRoom(by BreakerLimit) bool {
	for whole := range e.backend.root().everyEndpoint() {
		if by != LimitConnections && whole.health != e.health {
			continue
		}
		for _, other := range append(whole.innerList(), whole) {
			if other.closeOneIdle() {
				return true
			}
		}
	}
	return false
}

// refused counts a request for which no connection may be made and which cannot wait for one. It returns the error for
// it.
func (e *Endpoint) refused(by BreakerLimit) *DialError {
	e.backend.root().use().breaker.overflows[by].Add(1)
	return e.breakerOpen()
}

// tryBlocked makes connections for the requests that wait at the endpoint. It returns the limit that some still wait
// for, LimitConnections if any wait for that.
func (e *Endpoint) tryBlocked() BreakerLimit {
	u := e.use()
	q, h := &u.dials, &u.sharing
	q.mu.Lock()
	if q.blocked.by != notLimited {
		e.dialNext()
	}
	by := q.blocked.by
	q.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.blocked.by != notLimited {
		e.dialMore()
	}
	if by == notLimited || h.blocked.by == LimitConnections {
		return h.blocked.by
	}
	return by
}

// closeIdleFor closes an idle connection to make room for the requests that wait for a limit at an endpoint. It reports
// whether there is room now.
func (b *Backend) closeIdleFor(e *Endpoint, by BreakerLimit, all []*Endpoint) bool {
	if e.closeOneIdle() {
		return true
	}
	anywhere := by == LimitConnections
	for _, other := range all {
		if other != e && (anywhere || other.health == e.health) && other.closeOneIdle() {
			return true
		}
	}
	return false
}

// closeOneIdle closes an idle connection. A shared one ends a moment later, so that there is no room yet.
func (e *Endpoint) closeOneIdle() bool {
	if c := e.Idle(); c != nil {
		c.Close()
		return true
	}
	for _, s := range e.soFar().sharing.list() {
		if s.endIdle() {
			break
		}
	}
	return false
}

// endIdle ends a shared connection without streams.
func (s *Shared) endIdle() bool {
	if !s.places.CompareAndSwap(0, shut) {
		return false
	}
	s.forget()
	s.client.Drain()
	return true
}

// dropBlocked ends the waits for which no connection is being made, at an endpoint that was removed.
func (e *Endpoint) dropBlocked() {
	u := e.use()
	h := &u.sharing
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dialling == 0 && len(h.waiting) > 0 {
		h.endWaits(e.dialError(ReasonGone, true, u.life.Err()))
	}
}

// BreakerStats are the statistics of a limit of a Breaker.
type BreakerStats struct {
	Limit     BreakerLimit
	Set       bool  // the limit is configured
	Now       int64 // how many are in progress; for LimitEndpointConnections, at the endpoint with the most
	Open      bool  // the limit is reached
	Overflows int64 // how many times something was refused or had to wait since the start
}

// BreakerStats returns the statistics of the limits that are set, or that were set and have refused something.
func (b *Backend) BreakerStats() (all []BreakerStats) {
	b = b.root()
	u, l := b.soFar(), b.limits.Load()
	k := &u.breaker
	if l == nil {
		l = &breakerLimits{connections: unbounded, endpointConnections: unbounded, pending: unbounded, requests: unbounded, retries: unbounded}
	}
	requests, busiest := k.requests.Load(), int64(0)
	for e := range b.everyEndpoint() {
		busiest = max(busiest, e.health.open.Load())
	}
	for limit, at := range [breakerLimitCount]struct{ now, most int64 }{
		LimitConnections: {u.totals.open.Load(), l.connections}, LimitPending: {k.pending.Load(), l.pending}, LimitRequests: {requests, l.requests},
		LimitRetries: {k.retries.Load(), l.mostRetries(requests)}, LimitEndpointConnections: {busiest, l.endpointConnections},
	} {
		s := BreakerStats{Limit: BreakerLimit(limit), Set: at.most != unbounded, Now: at.now, Open: at.now >= at.most, Overflows: k.overflows[limit].Load()}
		if limit != int(notLimited) && (s.Set || s.Overflows > 0) {
			all = append(all, s)
		}
	}
	return all
}
