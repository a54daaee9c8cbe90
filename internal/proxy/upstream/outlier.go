package upstream

import (
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
)

// Outlier detection by a PassiveHealthCheck, as in Envoy.
const (
	defaultConsecutive = 5
	// percentageHosts is how many endpoints must have had percentageRequests requests each within an interval for
	// failure percentages to be used.
	percentageHosts    = 5
	percentageRequests = 50
	// maxEjectionTime is the longest ejection, unless the base time is longer.
	maxEjectionTime = 300 * time.Second
	leastInterval   = 10 * time.Millisecond // shortest time between two sweeps, whatever a policy configures
)

// passive is a PassiveHealthCheck of one backend. It is immutable except for sweep.
type passive struct {
	config   *config.PassiveHealthCheck
	interval time.Duration
	base     time.Duration
	// The numbers of consecutive failures that eject an endpoint; 0 means never.
	errors5xx, gatewayErrors, localFailures uint32

	sweep *task // guarded by Set.mu
}

func parsePassive(key string, c *config.PassiveHealthCheck) (*passive, error) {
	if c == nil {
		return nil, nil
	}
	if c.IntervalNanos <= 0 || c.BaseEjectionTimeNanos <= 0 {
		return nil, fmt.Errorf("upstream: Backend %s: traffic.health_check.passive has interval_nanos %d, base_ejection_time_nanos %d: give times above 0", key, c.IntervalNanos, c.BaseEjectionTimeNanos)
	}
	p := &passive{config: c, interval: max(time.Duration(c.IntervalNanos), leastInterval), base: time.Duration(c.BaseEjectionTimeNanos),
		errors5xx: defaultConsecutive, gatewayErrors: c.ConsecutiveGatewayErrors}
	if c.Consecutive_5XxErrors != nil {
		p.errors5xx = *c.Consecutive_5XxErrors
	}
	if c.SplitLocalOriginErrors {
		p.localFailures = defaultConsecutive
		if c.ConsecutiveLocalOriginFailures != nil {
			p.localFailures = *c.ConsecutiveLocalOriginFailures
		}
	}
	return p, nil
}

func (p *passive) same(o *passive) bool {
	if p == nil || o == nil {
		return p == o
	}
	return proto.Equal(p.config, o.config)
}

// outlier is the state of one endpoint for a PassiveHealthCheck.
type outlier struct {
	policy *passive
	// Consecutive failures.
	errors5xx, gatewayErrors, localFailures atomic.Uint32
	// responses and requests since the last sweep, and how many of them failed: responses are those that the endpoint
	// has answered; requests are counted with SplitLocalOriginErrors only, and include those that it could have
	// answered.
	responses, requests rate

	// The fields below are guarded by backendHealth.ejecting.
	until    time.Time // when the ejection ends
	ejection int       // 1 less than the factor of the base time of its next ejection
}

// rate counts outcomes and failures.
type rate struct{ all, failed atomic.Uint32 }

func (r *rate) count(failed bool) {
	r.all.Add(1)
	if failed {
		r.failed.Add(1)
	}
}

// take returns the counts and resets them.
func (r *rate) take() (all, failed uint32) { return r.all.Swap(0), r.failed.Swap(0) }

// responded handles a status. Without a split, it may stand for a failure to respond.
func (o *outlier) responded(e *Endpoint, status int) {
	if o.policy.config.SplitLocalOriginErrors {
		if o.localFailures.Load() != 0 {
			o.localFailures.Store(0)
		}
		o.count(&o.requests, false)
	}
	o.took(e, status)
}

func (o *outlier) took(e *Endpoint, status int) {
	failed := status >= 500
	o.count(&o.responses, failed)
	if !isGatewayError(status) {
		reset(&o.gatewayErrors)
	} else if n := o.gatewayErrors.Add(1); n == o.policy.gatewayErrors {
		e.ejectOutlier(o, EjectedByGatewayErrors, time.Now())
	}
	if !failed {
		reset(&o.errors5xx)
	} else if n := o.errors5xx.Add(1); n == o.policy.errors5xx {
		e.ejectOutlier(o, EjectedBy5xx, time.Now())
	}
}

// count counts in a rate, if rates are used.
func (o *outlier) count(r *rate, failed bool) {
	if o.policy.config.FailurePercentageThreshold > 0 {
		r.count(failed)
	}
}

// reset writes only if necessary, since all cores write there.
func reset(n *atomic.Uint32) {
	if n.Load() != 0 {
		n.Store(0)
	}
}

// broken handles a request without a response.
func (o *outlier) broken(e *Endpoint, f Failure) {
	if !o.policy.config.SplitLocalOriginErrors {
		o.took(e, f.status())
		return
	}
	o.count(&o.requests, true)
	if n := o.localFailures.Add(1); n == o.policy.localFailures {
		e.ejectOutlier(o, EjectedByLocalOrigin, time.Now())
	}
}

