package upstream

import (
	"container/list"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
)

// Active health checks. An endpoint is unhealthy until its first check has succeeded, as in Envoy; while most endpoints
// of a backend are unhealthy, health is ignored (backendHealth.panics). The first check alone decides, whatever the
// thresholds are.
const (
	// maxChecks is the largest number of checks of a Set in progress, each with one connection; further checks wait. If
	// it is used up, a namespace may still have ownChecks, and no namespace may have more than half of what the others
	// leave. So slow checks only delay those of their own namespace.
	maxChecks = 256
	ownChecks = 8
	// longestCheck and shortestInterval bound what a policy configures.
	longestCheck     = time.Minute
	shortestInterval = 100 * time.Millisecond
	// firstChecksApart is the time between the first checks of endpoints: ten thousand endpoints that appear at once
	// are checked within firstChecksWithin.
	firstChecksApart  = 200 * time.Microsecond
	firstChecksWithin = 2 * time.Second
	// The next check may be later by up to 1/checkJitter of the interval, so that the checks of many endpoints spread
	// out.
	checkJitter = 20
)

// active is an ActiveHealthCheck of one backend. It is immutable except for log.
type active struct {
	config                    *config.ActiveHealthCheck
	timeout, interval, jitter time.Duration
	healthyAt, unhealthyAt    uint32
	kind                      string
	check                     func(context.Context, *Endpoint, *transport) checkResult
	log                       *eventLog // nil if there is none; guarded by Set.mu until the first checker uses it
}

// checkResult is the result of a check. The zero value means that the endpoint is healthy.
type checkResult struct {
	failure string // why it is unhealthy
	atOnce  bool   // the endpoint itself reports it, so it becomes unhealthy whatever the threshold is
	// unanswered means that there was no connection, or no response on it, perhaps because of the client certificate
	// used.
	unanswered bool
}

func parseActive(key string, c *config.ActiveHealthCheck) (*active, error) {
	if c == nil {
		return nil, nil
	}
	a := &active{config: c, timeout: time.Duration(c.TimeoutNanos), interval: time.Duration(c.IntervalNanos), jitter: time.Duration(c.InitialJitterNanos),
		healthyAt: max(c.HealthyThreshold, 1), unhealthyAt: max(c.UnhealthyThreshold, 1)}
	if a.timeout <= 0 || a.interval <= 0 || a.jitter < 0 {
		return nil, fmt.Errorf("upstream: Backend %s: traffic.health_check.active has timeout_nanos %d, interval_nanos %d, initial_jitter_nanos %d: give times above 0", key, a.timeout, a.interval, a.jitter)
	}
	a.timeout, a.interval = min(a.timeout, longestCheck), max(a.interval, shortestInterval)
	if c.Port > 65535 {
		return nil, fmt.Errorf("upstream: Backend %s: traffic.health_check.active.port %d is not a port: give one from 1 to 65535", key, c.Port)
	}
	switch k := c.Check.(type) {
	case *config.ActiveHealthCheck_Http:
		h, err := newHTTPCheck(k.Http)
		if err != nil {
			return nil, fmt.Errorf("upstream: Backend %s: traffic.health_check.active.http: %w", key, err)
		}
		a.kind, a.check = "http", func(ctx context.Context, e *Endpoint, t *transport) checkResult { return h.check(ctx, a, e, t) }
	case *config.ActiveHealthCheck_Tcp:
		a.kind, a.check = "tcp", func(ctx context.Context, e *Endpoint, t *transport) checkResult { return checkTCP(ctx, a, e, t, k.Tcp) }
	case *config.ActiveHealthCheck_Grpc:
		a.kind, a.check = "grpc", func(ctx context.Context, e *Endpoint, t *transport) checkResult {
			return checkGRPC(ctx, a, e, t, k.Grpc)
		}
	default:
		return nil, fmt.Errorf("upstream: Backend %s: traffic.health_check.active has no check that this proxy knows: run the version of the controller", key)
	}
	return a, nil
}

func (a *active) same(o *active) bool {
	if a == nil || o == nil {
		return a == o
	}
	return proto.Equal(a.config, o.config)
}

