package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

// Marks of a health. An endpoint without marks is healthy, and the outcome of most requests to it need not be recorded.
const (
	markEjected   uint32 = 1 << iota // ejected by its responses, without a policy
	markOutlier                      // ejected by a PassiveHealthCheck
	markUnhealthy                    // unhealthy by an ActiveHealthCheck, or not checked yet
	markUnknown                      // in addition to markUnhealthy: not checked yet
	markFailing                      // its last response was a gateway error; without a PassiveHealthCheck
	markCounted                      // there is a PassiveHealthCheck, which counts all responses

	markUnfit = markEjected | markOutlier | markUnhealthy
)

// trialTime is how long an endpoint that is tried again gets no second request while the first one has no result.
const trialTime = time.Second

// health is the health of an endpoint by its responses and checks. The endpoint of a backend and those of its variants
// with the same address share it. Failed connects count for each endpoint separately, see Endpoint.avoided. Connections
// are also counted here, because the limit on them is for all client certificates together.
type health struct {
	backend *backendHealth
	open    atomic.Int64  // connections
	making  int64         // connections being made; guarded by Breaker.mu
	marks   atomic.Uint32 // the bits of markUnfit change only with mu held
	// failing is the number of consecutive gateway errors, without a PassiveHealthCheck.
	failing atomic.Int32
	// ejectedUntil is when one request tries an ejected endpoint (markEjected) again, in Unix nanoseconds. trial means
	// that one does.
	ejectedUntil atomic.Int64
	trial        atomic.Bool
	outlier      atomic.Pointer[outlier] // nil without a PassiveHealthCheck

	mu      sync.Mutex
	usable  bool // it is one of the backend's usable endpoints
	counted bool // included in backend.unfit
	checker *checker
}

// backendHealth is the health state that the endpoints of a backend share. The zero value is that of a backend without
// a policy.
type backendHealth struct {
	// usable is how many endpoints can be chosen, and unfit how many of them have a mark of markUnfit.
	usable, unfit atomic.Int64
	// panicBelow is 1 more than the percentage of healthy endpoints below which health is ignored; 0 means the default.
	panicBelow atomic.Uint32
	outliers   int32 // number of endpoints with markOutlier; guarded by ejecting
	comparison atomic.Pointer[comparison]
	// slowest is approximately how long successful connects take, in nanoseconds; 0 means unknown.
	slowest atomic.Int64

	passive *passive // guarded by Set.mu; nil if no policy configures one
	active  *active  // guarded by Set.mu; nil if no policy configures one

	ejecting sync.Mutex // held while an endpoint is ejected, so that not too many are; locked before health.mu
}

// defaultPanicBelow is the percentage of healthy endpoints below which health is ignored if no policy configures it.
const defaultPanicBelow = 50

func (g *backendHealth) panicThreshold() int64 {
	if p := g.panicBelow.Load(); p > 0 {
		return int64(p) - 1
	}
	return defaultPanicBelow
}

// panics reports whether so few endpoints are healthy that their health is ignored: using unhealthy ones is better than
// sending all requests to the few others.
func (g *backendHealth) panics() bool {
	usable := g.usable.Load()
	return (usable-g.unfit.Load())*100 < g.panicThreshold()*usable
}

// mayLose reports whether one more endpoint can be ejected for its responses without a policy: at least one must be
// left, and health must not be ignored afterwards.
func (g *backendHealth) mayLose() bool {
	usable := g.usable.Load()
	left := usable - g.unfit.Load() - 1
	return left > 0 && left*100 >= g.panicThreshold()*usable
}

// fit reports whether requests are to be sent to the endpoint if there are others: its last connect has not failed a
// moment ago, and it is healthy or health is ignored (backendHealth.panics). An endpoint that was ejected is fit for
// one request at a time as soon as the ejection is over.
func (e *Endpoint) fit() bool {
	if e.avoided() {
		return false
	}
	m := e.health.marks.Load() & markUnfit
	return m == 0 || e.health.fit(m)
}

// barred reports whether no request may be sent to the endpoint, even if there is no other: it is unhealthy by a
// policy, and health is never ignored (panicThreshold: 0). An endpoint that was not checked yet is not barred, so that
// no request fails because a policy or an endpoint is new.
func (e *Endpoint) barred() bool {
	m := e.health.marks.Load()
	return m&(markOutlier|markUnhealthy) != 0 && m&markUnknown == 0 && e.health.backend.panicThreshold() == 0
}

// fitForSession is like fit, for requests of a session with the endpoint. Without a policy its responses do not count,
// since no other endpoint knows the session, and neither does a missing first check.
func (e *Endpoint) fitForSession() bool {
	m := e.health.marks.Load()
	if m&markUnknown != 0 {
		m &^= markUnhealthy
	}
	m &= markOutlier | markUnhealthy
	return (!e.avoided() || e.mistrusted.Load()) && (m == 0 || e.health.backend.panics())
}

func (h *health) fit(marks uint32) bool {
	if marks == markEjected && time.Now().UnixNano() >= h.ejectedUntil.Load() {
		return true
	}
	return h.backend.panics()
}

