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

// Active health checks. An endpoint that is to be checked is unhealthy until its first check has succeeded, as with Envoy; while that is so of most
// endpoints of a backend health is ignored (backendHealth.panics). The first check decides alone, whatever the thresholds are.
const (
	// maxChecks bounds how many checks of a Set are under way; others wait for them. Each has one connection. Where it is used up a namespace has ownChecks in
	// addition, and no namespace has more than half of what others leave: so checks that last long delay those of their own namespace alone.
	maxChecks = 256
	ownChecks = 8
	// longestCheck and shortestInterval bound what a policy asks for.
	longestCheck     = time.Minute
	shortestInterval = 100 * time.Millisecond
	// firstChecksApart is how long after each other endpoints are checked for the first time: ten thousand that are found at a moment within firstChecksWithin.
	firstChecksApart  = 200 * time.Microsecond
	firstChecksWithin = 2 * time.Second
	// checkJitter is the part of an interval, 1/checkJitter, by which the next check may come later, so that those of many endpoints do not stay together.
	checkJitter = 20
)

// active is an ActiveHealthCheck of one backend; immutable but for log.
type active struct {
	config                    *config.ActiveHealthCheck
	timeout, interval, jitter time.Duration
	healthyAt, unhealthyAt    uint32
	kind                      string
	check                     func(context.Context, *Endpoint, *transport) checkResult
	log                       *eventLog // nil for none; guarded by Set.mu until the first checker has it
}

// checkResult is what a check has found. The zero value is that of a healthy endpoint.
type checkResult struct {
	failure string // why it is not healthy
	atOnce  bool   // the endpoint says so itself, and is unhealthy without regard to the threshold
	// unanswered reports that there was no connection, or no answer on it, which may be for the certificate that was shown.
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

// address is where the endpoint is checked.
func (a *active) address(e *Endpoint) string {
	if a.config.Port == 0 {
		return e.text
	}
	return netip.AddrPortFrom(e.address.Addr(), uint16(a.config.Port)).String()
}

// dial makes the connection of a check, in cleartext. As those of requests it begins with a PROXY header where the backend wants one.
func (a *active) dial(ctx context.Context, e *Endpoint) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	conn, err := d.DialContext(ctx, "tcp", a.address(e))
	if err != nil {
		return nil, err
	}
	return conn, e.introduce(ctx, conn)
}

// introduce sends the PROXY header, if any, of a connection that serves no client. With an error the connection is closed.
func (e *Endpoint) introduce(ctx context.Context, conn net.Conn) error {
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

// maxWays bounds the certificates of Gateways that one check shows.
const maxWays = 4

// ways returns how connections that serve no request are secured: as those of the Gateways whose requests have used the backend. The certificate of any other Gateway must
// not be shown: the backend may be another tenant's.
func (e *Endpoint) ways() []*transport {
	variants := e.backend.variantList()
	if t := e.transport; t.tls == nil || t.own || len(variants) == 0 {
		return []*transport{t}
	}
	variants = slices.SortedFunc(slices.Values(variants), func(a, b *Backend) int { return a.identity.key.compare(b.identity.key) })
	var all []*transport
	for _, v := range variants[:min(len(variants), maxWays)] {
		if t := v.transport.Load(); t.tls != nil {
			all = append(all, t)
		}
	}
	if len(all) == 0 { // a change is under way
		return []*transport{e.transport}
	}
	return all
}

// checker checks one endpoint by one ActiveHealthCheck.
type checker struct {
	endpoint *Endpoint
	active   *active
	task     task
	// waiting is its place among those of waitsIn that wait, nil where it does not; guarded by checkQueue.mu.
	waiting *list.Element
	waitsIn *checksOf
	// Guarded by health.mu.
	known               bool   // a check has come to an end
	anew                bool   // one of the checker before has, see checkAnew
	failing             bool   // the last one has failed
	successes, failures uint32 // in a row, up to the thresholds
}

// setActive puts an ActiveHealthCheck in force, nil for none; Set.mu is held. What is known of endpoints by the one before stays until the first result.
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

// beginChecks has an endpoint checked that is new, if any are; Set.mu is held.
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

// setChecker has the endpoint checked by a, nil for not any more.
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

// checkAnew has the endpoints checked soon, and the first result decide, that are not known to be healthy: there is another certificate to be shown. Until then what is known
// of them stays. Set.mu is held.
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

// replaceChecker puts c in the place of the checker that there is, or nothing where a is nil; mu is held.
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
	s.timetable.add(&c.task, s.checks.first(time.Now(), a.jitter))
}

