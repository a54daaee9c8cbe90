package upstream

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/orca"
)

// maxWeight is the weight of the endpoint with the greatest one.
const maxWeight = math.MaxUint16

// weights are the weights of the endpoints of a pool. They are immutable.
type weights struct {
	list   []uint16 // from 1 to maxWeight; at least one is maxWeight
	ending []uint64 // cumulative sums
}

// newWeights returns nil if all weights are equal, and old if nothing changes. Weights must be greater than 0.
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

// draw maps the lower half of a random number to an index, in proportion to the weights.
func (w *weights) draw(r uint64) uint64 {
	sum := w.ending[len(w.ending)-1] // below 1<<32, for up to 1<<16 endpoints
	at := (r & 0xffffffff) * sum >> 32
	i, _ := slices.BinarySearch(w.ending, at+1)
	return uint64(i)
}

// refresh computes the shares of zones and the weights at a time of the Set's clock.
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
	if l.spare != nil {
		l.weigh(l.spare, now)
	}
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

// minSlowStart is the share of its weight with which a new endpoint begins.
const minSlowStart = 0.1

// slowStart returns the share of its weight that the endpoint has: it grows linearly with its age, as in Envoy with an
// aggression of 1.
func (e *Endpoint) slowStart(window time.Duration, now int64) float64 {
	if e.born == 0 || window <= 0 {
		return 1
	}
	return min(max(float64(now-e.born)/float64(window), minSlowStart), 1)
}

// Bounds of the weights from reports, in multiples of their mean, as in gRPC.
const (
	maxOfMean = 10
	minOfMean = 0.01
)

// reported stores the weights from the endpoints' reports in of. An endpoint without a report gets the mean of the
// others. If fewer than two have one, all are equal (gRFC A58).
func reported(of []float64, list []*Endpoint, u *config.BackendUtilization, now int64) {
	sum, n := 0.0, 0
	for i, e := range list {
		of[i] = e.soFar().report.weight(u, now)
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

// loadReport is the state of an endpoint's load reports.
type loadReport struct {
	bits  atomic.Uint64 // the weight, as the bits of a float64
	at    atomic.Int64  // time of the last report with a weight; 0 if there is none
	since atomic.Int64  // since when there have been reports without expiration; 0 if there is none
}

// Report processes a load report of the endpoint. It does nothing unless the backend is balanced by utilization.
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
	report := &e.use().report
	l.expire(report, now)
	report.bits.Store(math.Float64bits(w))
	report.since.CompareAndSwap(0, now)
	report.at.Store(now)
}

// weightOf returns the requests per second divided by the utilization, to which errors are added. It returns 0 if it
// cannot be computed.
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

// expire restarts the blackout period if the last report has expired.
func (l *Balancing) expire(r *loadReport, now int64) {
	if at := r.at.Load(); at != 0 && now-at >= l.utilization.WeightExpirationPeriodNanos {
		r.since.Store(0)
	}
}

// weight returns 0 if there is no valid report.
func (r *loadReport) weight(u *config.BackendUtilization, now int64) float64 {
	at, since := r.at.Load(), r.since.Load()
	if at == 0 || since == 0 || now-at >= u.WeightExpirationPeriodNanos || now-since < u.BlackoutPeriodNanos {
		return 0
	}
	return math.Float64frombits(r.bits.Load())
}

// Weight returns the weight from the endpoint's last load report, in requests per second at full capacity; 0 if there
// is none.
func (e *Endpoint) Weight() float64 { return math.Float64frombits(e.soFar().report.bits.Load()) }

// follow takes over the reports of an earlier endpoint at the same address.
func (r *loadReport) follow(o *loadReport) {
	r.bits.Store(o.bits.Load())
	r.since.Store(o.since.Load())
	r.at.Store(o.at.Load())
}
