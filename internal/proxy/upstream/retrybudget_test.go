package upstream

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

func budgetOf(percent uint32, interval time.Duration, least uint32, leastFor time.Duration) *config.RetryBudget {
	return &config.RetryBudget{Percent: percent, IntervalNanos: int64(interval), MinRetries: least, MinIntervalNanos: int64(leastFor)}
}

func newBudget(t testing.TB, c *config.RetryBudget) *RetryBudget {
	t.Helper()
	s, err := parseRetryBudget(&config.Backend{RetryBudget: c})
	if err != nil {
		t.Fatal(err)
	}
	b := &RetryBudget{}
	b.set(s)
	return b
}

// storm has requests fail, each of which wants 3 retries, and returns how many retries there were.
func (b *RetryBudget) storm(from time.Duration, requests int, rate float64) (retries int) {
	for i := range requests {
		at := int64(from) + int64(float64(i)/rate*1e9)
		b.requests.add(at)
		for range 3 {
			if !b.retry(at) {
				break
			}
			retries++
		}
	}
	return retries
}

// TestRetryBudget counts retries in a time of its own.
func TestRetryBudget(t *testing.T) {
	const minute = 60
	for name, tc := range map[string]struct {
		budget      *config.RetryBudget
		rate        float64 // requests a second, for a minute
		least, most float64 // retries
	}{
		"a storm":                        {budgetOf(20, 10*time.Second, 10, time.Second), 2000, 0.19 * 2000 * minute, 0.20*2000*minute + 10},
		"no budget leaves the minimum":   {budgetOf(0, 10*time.Second, 10, time.Second), 2000, 9 * minute, 11 * minute},
		"few requests have the minimum":  {budgetOf(20, 10*time.Second, 10, time.Second), 2, 3 * 2 * minute, 3 * 2 * minute},
		"more than the minimum a second": {budgetOf(20, 10*time.Second, 10, time.Second), 30, 9 * minute, 11 * minute},
		"all may be tried again once":    {budgetOf(100, time.Second, 1, time.Hour), 100, 0.95 * 100 * minute, 100*minute + 1},
		"a long interval":                {budgetOf(50, time.Hour, 1, time.Hour), 100, 0.49 * 100 * minute, 0.5*100*minute + 1},
		"a minimum in a millisecond":     {budgetOf(0, time.Second, 1, time.Millisecond), 100, 100 * minute, 3 * 100 * minute},
	} {
		t.Run(name, func(t *testing.T) {
			got := float64(newBudget(t, tc.budget).storm(time.Hour, int(tc.rate*minute), tc.rate))
			if got < tc.least || got > tc.most {
				t.Errorf("%v retries of %v requests, want %v to %v", got, tc.rate*minute, tc.least, tc.most)
			}
		})
	}
}

// TestRetryBudgetRecovers: what was counted is forgotten within an interval, and not before.
func TestRetryBudgetRecovers(t *testing.T) {
	b := newBudget(t, budgetOf(20, 10*time.Second, 1, time.Hour))
	b.storm(0, 1000, 1000)
	at := int64(time.Second)
	if b.retry(at) {
		t.Fatal("a retry beyond the budget")
	}
	// Requests that succeed make room for retries, while those that failed are counted still.
	for i := range 500 {
		b.requests.add(at + int64(i))
	}
	allowed := 0
	for b.retry(at + 500) {
		allowed++
	}
	if allowed < 99 || allowed > 101 {
		t.Errorf("%d retries for 500 more requests, want a fifth", allowed)
	}
	at = int64(12 * time.Second)
	if n := b.requests.sum(at); n != 0 {
		t.Errorf("%d requests are counted after an interval", n)
	}
	for range 10 {
		b.requests.add(at)
	}
	allowed = 0
	for b.retry(at) {
		allowed++
	}
	if allowed != 2 {
		t.Errorf("%d retries for 10 requests after an interval, want 2", allowed)
	}
}

