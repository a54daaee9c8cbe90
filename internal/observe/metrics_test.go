package observe

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// clock is the time that a test says it is.
type clock struct{ t time.Time }

func testMetrics(o MetricsOptions) (*Metrics, *clock) {
	c := &clock{time.Unix(1_800_000_000, 0)}
	m := NewMetrics(o)
	m.now = func() time.Time { return c.t }
	return m, c
}

// series gathers one family: "label=value,..." without empty values -> value, or count of a histogram.
func series(t *testing.T, m *Metrics, name string) map[string]float64 {
	t.Helper()
	out := make(map[string]float64)
	for _, f := range gather(t, m) {
		if f.GetName() != name {
			continue
		}
		for _, s := range f.GetMetric() {
			var labels []string
			for _, l := range s.GetLabel() {
				if l.GetValue() != "" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			v := s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
			out[strings.Join(labels, ",")] = v
		}
	}
	return out
}

func gather(t *testing.T, m *Metrics) []*dto.MetricFamily {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func want(t *testing.T, m *Metrics, name string, want map[string]float64) {
	t.Helper()
	if got := series(t, m, name); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s\n got %v\nwant %v", name, got, want)
	}
}

func finish(m *Metrics, r *Record) { (&Observer{Metrics: m}).Finish(r) }

func TestRequestsAreCountedWhereTheyBelong(t *testing.T) {
	m, _ := testMetrics(MetricsOptions{})
	rule := m.Rule(RuleLabels{Gateway: "a/g", Listener: "http", Route: "HTTPRoute/a/r", Rule: "0", Backends: []string{"Service/a/x/80", "", "Service/a/y/80"}})
	listener := m.Listener(ListenerLabels{Gateway: "a/g", Listener: "http", Port: 80})
	socket := m.Socket(SocketLabels{Port: 80})
	for _, r := range []Record{
		{Stats: rule, Backend: 1, Status: 200, Reason: ReasonOK},
		{Stats: rule, Backend: 1, Status: 200, Reason: ReasonOK},
		{Stats: rule, Backend: 2, Status: 500, Reason: ReasonBackendInvalid},
		{Stats: rule, Backend: 3, Status: 502, Reason: ReasonConnectFailed},
		{Stats: rule, Backend: 4, Status: 302, Reason: ReasonRedirect},
		{Stats: rule, Backend: -1, Status: 0, Reason: ReasonClientClosed},
		{Stats: listener.Unrouted(), Status: 404, Reason: ReasonRouteNotFound},
		{Stats: socket.Unrouted(), Status: 400, Reason: ReasonBadRequest},
		{Status: 7, Reason: Reason(200)},
	} {
		finish(m, &r)
	}
	of := "gateway=a/g,listener=http,reason=%s,route=HTTPRoute/a/r,rule=0"
	want(t, m, "moongate_requests_total", map[string]float64{
		"backend=Service/a/x/80,code=200," + fmt.Sprintf(of, "ok"):             2,
		"backend=Service/a/y/80,code=502," + fmt.Sprintf(of, "connect_failed"): 1,
		"code=500," + fmt.Sprintf(of, "backend_invalid"):                       1,
		"code=302," + fmt.Sprintf(of, "redirect"):                              1,
		"code=0," + fmt.Sprintf(of, "client_closed"):                           1,
		"code=404,gateway=a/g,listener=http,reason=route_not_found":            1,
		"code=400,reason=bad_request":                                          1,
		"code=0,reason=internal":                                               1,
	})
}

// TestRouteStats: rules of one listener that have the same stat name are counted together, beside their own series, and the names end with their rules.
func TestRouteStats(t *testing.T) {
	m, c := testMetrics(MetricsOptions{MaxRules: 3, Grace: time.Minute})
	rule := func(route, stat string) *RuleStats {
		return m.Rule(RuleLabels{Gateway: "a/g", Listener: "http", Route: route, Rule: "0", StatName: stat})
	}
	first, second, plain, beyond := rule("HTTPRoute/a/r", "orders"), rule("HTTPRoute/a/s", "orders"), rule("HTTPRoute/a/t", ""), rule("HTTPRoute/a/u", "users")
	for i, s := range []*RuleStats{first, second, second, plain, beyond} { // the last has no series of its own but that of its stat name
		finish(m, &Record{Stats: s, Status: 200 + 300*(i%2), Reason: ReasonOK, DurationNano: 1})
	}
	requests := map[string]float64{
		"code=200,gateway=a/g,listener=http,reason=ok,stat=orders": 2,
		"code=500,gateway=a/g,listener=http,reason=ok,stat=orders": 1,
		"code=200,gateway=a/g,listener=http,reason=ok,stat=users":  1,
	}
	want(t, m, "moongate_route_stat_requests_total", requests)
	want(t, m, "moongate_route_stat_request_duration_seconds", map[string]float64{"gateway=a/g,listener=http,stat=orders": 3, "gateway=a/g,listener=http,stat=users": 1})
	if own := series(t, m, "moongate_requests_total")["code=500,gateway=a/g,listener=http,reason=ok,route=HTTPRoute/a/s,rule=0"]; own != 1 {
		t.Errorf("%v of the rule itself, want 1", own)
	}
	last := rule("HTTPRoute/a/v", "third") // of the bound
	over := rule("HTTPRoute/a/w", "fourth")
	finish(m, &Record{Stats: over, Status: 404, Reason: ReasonOK})
	requests["code=404,gateway=(other),listener=(other),reason=ok,stat=(other)"] = 1
	want(t, m, "moongate_route_stat_requests_total", requests)
	for _, s := range []*RuleStats{first, beyond, last, over} {
		s.Release()
	}
	c.t = c.t.Add(time.Minute)
	delete(requests, "code=200,gateway=a/g,listener=http,reason=ok,stat=users")
	want(t, m, "moongate_route_stat_requests_total", requests)
	sharing := rule("HTTPRoute/a/x", "orders") // which gets no request
	second.Release()
	c.t = c.t.Add(time.Hour)
	want(t, m, "moongate_route_stat_requests_total", requests)
	sharing.Release()
	c.t = c.t.Add(time.Minute)
	want(t, m, "moongate_route_stat_requests_total", map[string]float64{"code=404,gateway=(other),listener=(other),reason=ok,stat=(other)": 1})
}

func TestTraffic(t *testing.T) {
	m, _ := testMetrics(MetricsOptions{})
	s := m.Rule(exampleLabels)
	for _, d := range []time.Duration{-1, 0, 500 * time.Microsecond, 501 * time.Microsecond, 2 * time.Second, time.Hour, math.MaxInt64 / 4} {
		finish(m, &Record{Stats: s, DurationNano: int64(d), BytesReceived: 10, BytesSent: 100, Attempts: 3})
	}
	finish(m, &Record{Stats: s, BytesReceived: -1, BytesSent: -1})
	key := "gateway=shop/edge,listener=https,route=HTTPRoute/shop/cart"
	want(t, m, "moongate_request_duration_seconds", map[string]float64{key: 8})
	want(t, m, "moongate_request_bytes_total", map[string]float64{key: 70})
	want(t, m, "moongate_response_bytes_total", map[string]float64{key: 700})
	want(t, m, "moongate_request_retries_total", map[string]float64{key: 14})
	for _, f := range gather(t, m) {
		if f.GetName() != "moongate_request_duration_seconds" {
			continue
		}
		got := make(map[float64]uint64)
		for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
			got[b.GetUpperBound()] = b.GetCumulativeCount()
		}
		if got[0.0005] != 4 || got[0.001] != 5 || got[1] != 5 || got[2.5] != 6 || got[30] != 6 {
			t.Errorf("buckets %v", got)
		}
	}
}

