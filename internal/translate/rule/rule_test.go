package rule

import (
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

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

func BenchmarkCompile(b *testing.B) {
	spec := benchmarked()
	b.ReportAllocs()
	for b.Loop() {
		spec := HTTP(spec)
		Compile(&spec, 0, 0, resolved)
	}
}
