package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

// Marks of a health. Without any the endpoint is healthy, and nobody needs to know what becomes of requests to it.
const (
	markEjected   uint32 = 1 << iota // by its responses, without a policy
	markOutlier                      // by a PassiveHealthCheck
	markUnhealthy                    // by an ActiveHealthCheck, or not checked yet
	markUnknown                      // beside markUnhealthy: not checked yet
	markFailing                      // its last response was a gateway error; without a PassiveHealthCheck
	markCounted                      // there is a PassiveHealthCheck, which counts all responses

	markUnfit = markEjected | markOutlier | markUnhealthy
)

// trialTime is how long an endpoint that is tried again gets no second request while the first has brought nothing.
const trialTime = time.Second

// health is how an endpoint does, by the responses and checks of it. The endpoint of a backend and those of its variants with the same address share it.
// Connects that fail are each endpoint's own, see Endpoint.avoided. Connections are counted here, too, because a limit on them is for all certificates together.
type health struct {
	backend *backendHealth
	open    atomic.Int64  // connections
	making  int64         // connections that are being made; Breaker.mu guards it
	marks   atomic.Uint32 // those of markUnfit change with mu held
	// failing is how many gateway errors in a row have come; without a PassiveHealthCheck.
	failing atomic.Int32
	// ejectedUntil is when one request tries an ejected endpoint (markEjected) again, in Unix nanoseconds, and trial is that one does.
	ejectedUntil atomic.Int64
	trial        atomic.Bool
	outlier      atomic.Pointer[outlier] // nil without a PassiveHealthCheck

	mu       sync.Mutex
	usable   bool // it is one of the backend's usable endpoints
	counted  bool // in backend.unfit
	failures int  // trials in a row that have failed
	checker  *checker
}

// backendHealth is what the endpoints of a backend have in common. The zero value is that of a backend without a policy.
type backendHealth struct {
	// usable is how many endpoints can be chosen, and unfit how many of them have a mark of markUnfit.
	usable, unfit atomic.Int64
	// panicBelow is 1 more than the percentage of healthy endpoints below which health is ignored; 0 is the default.
	panicBelow atomic.Uint32
	comparison atomic.Pointer[comparison]
	// slowest is about how long connects take that succeed, in nanoseconds; 0 is not known.
	slowest atomic.Int64

	passive *passive // guarded by Set.mu; nil where no policy has one
	active  *active  // likewise

	ejecting sync.Mutex // held while an endpoint is ejected, so that no more are than may be; taken before health.mu
	outliers int        // endpoints with markOutlier; guarded by ejecting
}

// defaultPanicBelow is the percentage of healthy endpoints below which health is ignored, where no policy says one.
const defaultPanicBelow = 50

func (g *backendHealth) panicThreshold() int64 {
	if p := g.panicBelow.Load(); p > 0 {
		return int64(p) - 1
	}
	return defaultPanicBelow
}

// panics reports whether so few endpoints are healthy that their health is ignored: it is better to ask sick ones than to have all requests go to the rest.
func (g *backendHealth) panics() bool {
	usable := g.usable.Load()
	return (usable-g.unfit.Load())*100 < g.panicThreshold()*usable
}

// mayLose reports whether one endpoint more can be ejected for its responses without a policy: at least one is left, and health is not ignored then.
func (g *backendHealth) mayLose() bool {
	usable := g.usable.Load()
	left := usable - g.unfit.Load() - 1
	return left > 0 && left*100 >= g.panicThreshold()*usable
}

// fit reports whether requests are to be sent to the endpoint, where there are others: its last connect has not failed a moment ago, and either it is
// healthy or health is ignored (backendHealth.panics). An endpoint that was ejected is fit for one request at a time as soon as the ejection is over.
func (e *Endpoint) fit() bool {
	if e.avoided() {
		return false
	}
	m := e.health.marks.Load() & markUnfit
	return m == 0 || e.health.fit(m)
}

// barred reports whether no request may be sent to the endpoint, even if there is no other: by a policy it is unhealthy, and health is never ignored (panicThreshold: 0).
// An endpoint that was not checked yet is not barred, so that no request fails because a policy or an endpoint is new.
func (e *Endpoint) barred() bool {
	m := e.health.marks.Load()
	return m&(markOutlier|markUnhealthy) != 0 && m&markUnknown == 0 && e.health.backend.panicThreshold() == 0
}

// fitForSession is fit for requests of a session with the endpoint. Without a policy what it responds does not count: another endpoint knows nothing of the session. Nor does
// that it was not checked yet.
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