func TestSeriesGoAfterTheGrace(t *testing.T) {
	m, c := testMetrics(MetricsOptions{Grace: time.Minute})
	s := m.Rule(exampleLabels)
	finish(m, &Record{Stats: s, Backend: 1, Status: 200, Reason: ReasonOK})
	s.Release()
	s.Release() // does nothing
	count := func() float64 {
		sum := 0.0
		for _, v := range series(t, m, "moongate_requests_total") {
			sum += v
		}
		return sum
	}
	c.t = c.t.Add(59 * time.Second)
	finish(m, &Record{Stats: s, Backend: 1, Status: 200, Reason: ReasonOK}) // was in flight
	if count() != 2 {
		t.Errorf("within the grace %v, want 2", count())
	}
	again := m.Rule(exampleLabels)
	finish(m, &Record{Stats: again, Backend: 1, Status: 200, Reason: ReasonOK})
	c.t = c.t.Add(time.Hour)
	if count() != 3 {
		t.Errorf("in use again %v, want 3: the counter must go on", count())
	}
	other := exampleLabels
	other.Backends = nil // a backendRef is gone, the rule is not
	next := m.Rule(other)
	again.Release()
	c.t = c.t.Add(time.Minute)
	if count() != 0 {
		t.Errorf("the backend's series are still there: %v", series(t, m, "moongate_requests_total"))
	}
	next.Release()
	c.t = c.t.Add(time.Minute)
	if gather(t, m); len(m.rules.entries) != 1 || len(m.routes) != 1 { // those of unattributed
		t.Errorf("%d rules and %d routes are left", len(m.rules.entries), len(m.routes))
	}
	if got := series(t, m, "moongate_request_duration_seconds"); len(got) != 0 {
		t.Errorf("histograms are left: %v", got)
	}
}

