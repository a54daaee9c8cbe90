package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// withTracing has a rule say how its requests are traced.
func withTracing(c *config.RuleTracing) func(*config.Rule) {
	return func(r *config.Rule) {
		r.Traffic = &config.RuleTraffic{Policy: "BackendTrafficPolicy default/p", Tracing: c}
	}
}

// TestTracingOfRule: by each protocol the rule of a request says whether it is recorded, and how; its backend and the access log are told so.
func TestTracingOfRule(t *testing.T) {
	t.Parallel()
	c, addr := serveCollector(t)
	g := startGateway(t, Timeouts{})
	var told atomic.Pointer[string]
	behind := httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		s := strings.Join(r.Header["Traceparent"], ",")
		told.Store(&s)
		w.Header().Set("X-Answer", "42")
		io.WriteString(w, "ok")
	})
	none, all := &config.Share{Numerator: 0, Denominator: 100}, &config.Share{Numerator: 1, Denominator: 1}
	text := func(s string) []*config.TraceText {
		parts, err := config.ParseTraceText(s)
		if err != nil {
			t.Fatal(err)
		}
		return parts
	}
	clients := map[string]*http.Client{"1": {}, "2": clientOfHTTP2()}
	recorded := 0
	for i, tc := range []struct {
		listener *config.Tracing
		rule     *config.RuleTracing
		recorded bool
	}{
		{&config.Tracing{Sampling: all}, &config.RuleTracing{Sampling: none}, false},
		{&config.Tracing{Sampling: none}, &config.RuleTracing{Sampling: all}, true},
		{&config.Tracing{Sampling: none}, nil, false},
		{&config.Tracing{Sampling: all}, nil, true},
	} {
		if tc.rule != nil {
			tc.rule.SpanName = text("%REQ(:METHOD)% of rule %RESPONSE_CODE%")
			tc.rule.Tags = []*config.TraceTag{{Name: "user", Value: text("%REQ(X-User)%")}, {Name: "answer", Value: text("%RESP(X-Answer)%")}, {Name: "peer", Value: text("%UPSTREAM_HOST%")}}
		}
		filter, err := anypb.New(&config.RequestHeaderModifier{Set: []*config.HeaderField{{Name: "X-User", Value: "of a filter"}}})
		if err != nil {
			t.Fatal(err)
		}
		g.serve(behind, func(r *config.Rule) {
			withTracing(tc.rule)(r)
			r.Filters = []*anypb.Any{filter}
		})
		g.traced(addr, tc.listener)
		for protocol, client := range clients {
			path := fmt.Sprintf("/%d/%s", i, protocol)
			r, err := http.NewRequest("GET", "http://"+g.addr()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-User", "alice")
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			flags := (*told.Load())[53:]
			if want := map[bool]string{true: "01", false: "00"}[tc.recorded]; flags != want {
				t.Errorf("%s: the backend was told %s, want flags %s", path, *told.Load(), want)
			}
			if !tc.recorded {
				continue
			}
			recorded++
			span := c.span(t, path)
			if (span.Name == "GET of rule 200") != (tc.rule != nil) || fmt.Sprintf("%x", span.SpanId) != (*told.Load())[36:52] {
				t.Errorf("%s: span %x %q, the backend was told %s", path, span.SpanId, span.Name, *told.Load())
			}
			for key, value := range map[string]string{"user": "alice", "answer": "42", "peer": behind} {
				if tc.rule == nil {
					value = ""
				}
				if got := attributeOf(span.Attributes, key); got != value {
					t.Errorf("%s: %s is %q, want %q", path, key, got, value)
				}
			}
			if agent := attributeOf(span.Attributes, "user_agent.original"); agent == "" {
				t.Errorf("%s: there is no user agent", path)
			}
		}
	}
	for _, client := range clients {
		client.CloseIdleConnections()
	}
	if err := g.Shutdown(t.Context()); err != nil { // has what waits be sent
		t.Fatal(err)
	}
	if n := len(c.paths()); n != recorded || strings.Count(g.log.String(), `"trace_id":"`) != recorded {
		t.Errorf("%d spans, want %d; the log says %s", n, recorded, g.log)
	}
}

// TestTracingOfRuleWithoutProvider: where the listener traces nothing, a rule does not either, and traceparent is passed on as it is.
func TestTracingOfRuleWithoutProvider(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	var told atomic.Pointer[string]
	g.serve(httpBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		s := strings.Join(r.Header["Traceparent"], ",")
		told.Store(&s)
	}), withTracing(&config.RuleTracing{Sampling: &config.Share{Numerator: 1, Denominator: 1}, ClientSampling: &config.Share{Numerator: 0, Denominator: 1}}))
	for _, parent := range []string{"", "00-" + clientTrace + "-" + clientSpan + "-01"} {
		header := http.Header{}
		if parent != "" {
			header.Set("Traceparent", parent)
		}
		if resp, _ := g.request(t, "GET", "/", header, nil); resp.StatusCode != 200 || *told.Load() != parent {
			t.Errorf("%s, told %q, want %q", resp.Status, *told.Load(), parent)
		}
	}
}

// TestRouteStatName: requests are counted by the name that the policy gives to their rule.
func TestRouteStatName(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(http.ResponseWriter, *http.Request) {}), func(r *config.Rule) {
		r.Traffic = &config.RuleTraffic{RouteStatName: "orders"}
	})
	for range 3 {
		g.request(t, "GET", "/", nil, nil)
	}
	testkit.Eventually(t, "three requests are counted", func() bool {
		return g.counted("moongate_route_stat_requests_total", "stat", "orders", "code", "200", "listener", "http") == 3
	})
}
