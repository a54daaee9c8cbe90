package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

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

// TestRetryBudgetOfRefused: what a backend has refused by HTTP/2 is sent again as the budget allows, where the rule has a retry.
func TestRetryBudgetOfRefused(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	var streams atomic.Int64
	g.budgeted(frameBackend(t, nil, func(_ int, f *framePeer) {
		f.serve(func(stream uint32) bool {
			streams.Add(1)
			f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
			return false
		}, nil)
	}), least, nil)
	b := h2c("Service/default/b/80")
	b.GetBackend().Namespace, b.GetBackend().Name, b.GetBackend().RetryBudget = "default", "b", least
	g.apply([]*config.Resource{b})
	for i, sent := range []int64{2, 3} {
		if status, err := get(g.dial()); status != 503 || err != nil || streams.Load() != sent {
			t.Errorf("request %d: got %d, %v, and %d streams were opened, want %d", i, status, err, streams.Load(), sent)
		}
		if r := g.reasonsLogged(i + 1); r[i] != "retry_budget_exhausted" {
			t.Errorf("request %d: logged %q", i, r[i])
		}
	}
}

// retries is how often requests to the backend of serve were sent again.
func (g *gateway) retries() int64 {
	return g.upstreams.Get("Service/default/b/80").Stats().Retries
}

// paced asks at a rate, from the connections of many clients, for so long. A client that is answered late makes up for it: the requests of a second are sent, if late.
func (g *gateway) paced(perSecond int, length time.Duration) (statuses map[int]int) {
	const clients = 64
	requests := int(int64(perSecond) * int64(length) / int64(time.Second))
	var counts [600]atomic.Int64
	var next atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range clients {
		c := g.dial()
		all.Go(func() {
			r := bufio.NewReader(c)
			for {
				i := int(next.Add(1)) - 1
				if i >= requests {
					return
				}
				time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
				c.SetDeadline(time.Now().Add(testkit.Patience))
				if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
					g.t.Error(err)
					return
				}
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					g.t.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				counts[resp.StatusCode].Add(1)
			}
		})
	}
	all.Wait()
	statuses = map[int]int{}
	for status := range counts {
		if n := counts[status].Load(); n > 0 {
			statuses[status] = int(n)
		}
	}
	return statuses
}

// TestRetryBudgetStorm: a backend that fails always, at 2,000 requests each second for two intervals, gets no more than the budget's share of retries and the
// minimum rate, and who would have more is answered 503. When it is well again, so are its clients at once, and an interval later requests can be sent again as
// before. With -long the interval is that of the specification, 10 s.
func TestRetryBudgetStorm(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	var attempts, failing atomic.Int64
	failing.Store(1 << 40)
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			attempts.Add(1)
			status := "200 OK"
			if failing.Add(-1) >= 0 {
				status = "500 Internal Server Error"
			}
			io.WriteString(c, "HTTP/1.1 "+status+"\r\nContent-Length: 0\r\n\r\n")
		}
	})
	const perSecond, least = 2000, 10
	interval := time.Second
	if *long {
		interval *= 10
	}
	g.budgeted(addr, &config.RetryBudget{Percent: 20, IntervalNanos: int64(interval), MinRetries: least, MinIntervalNanos: int64(time.Second)}, nil)
	start := time.Now()
	answered := g.paced(perSecond, 2*interval)
	took := time.Since(start)
	requests := float64(perSecond * 2 * interval / time.Second)
	floor := least * (took.Seconds() + 1)
	n := float64(attempts.Load())
	t.Logf("%v requests in %s, the backend failing: %v attempts, %.3f each; answered %v", requests, took.Round(time.Millisecond), n, n/requests, answered)
	if n < 1.15*requests || n > 1.25*requests+floor {
		t.Errorf("%v attempts for %v requests", n, requests)
	}
	// Who is given three retries gets the backend's own answer.
	if refused := float64(answered[503]); answered[503]+answered[500] != int(requests) || refused < requests-0.25*requests/3-floor/3 {
		t.Errorf("%v requests were answered %v", requests, answered)
	}

	failing.Store(0)
	recovered := time.Now()
	if answered := g.paced(perSecond, interval); answered[200] != int(requests/2) {
		t.Errorf("the backend is well, and %v requests were answered %v", requests/2, answered)
	}
	if passed := time.Since(recovered); passed < interval {
		time.Sleep(interval - passed)
	}
	failing.Store(3)
	if status, err := get(g.dial()); status != 200 || err != nil {
		t.Errorf("an interval after the storm three retries were not sent: %d, %v", status, err)
	}
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
