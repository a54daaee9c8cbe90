package observe

import (
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/accesslog"
)

// Finishing a request allocates nothing, with the log and without.
func TestFinishAllocatesNothing(t *testing.T) {
	l := openLog(t, "json", io.Discard)
	m := NewMetrics(MetricsOptions{AccessLog: l})
	strange := exampleLabels
	strange.Rule, strange.StatName = "a \"strange\" name", "stat"
	for name, o := range map[string]*Observer{"counted": {Metrics: m}, "counted and logged": {Metrics: m, Log: l}} {
		for _, labels := range []RuleLabels{exampleLabels, strange} {
			r := exampleRecord(m.Rule(labels))
			hostile := exampleRecord(m.Rule(labels))
			hostile.Target = []byte("/\xff\"\x00 é")
			hostile.Status, hostile.Reason, hostile.Backend, hostile.Attempts = 502, ReasonUpstreamReset, 0, 3
			unrouted := Record{Status: 404, Reason: ReasonRouteNotFound}
			o.Finish(r)
			o.Finish(hostile)
			o.Finish(&unrouted)
			got := testing.AllocsPerRun(2000, func() {
				o.Finish(r)
				o.Finish(hostile)
				o.Finish(&unrouted)
			})
			if got != 0 {
				t.Errorf("%s: %v allocations, want 0", name, got)
			}
		}
	}
}

func BenchmarkFinish(b *testing.B) {
	m := NewMetrics(MetricsOptions{})
	o := Observer{Metrics: m}
	r := exampleRecord(m.Rule(exampleLabels))
	b.ReportAllocs()
	for b.Loop() {
		o.Finish(r)
	}
}

// All cores finish requests of one rule, which is the worst case for the counters.
func BenchmarkFinishParallel(b *testing.B) {
	m := NewMetrics(MetricsOptions{})
	o := Observer{Metrics: m}
	s := m.Rule(exampleLabels)
	var shard atomic.Uint32
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := exampleRecord(s)
		r.Shard = shard.Add(1)
		for pb.Next() {
			o.Finish(r)
			r.StartUnixNano++ // the clock goes on: see spread
		}
	})
}

func BenchmarkFinishLoggedParallel(b *testing.B) {
	l, err := OpenAccessLog("json", io.Discard, accesslog.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close(time.Second)
	m := NewMetrics(MetricsOptions{AccessLog: l})
	o := Observer{Metrics: m, Log: l}
	s := m.Rule(exampleLabels)
	var shard atomic.Uint32
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := exampleRecord(s)
		r.Shard = shard.Add(1)
		for i := 0; pb.Next(); i++ {
			o.Finish(r)
			if i%64 == 0 {
				runtime.Gosched() // as every request does that waits for its bytes
			}
		}
	})
	b.ReportMetric(float64(l.Dropped())/float64(b.N), "dropped/op")
}

// A rule whose backend answered with ten codes before.
func BenchmarkFinishTenthOutcome(b *testing.B) {
	m := NewMetrics(MetricsOptions{})
	o := Observer{Metrics: m}
	r := exampleRecord(m.Rule(exampleLabels))
	for r.Status = 400; r.Status < 410; r.Status++ {
		o.Finish(r)
	}
	b.ReportAllocs()
	for b.Loop() {
		o.Finish(r)
	}
}

// One rule of 5,000 is compiled again: handle taken and given back.
func BenchmarkRuleHandle(b *testing.B) {
	m := manyRules(5000)
	b.ReportAllocs()
	for b.Loop() {
		m.Rule(exampleLabels).Release()
	}
}

// A scrape with 5,000 rules that all have had requests.
func BenchmarkScrape(b *testing.B) {
	m := manyRules(5000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Gatherer().Gather(); err != nil {
			b.Fatal(err)
		}
	}
}

func manyRules(n int) *Metrics {
	m := NewMetrics(MetricsOptions{})
	for i := range n {
		l := exampleLabels
		l.Route = fmt.Sprintf("HTTPRoute/shop/r%d", i)
		(&Observer{Metrics: m}).Finish(exampleRecord(m.Rule(l)))
	}
	return m
}

// BenchmarkRule is what a rule costs before its first request; of thousands most never see one.
func BenchmarkRule(b *testing.B) {
	m := NewMetrics(MetricsOptions{MaxRules: 1 << 30})
	l := exampleLabels
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.Route = fmt.Sprint(i)
		m.Rule(l)
	}
}
