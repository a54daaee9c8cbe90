package rule

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// HTTP returns the Spec of a rule of an HTTPRoute.
func HTTP(r *gwv1.HTTPRouteRule) Spec {
	return Spec{
		Name: r.Name, Filters: r.Filters, BackendRefs: r.BackendRefs, Timeouts: r.Timeouts, Retry: r.Retry,
		//lint:ignore SA1019 routes still have the deprecated field, and it must not be passed over
		SessionPersistence: r.SessionPersistence,
		matches:            func(s *scope) *condition.Problem { return matches(s, r.Matches, s.httpMatch) },
	}
}

func (s *scope) httpMatch(spec *gwv1.HTTPRouteMatch, field string) (*config.Match, *condition.Problem) {
	path, p := s.pathMatch(spec.Path, field+".path")
	if p != nil {
		return nil, p
	}
	m := &config.Match{Path: path}
	if spec.Method != nil {
		m.Method = string(*spec.Method)
		if !slices.Contains(methods, *spec.Method) {
			return nil, s.unsupported(field+".method", "use one of "+fmt.Sprint(methods), "%q is not known", m.Method)
		}
	}
	for i, h := range spec.Headers {
		m.Headers, p = s.appendHeaderMatch(m.Headers, string(h.Name), h.Value, string(ptr.Deref(h.Type, gwv1.HeaderMatchExact)), fmt.Sprintf("%s.headers[%d]", field, i))
		if p != nil {
			return nil, p
		}
	}
	for i, q := range spec.QueryParams {
		v := &config.ValueMatch{Name: string(q.Name), Value: q.Value}
		if repeats(m.QueryParams, v.Name) {
			continue
		}
		f := fmt.Sprintf("%s.queryParams[%d]", field, i)
		if p := s.valueMatch(v, string(ptr.Deref(q.Type, gwv1.QueryParamMatchExact)), f); p != nil {
			return nil, p
		}
		m.QueryParams = append(m.QueryParams, v)
	}
	return m, nil
}

var methods = []gwv1.HTTPMethod{
	gwv1.HTTPMethodGet, gwv1.HTTPMethodHead, gwv1.HTTPMethodPost, gwv1.HTTPMethodPut, gwv1.HTTPMethodDelete,
	gwv1.HTTPMethodConnect, gwv1.HTTPMethodOptions, gwv1.HTTPMethodTrace, gwv1.HTTPMethodPatch,
}

// pathCharacters matches a path of RFC 3986.
var pathCharacters = regexp.MustCompile(`^/(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*$`)

func (s *scope) pathMatch(spec *gwv1.HTTPPathMatch, field string) (*config.PathMatch, *condition.Problem) {
	kind, path := gwv1.PathMatchPathPrefix, "/"
	if spec != nil {
		kind, path = ptr.Deref(spec.Type, kind), ptr.Deref(spec.Value, path)
	}
	switch kind {
	case gwv1.PathMatchRegularExpression:
		m := &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_REGULAR_EXPRESSION, Value: path}
		return m, s.expression(&m.Value, field+".value")
	case gwv1.PathMatchExact, gwv1.PathMatchPathPrefix:
	default:
		return nil, s.unsupported(field+".type", "use Exact, PathPrefix or RegularExpression", "%q is not known", kind)
	}
	if !pathCharacters.MatchString(path) || hasForbidden(path) {
		return nil, s.unsupported(field+".value", "write an absolute path without empty or dot segments, %2F and %00", "%q is not allowed as a path", path)
	}
	if kind == gwv1.PathMatchExact {
		return &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_EXACT, Value: path}, nil
	}
	return &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX, Value: strings.TrimSuffix(path, "/")}, nil
}

// hasForbidden reports whether a path contains what the API forbids in the values of matches, in any encoding (HTTPPathMatch).
// Requests may contain some of it: their empty segments and %2F are kept.
func hasForbidden(path string) bool {
	path = strings.ReplaceAll(strings.ToLower(path), "%2e", ".")
	if strings.Contains(path, "//") || strings.Contains(path, "%2f") || strings.Contains(path, "%00") {
		return true
	}
	for segment := range strings.SplitSeq(strings.ReplaceAll(path, "%5c", "/"), "/") {
		if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
			return true
		}
	}
	return false
}
