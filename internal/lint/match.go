package lint

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// place is a set of requests: those for one hostname that arrive through one parent.
type place struct{ parent, hostname string }

// winner is the match that takes precedence.
type winner struct {
	route *gwv1.HTTPRoute
	field string
}

// matches reports matches that are equal to another one that takes precedence: that of the older route, else of the first by name,
// else the earlier (HTTPRoute's docstring of matches).
func (l *linter) matches(routes []*gwv1.HTTPRoute) {
	routes = slices.SortedFunc(slices.Values(routes), func(a, b *gwv1.HTTPRoute) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	taken := map[place]map[string]winner{}
	for _, route := range routes {
		places := placesOf(route)
		for i, rule := range route.Spec.Rules {
			own := map[string]bool{}
			for j, match := range rule.Matches {
				l.wildcard(route, fmt.Sprintf("spec.rules[%d].matches[%d].path", i, j), match.Path)
				l.escape(route, fmt.Sprintf("spec.rules[%d].matches[%d].path", i, j), match.Path)
				k := matchKey(match)
				if own[k] {
					continue // a duplicate within a rule has no effect
				}
				own[k] = true
				field := fmt.Sprintf("spec.rules[%d].matches[%d]", i, j)
				l.match(route, field, k, places, taken)
			}
		}
	}
}

// each returns the result of of for each element of a list.
func each[A, B any](list []A, of func(A) B) []B {
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = of(a)
	}
	return out
}

// headerNames reports header names that a match contains twice, in different case: the specification ignores all except the first.
func (l *linter) headerNames(o metav1.Object) {
	switch o := o.(type) {
	case *gwv1.HTTPRoute:
		for i, rule := range o.Spec.Rules {
			for j, match := range rule.Matches {
				names := each(match.Headers, func(h gwv1.HTTPHeaderMatch) string { return string(h.Name) })
				l.repeatedNames(o, fmt.Sprintf("spec.rules[%d].matches[%d].headers", i, j), names)
			}
		}
	case *gwv1.GRPCRoute:
		for i, rule := range o.Spec.Rules {
			for j, match := range rule.Matches {
				names := each(match.Headers, func(h gwv1.GRPCHeaderMatch) string { return string(h.Name) })
				l.repeatedNames(o, fmt.Sprintf("spec.rules[%d].matches[%d].headers", i, j), names)
			}
		}
	}
}

func (l *linter) repeatedNames(o metav1.Object, field string, names []string) {
	for k, name := range names {
		if first := slices.IndexFunc(names[:k], func(n string) bool { return strings.EqualFold(n, name) }); first >= 0 {
			l.add(o, fmt.Sprintf("%s[%d].name", field, k), fmt.Sprintf("%s is the name of headers[%d], too, because case does not count, so this one is ignored", name, first),
				"remove one of the two; for either of two values write two matches")
		}
	}
}

// wildcard reports a path that ends like a path of other gateways that matches everything below it.
func (l *linter) wildcard(route *gwv1.HTTPRoute, field string, path *gwv1.HTTPPathMatch) {
	if path == nil || path.Value == nil || path.Type != nil && *path.Type == gwv1.PathMatchRegularExpression {
		return
	}
	prefix, ok := strings.CutSuffix(*path.Value, "/*")
	if !ok {
		return
	}
	if prefix == "" {
		prefix = "/"
	}
	l.add(route, field+".value", fmt.Sprintf("%q ends with a \"*\", which is matched as it is written", *path.Value),
		fmt.Sprintf("to match everything below, write type: PathPrefix and value: %s", prefix))
}

// escaped matches a percent-encoded byte.
var escaped = regexp.MustCompile(`%([0-9A-Fa-f]{2})`)

