package rule

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

func (s *scope) matches() *condition.Problem {
	specs := s.spec.Matches
	if len(specs) == 0 {
		specs = []gwv1.HTTPRouteMatch{{}}
	}
	for i := range specs {
		m, p := s.match(&specs[i], fmt.Sprintf(".matches[%d]", i))
		if p != nil {
			return p
		}
		s.rule.Matches = append(s.rule.Matches, m)
	}
	return nil
}

func (s *scope) match(spec *gwv1.HTTPRouteMatch, field string) (*config.Match, *condition.Problem) {
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
		v := &config.ValueMatch{Name: strings.ToLower(string(h.Name)), Value: h.Value}
		f := fmt.Sprintf("%s.headers[%d]", field, i)
		if p := s.valueMatch(v, string(value(h.Type, gwv1.HeaderMatchExact)), f); p != nil {
			return nil, p
		}
		m.Headers = appendFirst(m.Headers, v)
	}
	for i, q := range spec.QueryParams {
		v := &config.ValueMatch{Name: string(q.Name), Value: q.Value}
		f := fmt.Sprintf("%s.queryParams[%d]", field, i)
		if p := s.valueMatch(v, string(value(q.Type, gwv1.QueryParamMatchExact)), f); p != nil {
			return nil, p
		}
		m.QueryParams = appendFirst(m.QueryParams, v)
	}
	return m, nil
}

var methods = []gwv1.HTTPMethod{
	gwv1.HTTPMethodGet, gwv1.HTTPMethodHead, gwv1.HTTPMethodPost, gwv1.HTTPMethodPut, gwv1.HTTPMethodDelete,
	gwv1.HTTPMethodConnect, gwv1.HTTPMethodOptions, gwv1.HTTPMethodTrace, gwv1.HTTPMethodPatch,
}

// appendFirst ignores a second match of the same name, as the specification asks.
func appendFirst(list []*config.ValueMatch, v *config.ValueMatch) []*config.ValueMatch {
	if slices.ContainsFunc(list, func(known *config.ValueMatch) bool { return known.Name == v.Name }) {
		return list
	}
	return append(list, v)
}

// valueMatch completes v; both kinds of value match have the same two types.
func (s *scope) valueMatch(v *config.ValueMatch, kind, field string) *condition.Problem {
	switch kind {
	case string(gwv1.HeaderMatchExact):
		return nil
	case string(gwv1.HeaderMatchRegularExpression):
		v.RegularExpression = true
		return s.expression(v.Value, field+".value")
	}
	return s.unsupported(field+".type", "use Exact or RegularExpression", "%q is not known", kind)
}

// pathCharacters is RFC 3986's path, without the dot segments and double slashes
// that a request's path never has once it is normalised.
var pathCharacters = regexp.MustCompile(`^/(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*$`)

func (s *scope) pathMatch(spec *gwv1.HTTPPathMatch, field string) (*config.PathMatch, *condition.Problem) {
	kind, path := gwv1.PathMatchPathPrefix, "/"
	if spec != nil {
		kind, path = value(spec.Type, kind), value(spec.Value, path)
	}
	switch kind {
	case gwv1.PathMatchRegularExpression:
		return &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_REGULAR_EXPRESSION, Value: path}, s.expression(path, field+".value")
	case gwv1.PathMatchExact, gwv1.PathMatchPathPrefix:
	default:
		return nil, s.unsupported(field+".type", "use Exact, PathPrefix or RegularExpression", "%q is not known", kind)
	}
	if !pathCharacters.MatchString(path) || neverMatches(path) {
		return nil, s.unsupported(field+".value", "write an absolute path without empty or dot segments, %2F and %00", "%q is not a path that a request can have", path)
	}
	if kind == gwv1.PathMatchExact {
		return &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_EXACT, Value: path}, nil
	}
	return &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX, Value: strings.TrimSuffix(path, "/")}, nil
}

func neverMatches(path string) bool {
	path = strings.ReplaceAll(strings.ToLower(path), "%2e", ".")
	return strings.Contains(path, "//") || strings.Contains(path, "/./") || strings.Contains(path, "/../") ||
		strings.HasSuffix(path, "/.") || strings.HasSuffix(path, "/..") || strings.Contains(path, "%2f") || strings.Contains(path, "%00")
}