// connectFailed counts a failed connect, if a policy uses that.
func (e *Endpoint) connectFailed(timeout bool) {
	o := e.health.outlier.Load()
	if o == nil {
		return
	}
	f := failureToConnect
	if timeout {
		f = FailureTimeout
	}
	o.broken(e, f)
}

// ejectOutlier ejects the endpoint if the policy allows it.
func (e *Endpoint) ejectOutlier(o *outlier, why Ejection, now time.Time) {
	h := e.health
	g := h.backend
	g.ejecting.Lock()
	defer g.ejecting.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	o.errors5xx.Store(0)
	o.gatewayErrors.Store(0)
	o.localFailures.Store(0)
	if !h.usable || h.outlier.Load() != o || h.marks.Load()&markOutlier != 0 || !o.policy.allows(g) {
		return
	}
	o.until = now.Add(o.policy.ejectionTime(o.ejection))
	o.ejection++
	g.outliers++
	h.mark(markOutlier, true)
	e.ejected(why)
}

// allows reports whether one more endpoint may be ejected. ejecting must be held.
func (p *passive) allows(g *backendHealth) bool {
	if g.outliers == 0 && p.config.AlwaysEjectOneEndpoint {
		return true
	}
	return int64(g.outliers+1)*100 <= int64(p.config.MaxEjectionPercent)*g.usable.Load()
}

// ejectionTime returns how long an endpoint is ejected that was ejected before times already.
func (p *passive) ejectionTime(before int) time.Duration {
	most := max(p.base, maxEjectionTime)
	if int64(before) >= int64(most/p.base) {
		return most
	}
	return p.base * time.Duration(before+1)
}

// endOutlier ends an ejection. mu and ejecting must be held.
func (h *health) endOutlier() {
	if h.marks.Load()&markOutlier != 0 {
		h.backend.outliers--
		h.mark(markOutlier, false)
	}
}

// sweepOutliers ends ejections whose time is over, and ejects endpoints by the percentage of their requests that have
// failed since the last sweep.
func (b *Backend) sweepOutliers(p *passive, now time.Time) {
	var responses, requests []percentage
	g := &b.health
	for _, e := range b.list.Load().all {
		h := e.health
		g.ejecting.Lock()
		h.mu.Lock()
		o := h.outlier.Load()
		if o != nil && o.policy == p {
			switch {
			case h.marks.Load()&markOutlier != 0:
				if !now.Before(o.until) {
					h.endOutlier()
				}
			case o.ejection > 0:
				o.ejection--
			}
		}
		h.mu.Unlock()
		g.ejecting.Unlock()
		if o == nil || o.policy != p {
			continue
		}
		responses = appendPercentage(responses, e, o, &o.responses)
		requests = appendPercentage(requests, e, o, &o.requests)
	}
	p.ejectByPercentage(responses, EjectedByPercentage, now)
	p.ejectByPercentage(requests, EjectedByLocalOriginPercentage, now)
}

// percentage is the share of requests to an endpoint that have failed within an interval.
type percentage struct {
	endpoint *Endpoint
	outlier  *outlier
	percent  float64
}

func appendPercentage(list []percentage, e *Endpoint, o *outlier, r *rate) []percentage {
	all, failed := r.take()
	if all < percentageRequests {
		return list
	}
	return append(list, percentage{e, o, float64(failed) * 100 / float64(all)})
}

func (p *passive) ejectByPercentage(list []percentage, why Ejection, now time.Time) {
	if len(list) < percentageHosts {
		return
	}
	for _, f := range list {
		if f.percent >= float64(p.config.FailurePercentageThreshold) {
			f.endpoint.ejectOutlier(f.outlier, why, now)
		}
	}
}

// setPassive publishes a PassiveHealthCheck; nil means none. Set.mu must be held. If it differs from the previous one,
// all state is reset: ejections end, including those without a policy.
func (b *Backend) setPassive(next *passive) {
	g := &b.health
	before := g.passive
	if before.same(next) {
		return
	}
	g.passive = next
	if before != nil {
		b.set.taskQueue.stop(before.sweep)
	}
	for _, e := range b.list.Load().all {
		e.health.setOutlier(next)
	}
	g.comparison.Store(nil)
	if next != nil {
		next.sweep = &task{}
		next.sweep.run = func(now time.Time) {
			b.set.taskQueue.add(next.sweep, now.Add(next.interval))
			b.sweepOutliers(next, now)
		}
		b.set.taskQueue.add(next.sweep, time.Now().Add(next.interval))
	}
}

// setOutlier sets the PassiveHealthCheck that watches the endpoint; nil means none.
func (h *health) setOutlier(p *passive) {
	h.backend.ejecting.Lock()
	defer h.backend.ejecting.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endOutlier()
	h.trial.Store(false)
	h.failing.Store(0)
	h.mark(markEjected|markFailing, false)
	if p == nil {
		h.outlier.Store(nil)
		h.mark(markCounted, false)
		return
	}
	h.outlier.Store(&outlier{policy: p})
	h.mark(markCounted, true)
}