// stop ends the checks. What the one under way finds does not count.
func (c *checker) stop() {
	s := c.endpoint.backend.set
	s.timetable.stop(&c.task)
	s.checks.abandon(c)
}

// namespace is that of the backend, which its share of the checks goes by.
func (c *checker) namespace() string { return c.endpoint.backend.config.Load().GetNamespace() }

// current reports whether the endpoint is still there, and checked by c.
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
		s.timetable.add(&c.task, c.next())
		return
	}
	ctx, cancel := context.WithTimeout(c.endpoint.life, c.active.timeout)
	defer cancel()
	var r checkResult
	for _, t := range c.endpoint.ways() { // that the endpoint does not take the certificate of one Gateway says nothing of others
		if r = c.active.check(ctx, c.endpoint, t); !r.unanswered || ctx.Err() != nil {
			break
		}
	}
	c.done(r)
}

// next is when the next check begins, after one that ends now.
func (c *checker) next() time.Time {
	i := c.active.interval
	return time.Now().Add(i + rand.N(i/checkJitter+1))
}

// done takes in what a check has found, and has the next one follow.
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
	e.backend.set.timetable.add(&c.task, c.next())
}

// succeeded takes in a success; health.mu is held.
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

// failed takes in a failure; health.mu is held.
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

// checkQueue bounds the checks that are under way, and shares the room among namespaces. The zero value is ready.
type checkQueue struct {
	mu      sync.Mutex
	running int
	of      map[string]*checksOf // by namespace; none without a check under way or one that waits
	turns   list.List            // the *checksOf with checks that wait, in the order of their turns
	// lastFirst is when the last endpoint that was found is checked for the first time.
	lastFirst time.Time
}

// checksOf are those of one namespace.
type checksOf struct {
	namespace string
	running   int
	waiting   list.List     // *checker
	turn      *list.Element // in turns, nil where none waits
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
	case at.Sub(now) > firstChecksWithin: // so many were found that their order is no matter
		at = now.Add(rand.N(firstChecksWithin))
	default:
		q.lastFirst = at
	}
	if jitter > 0 {
		at = at.Add(rand.N(jitter))
	}
	return at
}

// begin has a check run as soon as there is room.
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

// room reports whether a namespace may have another check under way; mu is held.
func (q *checkQueue) room(n *checksOf) bool {
	return n.running < ownChecks || n.running < maxChecks-q.running
}

// start runs a check of a namespace; mu is held.
func (q *checkQueue) start(n *checksOf, c *checker) {
	n.running++
	q.running++
	go func() {
		defer q.ended(n)
		c.run()
	}()
}

// ended gives the room of a check to those that wait.
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
		if next.turn != nil { // others had their turn since it had one
			q.turns.MoveToBack(next.turn)
		}
		turn = q.turns.Front()
	}
	q.forget(n)
}

// abandon takes a checker out that waits.
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

// leave takes a checker out of those that wait; mu is held.
func (q *checkQueue) leave(n *checksOf, c *checker) {
	n.waiting.Remove(c.waiting)
	c.waiting, c.waitsIn = nil, nil
	if n.waiting.Len() == 0 {
		q.turns.Remove(n.turn)
		n.turn = nil
	}
}

// forget ends what is kept of a namespace that has no checks; mu is held.
func (q *checkQueue) forget(n *checksOf) {
	if n.running == 0 && n.waiting.Len() == 0 && q.of[n.namespace] == n {
		delete(q.of, n.namespace)
	}
}