// However many rules come and go at once, whatever codes their backends answer, the number of series is bounded.
func TestCardinalityIsBounded(t *testing.T) {
	const bound = 50
	m, _ := testMetrics(MetricsOptions{MaxRules: bound})
	var held []*RuleStats
	finished := 0.0
	for i := range 10 * bound {
		l := RuleLabels{Gateway: "a/g", Listener: fmt.Sprintf("l%d", i%3), Route: fmt.Sprintf("HTTPRoute/a/r%d", i), Rule: "0", Backends: []string{"Service/a/x/80"}}
		s := m.Rule(l)
		for code := 100; code < 1000; code += 3 {
			finish(m, &Record{Stats: s, Backend: 1, Status: code, Reason: ReasonOK})
			finished++
		}
		if i%2 == 0 {
			s.Release()
		} else {
			held = append(held, s)
		}
	}
	requests := series(t, m, "moongate_requests_total")
	if limit := (bound + 3 + 1) * 2 * (maxOutcomes + int(reasonCount)); len(requests) > limit {
		t.Errorf("%d series, want at most %d", len(requests), limit)
	}
	if got := len(series(t, m, "moongate_request_duration_seconds")); got > bound+3+1 {
		t.Errorf("%d histograms, want at most %d", got, bound+3+1)
	}
	if folded := series(t, m, "moongate_metrics_folded_rules")[""]; folded != float64(len(held)-bound+1) {
		t.Errorf("%v folded, want %d", folded, len(held)-bound+1)
	}
	if got := requests["code=100,gateway=a/g,listener=l1,reason=ok,route=(other)"]; got == 0 {
		t.Error("rules without room are not counted under (other)")
	}
	if len(m.rules.entries) > bound {
		t.Errorf("%d entries, want at most %d", len(m.rules.entries), bound)
	}
	for _, s := range held {
		s.Release()
	}
	if folded := series(t, m, "moongate_metrics_folded_rules")[""]; folded != 0 {
		t.Errorf("%v folded after all are released", folded)
	}
	s := m.Rule(exampleLabels)
	finish(m, &Record{Stats: s, Status: 200})
	if s.counters.Load().entry == nil {
		t.Error("room that was given back is not used")
	}
}

// Nothing is lost by folding: the sum over all series is the number of requests.
func TestFoldedRequestsAreStillCounted(t *testing.T) {
	m, _ := testMetrics(MetricsOptions{MaxRules: 2})
	for i := range 20 {
		s := m.Rule(RuleLabels{Gateway: "a/g", Listener: "l", Route: fmt.Sprint(i)})
		for code := 100; code < 300; code++ {
			finish(m, &Record{Stats: s, Status: code, Reason: ReasonOK})
		}
	}
	sum := 0.0
	for _, v := range series(t, m, "moongate_requests_total") {
		sum += v
	}
	if sum != 20*200 {
		t.Errorf("%v requests, want %d", sum, 20*200)
	}
}

func TestFoldedRuleKeepsItsNameInTheLog(t *testing.T) {
	m, _ := testMetrics(MetricsOptions{MaxRules: 1})
	line := string(appendLine(nil, exampleRecord(m.Rule(exampleLabels)), new(secondCache)))
	if !strings.Contains(line, `"route":"HTTPRoute/shop/cart"`) || strings.Contains(line, other) {
		t.Errorf("line %s", line)
	}
}

// TestRateLimitsAreBounded: limits beyond the bound are added up, by their scope, and the same ones have series of their own at each scrape.
func TestRateLimitsAreBounded(t *testing.T) {
	m, _ := testMetrics(MetricsOptions{MaxRules: 3})
	order := []int{5, 0, 3, 1, 4, 2}
	m.SetRateLimits(func(emit func(RateLimitStats)) {
		for _, i := range order {
			emit(RateLimitStats{Rule: fmt.Sprintf("n/p/rule/%d", i), Scope: "local", OverLimit: 1, Shadowed: 10})
		}
		emit(RateLimitStats{Rule: "n/p/rule/0", Scope: "global", OverLimit: 100})
		emit(RateLimitStats{Rule: "n/p/rule/0", Scope: "global", OverLimit: 100})
	})
	for range 2 {
		want(t, m, "moongate_rate_limit_over_limit_total", map[string]float64{
			"mode=enforced,rule=n/p/rule/0,scope=global": 200, "mode=shadow,rule=n/p/rule/0,scope=global": 0,
			"mode=enforced,rule=n/p/rule/0,scope=local": 1, "mode=shadow,rule=n/p/rule/0,scope=local": 10,
			"mode=enforced,rule=n/p/rule/1,scope=local": 1, "mode=shadow,rule=n/p/rule/1,scope=local": 10,
			"mode=enforced,rule=(other),scope=local": 4, "mode=shadow,rule=(other),scope=local": 40,
		})
		slices.Reverse(order)
	}
}