// address returns the address at which the endpoint is checked.
func (a *active) address(e *Endpoint) string {
	if a.config.Port == 0 {
		return e.String()
	}
	return netip.AddrPortFrom(e.address.Addr(), uint16(a.config.Port)).String()
}

// dial makes the connection of a check, without TLS. Like connections for requests, it begins with a PROXY header if
// the backend requires one.
func (a *active) dial(ctx context.Context, e *Endpoint) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	conn, err := d.DialContext(ctx, "tcp", a.address(e))
	if err != nil {
		return nil, err
	}
	return conn, e.sendProxyHeader(ctx, conn)
}

// sendProxyHeader sends the PROXY header, if any, on a connection that serves no client. If it returns an error, the
// connection must be closed.
func (e *Endpoint) sendProxyHeader(ctx context.Context, conn net.Conn) error {
	header := e.header()
	if header == nil {
		return nil
	}
	by, _ := ctx.Deadline()
	err := sendNow(conn.(*net.TCPConn), header, by)
	if err != nil {
		conn.Close()
	}
	return err
}

// maxGatewayTransports is the largest number of Gateway certificates that one check tries.
const maxGatewayTransports = 4

// gatewayTransports returns the transports for connections that serve no request: those of the Gateways whose requests have used the
// backend. The certificate of any other Gateway must not be used, because the backend may belong to another tenant.
func (e *Endpoint) gatewayTransports() []*transport {
	variants := e.backend.variantList()
	if t := e.transport; t.tls == nil || t.own || len(variants) == 0 {
		return []*transport{t}
	}
	variants = slices.SortedFunc(slices.Values(variants), func(a, b *Backend) int { return a.identity.key.compare(b.identity.key) })
	var all []*transport
	for _, v := range variants[:min(len(variants), maxGatewayTransports)] {
		if t := v.transport.Load(); t.tls != nil {
			all = append(all, t)
		}
	}
	if len(all) == 0 { // the configuration is being changed
		return []*transport{e.transport}
	}
	return all
}

// checker checks one endpoint with one ActiveHealthCheck.
type checker struct {
	endpoint *Endpoint
	active   *active
	task     task
	// waiting is its element in waitsIn.waiting, nil if it does not wait; guarded by checkQueue.mu.
	waiting *list.Element
	waitsIn *checksOf
	// The fields below are guarded by health.mu.
	known               bool   // a check has completed
	anew                bool   // an earlier checker has completed one, see checkAnew
	failing             bool   // the last check has failed
	successes, failures uint32 // consecutive ones, up to the thresholds
}

// setActive publishes an ActiveHealthCheck; nil means none. Set.mu must be held. The results of the previous one are
// kept until the first new result.
func (b *Backend) setActive(next *active) {
	g, s := &b.health, b.set
	if s.options.NoHealthChecks {
		next = nil
	}
	before := g.active
	if before.same(next) {
		return
	}
	g.active = next
	if next != nil && next.config.Log != nil {
		next.log = s.eventLogs.take(next.config.Log.Path, s.options.Output)
	}
	for _, e := range b.list.Load().all {
		e.health.setChecker(e, next)
	}
	if before != nil && before.log != nil {
		s.eventLogs.give(before.log)
	}
}

// beginChecks begins checks of a new endpoint, if the backend has any. Set.mu must be held.
func (b *Backend) beginChecks(e *Endpoint) {
	if b.health.active != nil && e.health.unchecked() {
		e.health.setChecker(e, b.health.active)
	}
}

func (h *health) unchecked() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checker == nil
}

// setChecker makes a check the endpoint; nil ends its checks.
func (h *health) setChecker(e *Endpoint, a *active) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.checker != nil && (h.checker.known || h.checker.anew)
	if a == nil {
		h.mark(markUnhealthy|markUnknown, false)
	} else if !known {
		h.mark(markUnhealthy|markUnknown, true)
	}
	h.replaceChecker(e, a, &checker{endpoint: e, active: a, known: known})
}

