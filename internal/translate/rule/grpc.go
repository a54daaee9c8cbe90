package rule

import (
	"fmt"
	"regexp"

	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// GRPC returns the Spec of a rule of a GRPCRoute. A gRPC request is a POST to /<service>/<method>; requests without a valid backend
// are answered so that clients report UNAVAILABLE.
func GRPC(r *gwv1.GRPCRouteRule) Spec {
	s := Spec{
		Name: r.Name,
		//lint:ignore SA1019 routes still have the deprecated field, and it must not be passed over
		SessionPersistence: r.SessionPersistence,
		FailureStatus:      503,
		matches:            func(s *scope) *condition.Problem { return matches(s, r.Matches, s.grpcMatch) },
		Filters:            grpcFilters(r.Filters),
	}
	for i := range r.BackendRefs {
		ref := &r.BackendRefs[i]
		s.BackendRefs = append(s.BackendRefs, gwv1.HTTPBackendRef{BackendRef: ref.BackendRef, Filters: grpcFilters(ref.Filters)})
	}
	return s
}

// grpcFilters converts filters to those of HTTPRoute, which has more types.
func grpcFilters(list []gwv1.GRPCRouteFilter) []gwv1.HTTPRouteFilter {
	out := make([]gwv1.HTTPRouteFilter, len(list))
	for i, f := range list {
		out[i] = gwv1.HTTPRouteFilter{
			Type: gwv1.HTTPRouteFilterType(f.Type), RequestHeaderModifier: f.RequestHeaderModifier, ResponseHeaderModifier: f.ResponseHeaderModifier,
			RequestMirror: f.RequestMirror, ExtensionRef: f.ExtensionRef,
		}
	}
	return out
}

// Valid names of services and methods (the CRD has the same rules).
var (
	grpcService = regexp.MustCompile(`^(?i)\.?[a-z_][a-z_0-9]*(\.[a-z_][a-z_0-9]*)*$`)
	grpcMethod  = regexp.MustCompile(`^[A-Za-z_][A-Za-z_0-9]*$`)
)

// grpcMatch converts a match to HTTP such that its precedence is that of gRPC: the service, then the method, then headers.
func (s *scope) grpcMatch(spec *gwv1.GRPCRouteMatch, field string) (*config.Match, *condition.Problem) {
	m := &config.Match{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}
	if spec.Method != nil {
		if p := s.grpcMethodMatch(m, spec.Method, field+".method"); p != nil {
			return nil, p
		}
	}
	for i, h := range spec.Headers {
		var p *condition.Problem
		m.Headers, p = s.appendHeaderMatch(m.Headers, string(h.Name), h.Value, string(ptr.Deref(h.Type, gwv1.GRPCHeaderMatchExact)), fmt.Sprintf("%s.headers[%d]", field, i))
		if p != nil {
			return nil, p
		}
	}
	return m, nil
}

func (s *scope) grpcMethodMatch(m *config.Match, spec *gwv1.GRPCMethodMatch, field string) *condition.Problem {
	service, method := ptr.Deref(spec.Service, ""), ptr.Deref(spec.Method, "")
	if service == "" && method == "" {
		return s.unsupported(field, `add "service", "method" or both`, "a match of methods needs one of both")
	}
	m.Method = "POST"
	switch kind := ptr.Deref(spec.Type, gwv1.GRPCMethodMatchExact); kind {
	case gwv1.GRPCMethodMatchExact:
	case gwv1.GRPCMethodMatchRegularExpression:
		return s.grpcExpression(m, service, method, field)
	default:
		return s.unsupported(field+".type", "use Exact or RegularExpression", "%q is not known", kind)
	}
	if service != "" && !grpcService.MatchString(service) {
		return s.unsupported(field+".service", "write it as in the .proto file, with its package", "%q is not the name of a gRPC service", service)
	}
	if method != "" && !grpcMethod.MatchString(method) {
		return s.unsupported(field+".method", "write it as in the .proto file", "%q is not the name of a gRPC method", method)
	}
	switch {
	case method == "":
		m.Path.Value = "/" + service
	case service == "":
		return s.grpcPathCondition(m, "/[^/]+/"+method, field+".method")
	default:
		m.Path = &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_EXACT, Value: "/" + service + "/" + method}
	}
	return nil
}

// grpcExpression compiles regular expressions for the service and the method, each of which must match the whole of its
// part. One for the method alone becomes a condition, as the name of a method does.
func (s *scope) grpcExpression(m *config.Match, service, method, field string) *condition.Problem {
	parts := [2]string{"[^/]+", "[^/]+"}
	for i, e := range [2]string{service, method} {
		if e == "" {
			continue
		}
		// By itself too: with a parenthesis that it does not close, it would not mean what it says.
		p := s.checkSyntax(e, field+[2]string{".service", ".method"}[i])
		if p == nil {
			e, p = s.withoutAnchors(e, field+[2]string{".service", ".method"}[i])
		}
		if p != nil {
			if !s.spec.filtered() {
				return p
			}
			s.replaced(p)
			e = widenedTo(plainPrefix(e), len(e))
		}
		parts[i] = "(?:" + CloseQuotation(e) + ")"
	}
	path := "/" + parts[0] + "/" + parts[1]
	if service == "" {
		return s.grpcPathCondition(m, path, field+".method")
	}
	m.Path = &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_REGULAR_EXPRESSION, Value: path}
	return s.expression(&m.Path.Value, field)
}

// grpcPathCondition adds a regular expression for the path in a form that comes after every match of a service, as a
// match of a method alone must: as an expression of Path it would come before those of a service alone.
func (s *scope) grpcPathCondition(m *config.Match, expression, field string) *condition.Problem {
	v := &config.ValueMatch{Name: ":path", Value: expression, RegularExpression: true}
	m.Headers = append(m.Headers, v)
	return s.expression(&v.Value, field)
}