// escape reports escapes in regular expressions that no path contains, because paths are matched in normalized form: with escapes in
// upper case, and without those of unreserved characters (RFC 3986 section 6.2.2). Expressions with flags or groups of their own,
// such as (?i), may match nevertheless, and so may character classes.
func (l *linter) escape(route *gwv1.HTTPRoute, field string, path *gwv1.HTTPPathMatch) {
	if path == nil || path.Value == nil || path.Type == nil || *path.Type != gwv1.PathMatchRegularExpression || strings.Contains(*path.Value, "(?") {
		return
	}
	value := *path.Value
	for _, m := range escaped.FindAllStringSubmatchIndex(value, -1) {
		if strings.LastIndexByte(value[:m[0]], '[') > strings.LastIndexByte(value[:m[0]], ']') {
			continue // in a character class
		}
		found := value[m[0]:m[1]]
		normal := strings.ToUpper(found)
		code, _ := strconv.ParseUint(value[m[2]:m[3]], 16, 8) // two hexadecimal digits
		if c := string(rune(code)); unreserved.MatchString(c) {
			normal = regexp.QuoteMeta(c)
		}
		if normal != found {
			l.add(route, field+".value", fmt.Sprintf("no path has %q, because paths are matched in the form that RFC 3986 calls normalized", found), fmt.Sprintf("write %q", normal))
		}
	}
}

// unreserved matches a character that needs no escape (RFC 3986 section 2.3).
var unreserved = regexp.MustCompile(`^[A-Za-z0-9._~-]$`)

func (l *linter) match(route *gwv1.HTTPRoute, field, k string, places []place, taken map[place]map[string]winner) {
	lost := 0
	var first winner
	for _, p := range places {
		if taken[p] == nil {
			taken[p] = map[string]winner{}
		}
		by, ok := taken[p][k]
		if !ok {
			taken[p][k] = winner{route, field}
			continue
		}
		if lost == 0 {
			first = by
		}
		lost++
	}
	if lost == 0 || lost < len(places) {
		return
	}
	of := first.field
	if first.route != route {
		of += fmt.Sprintf(" of HTTPRoute %s/%s", first.route.Namespace, first.route.Name)
	}
	l.add(route, field, "it is the same as "+of+", which takes precedence, so it never matches a request", "remove one of the two, or match more in one of them")
}

// placesOf returns the places of a route. Parents are compared as they are written: a route for a listener and one for its whole
// Gateway have no place in common.
func placesOf(route *gwv1.HTTPRoute) (places []place) {
	hostnames := route.Spec.Hostnames
	if len(hostnames) == 0 {
		hostnames = []gwv1.Hostname{""}
	}
	for _, ref := range route.Spec.ParentRefs {
		parent := parentKey(route.Namespace, ref)
		for _, hostname := range hostnames {
			if p := (place{parent, strings.ToLower(string(hostname))}); !slices.Contains(places, p) {
				places = append(places, p)
			}
		}
	}
	return places
}

func parentKey(namespace string, ref gwv1.ParentReference) string {
	kind, section, port := "Gateway", "", int32(0)
	if ref.Kind != nil {
		kind = string(*ref.Kind)
	}
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	if ref.SectionName != nil {
		section = string(*ref.SectionName)
	}
	if ref.Port != nil {
		port = int32(*ref.Port)
	}
	return fmt.Sprintf("%s/%s/%s/%s/%d", kind, namespace, ref.Name, section, port)
}

// matchKey returns the same key for matches with the same meaning, with defaults applied.
func matchKey(m gwv1.HTTPRouteMatch) string {
	var parts []string
	if m.Path != nil {
		kind, value := gwv1.PathMatchPathPrefix, "/"
		if m.Path.Type != nil {
			kind = *m.Path.Type
		}
		if m.Path.Value != nil {
			value = *m.Path.Value
		}
		if kind == gwv1.PathMatchPathPrefix && len(value) > 1 {
			value = strings.TrimSuffix(value, "/")
		}
		parts = append(parts, fmt.Sprintf("path %s %q", kind, value))
	} else {
		parts = append(parts, `path PathPrefix "/"`)
	}
	if m.Method != nil {
		parts = append(parts, "method "+string(*m.Method))
	}
	var conditions []string
	for _, h := range m.Headers {
		kind := gwv1.HeaderMatchExact
		if h.Type != nil {
			kind = *h.Type
		}
		conditions = append(conditions, fmt.Sprintf("header %s %s %q", strings.ToLower(string(h.Name)), kind, h.Value))
	}
	for _, q := range m.QueryParams {
		kind := gwv1.QueryParamMatchExact
		if q.Type != nil {
			kind = *q.Type
		}
		conditions = append(conditions, fmt.Sprintf("query %s %s %q", q.Name, kind, q.Value))
	}
	slices.Sort(conditions)
	return strings.Join(append(parts, conditions...), "\n")
}