// checkAnew makes the endpoints that are not known to be healthy be checked soon, with the first result deciding,
// because there is another certificate to try. Their health is kept until then. Set.mu must be held.
func (b *Backend) checkAnew() {
	a := b.health.active
	if t := b.transport.Load(); a == nil || t.tls == nil || t.own {
		return
	}
	for _, e := range b.list.Load().all {
		h := e.health
		h.mu.Lock()
		if before := h.checker; before != nil && (before.failing || !before.known) {
			h.replaceChecker(e, a, &checker{endpoint: e, active: a, anew: before.known || before.anew, failing: before.failing})
		}
		h.mu.Unlock()
	}
}

// replaceChecker replaces the current checker by c, or by none if a is nil. mu must be held.
func (h *health) replaceChecker(e *Endpoint, a *active, c *checker) {
	if h.checker != nil {
		h.checker.stop()
	}
	h.checker = nil
	if a == nil {
		return
	}
	c.task.run = func(time.Time) { e.backend.set.checks.begin(c) }
	h.checker = c
	s := e.backend.set
	s.taskQueue.add(&c.task, s.checks.first(time.Now(), a.jitter))
}

// stop ends the checks. The result of a check in progress is ignored.
func (c *checker) stop() {
	s := c.endpoint.backend.set
	s.taskQueue.stop(&c.task)
	s.checks.abandon(c)
}

// namespace returns the namespace of the backend, by which checks are shared out.
func (c *checker) namespace() string { return c.endpoint.backend.config.Load().GetNamespace() }

// current reports whether c still is the checker of the endpoint.
func (c *checker) current() bool {
	h := c.endpoint.health
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checker == c
}

// run carries out one check.
func (c *checker) run() {
	s := c.endpoint.backend.set
	defer func() {
		if v := recover(); v != nil {
			s.options.Panicked("health check", v)
			c.done(checkResult{failure: errPanic.Error()})
		}
	}()
	if !c.current() {
		return
	}
	if c.endpoint.transport.unknown { // nothing may be sent
		s.taskQueue.add(&c.task, c.next())
		return
	}
	ctx, cancel := context.WithTimeout(c.endpoint.use().life, c.active.timeout)
	defer cancel()
	var r checkResult
	for _, t := range c.endpoint.gatewayTransports() { // an endpoint may refuse the certificate of one Gateway and accept that of another
		if r = c.active.check(ctx, c.endpoint, t); !r.unanswered || ctx.Err() != nil {
			break
		}
	}
	c.done(r)
}

// next returns when the next check begins if one ends now.
func (c *checker) next() time.Time {
	i := c.active.interval
	return time.Now().Add(i + rand.N(i/checkJitter+1))
}

// done handles the result of a check and schedules the next one.
func (c *checker) done(r checkResult) {
	e, a := c.endpoint, c.active
	h, t := e.health, e.backend.totals()
	h.mu.Lock()
	if h.checker != c {
		h.mu.Unlock()
		return
	}
	var event config.HealthCheckEvent
	if r.failure == "" {
		event = c.succeeded(h)
		t.checksPassed.Add(1)
	} else {
		event = c.failed(h, r)
		t.checksFailed.Add(1)
	}
	outlier := h.marks.Load()&markOutlier != 0
	h.mu.Unlock()
	if outlier && r.failure == "" { // as Envoy does
		h.backend.ejecting.Lock()
		h.mu.Lock()
		h.endOutlier()
		h.mu.Unlock()
		h.backend.ejecting.Unlock()
	}
	if a.log != nil && !a.log.report(a, e, event, r.failure) {
		t.eventsDropped.Add(1)
	}
	e.backend.set.taskQueue.add(&c.task, c.next())
}

// succeeded handles a success. health.mu must be held.
func (c *checker) succeeded(h *health) config.HealthCheckEvent {
	first := !c.known
	c.known, c.failing, c.failures = true, false, 0
	c.successes = min(c.successes+1, c.active.healthyAt)
	if h.marks.Load()&markUnhealthy != 0 && (first || c.successes >= c.active.healthyAt) {
		h.mark(markUnhealthy|markUnknown, false)
		return config.HealthCheckEvent_HEALTH_CHECK_EVENT_HEALTHY_TRANSITION
	}
	return config.HealthCheckEvent_HEALTH_CHECK_EVENT_SUCCESS
}