func TestBackendsOfOneRuleAreBounded(t *testing.T) {
	m, _ := testMetrics(MetricsOptions{})
	for i := range 5 * maxBackends {
		l := exampleLabels
		l.Backends = []string{fmt.Sprintf("Service/a/b%d/80", i)}
		s := m.Rule(l)
		finish(m, &Record{Stats: s, Backend: 1, Status: 200, Reason: ReasonOK})
		defer s.Release()
	}
	if got := len(series(t, m, "moongate_requests_total")); got != maxBackends+1 {
		t.Errorf("%d series, want %d and one for the rest", got, maxBackends)
	}
}

func TestListenersAndSockets(t *testing.T) {
	m, _ := testMetrics(MetricsOptions{})
	l := m.Listener(ListenerLabels{Gateway: "a/g", Listener: "http", Port: 80})
	key := "gateway=a/g,listener=http,port=80"
	want(t, m, "moongate_listener_up", map[string]float64{key: 0})
	l.SetUp(true)
	want(t, m, "moongate_listener_up", map[string]float64{key: 1})
	(*ListenerStats)(nil).SetUp(false) // of one that was never served
	l.Release()
	l.Release()
	want(t, m, "moongate_listener_up", map[string]float64{})

	s := m.Socket(SocketLabels{Gateway: "a/g", Address: "127.0.0.1", Port: 80})
	s.ConnectionOpened()
	s.ConnectionOpened()
	s.ConnectionClosed()
	if s.Connections() != 1 {
		t.Errorf("%d connections, want 1", s.Connections())
	}
	key = "address=127.0.0.1,gateway=a/g,port=80"
	want(t, m, "moongate_downstream_connections_active", map[string]float64{key: 1})
	want(t, m, "moongate_downstream_connections_total", map[string]float64{key: 2})
	s.ConnectionRefused(LimitTotal)
	want(t, m, "moongate_downstream_connections_refused_total", map[string]float64{"address=127.0.0.1,gateway=a/g,limit=connections,port=80": 1,
		"address=127.0.0.1,gateway=a/g,limit=connections_per_client,port=80": 0,
		"address=127.0.0.1,gateway=a/g,limit=connections_per_port,port=80":   0,
		"address=127.0.0.1,gateway=a/g,limit=memory,port=80":                 0})
	s.Release()
	s.ConnectionClosed()
	want(t, m, "moongate_downstream_connections_active", map[string]float64{key: 0})

	for i := range maxListeners + 5 {
		m.Socket(SocketLabels{Gateway: fmt.Sprint(i)}).ConnectionOpened()
		m.Listener(ListenerLabels{Gateway: fmt.Sprint(i)}).SetUp(true)
	}
	sockets := series(t, m, "moongate_downstream_connections_total")
	if len(sockets) != maxListeners+1 || sockets["address=(other),gateway=(other),port=(other)"] == 0 {
		t.Errorf("%d sockets, want %d and one for the rest", len(sockets), maxListeners)
	}
	if got := len(series(t, m, "moongate_listener_up")); got != maxListeners {
		t.Errorf("%d listeners, want %d", got, maxListeners)
	}
}

func TestConfigurationMetrics(t *testing.T) {
	m, c := testMetrics(MetricsOptions{})
	m.ConfigApplied(ConfigApply{Generation: 7, Duration: time.Millisecond, At: c.t})
	m.ConfigApplied(ConfigApply{Generation: 8, Duration: time.Millisecond, At: c.t.Add(time.Hour), Err: fmt.Errorf("refused")})
	want(t, m, "moongate_config_generation", map[string]float64{"": 7})
	want(t, m, "moongate_config_apply_errors_total", map[string]float64{"": 1})
	want(t, m, "moongate_config_apply_duration_seconds", map[string]float64{"": 2})
	want(t, m, "moongate_config_last_apply_success_timestamp_seconds", map[string]float64{"": float64(c.t.Unix())})
	m.SetConfigResources("Route", 3)
	want(t, m, "moongate_config_resources", map[string]float64{"kind=Route": 3})
	m.SetCertificate("Secret/a/b", c.t)
	want(t, m, "moongate_certificate_not_after_timestamp_seconds", map[string]float64{"certificate=Secret/a/b": float64(c.t.Unix())})
	m.RemoveCertificate("Secret/a/b")
	want(t, m, "moongate_certificate_not_after_timestamp_seconds", map[string]float64{})
	m.Translated(map[string]int{"route": 2}, time.Millisecond)
	m.Translated(map[string]int{"route": 3}, time.Millisecond)
	want(t, m, "moongate_translate_runs_total", map[string]float64{"function=route": 5})
}