// TestRetryBudgetChanges: other settings are in force at once, and what was counted over the same interval stays.
func TestRetryBudgetChanges(t *testing.T) {
	b := newBudget(t, budgetOf(10, 10*time.Second, 1, time.Hour))
	b.storm(time.Second, 100, 1000)
	at := int64(2 * time.Second)
	if b.retry(at) {
		t.Fatal("a retry beyond the budget")
	}
	set := func(c *config.RetryBudget) {
		s, err := parseRetryBudget(&config.Backend{RetryBudget: c})
		if err != nil {
			t.Fatal(err)
		}
		b.set(s)
	}
	set(budgetOf(12, 10*time.Second, 1, time.Hour))
	if !b.retry(at) {
		t.Error("the higher percentage is not in force")
	}
	for _, interval := range []time.Duration{time.Second, time.Hour, time.Second} { // parts of other lengths have other numbers
		set(budgetOf(12, interval, 1, time.Hour))
		if n := b.requests.sum(at) + b.retries.sum(at); n != 0 {
			t.Errorf("%d are counted over another interval than now", n)
		}
		b.requests.add(at)
		if n := b.requests.sum(at); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	}
}

// TestRetryBudgetTogether: requests that fail at the same moment get no more retries than one after the other.
func TestRetryBudgetTogether(t *testing.T) {
	b := newBudget(t, budgetOf(20, time.Hour, 1, time.Hour))
	const clients, each = 8, 5000
	var all sync.WaitGroup
	retries := make([]int, clients)
	for i := range clients {
		all.Go(func() {
			for range each {
				b.Request()
				for b.Retry() {
					retries[i]++
				}
			}
		})
	}
	all.Wait()
	sum := 0
	for _, n := range retries {
		sum += n
	}
	if want := clients * each / 5; sum < want || sum > want+1 {
		t.Errorf("%d retries of %d requests, want %d", sum, clients*each, want)
	}
	if n := testing.AllocsPerRun(100, func() { b.Request(); b.Retry() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRetryBudgetOfService: the ports of a Service share a budget, as long as any of them has it.
func TestRetryBudgetOfService(t *testing.T) {
	s := NewSet(Options{})
	defer s.Close()
	of := func(key, name string, budget *config.RetryBudget) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Namespace: "ns", Name: name, Port: 80, RetryBudget: budget}}}
	}
	apply := func(upserts []*config.Resource, removals ...config.ID) {
		t.Helper()
		if err := s.Apply(upserts, removals); err != nil {
			t.Fatal(err)
		}
	}
	budget := budgetOf(20, 10*time.Second, 10, time.Second)
	apply([]*config.Resource{of("a/80", "a", budget), of("a/81", "a", budget), of("b/80", "b", budget), of("c/80", "c", nil)})
	a80, a81, b80 := s.Get("a/80"), s.Get("a/81"), s.Get("b/80")
	shared := a80.RetryBudget()
	if shared == nil || a81.RetryBudget() != shared || b80.RetryBudget() == shared || b80.RetryBudget() == nil || s.Get("c/80").RetryBudget() != nil {
		t.Fatal("the ports of a Service, and no others, share a budget")
	}
	apply([]*config.Resource{of("a/80", "a", budgetOf(30, 10*time.Second, 10, time.Second)), of("a/81", "a", budgetOf(30, 10*time.Second, 10, time.Second))})
	if a80.RetryBudget() != shared || a81.RetryBudget() != shared || shared.settings.percent != 30 {
		t.Error("what was counted is lost with a change of the percentage")
	}
	apply([]*config.Resource{of("a/80", "a", nil)})
	if a80.RetryBudget() != nil || a81.RetryBudget() != shared {
		t.Error("a port has a budget after it was taken away, or the other has none")
	}
	apply(nil, config.ID{Kind: config.KindBackend, Key: "a/81"}, config.ID{Kind: config.KindBackend, Key: "b/80"})
	if len(s.budgets) != 0 {
		t.Errorf("%d budgets are left", len(s.budgets))
	}
	for _, wrong := range []*config.RetryBudget{budgetOf(101, time.Second, 1, time.Second), budgetOf(1, time.Millisecond, 1, time.Second), budgetOf(1, 2*time.Hour, 1, time.Second),
		budgetOf(1, time.Second, 1, 0), budgetOf(1, time.Second, 1, 2*time.Hour)} {
		if err := s.Apply([]*config.Resource{of("d/80", "d", wrong)}, nil); err == nil || !strings.Contains(err.Error(), "d/80") {
			t.Errorf("%v: error %v", wrong, err)
		}
	}
}

func BenchmarkRetryBudgetRequest(b *testing.B) {
	budget := newBudget(b, budgetOf(20, 10*time.Second, 10, time.Second))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			budget.Request()
		}
	})
}
