package proxy

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// budgeted has requests to the backend of serve be retried 3 times, as far as the budget allows.
func (g *gateway) budgeted(addr string, budget *config.RetryBudget, change func(*config.Rule)) {
	g.t.Helper()
	b := backend("Service/default/b/80", addr)
	b[0].GetBackend().Namespace, b[0].GetBackend().Name, b[0].GetBackend().RetryBudget = "default", "b", budget
	rule := &config.Rule{
		Matches:     []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
		BackendRefs: []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}},
		Retry:       &config.Retry{Attempts: 3, Codes: []uint32{500}, BackoffNanos: 1},
	}
	if change != nil {
		change(rule)
	}
	g.apply(append(b, g.httpListener("http", ""), routeOf("r", "default/gw/http", "", rule)))
}

// least allows one retry an hour.
var least = &config.RetryBudget{IntervalNanos: int64(time.Hour), MinRetries: 1, MinIntervalNanos: int64(time.Hour)}

// TestRetryBudgetExhausted: beyond the budget nothing is sent again, and the client is answered 503, however the attempt failed.
func TestRetryBudgetExhausted(t *testing.T) {
	t.Parallel()
	nobody := listenLocally(t).Addr().String()
	for name, tc := range map[string]struct {
		addr string
		h    http.HandlerFunc
		rule func(*config.Rule)
	}{
		"status":   {h: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }},
		"long":     {h: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); w.Write(make([]byte, 1<<20)) }},
		"reset":    {h: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"timeout":  {h: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, rule: func(r *config.Rule) { r.BackendRequestTimeoutNanos = int64(20 * time.Millisecond) }},
		"connect":  {addr: refusedAddr(t)},
		"no reply": {addr: nobody, rule: func(r *config.Rule) { r.BackendRequestTimeoutNanos = int64(20 * time.Millisecond) }},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			addr := tc.addr
			if tc.h != nil {
				addr = httpBackend(t, tc.h)
			}
			g.budgeted(addr, least, tc.rule)
			for i, want := range []int64{2, 3} {
				if status, err := get(g.dial()); status != 503 || err != nil {
					t.Errorf("request %d: got %d, %v", i, status, err)
				}
				if r := g.reasonsLogged(i + 1); r[i] != "retry_budget_exhausted" {
					t.Errorf("request %d: logged %q", i, r[i])
				}
				if n := g.retries(); n != 1 {
					t.Errorf("%d retries after %d requests with %d attempts, want 1", n, i+1, want)
				}
			}
		})
	}
}

// retries is how often requests to the backend of serve were sent again.
func (g *gateway) retries() int64 {
	return g.upstreams.Get("Service/default/b/80").Stats().Retries
}

// TestRetryBudgetStorm: however many clients ask at the same time, a backend that fails always gets no more than the budget's share of retries and the minimum rate;
// when it is well again, so are its clients, and an interval later requests can be sent again as before.
func TestRetryBudgetStorm(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	var attempts, failing atomic.Int64
	failing.Store(1 << 40)
	addr := httpBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		attempts.Add(1)
		if failing.Add(-1) >= 0 {
			w.WriteHeader(500)
		}
	})
	const clients, each, rate = 8, 500, 10
	interval := time.Second
	g.budgeted(addr, &config.RetryBudget{Percent: 20, IntervalNanos: int64(interval), MinRetries: rate, MinIntervalNanos: int64(time.Second)}, nil)
	ask := func(want int) (answered int64) {
		var all sync.WaitGroup
		var n atomic.Int64
		for range clients {
			all.Go(func() {
				c := &http.Client{Transport: &http.Transport{}}
				defer c.CloseIdleConnections()
				for range each {
					resp, err := c.Get("http://" + g.addr())
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
					if resp.StatusCode == want {
						n.Add(1)
					}
				}
			})
		}
		all.Wait()
		return n.Load()
	}
	const requests = clients * each
	start := time.Now()
	refused := ask(503)
	floor := rate * (time.Since(start).Seconds() + 1)
	if n := float64(attempts.Load()); n < 1.15*requests || n > 1.25*requests+floor {
		t.Errorf("%v attempts for %d requests in %s", n, requests, time.Since(start))
	}
	// Who is given three retries gets the backend's own answer.
	if float64(refused) < requests-0.25*requests/3-floor/3 {
		t.Errorf("%d of %d requests were answered 503", refused, requests)
	}
	failing.Store(0)
	if n := ask(200); n != requests {
		t.Errorf("%d of %d requests succeeded after the backend did", n, requests)
	}
	testkit.Eventually(t, "a request that is tried again three times", func() bool {
		failing.Store(3)
		status, err := get(g.dial())
		return status == 200 && err == nil
	})
}

// TestRetryBudgetCountsEveryRule: requests by a rule without retry make room for retries, too.
func TestRetryBudgetCountsEveryRule(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	budget := &config.RetryBudget{Percent: 50, IntervalNanos: int64(time.Hour), MinIntervalNanos: int64(time.Hour)}
	addr := httpBackend(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	g.budgeted(addr, budget, func(r *config.Rule) { r.Retry = nil })
	for range 5 {
		if status, err := get(g.dial()); status != 500 || err != nil {
			t.Fatalf("got %d, %v", status, err)
		}
	}
	g.budgeted(addr, budget, nil)
	if status, err := get(g.dial()); status != 500 || err != nil { // three retries, as six requests allow
		t.Errorf("got %d, %v", status, err)
	}
	if status, err := get(g.dial()); status != 503 || err != nil || g.retries() != 3 {
		t.Errorf("got %d, %v, %d retries", status, err, g.retries())
	}
}