// A report that names a backend twice must not fail the scrape.
func TestUpstreams(t *testing.T) {
	m, _ := testMetrics(MetricsOptions{MaxRules: 2})
	m.SetUpstreams(func(emit func(UpstreamStats)) {
		for _, name := range []string{"a", "a", "b", "c", "d", "\xff"} {
			emit(UpstreamStats{Backend: name, Endpoints: 1, RequestsInFlight: 2, ConnectionsIdle: 3, ConnectionsActive: 4, ConnectsTotal: 5, ConnectErrors: 6})
		}
	})
	for name, one := range map[string]float64{"endpoints": 1, "requests_in_flight": 2, "connections_idle": 3, "connections_active": 4, "connects_total": 5, "connect_errors_total": 6} {
		want(t, m, "moongate_upstream_"+name, map[string]float64{"backend=a": 2 * one, "backend=b": one, "backend=(other)": 3 * one})
	}
}

// What concerns the health of endpoints has series where there is cause for it.
func TestUpstreamHealth(t *testing.T) {
	m, _ := testMetrics(MetricsOptions{MaxRules: 2})
	m.SetUpstreams(func(emit func(UpstreamStats)) {
		emit(UpstreamStats{Backend: "well", ConnectsTotal: 1})
		for _, name := range []string{"a", "a"} {
			emit(UpstreamStats{Backend: name, ChecksPassed: 1, ChecksFailed: 2, CheckEventsDropped: 3,
				Unhealthy: map[string]int{"ejected": 1, "unknown": 0}, Ejections: map[string]uint64{"consecutive_5xx": 2}})
		}
	})
	want(t, m, "moongate_upstream_endpoints_unhealthy", map[string]float64{"backend=a,health=ejected": 2, "backend=a,health=unknown": 0})
	want(t, m, "moongate_upstream_ejections_total", map[string]float64{"backend=a,reason=consecutive_5xx": 4})
	want(t, m, "moongate_upstream_health_checks_total", map[string]float64{"backend=a,result=passed": 2, "backend=a,result=failed": 4})
	want(t, m, "moongate_upstream_health_check_log_dropped_total", map[string]float64{"backend=a": 6})
}

// A request may end after its rule is gone, and be its backend's first: it is counted, and keeps nothing.
func TestFirstRequestAfterRelease(t *testing.T) {
	m, c := testMetrics(MetricsOptions{})
	s := m.Rule(exampleLabels)
	s.Release()
	finish(m, &Record{Stats: s, Backend: 1, Status: 200})
	if got := len(series(t, m, "moongate_requests_total")); got != 1 {
		t.Errorf("%d series", got)
	}
	c.t = c.t.Add(2 * defaultGrace)
	if got := series(t, m, "moongate_requests_total"); len(got) != 0 {
		t.Errorf("after the grace: %v", got)
	}
}

// Rules that nobody asks for have no counters: there may be thousands of them.
func TestRulesAppearWithUse(t *testing.T) {
	m, c := testMetrics(MetricsOptions{Grace: time.Minute})
	idle, released := m.Rule(exampleLabels), m.Rule(exampleLabels)
	idle.Release()
	released.Release()
	if len(m.rules.entries) != 1 || len(m.routes) != 1 { // those of unattributed
		t.Errorf("%d rules and %d routes without a request", len(m.rules.entries), len(m.routes))
	}
	finish(m, &Record{Stats: released, Backend: 1, Status: 200}) // was in flight
	finish(m, &Record{Stats: released, Backend: 1, Status: 200})
	if got := series(t, m, "moongate_requests_total"); len(got) != 1 {
		t.Errorf("%v", got)
	}
	c.t = c.t.Add(time.Minute)
	if gather(t, m); len(m.rules.entries) != 1 || len(m.routes) != 1 {
		t.Errorf("%d rules and %d routes after the grace", len(m.rules.entries), len(m.routes))
	}
}

