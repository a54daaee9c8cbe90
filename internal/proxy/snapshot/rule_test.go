package snapshot

import (
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

const known = "Service/default/b/80"

func newCompiler(t *testing.T) *Compiler {
	t.Helper()
	set := upstream.NewSet(upstream.Options{})
	if err := set.Apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: known}}}}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	return &Compiler{Backend: set.Get, Metrics: observe.NewMetrics(observe.MetricsOptions{}), RateLimits: &ratelimit.Store{}}
}

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func routeOf(rules ...*config.Rule) *config.Route {
	for _, r := range rules {
		r.Matches = []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}}
	}
	return &config.Route{Key: "HTTPRoute/default/r", Namespace: "default", Name: "r", Rules: rules,
		Attachments: []*config.Attachment{{Listener: "infra/gw/a", Hostnames: []*config.Hostname{{}}}, {Listener: "infra/gw/b", Hostnames: []*config.Hostname{{}}}}}
}

// TestCompile: what a rule says is what the exchange is given, and each listener of the route has counters of its own.
func TestCompile(t *testing.T) {
	r, err := newCompiler(t).Route(routeOf(
		&config.Rule{RequestTimeoutNanos: int64(time.Second), BackendRequestTimeoutNanos: int64(time.Minute),
			BackendRefs: []*config.BackendRef{{Backend: known, Weight: 1}, {Weight: 1, Failure: &config.Failure{Status: 500, Reason: "backend_invalid"}}}},
		&config.Rule{Index: 1, Failure: &config.Failure{Status: 500, Reason: "a word of another version"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	rule, failing := r.rules[0], r.rules[1]
	if rule.Namespace != "default" || rule.RequestTimeout != time.Second || rule.BackendTimeout != time.Minute || rule.Failure != nil {
		t.Errorf("got %+v", rule)
	}
	if b := rule.Backends; b[0].Backend == nil || b[0].Failure != nil || b[1].Backend != nil || b[1].Failure.Reason != observe.ReasonBackendInvalid {
		t.Errorf("backends %+v", b)
	}
	if failing.Failure == nil || *failing.Failure != (Failure{500, observe.ReasonRuleInvalid}) {
		t.Errorf("a rule that fails for a reason which is not known here has %+v", failing.Failure)
	}
	a, b := rule.StatsFor(listenerOf("infra/gw/a")), rule.StatsFor(listenerOf("infra/gw/b"))
	if a == nil || b == nil || a == b || rule.StatsFor(listenerOf("infra/gw/c")) != nil {
		t.Errorf("counters %p and %p", a, b)
	}
}

func listenerOf(key string) *Listener { return &Listener{Config: &config.Listener{Key: key}} }

// TestCompileErrors: what this data plane cannot carry out is refused, and the error says where it stands.
func TestCompileErrors(t *testing.T) {
	unknown := &anypb.Any{TypeUrl: "type.googleapis.com/moongate.config.v1.OfTheFuture"}
	for name, test := range map[string]struct {
		rule *config.Rule
		want []string
	}{
		"a backend that is not configured": {&config.Rule{Index: 3, BackendRefs: []*config.BackendRef{{Backend: known}, {Backend: "Service/default/c/80"}}},
			[]string{"HTTPRoute/default/r", "rules[3]", "backendRefs[1]", `"Service/default/c/80"`}},
		"a filter":              {&config.Rule{Filters: []*anypb.Any{unknown}}, []string{"rules[0]", "filters[0]", "OfTheFuture"}},
		"a filter of a backend": {&config.Rule{BackendRefs: []*config.BackendRef{{Backend: known, Filters: []*anypb.Any{unknown}}}}, []string{"backendRefs[0]: filters[0]"}},
	} {
		_, err := newCompiler(t).Route(routeOf(test.rule))
		if err == nil {
			t.Errorf("%s is not refused", name)
			continue
		}
		for _, part := range test.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q lacks %q", name, err, part)
			}
		}
	}
}

// TestChoose: shares follow the weights, of whatever sum, and one of weight 0 gets nothing.
func TestChoose(t *testing.T) {
	compiler := newCompiler(t)
	for _, weights := range [][]uint32{{1}, {0}, {0, 0}, {9, 1}, {0, 5, 0, 5}, {1_000_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000}} {
		rule, sum := &config.Rule{}, 0.0
		for _, w := range weights {
			rule.BackendRefs = append(rule.BackendRefs, &config.BackendRef{Backend: known, Weight: w})
			sum += float64(w)
		}
		r, err := compiler.Route(routeOf(rule))
		if err != nil {
			t.Fatal(err)
		}
		const requests = 20_000
		seed, got := uint64(1), make([]float64, len(weights))
		for range requests {
			i, reason := r.rules[0].Choose(&seed)
			if want := map[bool]observe.Reason{true: observe.ReasonNoBackend, false: observe.ReasonOK}[sum == 0]; reason != want {
				t.Fatalf("weights %d: reason %v, want %v", weights, reason, want)
			}
			got[i]++
		}
		for i, w := range weights {
			if sum > 0 && (w == 0 && got[i] > 0 || max(got[i]/requests-float64(w)/sum, float64(w)/sum-got[i]/requests) > 0.02) {
				t.Errorf("weights %d: backendRef %d got %v of %d requests", weights, i, got[i], requests)
			}
		}
	}
}

// TestFilters: request and response filters run in the order of the list, and a reply ends it.
func TestFilters(t *testing.T) {
	set := func(value string) *anypb.Any {
		return packed(t, &config.RequestHeaderModifier{Set: []*config.HeaderField{{Name: "X", Value: value}}})
	}
	answer := func(value string) *anypb.Any {
		return packed(t, &config.ResponseHeaderModifier{Set: []*config.HeaderField{{Name: "Y", Value: value}}})
	}
	redirect := packed(t, &config.RequestRedirect{StatusCode: 302})
	r, err := newCompiler(t).Route(routeOf(&config.Rule{Filters: []*anypb.Any{set("1"), answer("1"), set("2"), answer("2"), redirect, set("3")}}))
	if err != nil {
		t.Fatal(err)
	}
	request, response := message.Request{Host: []byte("h"), Path: []byte("/")}, message.Response{}
	fx := filter.Exchange{Request: &request, Response: &response, Scheme: "http", ListenerPort: 80}
	reply := r.rules[0].Filters.RunRequest(&fx)
	if v, _ := request.Header.Get("x"); reply == nil || reply.Status != 302 || string(v) != "2" {
		t.Errorf("reply %+v, X: %q", reply, v)
	}
	r.rules[0].Filters.RunResponse(&fx)
	if v, _ := response.Header.Get("y"); string(v) != "2" {
		t.Errorf("Y: %q", v)
	}
}

// TestPort: a socket that has taken an earlier one's place is not taken for it.
func TestPort(t *testing.T) {
	socket := func(id int) *Socket { return &Socket{Socket: &listen.Socket{ID: id}} }
	mine := socket(1)
	s := &Snapshot{Sockets: []*Port{nil, {Owner: mine}}}
	if s.Port(mine) != s.Sockets[1] {
		t.Error("a socket does not find its listeners")
	}
	for name, other := range map[string]*Socket{"an earlier one": socket(1), "one without listeners": socket(0), "a later one": socket(2)} {
		if s.Port(other) != nil {
			t.Errorf("%s finds listeners", name)
		}
	}
}

func TestRetry(t *testing.T) {
	r, err := newCompiler(t).Route(routeOf(&config.Rule{}, &config.Rule{Retry: &config.Retry{Attempts: 3, Codes: []uint32{503, 500}, BackoffNanos: 5}},
		&config.Rule{Retry: &config.Retry{Attempts: 1<<32 - 1}}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	none, some := r.rules[0].Retry, r.rules[1].Retry
	if none != nil || none.Wants(&message.Response{Status: 503}, false) {
		t.Errorf("without retry: %+v", none)
	}
	if n := r.rules[2].Retry.Attempts; n != maxAttempts {
		t.Errorf("%d attempts", n)
	}
	if some.Attempts != 3 || some.Backoff != 5 {
		t.Errorf("%+v", some)
	}
	for status, want := range map[int]bool{500: true, 503: true, 501: false, 200: false, 999: false, 65536 + 503: false} {
		if some.Wants(&message.Response{Status: status}, false) != want {
			t.Errorf("%d: %v", status, !want)
		}
	}
}

// TestReleaseRoute: a route releases what each of its rules shares with others.
func TestReleaseRoute(t *testing.T) {
	released := 0
	count := func() { released++ }
	r := &Route{rules: []*Rule{{release: []func(){count, count}}, {}, {release: []func(){count}}}}
	r.Release()
	if released != 3 {
		t.Errorf("%d of 3 were released", released)
	}
}

// TestTimeoutsOf0s: the 0s of a rule is no timeout, and keeps that of an attempt from being one, which a policy has.
func TestTimeoutsOf0s(t *testing.T) {
	t.Parallel()
	retry := &config.Retry{PerTryTimeoutNanos: int64(time.Second)}
	r, err := newCompiler(t).Route(routeOf(&config.Rule{Retry: retry},
		&config.Rule{Index: 1, Retry: retry, RequestTimeoutNanos: config.NoTimeout, BackendRequestTimeoutNanos: config.NoTimeout}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	if r := r.rules[0]; r.PerTryTimeout != time.Second {
		t.Errorf("without 0s an attempt may take %v", r.PerTryTimeout)
	}
	if r := r.rules[1]; r.RequestTimeout != 0 || r.BackendTimeout != 0 || r.PerTryTimeout != 0 {
		t.Errorf("with 0s there is a timeout: %v %v %v", r.RequestTimeout, r.BackendTimeout, r.PerTryTimeout)
	}
}

// TestPlainRuleSize: a rule without filters and without a policy has no room for them, because there may be thousands.
func TestPlainRuleSize(t *testing.T) {
	r, err := newCompiler(t).Route(routeOf(&config.Rule{BackendRefs: []*config.BackendRef{{Backend: known, Weight: 1}}}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	rule := r.rules[0]
	if rule.Filters != &noFilters || rule.Backends[0].Filters != &noFilters || rule.Traffic != &noTraffic {
		t.Error("the rule has empty parts of its own")
	}
	if own, ref := unsafe.Sizeof(*rule), unsafe.Sizeof(rule.Backends[0]); own > 160 || ref > 32 {
		t.Errorf("a rule has %d bytes and %d for each backend, want at most 160 and 32", own, ref)
	}
}
