package upstream

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/orca"
)

// maxWeight is the weight of an endpoint with the greatest one.
const maxWeight = math.MaxUint16

// weights are those of the endpoints of a pool; immutable.
type weights struct {
	list   []uint16 // from 1 to maxWeight, which one of them is
	ending []uint64 // of each the sum up to it
}

// newWeights returns nil where all are equal, and reuses old where that says the same. Weights must be greater than 0.
func newWeights(of []float64, old *weights) *weights {
	if len(of) == 0 {
		return nil
	}
	greatest, equal := slices.Max(of), true
	w := &weights{list: make([]uint16, len(of)), ending: make([]uint64, len(of))}
	sum := uint64(0)
	for i, f := range of {
		w.list[i] = uint16(max(math.Round(f/greatest*maxWeight), 1))
		equal = equal && w.list[i] == maxWeight
		sum += uint64(w.list[i])
		w.ending[i] = sum
	}
	switch {
	case equal:
		return nil
	case old != nil && slices.Equal(old.list, w.list):
		return old
	}
	return w
}

// draw is an index in proportion to the weights, by the lower half of a random number.
func (w *weights) draw(r uint64) uint64 {
	sum := w.ending[len(w.ending)-1] // below 1<<32, for up to 1<<16 endpoints
	at := (r & 0xffffffff) * sum >> 32
	i, _ := slices.BinarySearch(w.ending, at+1)
	return uint64(i)
}

// refresh computes the shares of zones, and weights, as they are at a moment of the Set's clock.
func (l *balancer) refresh(now int64) {
	if l.zones == nil && !l.settings.weighted() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.zones != nil {
		l.shares.Store(l.newShares())
	}
	if !l.settings.weighted() {
		return
	}
	if u := l.settings.utilization; u != nil {
		if now < l.due && l.settings.slowStart == 0 {
			return
		}
		l.due = now + max(u.WeightUpdatePeriodNanos, int64(minWeightUpdate))
	}
	l.weigh(l.all, now)
	for _, z := range l.zones {
		l.weigh(z, now)
	}
}

// weigh computes the weights of a pool.
func (l *balancer) weigh(p *pool, now int64) {
	of := make([]float64, len(p.list))
	for i := range of {
		of[i] = 1
	}
	if u := l.settings.utilization; u != nil {
		reported(of, p.list, u, now)
	}
	for i, e := range p.list {
		of[i] *= e.slowStart(l.settings.slowStart, now)
	}
	old := p.weights.Load()
	if next := newWeights(of, old); next != old {
		p.weights.Store(next)
	}
}

// minSlowStart is the share of its weight that a new endpoint begins with.
const minSlowStart = 0.1

// slowStart is the share of its weight that the endpoint has: it grows linearly with the time that it is there, as Envoy's with an aggression of 1.
func (e *Endpoint) slowStart(window time.Duration, now int64) float64 {
	if e.born == 0 || window <= 0 {
		return 1
	}
	return min(max(float64(now-e.born)/float64(window), minSlowStart), 1)
}

// Bounds of weights by reports, in means, as in gRPC.
const (
	maxOfMean = 10
	minOfMean = 0.01
)

// reported puts the weights by the endpoints' reports into of. An endpoint without one has the mean of those with one, and where fewer than two have one all
// are equal (gRFC A58).
func reported(of []float64, list []*Endpoint, u *config.BackendUtilization, now int64) {
	sum, n := 0.0, 0
	for i, e := range list {
		of[i] = e.report.weight(u, now)
		if of[i] > 0 {
			sum += of[i]
			n++
		}
	}
	mean := sum / float64(n)
	for i := range of {
		switch {
		case n < 2:
			of[i] = 1
		case of[i] == 0:
			of[i] = 1
		default:
			of[i] = min(max(of[i]/mean, minOfMean), maxOfMean)
		}
	}
}

// loadReport is what came of an endpoint's reports.
type loadReport struct {
	bits  atomic.Uint64 // the weight
	at    atomic.Int64  // of the last one that had a weight; 0 without one
	since atomic.Int64  // from which on there was one whenever the last was not too old; 0 without one
}

// Report takes in a load report of the endpoint. It is nothing where the backend is not balanced by utilization.
func (e *Endpoint) Report(r *orca.Report) {
	l := e.backend.Balancing()
	if l == nil || l.utilization == nil {
		return
	}
	w := weightOf(r, l.utilization)
	if w <= 0 {
		return
	}
	now := e.backend.set.tick.Load()
	l.expire(&e.report, now)
	e.report.bits.Store(math.Float64bits(w))
	e.report.since.CompareAndSwap(0, now)
	e.report.at.Store(now)
}

// weightOf is requests per second over utilization, to which errors are added; 0 is that it cannot be known.
func weightOf(r *orca.Report, u *config.BackendUtilization) float64 {
	utilization := r.Utilization()
	if r.RequestsPerSecond <= 0 || utilization <= 0 {
		return 0
	}
	if r.ErrorsPerSecond > 0 {
		utilization += r.ErrorsPerSecond / r.RequestsPerSecond * float64(u.ErrorUtilizationPenaltyPercent) / 100
	}
	w := r.RequestsPerSecond / utilization
	if math.IsInf(w, 0) || math.IsNaN(w) {
		return 0
	}
	return w
}

// expire has the blackout begin anew where the last report is too old to count.
func (l *Balancing) expire(r *loadReport, now int64) {
	if at := r.at.Load(); at != 0 && now-at >= l.utilization.WeightExpirationPeriodNanos {
		r.since.Store(0)
	}
}

// weight is 0 where there is none that counts.
func (r *loadReport) weight(u *config.BackendUtilization, now int64) float64 {
	at, since := r.at.Load(), r.since.Load()
	if at == 0 || since == 0 || now-at >= u.WeightExpirationPeriodNanos || now-since < u.BlackoutPeriodNanos {
		return 0
	}
	return math.Float64frombits(r.bits.Load())
}

// Weight is what the endpoint's last load report weighs, in requests per second for the whole of its capacity; 0 without one.
func (e *Endpoint) Weight() float64 { return math.Float64frombits(e.report.bits.Load()) }

// follow takes over what another endpoint at the same address has reported.
func (r *loadReport) follow(o *loadReport) {
	r.bits.Store(o.bits.Load())
	r.since.Store(o.since.Load())
	r.at.Store(o.at.Load())
}
