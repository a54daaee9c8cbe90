package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// limited gives a rule local limits, of an hour where they say nothing else.
func limited(limits ...*config.RateLimit) func(*config.Rule) {
	for i, l := range limits {
		l.Name = fmt.Sprintf("default/p/rule/%d", i)
		if l.PeriodSeconds == 0 {
			l.PeriodSeconds = 3600
		}
	}
	return func(r *config.Rule) { r.Traffic = &config.RuleTraffic{RateLimits: &config.RateLimits{Local: limits}} }
}

func eachOf(header string) []*config.RateLimitValue {
	return []*config.RateLimitValue{{Name: header, Type: config.RateLimitMatch_RATE_LIMIT_MATCH_DISTINCT}}
}

// TestRateLimitBurst: of a burst of requests by both protocols as many are answered by the backend as the limit says, and the others 429, of each value.
func TestRateLimitBurst(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var seen atomic.Int64
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(http.ResponseWriter, *http.Request) { seen.Add(1) }),
		limited(&config.RateLimit{Requests: 50, RequestCost: 1, HeaderFields: eachOf("x-user")}))
	var ok, refused atomic.Int64
	var clients sync.WaitGroup
	for i := range 12 {
		user := fmt.Sprint(i % 3)
		transport := http.RoundTripper(&http.Transport{DisableKeepAlives: i%4 == 0})
		if i%2 == 0 {
			transport = g.http2Client("")
		}
		clients.Go(func() {
			for range 30 {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+g.addr()+"/", nil)
				req.Header.Set("X-User", user)
				resp, err := transport.RoundTrip(req)
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				switch resp.StatusCode {
				case 200:
					ok.Add(1)
				case 429:
					refused.Add(1)
				default:
					t.Errorf("answered %d", resp.StatusCode)
				}
			}
			if tr, is := transport.(*http.Transport); is {
				tr.CloseIdleConnections()
			}
		})
	}
	clients.Wait()
	if ok.Load() != 150 || refused.Load() != 210 || seen.Load() != 150 {
		t.Errorf("%d requests passed and %d were refused, of which the backend has seen %d; want 150, 210 and 150", ok.Load(), refused.Load(), seen.Load())
	}
	if n := g.counted("moongate_rate_limit_over_limit_total", "mode", "enforced"); n != 210 {
		t.Errorf("%v requests are counted over the limit", n)
	}
}

// TestRateLimited: what a response says of the limit, the access log of the request, and that a filter may take the fields out.
func TestRateLimited(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	limits := limited(&config.RateLimit{Requests: 2, PeriodSeconds: 60, RequestCost: 1, Headers: true})
	g.serve(httpBackend(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-RateLimit-Limit", "the backend's") }), func(r *config.Rule) {
		limits(r)
		r.Filters = append(r.Filters, filterOf(t, &config.ResponseHeaderModifier{Set: fields("X-Seen=1")}))
	})
	a := g.asking()
	for i, want := range []struct{ status, limit, remaining, reset, limited string }{
		{"200 OK", "2, 2;w=60", "1", "30", ""},
		{"200 OK", "2, 2;w=60", "0", "60", ""},
		{"429 Too Many Requests", "2, 2;w=60", "0", "60", "true"},
	} {
		resp, body := a.ask("/", "")
		h := resp.Header
		if resp.Status != want.status || h.Get("X-Ratelimit-Limit") != want.limit || h.Get("X-Ratelimit-Remaining") != want.remaining || h.Get("X-Envoy-Ratelimited") != want.limited || h.Get("X-Seen") != "1" {
			t.Errorf("request %d: %s, %v", i, resp.Status, h)
		}
		// A machine that is busy may take some of the time.
		if reset := h.Get("X-Ratelimit-Reset"); reset > want.reset || len(reset) != 2 {
			t.Errorf("request %d: all are left in %s s, want %s at most", i, reset, want.reset)
		}
		if i == 2 && body != "moongate: 429 rate_limited\n" {
			t.Errorf("the body is %q", body)
		}
	}
	if r := g.reasonsLogged(3); r[2] != "rate_limited" {
		t.Errorf("logged %q", r)
	}
}

