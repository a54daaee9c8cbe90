package upstream

import (
	"math"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/orca"
)

// TestUtilization: shares are those of requests per second over utilization once the blackout is over, and equal when reports are too old.
func TestUtilization(t *testing.T) {
	const n = 40_000
	s, b := balanced(t, utilized(), numbered(4)...)
	list := b.Endpoints()
	start := time.Unix(0, s.tick.Load())
	at := func(d time.Duration) { s.UpdateWeights(start.Add(d)) }
	report := func(weights ...float64) {
		for i, w := range weights {
			if w > 0 {
				list[i].Report(&orca.Report{CPU: .5, RequestsPerSecond: w / 2})
			}
		}
	}
	expect := func(when string, weights ...float64) {
		t.Helper()
		sum, of := 0.0, shareOf(b, n)
		for _, w := range weights {
			sum += w
		}
		for i, e := range list {
			if want := weights[i] / sum; !near(of[e], want, n) {
				t.Errorf("%s: endpoint %d has a share of %.4f, want %.4f", when, i, of[e], want)
			}
		}
	}
	expect("without reports", 1, 1, 1, 1)
	report(100)
	at(11 * time.Second)
	report(100)
	expect("with one endpoint's", 1, 1, 1, 1)
	at(12 * time.Second)
	report(100, 200, 300)
	expect("in the blackout of the others", 1, 1, 1, 1)
	at(22*time.Second - 1)
	expect("just before its end", 1, 1, 1, 1)
	at(23 * time.Second)
	expect("after it, and one has the mean", 100, 200, 300, 200)
	report(300, 200, 100, 0)
	expect("before the weights are computed anew", 100, 200, 300, 200)
	at(23*time.Second + 500*time.Millisecond)
	expect("half a period after", 100, 200, 300, 200)
	at(24 * time.Second)
	expect("a period after", 300, 200, 100, 200)
	list[0].Report(&orca.Report{})                 // which says nothing
	list[1].Report(&orca.Report{CPU: math.Inf(1)}) // no more does that
	at(25 * time.Second)
	expect("after reports that say nothing", 300, 200, 100, 200)
	at(60 * time.Second)
	report(0, 200, 100)
	at(23*time.Second + 3*time.Minute + time.Second)
	expect("when one report is too old", 150, 200, 100, 150)
	report(900)
	at(23*time.Second + 3*time.Minute + 8*time.Second)
	expect("in its blackout", 150, 200, 100, 150)
	report(900)
	at(23*time.Second + 3*time.Minute + 12*time.Second)
	expect("after it", 900, 200, 100, 400)
	at(time.Hour)
	expect("an hour later", 1, 1, 1, 1)
}

func TestWeightOfReport(t *testing.T) {
	u := &config.BackendUtilization{ErrorUtilizationPenaltyPercent: 50}
	for name, tc := range map[string]struct {
		r    orca.Report
		want float64
	}{
		"application":    {orca.Report{Application: .5, CPU: .9, RequestsPerSecond: 100}, 200},
		"named":          {orca.Report{Named: .25, CPU: .9, RequestsPerSecond: 100}, 400},
		"above 1":        {orca.Report{Application: 2, RequestsPerSecond: 100}, 50},
		"errors":         {orca.Report{Application: .5, RequestsPerSecond: 100, ErrorsPerSecond: 100}, 100},
		"no requests":    {orca.Report{Application: .5}, 0},
		"no utilization": {orca.Report{RequestsPerSecond: 5, ErrorsPerSecond: 5}, 0},
		"too small":      {orca.Report{CPU: 5e-324, RequestsPerSecond: 1e300}, 0},
	} {
		if got := weightOf(&tc.r, u); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestUtilizationIsBounded: no report, however wrong, gives an endpoint all of the requests, or none for good.
func TestUtilizationIsBounded(t *testing.T) {
	l := utilized()
	l.BackendUtilization.BlackoutPeriodNanos = 0
	s, b := balanced(t, l, numbered(20)...)
	for i, e := range b.Endpoints() {
		e.Report(&orca.Report{CPU: 1, RequestsPerSecond: 1})
		if i == 0 {
			e.Report(&orca.Report{CPU: 1e-9, RequestsPerSecond: 1e9})
		}
	}
	s.UpdateWeights(time.Unix(0, s.tick.Load()).Add(time.Second))
	of := shareOf(b, 200_000)
	for i, e := range b.Endpoints() {
		if of[e] > .99 || of[e] == 0 {
			t.Errorf("endpoint %d has a share of %v", i, of[e])
		}
	}
}

// TestReportsOutliveTheProtocol: endpoints that are begun anew at the same address keep their weights.
func TestReportsOutliveTheProtocol(t *testing.T) {
	l := utilized()
	l.BackendUtilization.BlackoutPeriodNanos = 0
	s, b := balanced(t, l, numbered(2)...)
	for i, e := range b.Endpoints() {
		e.Report(&orca.Report{CPU: .5, RequestsPerSecond: float64(1 + 2*i)})
	}
	other := balancedResource(l)
	other.GetBackend().Protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
	apply(t, s, other)
	if got := shareOf(b, 40_000)[b.Endpoints()[1]]; !near(got, .75, 40_000) {
		t.Errorf("a share of %.3f, want 0.75", got)
	}
}
