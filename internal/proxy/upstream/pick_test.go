package upstream

import (
	"math"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

func made(t testing.TB, n int) *Backend {
	var list []*config.Endpoint
	for i := range n {
		list = append(list, endpoint(address(i)))
	}
	_, b := newSet(t, Options{}, list...)
	return b
}

// TestPickIsEven: the standard deviation of a share is about sqrt(n), the test allows 5 of them.
func TestPickIsEven(t *testing.T) {
	for _, n := range []int{2, 3, 7, 100} {
		b := made(t, n)
		seed := uint64(n)
		const each = 10_000
		count := map[*Endpoint]int{}
		for range n * each {
			count[b.Pick(&seed, new(Tried))]++
		}
		for e, got := range count {
			if math.Abs(float64(got-each)) > 5*math.Sqrt(each) {
				t.Errorf("%d endpoints: %v got %d of %d", n, e, got, each)
			}
		}
		if len(count) != n {
			t.Errorf("%d endpoints: %d were picked", n, len(count))
		}
	}
}

// TestPickEvensOutLoad: whoever falls behind is passed over until it caught up.
func TestPickEvensOutLoad(t *testing.T) {
	b := made(t, 10)
	seed := uint64(1)
	slow := b.Endpoints()[3]
	for range 50 {
		slow.Begin()
	}
	for range 400 {
		b.Pick(&seed, new(Tried)).Begin()
	}
	for _, e := range b.Endpoints() {
		if n := e.Stats().InFlight; n < 40 || n > 52 {
			t.Errorf("%v has %d in flight of 450 over 10", e, n)
		}
	}
	slow.End()
}

func TestPickPrefersAnotherThanTried(t *testing.T) {
	for _, n := range []int{2, 3, 20} {
		b := made(t, n)
		tried := b.Endpoints()[0]
		set := triedOf(tried)
		for seed := range uint64(1000) {
			if b.Pick(&seed, set) == tried {
				t.Fatalf("%d endpoints: the tried one was picked", n)
			}
		}
	}
	b := made(t, 1)
	var seed uint64
	if b.Pick(&seed, triedOf(b.Endpoints()[0])) == nil {
		t.Error("the only endpoint is not tried again")
	}
}

func TestPickPassesOverRefused(t *testing.T) {
	b := made(t, 5)
	list := b.Endpoints()
	soon := time.Now().Add(time.Hour).UnixNano()
	for _, e := range list[:4] {
		e.avoidUntil.Store(soon)
	}
	var seed uint64
	for range 1000 {
		if b.Pick(&seed, new(Tried)) != list[4] {
			t.Fatal("a refused endpoint was picked although another is fit")
		}
	}
	picked := map[*Endpoint]bool{}
	for range 1000 {
		picked[b.Pick(&seed, triedOf(list[4]))] = true
	}
	if len(picked) != 4 || picked[list[4]] {
		t.Errorf("all untried ones refused: %d were picked", len(picked))
	}
	list[0].avoidUntil.Store(time.Now().Add(-time.Nanosecond).UnixNano())
	if list[0].avoided() {
		t.Error("the endpoint is avoided for ever")
	}
}

func TestTerminatingEndpointsAreTheLastResort(t *testing.T) {
	_, b := newSet(t, Options{}, endpoint(address(1)), terminating(address(2)))
	for seed := range uint64(100) {
		if b.Pick(&seed, triedOf(b.Endpoints()[0])) != b.Endpoints()[0] {
			t.Fatal("a terminating endpoint was picked beside a ready one")
		}
	}
	apply(t, b.set, endpointsResource(key, terminating(address(1)), terminating(address(2))))
	picked := map[*Endpoint]bool{}
	for seed := range uint64(100) {
		picked[b.Pick(&seed, new(Tried))] = true
	}
	if len(picked) != 2 {
		t.Errorf("%d of 2 terminating endpoints were picked", len(picked))
	}
}

func TestPickAllocatesNothing(t *testing.T) {
	b := made(t, 5)
	var seed uint64
	if n := testing.AllocsPerRun(1000, func() {
		e := b.Pick(&seed, new(Tried))
		e.Begin()
		e.End()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPick(b *testing.B) {
	backend := made(b, 10)
	var seed uint64
	b.ReportAllocs()
	for b.Loop() {
		e := backend.Pick(&seed, new(Tried))
		e.Begin()
		e.End()
	}
}

func triedOf(list ...*Endpoint) *Tried {
	t := new(Tried)
	for _, e := range list {
		t.Add(e)
	}
	return t
}

// TestPickGoesThroughAll: each endpoint is picked once before one is picked again, as far as the set remembers.
func TestPickGoesThroughAll(t *testing.T) {
	for _, n := range []int{1, 2, 5, maxTried} {
		b := made(t, n)
		for seed := range uint64(200) {
			var tried Tried
			for i := range n {
				if !b.HasOther(&tried) {
					t.Fatalf("%d of %d endpoints tried, and no other is there", i, n)
				}
				e := b.Pick(&seed, &tried)
				if tried.Has(e) {
					t.Fatalf("%d endpoints: one was picked twice among the first %d", n, i+1)
				}
				tried.Add(e)
				tried.Add(e) // as one
			}
			if b.HasOther(&tried) || b.Pick(&seed, &tried) == nil {
				t.Fatalf("%d endpoints, all tried: none must be left, and one picked", n)
			}
		}
	}
}

func TestTriedRemembersTheLast(t *testing.T) {
	b := made(t, maxTried+3)
	list := b.Endpoints()
	tried := triedOf(list...)
	for i, e := range list {
		if tried.Has(e) != (i >= 3) {
			t.Errorf("endpoint %d of %d: %v", i, len(list), tried.Has(e))
		}
	}
}
