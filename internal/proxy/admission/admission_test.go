package admission

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// filled is a window that has so many requests within a second before now.
func filled(total, successes int, now time.Duration) *Window {
	w := NewWindow(30 * time.Second)
	for i := range total {
		w.Record(now, i < successes)
	}
	return w
}

// TestRejectionCurve: of many requests as large a share is rejected as the formula of Envoy's documentation says, within 2 %, whatever the settings.
func TestRejectionCurve(t *testing.T) {
	const n = 20_000
	random := rand.New(rand.NewPCG(1, 2))
	for _, aggression := range []float64{1, 1.5, 2, 5} {
		for _, threshold := range []float64{0.5, 0.95, 1} {
			for _, most := range []float64{0.8, 1} {
				for successes := 0; successes <= 1000; successes += 100 {
					c := New(Settings{MinSuccess: threshold, Aggression: aggression, MaxRejection: most}, filled(1000, successes, time.Minute))
					rejected := 0
					for range n {
						if !c.Admits(time.Minute, random.Uint64()) {
							rejected++
						}
					}
					want := 0.0
					if p := (1000 - float64(successes)/threshold) / 1001; p > 0 {
						want = min(math.Pow(p, 1/aggression), most)
					}
					if got := float64(rejected) / n; math.Abs(got-want) > 0.02 {
						t.Errorf("aggression %v, threshold %v, at most %v, %d of 1000: rejects %.3f, want %.3f", aggression, threshold, most, successes, got, want)
					}
				}
			}
		}
	}
}

// TestNothingIsRejected where there were no requests, or too few a second, or enough have succeeded.
func TestNothingIsRejected(t *testing.T) {
	now := time.Minute
	for name, c := range map[string]*Control{
		"none":           New(Settings{MinSuccess: 1, Aggression: 1, MaxRejection: 1}, filled(0, 0, now)),
		"too few":        New(Settings{MinSuccess: 1, Aggression: 1, MaxRejection: 1, MinRate: 101}, filled(100, 0, now)),
		"successes":      New(Settings{MinSuccess: 0.95, Aggression: 1, MaxRejection: 1}, filled(100, 95, now)),
		"never at all":   New(Settings{MinSuccess: 1, Aggression: 1}, filled(100, 0, now)),
		"over long time": New(Settings{MinSuccess: 1, Aggression: 1, MaxRejection: 1}, filled(100, 0, now-31*time.Second)),
	} {
		for _, random := range []uint64{0, 1 << 63} {
			if !c.Admits(now, random) {
				t.Errorf("%s: a request is rejected", name)
			}
		}
	}
	if c := New(Settings{MinSuccess: 1, Aggression: 1, MaxRejection: 1, MinRate: 100}, filled(100, 0, now)); c.Admits(now, 0) {
		t.Error("100 requests a second are too few")
	}
}

// TestWindowSlides: what was recorded counts for the length of the window, but for the part of it that is forgotten at a time, and not longer, however long nothing came.
func TestWindowSlides(t *testing.T) {
	const length = 32 * time.Second
	w := NewWindow(length)
	for s := range 100 {
		now := time.Duration(s) * time.Second
		w.Record(now, s%2 == 0)
		total, successes, since := w.Counts(now)
		want := int64(min(s+1, 32))
		if total != want || successes != (want+int64((s+1)%2))/2 || since != time.Duration(want-1)*time.Second {
			t.Fatalf("after %v: %d of %d since %v, want %d", now, successes, total, since, want)
		}
	}
	for _, c := range []struct {
		now  time.Duration
		want int64
	}{{110 * time.Second, 21}, {130 * time.Second, 1}, {131 * time.Second, 0}, {10000 * time.Second, 0}} {
		if total, _, _ := w.Counts(c.now); total != c.want {
			t.Errorf("at %v: %d requests, want %d", c.now, total, c.want)
		}
	}
	w.Record(10000*time.Second, true)
	if total, successes, _ := w.Counts(10000 * time.Second); total != 1 || successes != 1 {
		t.Errorf("%d of %d", successes, total)
	}
	w.Record(99*time.Second, true) // late
	if total, _, _ := w.Counts(10000 * time.Second); total != 1 {
		t.Errorf("%d requests", total)
	}
}

// TestWindowConcurrently: nothing is lost of what is recorded from many goroutines within a slot.
func TestWindowConcurrently(t *testing.T) {
	w := NewWindow(time.Hour)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for range 10_000 {
				w.Record(time.Second, g%2 == 0)
				w.Counts(time.Second)
			}
		})
	}
	wg.Wait()
	if total, successes, _ := w.Counts(time.Second); total != 80_000 || successes != 40_000 {
		t.Errorf("%d of %d", successes, total)
	}
}

// TestSuccesses: what a success is by default, and as it is said.
func TestSuccesses(t *testing.T) {
	success := func(c *Control, record func()) bool {
		_, before, _ := c.window.Counts(0)
		record()
		_, after, _ := c.window.Counts(0)
		return after > before
	}
	for _, c := range []struct {
		settings   Settings
		http, grpc []int // successes among those that are tried
	}{
		{Settings{MinSuccess: 1, Aggression: 1}, []int{100, 200, 404, 429, 499}, []int{0, 1, 2, 3, 5, 6, 9, 11, 12, 16}},
		{Settings{MinSuccess: 1, Aggression: 1, HTTP: []int{200, 503}, GRPC: []int{0, 14}}, []int{200, 503}, []int{0, 14}},
	} {
		control := New(c.settings, NewWindow(time.Minute))
		var http, grpc []int
		for _, status := range []int{-1, 0, 100, 200, 404, 429, 499, 500, 503, 599, 600, 700} {
			if success(control, func() { control.RecordHTTP(0, status) }) {
				http = append(http, status)
			}
		}
		for code := -1; code < 40; code++ {
			if success(control, func() { control.RecordGRPC(0, code) }) {
				grpc = append(grpc, code)
			}
		}
		if fmt.Sprint(http, grpc) != fmt.Sprint(c.http, c.grpc) {
			t.Errorf("%+v: successes are %v and %v, want %v and %v", c.settings, http, grpc, c.http, c.grpc)
		}
	}
}

// TestAllocatesNothing: a request that is admitted and recorded makes nothing.
func TestAllocatesNothing(t *testing.T) {
	c := New(Settings{MinSuccess: 0.95, Aggression: 2, MaxRejection: 0.8}, filled(1000, 900, time.Minute))
	if n := testing.AllocsPerRun(1000, func() {
		c.Admits(time.Minute, 1<<63)
		c.RecordHTTP(time.Minute, 200)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdmission(b *testing.B) {
	c := New(Settings{MinSuccess: 0.95, Aggression: 1, MaxRejection: 0.8}, filled(1000, 900, time.Minute))
	b.ReportAllocs()
	for b.Loop() {
		c.Admits(time.Minute, 1<<63)
		c.RecordHTTP(time.Minute, 200)
	}
}