// tries is called by Begin for an endpoint that is avoided or has marks. If the time for which it is avoided or ejected
// is over, this request tries it.
func (e *Endpoint) tries() {
	now := time.Now().UnixNano()
	if u := e.avoidUntil.Load(); e.suspect.Load() != notSuspect && now >= u && e.avoidUntil.CompareAndSwap(u, now+int64(trialTime)) {
		e.suspect.Store(onTrial)
	}
	h := e.health
	if u := h.ejectedUntil.Load(); h.marks.Load()&markEjected != 0 && now >= u && h.ejectedUntil.CompareAndSwap(u, now+int64(trialTime)) {
		h.trial.Store(true)
	}
}

// mark sets or clears marks. mu must be held.
func (h *health) mark(marks uint32, on bool) {
	if on {
		h.marks.Or(marks)
	} else {
		h.marks.And(^marks)
	}
	h.count()
}

// count updates the backend's count of unfit endpoints. mu must be held.
func (h *health) count() {
	if is := h.usable && h.marks.Load()&markUnfit != 0; is != h.counted {
		h.counted = is
		if is {
			h.backend.unfit.Add(1)
		} else {
			h.backend.unfit.Add(-1)
		}
	}
}

func (h *health) setUsable(is bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.usable = is
	h.count()
}

// Failure is how a request without a response from an endpoint has failed.
type Failure uint8

// The failures that are passed to Endpoint.Broken. Failed connects need not be reported.
const (
	FailureReset     Failure = iota // the connection broke, or the response was malformed
	FailureTimeout                  // no response came in time
	failureToConnect                // no connection was made
)

// Statuses by which failures count, as in Envoy's outlier detection.
const (
	statusUnavailable    = 503
	statusGatewayTimeout = 504
)

func (f Failure) status() int {
	if f == FailureTimeout {
		return statusGatewayTimeout
	}
	return statusUnavailable
}

// Responded must be called with the status of each final response; for a gRPC call it is derived from its grpc-status,
// see exchange.HTTPStatusOf.
func (e *Endpoint) Responded(status int) {
	h := e.health
	if status < 500 && h.marks.Load() == 0 && h.backend.comparison.Load() == nil && e.suspect.Load() != onTrial {
		return
	}
	e.responded(status)
}

// Answered must be called when the head of a response arrives whose status is passed to Responded later.
func (e *Endpoint) Answered() {
	if e.suspect.Load() == onTrial {
		e.reached()
	}
}

func (e *Endpoint) responded(status int) {
	if e.suspect.Load() == onTrial {
		e.reached()
	}
	h := e.health
	if o := h.outlier.Load(); o != nil {
		o.responded(e, status)
		return
	}
	e.judge(isGatewayError(status))
}

// Broken must be called for each request without a response on an established connection, unless the client has caused
// the failure.
func (e *Endpoint) Broken(f Failure) {
	if o := e.health.outlier.Load(); o != nil {
		o.broken(e, f)
		return
	}
	e.judge(true)
}

func isGatewayError(status int) bool { return status >= 502 && status <= 504 }

// applyPolicy publishes the health check of a policy; nil means none. Set.mu must be held.
func (b *Backend) applyPolicy(next *parsedHealth) {
	g := &b.health
	var percent uint32
	if next != nil {
		percent = next.panicBelow
	}
	g.panicBelow.Store(percent)
	b.setPassive(next.passiveChecks())
	b.setActive(next.activeChecks())
}

// parsedHealth is a compiled config.HealthCheck.
type parsedHealth struct {
	panicBelow uint32 // see backendHealth
	passive    *passive
	active     *active
}

func (p *parsedHealth) passiveChecks() *passive {
	if p == nil {
		return nil
	}
	return p.passive
}

func (p *parsedHealth) activeChecks() *active {
	if p == nil {
		return nil
	}
	return p.active
}

// parseHealth compiles the health check of a Backend's policy. It returns nil if there is none.
func parseHealth(b *config.Backend) (p *parsedHealth, err error) {
	c := b.GetTraffic().GetHealthCheck()
	if c == nil {
		return nil, nil
	}
	p = &parsedHealth{}
	if c.PanicThresholdPercent != nil {
		p.panicBelow = min(*c.PanicThresholdPercent, 100) + 1
	}
	if p.passive, err = parsePassive(b.Key, c.Passive); err != nil {
		return nil, err
	}
	p.active, err = parseActive(b.Key, c.Active)
	return p, err
}

// Health is the state of an endpoint.
type Health uint8

// The values of Health. If several apply, the first of Ejected, Unknown, Unhealthy and Avoided counts.
const (
	Healthy   Health = iota
	Avoided          // a connect failed a moment ago
	Ejected          // by the outcome of requests to it
	Unhealthy        // by an active check
	Unknown          // not checked yet, though it has an active check
	healths
)

// String returns the word used in metrics.
func (h Health) String() string {
	return [...]string{"healthy", "avoided", "ejected", "unhealthy", "unknown"}[h]
}