// tries is called by Begin for an endpoint that is avoided or has marks: where the time is over for which it was passed over, this request tries it.
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

// mark sets marks, or takes them away; mu is held.
func (h *health) mark(marks uint32, on bool) {
	if on {
		h.marks.Or(marks)
	} else {
		h.marks.And(^marks)
	}
	h.count()
}

// count counts the endpoint among its backend's unfit ones, or not any more; mu is held.
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

// Failure is how a request has failed that has had no response from an endpoint.
type Failure uint8

// The failures of Endpoint.Broken. Connects that fail need not be reported.
const (
	FailureReset     Failure = iota // the connection broke, or what came was no response
	FailureTimeout                  // no response came in time
	failureToConnect                // there is no connection
)

// Statuses that stand for failures, as Envoy's outlier detection has it.
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

// Responded is told the status of each final response; that of a gRPC call is made of its grpc-status, see GRPCStatus.
func (e *Endpoint) Responded(status int) {
	h := e.health
	if status < 500 && h.marks.Load() == 0 && h.backend.comparison.Load() == nil && e.suspect.Load() != onTrial {
		return
	}
	e.responded(status)
}

// Answered is told of the head of a response whose status Responded is told later.
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

// Broken is told of each request that has had no response though there was a connection, and that is not the client's fault.
func (e *Endpoint) Broken(f Failure) {
	if o := e.health.outlier.Load(); o != nil {
		o.broken(e, f)
		return
	}
	e.judge(true)
}

func isGatewayError(status int) bool { return status >= 502 && status <= 504 }

// applyPolicy puts the health check of a policy in force, nil for none; Set.mu is held.
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

// parsedHealth is a config.HealthCheck that was read.
type parsedHealth struct {
	panicBelow uint32 // as in backendHealth
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

// parseHealth reads the health check of a Backend's policy, nil where there is none.
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

// Health is how an endpoint does.
type Health uint8

// The values of Health, of which the first that holds counts.
const (
	Healthy   Health = iota
	Avoided          // a connect has failed a moment ago
	Ejected          // by what has come of requests to it
	Unhealthy        // by an active check
	Unknown          // not checked yet, though it is to be
	healths
)

// String is what metrics call it.
func (h Health) String() string {
	return [...]string{"healthy", "avoided", "ejected", "unhealthy", "unknown"}[h]
}

// Health is how the endpoint does.
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
	EjectedByComparison Ejection = iota // without a policy: its responses were gateway errors, and those of others were not
	EjectedBy5xx
	EjectedByGatewayErrors
	EjectedByLocalOrigin
	EjectedByPercentage
	EjectedByLocalOriginPercentage
	ejections
)

// String is what metrics call it.
func (e Ejection) String() string {
	return [...]string{"gateway_errors_compared", "consecutive_5xx", "consecutive_gateway_errors", "consecutive_local_origin_failures",
		"failure_percentage", "failure_percentage_local_origin"}[e]
}

// ejected counts an ejection.
func (e *Endpoint) ejected(why Ejection) { e.backend.totals().ejections[why].Add(1) }

// newHealth returns the health of a new endpoint; Set.mu is held.
func (b *Backend) newHealth(e *Endpoint) *health {
	if b.base != nil {
		// The base has the endpoint already, but where it goes with its variants this moment.
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

// health returns that of the endpoint with the address of e, nil where there is none.
func (l *endpointList) health(e *Endpoint) *health {
	l.byAddressOnce.Do(func() {
		l.byAddress = make(map[endpointKey]*health, len(l.all))
		for _, o := range l.all {
			l.byAddress[o.address] = o.health
		}
	})
	return l.byAddress[e.address]
}

// countHealth follows a change of the list; gone are no part of it any more. Set.mu is held.
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

// leave is for an endpoint that is gone.
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

// HealthStats are the figures of the health of a backend's endpoints.
type HealthStats struct {
	Endpoints [healths]int64   // by Health
	Ejections [ejections]int64 // since the start
	// ChecksPassed and ChecksFailed are health checks since the start, and EventsDropped lines of their log that found no room.
	ChecksPassed, ChecksFailed, EventsDropped int64
	// watched is whether there has ever been cause to look at the figures: a policy, an ejection, or a connect that has failed.
	watched bool
}

// HealthStats are the backend's figures. Those since the start never go down.
func (b *Backend) HealthStats() (s HealthStats) {
	t := b.totals()
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

// Unhealthy returns how many endpoints are not healthy, by what metrics call that. It is nil where there has never been cause to ask, so that most backends have no
// such series.
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

// EjectionsByReason returns the ejections by what metrics call their reasons, nil for none.
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