// Many requests of one rule are its first at once, while it is edited.
func TestFirstRequestsAtOnce(t *testing.T) {
	m, _ := testMetrics(MetricsOptions{})
	var all sync.WaitGroup
	const each = 100
	handles := []*RuleStats{m.Rule(exampleLabels), m.Rule(exampleLabels)}
	for i := range 8 {
		all.Go(func() {
			for range each {
				finish(m, &Record{Stats: handles[i%2], Backend: 1, Status: 200})
			}
		})
	}
	all.Go(handles[0].Release)
	all.Wait()
	sum := 0.0
	for _, n := range series(t, m, "moongate_requests_total") {
		sum += n
	}
	if sum != 8*each {
		t.Errorf("%v requests are counted, not %d", sum, 8*each)
	}
	handles[1].Release()
	for key, e := range m.rules.entries {
		if key.route == "" {
			continue // unattributed
		}
		if of := e.value.backends.entries["Service/shop/cart/8080"]; e.refs != 0 || of.refs != 0 {
			t.Errorf("%d handles of the rule and %d of its backend are left", e.refs, of.refs)
		}
	}
}

// 5,000 backends that nobody asks for cost a scrape nothing.
func TestUpstreamsAppearWithUse(t *testing.T) {
	m, _ := testMetrics(MetricsOptions{})
	m.SetUpstreams(func(emit func(UpstreamStats)) {
		emit(UpstreamStats{Backend: "idle", Endpoints: 3})
		emit(UpstreamStats{Backend: "used", Endpoints: 3, ConnectsTotal: 1})
		emit(UpstreamStats{Backend: "away", Endpoints: 3, ConnectErrors: 1})
		emit(UpstreamStats{Backend: "busy", Endpoints: 3, RequestsInFlight: 1})
	})
	want(t, m, "moongate_upstream_endpoints", map[string]float64{"backend=away": 3, "backend=busy": 3, "backend=used": 3})
}

// TestBreakerMetrics: limits of backends beyond the bound are added up.
func TestBreakerMetrics(t *testing.T) {
	m, _ := testMetrics(MetricsOptions{MaxRules: 1})
	m.SetUpstreams(func(emit func(UpstreamStats)) {
		for i, name := range []string{"a", "b", "c"} {
			emit(UpstreamStats{Backend: name, BreakerLimits: []BreakerLimitStats{{"requests", i == 2, uint64(i)}, {"pending_requests", false, 1}}})
		}
	})
	want(t, m, "moongate_upstream_circuit_breaker_open", map[string]float64{
		"backend=a,limit=requests": 0, "backend=a,limit=pending_requests": 0, "backend=(other),limit=requests": 1, "backend=(other),limit=pending_requests": 0})
	want(t, m, "moongate_upstream_circuit_breaker_overflows_total", map[string]float64{
		"backend=a,limit=requests": 0, "backend=a,limit=pending_requests": 1, "backend=(other),limit=requests": 3, "backend=(other),limit=pending_requests": 2})
	sum := addBreakerLimits([]BreakerLimitStats{{"requests", false, 1}}, []BreakerLimitStats{{"retries", false, 5}, {"requests", true, 2}})
	if !slices.Equal(sum, []BreakerLimitStats{{"requests", true, 3}, {"retries", false, 5}}) {
		t.Errorf("added up %+v", sum)
	}
}

// TestUpstreamStatsAdd: add leaves out no field, which would be missing only beyond the bound of backends.
func TestUpstreamStatsAdd(t *testing.T) {
	filled := func(n int) *UpstreamStats {
		u := &UpstreamStats{}
		fill(t, reflect.ValueOf(u).Elem(), n)
		return u
	}
	sum, two := filled(1), filled(2)
	sum.add(filled(1))
	got, want := reflect.ValueOf(sum).Elem(), reflect.ValueOf(two).Elem()
	for i := range got.NumField() {
		if g, w := got.Field(i).Interface(), want.Field(i).Interface(); !reflect.DeepEqual(g, w) {
			t.Errorf("%s is %v, want %v", got.Type().Field(i).Name, g, w)
		}
	}
}

// fill sets each number in v to n, with one entry in each map and slice.
func fill(t *testing.T, v reflect.Value, n int) {
	t.Helper()
	switch v.Kind() {
	case reflect.Int, reflect.Uint64:
		v.Set(reflect.ValueOf(n).Convert(v.Type()))
	case reflect.String:
		v.SetString("name")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, n)
		fill(t, value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
		t.Fatalf("fill lacks %v", v.Type())
	}
}