// failed handles a failure. health.mu must be held.
func (c *checker) failed(h *health, r checkResult) config.HealthCheckEvent {
	first := !c.known
	c.known, c.successes = true, 0
	if c.failures < c.active.unhealthyAt {
		c.failures++
	}
	start := !c.failing
	c.failing = true
	if first || r.atOnce || c.failures >= c.active.unhealthyAt {
		h.mark(markUnhealthy, true)
		h.mark(markUnknown, false)
	}
	if start {
		return config.HealthCheckEvent_HEALTH_CHECK_EVENT_FAILURE_SERIES_START
	}
	return config.HealthCheckEvent_HEALTH_CHECK_EVENT_FAILURE
}

// checkQueue limits the checks in progress, and shares the limit among namespaces. The zero value is ready for use.
type checkQueue struct {
	mu      sync.Mutex
	running int
	of      map[string]*checksOf // by namespace; only namespaces with checks in progress or waiting
	turns   list.List            // the *checksOf with waiting checks, in the order of their turns
	// lastFirst is when the most recently found endpoint is checked for the first time.
	lastFirst time.Time
}

// checksOf are the checks of one namespace.
type checksOf struct {
	namespace string
	running   int
	waiting   list.List     // *checker
	turn      *list.Element // in turns; nil if none waits
}

// first returns when an endpoint that is found now is checked for the first time.
func (q *checkQueue) first(now time.Time, jitter time.Duration) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.lastFirst.Add(firstChecksApart)
	switch {
	case at.Before(now):
		at = now
		q.lastFirst = at
	case at.Sub(now) > firstChecksWithin: // so many were found that their order does not matter
		at = now.Add(rand.N(firstChecksWithin))
	default:
		q.lastFirst = at
	}
	if jitter > 0 {
		at = at.Add(rand.N(jitter))
	}
	return at
}

// begin runs a check as soon as the limit allows it.
func (q *checkQueue) begin(c *checker) {
	namespace := c.namespace()
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.of[namespace]
	if n == nil {
		if q.of == nil {
			q.of = make(map[string]*checksOf)
		}
		n = &checksOf{namespace: namespace}
		q.of[namespace] = n
	}
	if n.turn == nil && q.room(n) {
		q.start(n, c)
		return
	}
	c.waiting, c.waitsIn = n.waiting.PushBack(c), n
	if n.turn == nil {
		n.turn = q.turns.PushBack(n)
	}
}

// room reports whether a namespace may have another check in progress. mu must be held.
func (q *checkQueue) room(n *checksOf) bool {
	return n.running < ownChecks || n.running < maxChecks-q.running
}

// start runs a check of a namespace. mu must be held.
func (q *checkQueue) start(n *checksOf, c *checker) {
	n.running++
	q.running++
	go func() {
		defer q.ended(n)
		c.run()
	}()
}

// ended starts waiting checks after a check has ended.
func (q *checkQueue) ended(n *checksOf) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n.running--
	q.running--
	for turn := q.turns.Front(); turn != nil; {
		next := turn.Value.(*checksOf)
		if !q.room(next) {
			turn = turn.Next()
			continue
		}
		c := next.waiting.Front().Value.(*checker)
		q.leave(next, c)
		q.start(next, c)
		if next.turn != nil { // other namespaces have had their turn since this one had its last
			q.turns.MoveToBack(next.turn)
		}
		turn = q.turns.Front()
	}
	q.forget(n)
}

// abandon removes a waiting checker.
func (q *checkQueue) abandon(c *checker) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.waiting == nil {
		return
	}
	n := c.waitsIn
	q.leave(n, c)
	q.forget(n)
}

// leave removes a waiting checker. mu must be held.
func (q *checkQueue) leave(n *checksOf, c *checker) {
	n.waiting.Remove(c.waiting)
	c.waiting, c.waitsIn = nil, nil
	if n.waiting.Len() == 0 {
		q.turns.Remove(n.turn)
		n.turn = nil
	}
}

// forget removes a namespace without checks. mu must be held.
func (q *checkQueue) forget(n *checksOf) {
	if n.running == 0 && n.waiting.Len() == 0 && q.of[n.namespace] == n {
		delete(q.of, n.namespace)
	}
}
