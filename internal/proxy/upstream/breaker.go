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

// A Breaker bounds what is under way to a Backend at a time, by all rules and with all client certificates together (a circuit breaker). Requests and retries are counted
// by one atomic each, and only while something is bounded: those that had begun before that are not counted. Connections always are.
//
// A request for which there is no connection, and for which none may be made, waits for one that is given back, at its endpoint, or for one that is closed, at any endpoint
// of the Backend. While such a request waits, connections that idle are closed for it.
type Breaker struct {
	limits atomic.Pointer[breakerLimits] // nil: nothing is bounded

	requests, pending, retries atomic.Int64
	overflows                  [breakerLimitCount]atomic.Int64

	// blocked counts queues of endpoints in which somebody waits for a limit on connections, starved those of them that wait for that of the whole Backend.
	blocked, starved atomic.Int64
	// serving is above 0 while a goroutine serves queues that are blocked.
	serving atomic.Int64

	// mu guards making and that of all endpoints; who holds it takes no other lock.
	mu     sync.Mutex
	making int64 // connections that are being made
}

// BreakerLimit is what a Breaker bounds.
type BreakerLimit uint8

// The limits.
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

// String is the word of the metrics.
func (l BreakerLimit) String() string { return breakerLimitWords[l] }

// breakerLimits are a config.CircuitBreaker; what is not bounded is unbounded.
type breakerLimits struct {
	connections, endpointConnections, pending, requests, retries int64
	// perConnection is how many requests a connection carries in its life; 0 is any number.
	perConnection int64
	budget        *parallelRetryBudget // in the place of retries; nil is none
}

const unbounded = math.MaxInt64

// parallelRetryBudget is a config.ParallelRetryBudget.
type parallelRetryBudget struct{ numerator, denominator, least int64 }

// mostRetries is how many retries there may be while there are so many requests.
func (l *breakerLimits) mostRetries(requests int64) int64 {
	if b := l.budget; b != nil {
		return max(b.least, requests*b.numerator/b.denominator)
	}
	return l.retries
}

// parseBreaker checks the part of a Backend; nil is that there is none.
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

// root is the Backend of which this is a variant, or itself.
func (b *Backend) root() *Backend {
	if b.base != nil {
		return b.base
	}
	return b
}

// setBreaker puts limits in force; nil is none.
func (b *Backend) setBreaker(l *breakerLimits) {
	b.breaker.limits.Store(l)
	b.serveBlocked()
}

// Admit counts an attempt of a request to the backend, until Done of what it returns, which is nil where nothing is bounded. false is that there are too many.
func (b *Backend) Admit() (*Breaker, bool) {
	k := &b.root().breaker
	l := k.limits.Load()
	if l == nil {
		return nil, true
	}
	return k.admitted(&k.requests, l.requests, LimitRequests)
}

// Done ends what Admit has begun.
func (k *Breaker) Done() { k.requests.Add(-1) }

// AdmitRetry counts a retry that is about to begin, until RetryDone of what it returns; it is as Admit.
func (b *Backend) AdmitRetry() (*Breaker, bool) {
	k := &b.root().breaker
	l := k.limits.Load()
	if l == nil {
		return nil, true
	}
	return k.admitted(&k.retries, l.mostRetries(k.requests.Load()), LimitRetries)
}

// RetryDone ends what AdmitRetry has begun.
func (k *Breaker) RetryDone() { k.retries.Add(-1) }