func TestHostileLabelsDoNotFailTheScrape(t *testing.T) {
	m, _ := testMetrics(MetricsOptions{})
	bad := strings.Repeat("\xff\n\"", 400)
	s := m.Rule(RuleLabels{Gateway: bad, Listener: bad, Route: bad, Rule: bad, Backends: []string{bad}})
	finish(m, &Record{Stats: s, Backend: 1})
	m.Socket(SocketLabels{Gateway: bad, Address: bad})
	m.Listener(ListenerLabels{Gateway: bad, Listener: bad})
	m.SetCertificate(bad, time.Unix(0, 0))
	m.SetConfigResources(bad, 1)
	m.Translated(map[string]int{bad: 1}, 0)
	gather(t, m)
}

// A backend that nothing but copies or spans of requests were meant for has series, too.
func TestUnusedUpstream(t *testing.T) {
	for _, u := range []UpstreamStats{{ConnectsTotal: 1}, {ConnectErrors: 1}, {RequestsInFlight: 1}, {MirrorsFailed: 1}, {SpansSent: 1}, {SpansDropped: 1}} {
		if u.unused() {
			t.Errorf("%+v is unused", u)
		}
	}
	if !(&UpstreamStats{}).unused() {
		t.Error("a backend is used that was not")
	}
}

// Every metric is there after some use; the names are what Prometheus and OpenMetrics want.
func TestMetricNames(t *testing.T) {
	m, c := testMetrics(MetricsOptions{})
	labels := exampleLabels
	labels.StatName = "stat"
	finish(m, exampleRecord(m.Rule(labels)))
	m.Listener(ListenerLabels{Listener: "l"})
	m.Socket(SocketLabels{Port: 1})
	m.SetUpstreams(func(emit func(UpstreamStats)) {
		emit(UpstreamStats{ConnectsTotal: 1, MirrorsFailed: 1, SessionsKept: 1, SpansSent: 1, SpansDropped: 1,
			ChecksPassed: 1, Unhealthy: map[string]int{"ejected": 1}, Ejections: map[string]uint64{"consecutive_5xx": 1},
			BreakerLimits: []BreakerLimitStats{{Limit: "requests", Open: true, Overflows: 2}}})
	})
	m.SetUnreadKinds(func() []string { return []string{"Gateway"} })
	m.SetRateLimits(func(emit func(RateLimitStats)) {
		emit(RateLimitStats{Rule: "n/p/rule/0", Scope: "local", OverLimit: 1, Shadowed: 2})
	})
	m.SetRedises(func(emit func(RedisStats)) { emit(RedisStats{Address: "h:6379", Up: true, Undecided: 1, Uncharged: 2}) })
	m.SetCompression(func(emit func(CompressionStats)) {
		emit(CompressionStats{Encoding: "br", Responses: 1, Refused: 2, In: 3, Out: 4})
		emit(CompressionStats{Encoding: "gzip"})
	})
	m.ConfigApplied(ConfigApply{At: c.t})
	m.SetConfigResources("Route", 1)
	m.SetCertificate("c", c.t)
	m.Translated(map[string]int{"f": 1}, 0)
	m.SetProxies(func(emit func(GatewayProxies)) { emit(GatewayProxies{Gateway: "n/gw", Current: 1, Lagging: 2}) })
	m.SetController(func() ControllerStats { return exampleController })
	m.SetSourceProblems(func() map[string]int { return map[string]int{"HTTPRoute": 1} })
	families := gather(t, m)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	var names []string
	for _, f := range families {
		name := f.GetName()
		names = append(names, name)
		if !strings.HasPrefix(name, "moongate_") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("%s has a foreign prefix", name)
		}
		if !strings.HasPrefix(name, "moongate_") {
			continue
		}
		at := slices.IndexFunc(described, func(d metricText) bool { return d.name == name })
		if at < 0 {
			t.Errorf("%s is not on the page of metrics", name)
		} else if got := strings.ToLower(f.GetType().String()); got != typeOf(name) || f.GetHelp() != described[at].help {
			t.Errorf("%s is a %s %q, and the page has a %s %q", name, got, f.GetHelp(), typeOf(name), described[at].help)
		}
	}
	for _, d := range allDescs {
		found := slices.ContainsFunc(names, func(n string) bool { return strings.Contains(d.String(), `"`+n+`"`) })
		if !found {
			t.Errorf("not collected: %v", d)
		}
	}
	for _, n := range names { // OpenMetrics strips _total and then both would be one family
		if base, ok := strings.CutSuffix(n, "_total"); ok && strings.HasPrefix(n, "moongate_") && slices.Contains(names, base) {
			t.Errorf("%s and %s are one name in OpenMetrics", base, n)
		}
	}
}

