package match

import (
	"fmt"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
)

// Rule is the result of routing a request: one match of one rule. It is shared by all tables that hold its route and
// must not be changed.
type Rule[V any] struct {
	Route  *config.Route
	Config *config.Rule
	Match  *config.Match // the one of Config.Matches that the request satisfied
	Value  V             // result of Compile's values for Config; the same for all its matches
}

// Route is a compiled config.Route. It is immutable and can be in many tables.
type Route[V any] struct {
	Config  *config.Route
	name    string // "namespace/name"
	matches []*match[V]
}

// match is one compiled config.Match.
type match[V any] struct {
	Rule    Rule[V]
	route   *Route[V]
	path    pathMatch
	method  string // "" means any
	headers []valueMatch
	guard   *valueMatch // of headers, see candidates; may be nil
	query   []valueMatch
	rule    uint32 // config.Rule.Index
	counted uint32 // number of headers that count for precedence: without those added for preflight requests
	index   int    // in config.Rule.Matches
	call    bool   // of a GRPCRoute
}

// Compile prepares route for tables. It calls values once for every rule. An error names route, rule and match; it is
// for a regular expression that is not RE2, an unknown path type, or a path without a leading '/'. The control plane
// accepts none of these. A match without a path fits every path.
func Compile[V any](route *config.Route, values func(rule *config.Rule) V) (*Route[V], error) {
	r := &Route[V]{Config: route, name: route.Namespace + "/" + route.Name}
	call := strings.HasPrefix(route.Key, "GRPCRoute/")
	for _, rule := range route.Rules {
		value := values(rule)
		for i, cm := range rule.Matches {
			m, err := compileMatch[V](cm)
			if err != nil {
				return nil, fmt.Errorf("route %s: rules[%d].matches[%d].%w", route.Key, rule.Index, i, err)
			}
			m.Rule = Rule[V]{Route: route, Config: rule, Match: cm, Value: value}
			m.route, m.rule, m.index, m.call = r, rule.Index, i, call
			r.matches = append(r.matches, m)
		}
	}
	return r, nil
}

func compileMatch[V any](cm *config.Match) (*match[V], error) {
	m := &match[V]{method: cm.Method}
	var err error
	if m.path, err = compilePath(cm.Path); err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}
	for i, h := range cm.Headers {
		v, err := compileValue(strings.ToLower(h.Name), h)
		if err != nil {
			return nil, fmt.Errorf("headers[%d]: %w", i, err)
		}
		m.headers = append(m.headers, v)
	}
	m.counted = uint32(len(m.headers)) - min(cm.AddedHeaders, uint32(len(m.headers)))
	m.guard = guardOf(m.headers)
	for i, q := range cm.QueryParams {
		v, err := compileValue(q.Name, q)
		if err != nil {
			return nil, fmt.Errorf("queryParams[%d]: %w", i, err)
		}
		m.query = append(m.query, v)
	}
	return m, nil
}

func compilePath(cp *config.PathMatch) (pathMatch, error) {
	if cp == nil {
		return pathMatch{kind: prefixPath}, nil
	}
	switch cp.Type {
	case config.PathMatchType_PATH_MATCH_TYPE_EXACT:
		if !strings.HasPrefix(cp.Value, "/") {
			return pathMatch{}, fmt.Errorf("value %q must begin with '/'", cp.Value)
		}
		return pathMatch{kind: exactPath, value: normalPath(cp.Value)}, nil
	case config.PathMatchType_PATH_MATCH_TYPE_PREFIX:
		if cp.Value != "" && cp.Value[0] != '/' {
			return pathMatch{}, fmt.Errorf("value %q must begin with '/'", cp.Value)
		}
		return pathMatch{kind: prefixPath, value: strings.TrimRight(normalPath(cp.Value), "/")}, nil
	case config.PathMatchType_PATH_MATCH_TYPE_REGULAR_EXPRESSION:
		re, err := compileRegex(cp.Value)
		return pathMatch{kind: regexPath, value: cp.Value, regex: re}, err
	}
	return pathMatch{}, fmt.Errorf("unknown path match type %v: the control plane is newer than this proxy", cp.Type)
}

func compileValue(name string, cv *config.ValueMatch) (valueMatch, error) {
	v := valueMatch{name: name, value: cv.Value}
	if !cv.RegularExpression {
		return v, nil
	}
	var err error
	v.regex, err = compileRegex(cv.Value)
	return v, err
}
