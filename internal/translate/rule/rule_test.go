package rule

import (
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// benchmarked is a rule with a bit of everything.
func benchmarked() *gwv1.HTTPRouteRule {
	path, port := "/api", gwv1.PortNumber(80)
	expression := gwv1.HeaderMatchRegularExpression
	return &gwv1.HTTPRouteRule{
		Matches: []gwv1.HTTPRouteMatch{{
			Path:    &gwv1.HTTPPathMatch{Value: &path},
			Headers: []gwv1.HTTPHeaderMatch{{Type: &expression, Name: "X-Version", Value: "v[0-9]+"}},
		}},
		Filters: []gwv1.HTTPRouteFilter{{Type: gwv1.HTTPRouteFilterRequestHeaderModifier,
			RequestHeaderModifier: &gwv1.HTTPHeaderFilter{Set: []gwv1.HTTPHeader{{Name: "X-A", Value: "b"}}}}},
		BackendRefs: []gwv1.HTTPBackendRef{{BackendRef: gwv1.BackendRef{
			BackendObjectReference: gwv1.BackendObjectReference{Name: "web", Port: &port}}}},
	}
}

func resolved(ref gwv1.BackendObjectReference, _ bool, _ string) (Backend, *condition.Problem) {
	return Backend{Key: "Service/default/" + string(ref.Name) + "/80"}, nil
}

// TestCompileKeepsItsInput checks that the rule's spec, which others share, is only read.
func TestCompileKeepsItsInput(t *testing.T) {
	spec := benchmarked()
	rule := HTTP(spec)
	r := Compile(&rule, 3, 0, resolved)
	if r.Problem != nil || r.Rule.Index != 3 || len(r.Rule.Filters) != 1 || r.Rule.BackendRefs[0].Backend != "Service/default/web/80" {
		t.Errorf("compiled to %v", r)
	}
	if spec.Matches[0].Headers[0].Name != "X-Version" || spec.BackendRefs[0].Weight != nil {
		t.Errorf("the spec was changed: %v", spec)
	}
	if again := Compile(&rule, 3, 0, resolved); again.Rule.String() != r.Rule.String() {
		t.Errorf("compiled again to %v, want %v", again.Rule, r.Rule)
	}
}

// TestFaultsBesideFilters has rules that cannot be carried out for reasons that have nothing to do with their filters: none with a filter is dropped, whose requests
// would then reach rules without it.
func TestFaultsBesideFilters(t *testing.T) {
	duration := func(d gwv1.Duration) *gwv1.Duration { return &d }
	faults := map[string]func(*gwv1.HTTPRouteRule){
		"sessionPersistence": func(r *gwv1.HTTPRouteRule) {
			//lint:ignore SA1019 routes still have the deprecated field, and it must not be passed over
			r.SessionPersistence = &gwv1.SessionPersistence{AbsoluteTimeout: duration("0s")}
		},
		"timeouts": func(r *gwv1.HTTPRouteRule) {
			r.Timeouts = &gwv1.HTTPRouteTimeouts{Request: duration("1s"), BackendRequest: duration("2s")}
		},
		"retry": func(r *gwv1.HTTPRouteRule) { r.Retry = &gwv1.HTTPRouteRetry{Backoff: duration("0.5s")} },
	}
	plain := gwv1.HTTPRouteFilter{Type: gwv1.HTTPRouteFilterResponseHeaderModifier, ResponseHeaderModifier: &gwv1.HTTPHeaderFilter{Remove: []string{"x"}}}
	auth := gwv1.HTTPRouteFilter{Type: gwv1.HTTPRouteFilterExternalAuth, ExternalAuth: &gwv1.HTTPExternalAuthFilter{
		ExternalAuthProtocol: gwv1.HTTPRouteExternalAuthHTTPProtocol, BackendRef: gwv1.BackendObjectReference{Name: "auth"}}}
	missing := gwv1.HTTPRouteFilter{Type: gwv1.HTTPRouteFilterExtensionRef, ExtensionRef: &gwv1.LocalObjectReference{Group: v1alpha1.GroupName, Kind: httpFilterKind, Name: "none"}}
	filters := map[string]func(*gwv1.HTTPRouteRule){
		"none":                    func(r *gwv1.HTTPRouteRule) {},
		"plain":                   func(r *gwv1.HTTPRouteRule) { r.Filters = []gwv1.HTTPRouteFilter{plain} },
		"ExternalAuth":            func(r *gwv1.HTTPRouteRule) { r.Filters = []gwv1.HTTPRouteFilter{auth} },
		"missing":                 func(r *gwv1.HTTPRouteRule) { r.Filters = []gwv1.HTTPRouteFilter{missing} },
		"ExternalAuth of backend": func(r *gwv1.HTTPRouteRule) { r.BackendRefs[0].Filters = []gwv1.HTTPRouteFilter{auth} },
		"missing of backend":      func(r *gwv1.HTTPRouteRule) { r.BackendRefs[0].Filters = []gwv1.HTTPRouteFilter{missing} },
	}
	for fault, spoil := range faults {
		for filter, add := range filters {
			r := benchmarked()
			r.Filters = nil
			add(r)
			spoil(r)
			spec := HTTP(r)
			spec.HTTPFilters = func(string) *v1alpha1.HTTPFilter { return nil }
			got := Compile(&spec, 3, 0, resolved)
			if got.Problem == nil {
				t.Errorf("%s: nothing is wrong", fault)
			}
			if filter == "none" {
				if got.Rule != nil {
					t.Errorf("%s, no filter: %v, want it dropped", fault, got.Rule)
				}
				continue
			}
			if got.Rule.GetFailure().GetStatus() != 500 || len(got.Rule.Matches) != 1 || got.Rule.BackendRefs != nil || got.Rule.Filters != nil {
				t.Errorf("%s, filter %s: %v, want its matches and a failure", fault, filter, got.Rule)
			}
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	spec := benchmarked()
	b.ReportAllocs()
	for b.Loop() {
		spec := HTTP(spec)
		Compile(&spec, 0, 0, resolved)
	}
}
