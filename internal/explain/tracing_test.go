package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestTracingOfRule: whether the request is traced is told by the shares that decide it, the rule's where it has some, and what its span is called and has.
func TestTracingOfRule(t *testing.T) {
	share := func(n uint32) *config.Share { return &config.Share{Numerator: n, Denominator: 100} }
	text := func(s string) []*config.TraceText {
		parts, err := config.ParseTraceText(s)
		if err != nil {
			t.Fatal(err)
		}
		return parts
	}
	const span = ": span of service s"
	listening := &config.Tracing{ServiceName: "s", Sampling: share(1), SampledParents: share(2)}
	own := &config.RuleTracing{Sampling: share(3), ClientSampling: share(4)}
	parent, asks := []string{"traceparent: p"}, []string{"x-client-trace-id: 1"}
	for name, c := range map[string]struct {
		listener *config.Tracing
		rule     *config.RuleTracing
		headers  []string
		want     []string
	}{
		"no provider":         {nil, own, nil, []string{"not traced: telemetry.tracing of the policy changes nothing, because no XTelemetryPolicy has requests to the Gateway traced"}},
		"nothing":             {nil, nil, nil, nil},
		"listener":            {listening, nil, nil, []string{"traced, 1 of 100 such requests" + span}},
		"all":                 {&config.Tracing{ServiceName: "s"}, nil, nil, []string{"traced" + span}},
		"rule":                {listening, own, nil, []string{"traced, 3 of 100 such requests" + span}},
		"a parent":            {listening, own, parent, []string{"traced if traceparent p is valid and says that the trace is sampled, 4 of 100 such requests" + span}},
		"listener's parents":  {listening, &config.RuleTracing{Sampling: share(3)}, parent, []string{"traced if traceparent p is valid and says that the trace is sampled, 2 of 100 such requests" + span}},
		"a client asks":       {listening, own, asks, []string{"traced, 4 of 100 such requests because of x-client-trace-id, and of the others 3 of 100 such requests" + span}},
		"asks, and all are":   {&config.Tracing{ServiceName: "s"}, &config.RuleTracing{ClientSampling: share(4)}, asks, []string{"traced, 4 of 100 such requests because of x-client-trace-id, and of the others all" + span}},
		"asks where none may": {listening, &config.RuleTracing{Sampling: share(3)}, asks, []string{"traced, 3 of 100 such requests" + span}},
		"overall":             {listening, &config.RuleTracing{OverallSampling: share(5)}, nil, []string{"traced, 1 of 100 such requests, and 5 of 100 of these" + span}},
		"texts": {listening, &config.RuleTracing{SpanName: text("%REQ(:METHOD)% %ROUTE_NAME%"), Tags: []*config.TraceTag{
			{Name: "a", Value: text("x%REQ(B?C):7%%RESP(D)%")},
			{Name: "b", Value: []*config.TraceText{{Part: &config.TraceText_Environment{Environment: "POD"}, DefaultValue: "none"}}},
		}}, nil, []string{"traced, 1 of 100 such requests" + span, "the span is called %REQ(:method)% %ROUTE_NAME%", "the span has the tag a: x%REQ(b?c):7%%RESP(d)%", "the span has the tag b: the variable POD or else none"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			for _, r := range w.Resources {
				if l := r.GetListener(); l != nil {
					l.Tracing = c.listener
				}
			}
			w.Resources = append(w.Resources, route("r", []string{"shop"}, &config.Rule{Matches: prefix("/"), BackendRefs: []*config.BackendRef{ref("one", 1)},
				Traffic: &config.RuleTraffic{Policy: "BackendTrafficPolicy n/p", RouteStatName: "orders", Tracing: c.rule}}))
			e := explained(t, w, "GET", "http://shop.test/", c.headers...)
			want := append([]string{"BackendTrafficPolicy n/p is in force", "requests are counted as orders, too, in moongate_route_stat_requests_total"}, c.want...)
			if !slices.Equal(e.Settings, want) {
				t.Errorf("settings\n%q, want\n%q", e.Settings, want)
			}
		})
	}
}

// TestTracingWithoutBackend: a request for which there is a listener is traced, whoever answers it, and by what a rule says if it comes to one.
func TestTracingWithoutBackend(t *testing.T) {
	w := world(t)
	w.Resources = append(w.Resources, route("c", []string{"shop"}, &config.Rule{Matches: prefix("/"), BackendRefs: []*config.BackendRef{ref("one", 1)}}))
	for _, r := range w.Resources {
		if l := r.GetListener(); l != nil {
			l.Tracing = &config.Tracing{ServiceName: "s"}
		}
		for _, rule := range r.GetRoute().GetRules() {
			rule.Traffic = &config.RuleTraffic{Tracing: &config.RuleTracing{Sampling: &config.Share{Numerator: 1, Denominator: 2}}}
		}
	}
	const all, half = "traced: span of service s", "traced, 1 of 2 such requests: span of service s"
	for url, want := range map[string]string{
		"http://shop.test/": half, "http://a.test/": all, "http://a.test/old": half, "http://a.test/broken": half, "http://a.test/weightless": half, "http://a.test/set": half,
		"https://a.example/": "", "http://a.test:81/": "",
	} {
		e := explained(t, w, "GET", url)
		traced := slices.DeleteFunc(slices.Clone(e.Settings), func(s string) bool { return !strings.HasPrefix(s, "traced") })
		if want == "" && len(traced) > 0 || want != "" && !slices.Equal(traced, []string{want}) {
			t.Errorf("%s (%s): %q", url, e.Answer.Text, e.Settings)
		}
	}
	if e := explained(t, w, "CONNECT", "http://shop.test"); e.Answer.Status < 400 || e.Rule == nil || !slices.Contains(e.Settings, all) {
		t.Errorf("a CONNECT that no rule takes: %+v, %q", e.Answer, e.Settings)
	}
}