// TestProxies: of each Gateway there are two series.
func TestProxies(t *testing.T) {
	m := NewMetrics(MetricsOptions{})
	m.SetProxies(func(emit func(GatewayProxies)) { emit(GatewayProxies{Gateway: "n/gw", Current: 1, Lagging: 2}) })
	want(t, m, "moongate_gateway_proxies", map[string]float64{"gateway=n/gw,state=current": 1, "gateway=n/gw,state=lagging": 2})
}

var exampleController = ControllerStats{
	Leading: true, Held: 3, ReadAway: 90 * time.Second,
	StatusWrites:   map[string]uint64{"HTTPRoute": 5},
	StatusFailures: map[StatusFailure]uint64{{"Gateway", "Forbidden"}: 2},
	Reconciled:     map[string]ReconcileStats{"provision": {Errors: 7, Failing: 1}},
	EventsWritten:  8,
	EventsDropped:  map[string]uint64{"failed": 6},
	Conditions:     map[ObjectCondition]int{{"Gateway", "Programmed", "False"}: 4},
}

// TestController: a replica says how its work does; other processes say nothing of it.
func TestController(t *testing.T) {
	m := NewMetrics(MetricsOptions{})
	for _, name := range []string{"moongate_controller_leading", "moongate_controller_api_server_away_seconds", "moongate_source_problems"} {
		want(t, m, name, map[string]float64{})
	}
	m.SetController(func() ControllerStats { return exampleController })
	m.SetSourceProblems(func() map[string]int { return map[string]int{"HTTPRoute": 1, "": 2} })
	for name, series := range map[string]map[string]float64{
		"moongate_controller_leading":                     {"": 1},
		"moongate_controller_statuses_held":               {"": 3},
		"moongate_controller_api_server_away_seconds":     {"operation=read": 90, "operation=write": 0},
		"moongate_controller_status_writes_total":         {"kind=HTTPRoute": 5},
		"moongate_controller_status_write_failures_total": {"kind=Gateway,reason=Forbidden": 2},
		"moongate_controller_reconcile_errors_total":      {"part=provision": 7},
		"moongate_controller_reconcile_failing":           {"part=provision": 1},
		"moongate_controller_objects":                     {"condition=Programmed,kind=Gateway,status=False": 4},
		"moongate_controller_events_written_total":        {"": 8},
		"moongate_controller_events_dropped_total":        {"reason=failed": 6},
		"moongate_source_problems":                        {"kind=HTTPRoute": 1, "": 2},
	} {
		want(t, m, name, series)
	}
}

// Handles come and go while requests end and scrapes run.
func TestMetricsConcurrently(t *testing.T) {
	m := NewMetrics(MetricsOptions{MaxRules: 20, Grace: time.Microsecond})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 300 {
				l := exampleLabels
				l.Route = fmt.Sprint((w*7 + i) % 40)
				s := m.Rule(l)
				for code := 200; code < 240; code++ {
					finish(m, &Record{Stats: s, Backend: int32(code % 2), Status: code, Reason: ReasonOK})
				}
				s.Release()
			}
		})
	}
	for range 20 {
		gather(t, m)
	}
	wg.Wait()
}

// Outcomes that many requests discover at once are not counted apart.
func TestOutcomesGrowOnce(t *testing.T) {
	var o outcomes
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for code := range 1000 {
				o.add(&Record{Status: code, Reason: ReasonOK})
			}
		})
	}
	wg.Wait()
	var sum uint64
	seen := make(map[uint16]bool)
	for _, c := range o.list() {
		sum += c.count()
		if seen[c.code] {
			t.Errorf("code %d is there twice", c.code)
		}
		seen[c.code] = true
	}
	if sum != 8000 || len(o.list()) != maxOutcomes+1 {
		t.Errorf("%d requests in %d outcomes, want 8000 in %d", sum, len(o.list()), maxOutcomes+1)
	}
}

func TestUnreadKinds(t *testing.T) {
	m := NewMetrics(MetricsOptions{})
	unread := []string{"ListenerSet", "UDPRoute"}
	m.SetUnreadKinds(func() []string { return unread })
	if got := series(t, m, "moongate_source_unread"); len(got) != 2 || got["kind=ListenerSet"] != 1 {
		t.Errorf("series %v", got)
	}
	unread = nil
	if got := series(t, m, "moongate_source_unread"); len(got) != 0 {
		t.Errorf("afterwards: series %v", got)
	}
}