// Health returns the state of the endpoint.
func (e *Endpoint) Health() Health {
	switch m := e.health.marks.Load(); {
	case m&(markEjected|markOutlier) != 0:
		return Ejected
	case m&markUnknown != 0:
		return Unknown
	case m&markUnhealthy != 0:
		return Unhealthy
	case e.avoided():
		return Avoided
	}
	return Healthy
}

// Ejection is why an endpoint was ejected.
type Ejection uint8

// The reasons of ejections.
const (
	EjectedByComparison Ejection = iota // without a policy: its responses were gateway errors, and those of the others were not
	EjectedBy5xx
	EjectedByGatewayErrors
	EjectedByLocalOrigin
	EjectedByPercentage
	EjectedByLocalOriginPercentage
	ejections
)

// String returns the word used in metrics.
func (e Ejection) String() string {
	return [...]string{"gateway_errors_compared", "consecutive_5xx", "consecutive_gateway_errors", "consecutive_local_origin_failures",
		"failure_percentage", "failure_percentage_local_origin"}[e]
}

// ejected counts an ejection.
func (e *Endpoint) ejected(why Ejection) { e.backend.totals().ejections[why].Add(1) }

// newHealth returns the health of a new endpoint. Set.mu must be held.
func (b *Backend) newHealth(e *Endpoint) *health {
	if b.base != nil {
		// The base has the endpoint already, unless it is just being removed with its variants.
		list := b.base.list.Load()
		if h := list.health(e); h != nil {
			return h
		}
		b = b.base
	}
	h := &health{backend: &b.health}
	if b.health.passive != nil {
		h.setOutlier(b.health.passive)
	}
	return h
}

// health returns the health of the endpoint with the address of e, nil if there is none.
func (l *endpointList) health(e *Endpoint) *health {
	l.byAddressOnce.Do(func() {
		l.byAddress = make(map[endpointKey]*health, len(l.all))
		for _, o := range l.all {
			l.byAddress[o.address] = o.health
		}
	})
	return l.byAddress[e.address]
}

// countHealth must be called after a change of the list. gone are the endpoints that are no longer in it. Set.mu must
// be held.
func (b *Backend) countHealth(gone []*Endpoint) {
	if b.base != nil {
		return
	}
	for _, e := range gone {
		e.health.leave()
	}
	list := b.list.Load()
	b.health.usable.Store(int64(len(list.usable)))
	ready := len(list.usable) > 0 && !list.usable[0].terminating.Load()
	for _, e := range list.all {
		e.health.setUsable(!ready || !e.terminating.Load())
		b.beginChecks(e)
	}
}

// leave must be called for an endpoint that is gone.
func (h *health) leave() {
	h.backend.ejecting.Lock()
	defer h.backend.ejecting.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endOutlier()
	h.usable = false
	h.count()
	if h.checker != nil {
		h.checker.stop()
		h.checker = nil
	}
}

// HealthStats are the health statistics of a backend's endpoints.
type HealthStats struct {
	Endpoints [healths]int64   // by Health
	Ejections [ejections]int64 // since the start
	// ChecksPassed and ChecksFailed are the health checks since the start, and EventsDropped the lines for which their
	// log had no room.
	ChecksPassed, ChecksFailed, EventsDropped int64
	// watched means that the statistics have ever been relevant: there is a policy, or an ejection or a failed connect
	// has occurred.
	watched bool
}

// HealthStats returns the backend's statistics. Those counted since the start never decrease.
func (b *Backend) HealthStats() (s HealthStats) {
	t := &b.root().soFar().totals
	s.watched = t.failures.Load() > 0 || b.config.Load().GetTraffic().GetHealthCheck() != nil
	for i := range t.ejections {
		s.Ejections[i] = t.ejections[i].Load()
		s.watched = s.watched || s.Ejections[i] > 0
	}
	s.ChecksPassed, s.ChecksFailed, s.EventsDropped = t.checksPassed.Load(), t.checksFailed.Load(), t.eventsDropped.Load()
	for _, e := range b.list.Load().all {
		h := e.Health()
		s.Endpoints[h]++
		s.watched = s.watched || h != Healthy
	}
	return s
}

// Unhealthy returns how many endpoints are not healthy, by the words used in metrics. It is nil as long as the
// statistics have never been relevant, so that most backends have no such series.
func (s *HealthStats) Unhealthy() map[string]int {
	if !s.watched {
		return nil
	}
	m := make(map[string]int, healths)
	for h := Healthy + 1; h < healths; h++ {
		m[h.String()] = int(s.Endpoints[h])
	}
	return m
}

// EjectionsByReason returns the ejections by the words for their reasons used in metrics; nil if there were none.
func (s *HealthStats) EjectionsByReason() (m map[string]uint64) {
	for i, n := range s.Ejections {
		if n > 0 {
			if m == nil {
				m = make(map[string]uint64)
			}
			m[Ejection(i).String()] = uint64(n)
		}
	}
	return m
}