// TestRateLimitPaths: conditions see path and query as the rule was found by them, and the header as the rule's filters have left it.
func TestRateLimitPaths(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	limits := limited(&config.RateLimit{Requests: 1, RequestCost: 1, Paths: []*config.RateLimitPath{{Path: &config.RateLimitPath_Prefix{Prefix: "/old"}}},
		QueryParams: []*config.RateLimitValue{{Name: "id", Value: "7"}}, HeaderFields: []*config.RateLimitValue{{Name: "x-set", Value: "by the gateway"}}})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) }), func(r *config.Rule) {
		limits(r)
		r.Filters = append(r.Filters,
			filterOf(t, &config.UrlRewrite{Path: &config.PathModifier{Kind: &config.PathModifier_ReplaceFullPath{ReplaceFullPath: "/new"}}}),
			filterOf(t, &config.RequestHeaderModifier{Set: fields("X-Set=by the gateway")}))
	})
	a := g.asking()
	for i, c := range []struct {
		target string
		status int
	}{{"/old?id=7", 200}, {"/new?id=7", 200}, {"/old?id=8", 200}, {"/old/a?id=7", 429}} {
		if resp, body := a.ask(c.target, "X-Set: by the client\r\n"); resp.StatusCode != c.status || c.status == 200 && body != "/new" {
			t.Errorf("request %d is answered %d, %q", i, resp.StatusCode, body)
		}
	}
}

// TestRateLimitEdit: an edit of the rule does not begin anew, nor one of the policy that leaves the limit as it is; in shadow mode all pass.
func TestRateLimitEdit(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	addr := httpBackend(t, func(http.ResponseWriter, *http.Request) {})
	limit := func() *config.RateLimit { return &config.RateLimit{Requests: 2, RequestCost: 1} }
	g.serve(addr, limited(limit()))
	a := g.asking()
	status := func(want int) {
		t.Helper()
		if resp, _ := a.ask("/", ""); resp.StatusCode != want {
			t.Errorf("answered %d, want %d", resp.StatusCode, want)
		}
	}
	status(200)
	status(200)
	status(429)
	edited := limited(limit())
	g.serve(addr, func(r *config.Rule) {
		edited(r)
		r.RequestTimeoutNanos = 5e9
	})
	status(429)
	shadow := limit()
	shadow.Shadow = true
	g.serve(addr, limited(shadow))
	status(200)
	if n := g.counted("moongate_rate_limit_over_limit_total", "mode", "shadow"); n != 1 {
		t.Errorf("%v requests are counted over the limit in shadow mode", n)
	}
	g.serve(addr, limited(limit()))
	status(429)
	g.serve(addr, nil)
	status(200)
	g.serve(addr, limited(limit()))
	status(200)
}

// TestRateLimitGRPC: a call over the limit is unavailable.
func TestRateLimitGRPC(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	cc := g.grpcPair()
	rule := &config.Rule{Matches: []*config.Match{{}}, BackendRefs: []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}}}
	limited(&config.RateLimit{Requests: 0, RequestCost: 1})(rule)
	g.apply([]*config.Resource{routeOf("r", "default/gw/http", "", rule)})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	err := cc.Invoke(ctx, "/test.Echo/Echo", wrapperspb.Bytes(nil), &wrapperspb.BytesValue{})
	if s := status.Convert(err); s.Code() != codes.Unavailable || !strings.Contains(s.Message(), "rate_limited") {
		t.Error(err)
	}
}

// TestRateLimitBodies: a request that does not pass is not read, and the client hears of it at once, also where it waits to be told to go on.
func TestRateLimitBodies(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(http.ResponseWriter, *http.Request) { t.Error("the backend is asked") }), limited(&config.RateLimit{RequestCost: 1}))
	for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
		c := g.dial()
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n%s\r\n", expect)
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 429 || !resp.Close {
			t.Errorf("%q: %v, %v", expect, resp, err)
		}
		c.(*net.TCPConn).CloseWrite()
	}
}
