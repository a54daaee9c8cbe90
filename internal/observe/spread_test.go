package observe

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

// What cores write to must not share cache lines, of which the hardware fetches two at a time.
func TestCopiesFillCacheLines(t *testing.T) {
	for name, size := range map[string]uintptr{
		"coreTally": unsafe.Sizeof(coreTally{}), "coreCount": unsafe.Sizeof(coreCount{}), "logShard": unsafe.Sizeof(logShard{}),
	} {
		if size%128 != 0 {
			t.Errorf("%s has %d bytes, want a multiple of 128", name, size)
		}
	}
	if size := unsafe.Sizeof(outcome{}); size != 64 {
		t.Errorf("an outcome has %d bytes, want 64", size)
	}
}

// cores makes the test see n of them.
func cores(t *testing.T, n int) {
	t.Helper()
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// A counter is spread when cores meet at it often, not when they do so now and then, and not on one core.
func TestSpreadWhereCoresMeet(t *testing.T) {
	for _, tc := range []struct {
		name  string
		cores int
		times []int64
		want  int
	}{
		{"once", 4, []int64{1}, 0},
		{"now and then", 4, every(meetingWindow/4, 200), 0},
		{"often", 4, every(meetingWindow/100, meetings), 4},
		{"often, at last", 4, append(every(meetingWindow/2, 20), after(100*meetingWindow, 1000, meetings)...), 4},
		{"a clock that jumps back", 4, append([]int64{1 << 60}, every(1000, meetings)...), 4},
		{"many cores", 200, every(1, meetings), maxCopies},
		{"no power of two", 3, every(1, meetings), 4},
		{"one core", 1, every(1, 10*meetings), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cores(t, tc.cores)
			var s spread[coreCount]
			for _, now := range tc.times {
				s.meet(now)
			}
			if got := len(s.all()); got != tc.want {
				t.Errorf("%d copies, want %d", got, tc.want)
			}
			if (s.at(77) != nil) != (tc.want > 0) {
				t.Errorf("shard 77 has the copy %p", s.at(77))
			}
		})
	}
}

func every(step int64, n int) []int64 { return after(0, step, n) }

func after(start, step int64, n int) (times []int64) {
	for i := range n {
		times = append(times, start+int64(i+1)*step)
	}
	return times
}

// Nothing is lost or counted twice when the counters are spread while requests end.
func TestSpreadUnderLoad(t *testing.T) {
	cores(t, 4)
	m := NewMetrics(MetricsOptions{})
	s := m.Rule(exampleLabels)
	var asked atomic.Int64
	o := Observer{Metrics: m, Core: func() uint32 { return uint32(asked.Add(1)) }}
	const workers, each = 8, 20000
	var wg sync.WaitGroup
	var done atomic.Int64
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				r := Record{Stats: s, Backend: 1, Status: 200, Reason: ReasonOK, StartUnixNano: int64(i), DurationNano: int64(i%3) * 2e6,
					BytesReceived: 1, BytesSent: 2, Attempts: 2, Shard: uint32(w)}
				o.Finish(&r)
				if done.Add(1) == workers*each/2 {
					for range meetings {
						s.counters.Load().total.cores.meet(r.end())
						s.counters.Load().chosen[0].Load().list()[0].cores.meet(r.end())
					}
				}
			}
		})
	}
	wg.Wait()
	if len(s.counters.Load().total.cores.all()) != 4 || len(s.counters.Load().chosen[0].Load().list()[0].cores.all()) != 4 {
		t.Fatal("the counters were not spread")
	}
	const n = workers * each
	if a := asked.Load(); a == 0 || a > n {
		t.Errorf("asked %d times for the core in %d requests", a, n)
	}
	sum := s.counters.Load().total.totals()
	var requests uint64
	for _, b := range sum.buckets {
		requests += b
	}
	if got := s.counters.Load().chosen[0].Load().list()[0].count(); got != n || requests != n || sum.requestBytes != n || sum.responseBytes != 2*n || sum.retries != n {
		t.Errorf("%d requests, %+v, want %d of each", got, sum, n)
	}
	if h := sum.histogram(); h.GetSampleCount() != n || uint64(h.GetSampleSum()*1e9+.5) != sum.durationNano {
		t.Errorf("histogram %v of %+v", h, sum)
	}
}