// admitted adds one to a count, unless there are that many.
func (k *Breaker) admitted(count *atomic.Int64, most int64, limit BreakerLimit) (*Breaker, bool) {
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

// beginPending counts a request that waits for a connection; whoever calls it takes pending of what it returns down again. nil is that nothing is bounded.
func (e *Endpoint) beginPending() (*Breaker, error) {
	k := &e.backend.root().breaker
	l := k.limits.Load()
	if l == nil {
		return nil, nil
	}
	if l.connections == 0 || l.endpointConnections == 0 { // to wait is of no use
		limit := LimitConnections
		if l.connections > 0 {
			limit = LimitEndpointConnections
		}
		k.overflows[limit].Add(1)
		return nil, e.breakerOpen()
	}
	k, ok := k.admitted(&k.pending, l.pending, LimitPending)
	if !ok {
		return nil, e.breakerOpen()
	}
	return k, nil
}

func (e *Endpoint) breakerOpen() *DialError {
	return e.dialError(ReasonBreaker, false, errBreaker)
}

// reserve counts a connection that is to be made, which dialBy ends, or else release. What it returns is the limit that is in the way.
func (e *Endpoint) reserve() BreakerLimit {
	root, w := e.backend.root(), e.whole()
	k := &root.breaker
	l := k.limits.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	if l != nil && e.life.Err() == nil { // else the dial fails, and says so
		switch { // that of the endpoint first: who waits for it has no use of a connection that is closed elsewhere
		case w.health.open.Load()+w.health.making >= l.endpointConnections:
			return LimitEndpointConnections
		case root.own.open.Load()+k.making >= l.connections:
			return LimitConnections
		}
	}
	k.making++
	w.health.making++
	return notLimited
}

// reserveAnyway is reserve whatever the limits are.
func (e *Endpoint) reserveAnyway() {
	k := &e.backend.root().breaker
	k.mu.Lock()
	defer k.mu.Unlock()
	k.making++
	e.whole().health.making++
}

// release ends what reserve has begun, where no connection was made.
func (e *Endpoint) release() {
	root := e.backend.root()
	root.breaker.mu.Lock()
	root.breaker.making--
	e.whole().health.making--
	root.breaker.mu.Unlock()
	root.serveBlocked()
}

// made is release where a connection was made.
func (e *Endpoint) made() {
	root := e.backend.root()
	root.breaker.mu.Lock()
	defer root.breaker.mu.Unlock()
	root.breaker.making--
	w := e.whole()
	w.health.making--
	w.open.Add(1)
	w.health.open.Add(1)
	root.own.open.Add(1)
}

// closed counts the end of a connection.
func (e *Endpoint) closed() {
	e.releaseSocket()
	w := e.whole()
	w.open.Add(-1)
	w.health.open.Add(-1)
	e.backend.root().own.open.Add(-1)
}

// mayKeep reports whether a connection that nobody at its endpoint waits for may idle, and not be closed for somebody who waits elsewhere.
func (e *Endpoint) mayKeep() bool {
	k := &e.backend.root().breaker
	if k.limits.Load() == nil || k.blocked.Load() == 0 {
		return true
	}
	// Another client may wait for the endpoint's limit, or a request that shows another certificate.
	return k.starved.Load() == 0 && e.dials.hungry.Load() == 0 && e.inner == nil && len(e.backend.root().variantList()) == 0
}

// blockedQueue is what a queue for connections has of a Breaker; the queue's lock guards it.
type blockedQueue struct {
	breaker *Breaker     // of the endpoint's Backend
	by      BreakerLimit // for which those in the queue wait, the first at least; notLimited is that they wait for something else
}

func (q *blockedQueue) set(by BreakerLimit) {
	if q.by == by {
		return
	}
	q.count(-1)
	q.by = by
	q.count(1)
	if by != notLimited {
		q.breaker.overflows[by].Add(1)
	}
}

func (q *blockedQueue) count(n int64) {
	if q.by != notLimited {
		q.breaker.blocked.Add(n)
	}
	if q.by == LimitConnections {
		q.breaker.starved.Add(n)
	}
}

// serveBlocked has connections made for those who wait for a limit, as far as it allows that by now, or closed that idle. It does so on another goroutine, since
// its callers may hold locks of the queues.
func (b *Backend) serveBlocked() {
	b = b.root()
	k := &b.breaker
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
	first := rand.IntN(len(all)) // so that none comes last always
	for i := range all {
		e := all[(first+i)%len(all)]
		for by := e.tryBlocked(); by != notLimited && b.closeIdleFor(e, by, all); by = e.tryBlocked() {
		}
	}
}

// makeRoom closes a connection that idles in the way of one that is to be made at a dropped Endpoint, and reports whether there was one. serveBlocked does not come to
// such Endpoints, so that nobody may wait there for a limit.
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

// refused counts a request for which no connection may be made, where it cannot wait for one.
func (e *Endpoint) refused(by BreakerLimit) *DialError {
	e.backend.root().breaker.overflows[by].Add(1)
	return e.breakerOpen()
}

// tryBlocked has connections made for those who wait at the endpoint, and returns which limit some wait for still: that of all endpoints, if any do.
func (e *Endpoint) tryBlocked() BreakerLimit {
	q, h := &e.dials, &e.sharing
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

// closeIdleFor closes a connection that idles in the way of those who wait at an endpoint for a limit, and reports whether there is room by now.
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

// closeOneIdle closes a connection that idles. One that is shared ends a moment later, so that there is no room yet.
func (e *Endpoint) closeOneIdle() bool {
	if c := e.Idle(); c != nil {
		c.Close()
		return true
	}
	for _, s := range e.sharing.list() {
		if s.endIdle() {
			break
		}
	}
	return false
}

// endIdle ends a shared connection that carries no stream.
func (s *Shared) endIdle() bool {
	if !s.places.CompareAndSwap(0, shut) {
		return false
	}
	s.endpoint.sharing.forget(s)
	s.client.Drain()
	return true
}

// dropBlocked ends the wait of those for whom no connection is being made at an endpoint that has gone.
func (e *Endpoint) dropBlocked() {
	h := &e.sharing
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dialling == 0 && len(h.waiting) > 0 {
		h.endWaits(e.dialError(ReasonGone, true, e.life.Err()))
	}
}

// BreakerStats are the figures of a limit of a Breaker.
type BreakerStats struct {
	Limit     BreakerLimit
	Set       bool  // something is bounded by it
	Now       int64 // what is under way; of LimitEndpointConnections at the endpoint that has most
	Open      bool  // it is reached, so that nothing more passes
	Overflows int64 // how often something did not pass, or had to wait, since the start
}

// BreakerStats are those of the backend's limits that are set, or were and have not let something pass.
func (b *Backend) BreakerStats() (all []BreakerStats) {
	b = b.root()
	k := &b.breaker
	l := k.limits.Load()
	if l == nil {
		l = &breakerLimits{connections: unbounded, endpointConnections: unbounded, pending: unbounded, requests: unbounded, retries: unbounded}
	}
	requests, busiest := k.requests.Load(), int64(0)
	for e := range b.everyEndpoint() {
		busiest = max(busiest, e.health.open.Load())
	}
	for limit, at := range [breakerLimitCount]struct{ now, most int64 }{
		LimitConnections: {b.own.open.Load(), l.connections}, LimitPending: {k.pending.Load(), l.pending}, LimitRequests: {requests, l.requests},
		LimitRetries: {k.retries.Load(), l.mostRetries(requests)}, LimitEndpointConnections: {busiest, l.endpointConnections},
	} {
		s := BreakerStats{Limit: BreakerLimit(limit), Set: at.most != unbounded, Now: at.now, Open: at.now >= at.most, Overflows: k.overflows[limit].Load()}
		if limit != int(notLimited) && (s.Set || s.Overflows > 0) {
			all = append(all, s)
		}
	}
	return all
}
