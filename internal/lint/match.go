package lint

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
)

// place is a set of requests: those for one hostname that a listener has for routes of one kind. Two routes may have the same
// intersection with the listener's hostname; that whose own hostname is more specific takes precedence.
type place struct{ listener, effective, original, kind string }

// ofAnyOriginal returns the place without the hostnames of routes.
func (p place) ofAnyOriginal() place {
	p.original = ""
	return p
}

// winner is the match that takes precedence.
type winner struct {
	route kind.ObjectKey
	rule  uint32 // its index
	field string
}

// specMatches returns the number of matches in the spec of each rule of a route.
func specMatches(o metav1.Object) (counts []int) {
	switch o := o.(type) {
	case *gwv1.HTTPRoute:
		for _, rule := range o.Spec.Rules {
			counts = append(counts, len(rule.Matches))
		}
	case *gwv1.GRPCRoute:
		for _, rule := range o.Spec.Rules {
			counts = append(counts, len(rule.Matches))
		}
	}
	return counts
}

// matches reports matches that are equal to another one that takes precedence: that of the older route, else of the first by name,
// else the earlier (HTTPRoute's docstring of matches). It compares what is in force: a route takes requests from others only at the
// listeners that accept it, and a rule that is dropped takes none.
func (l *linter) matches(objects []metav1.Object, routes []*route) {
	counts := map[kind.ObjectKey][]int{}
	for _, o := range objects {
		if of := specMatches(o); of != nil {
			counts[kind.KeyOf(o)] = of
		}
	}
	for _, route := range routes {
		for _, rule := range route.rules {
			field := fmt.Sprintf("spec.rules[%d]", rule.Index)
			matches := slices.DeleteFunc(slices.Clone(rule.Matches), (*config.Match).GetPreflight)
			all := counts[route.id]
			if int(rule.Index) >= len(all) || len(matches) != max(all[rule.Index], 1) {
				continue // some of its matches are invalid, which is reported, and it is not known which these are
			}
			own := map[string]bool{}
			for j, match := range matches {
				k := matchKey(match)
				if own[k] {
					continue // a duplicate within a rule has no effect
				}
				own[k] = true
				at := field
				if all[rule.Index] > 0 {
					at += fmt.Sprintf(".matches[%d]", j)
				}
				if by, lost := l.take(route, k, winner{route.id, rule.Index, at}); lost {
					of := by.field
					if by.route != route.id {
						of += " of " + by.route.String()
					}
					l.addTo(route.id, at, "it is the same as "+of+", which takes precedence, so it never matches a request", "remove one of the two, or match more in one of them")
				}
			}
		}
	}
}

// take notes that a match takes the requests of its route's places, and reports whether others have taken all of them; then it
// returns the first of these.
func (l *linter) take(route *route, k string, match winner) (first winner, lost bool) {
	places, lostPlaces := 0, 0
	for _, a := range route.attachments {
		for _, h := range a.Hostnames {
			p := place{a.Listener, h.Effective, h.Original, route.id.Kind}
			places++
			if l.taken[p] == nil {
				l.taken[p] = map[string]winner{}
				l.originals[p.ofAnyOriginal()]++
			}
			by, is := l.taken[p][k]
			if !is {
				l.taken[p][k] = match
				continue
			}
			if lostPlaces == 0 {
				first = by
			}
			lostPlaces++
		}
	}
	return first, lostPlaces > 0 && lostPlaces == places
}

// matchValues reports values of matches that match no request.
func (l *linter) matchValues(route *gwv1.HTTPRoute) {
	for i, rule := range route.Spec.Rules {
		for j, match := range rule.Matches {
			field := fmt.Sprintf("spec.rules[%d].matches[%d].path", i, j)
			l.wildcard(route, field, match.Path)
			l.escape(route, field, match.Path)
			l.relative(route, field, match.Path)
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

// headerNames reports header names that a match contains twice, in different case, of which the specification ignores all except the
// first, and names of header fields that proxies remove or set before they match a request.
func (l *linter) headerNames(o metav1.Object) {
	switch o := o.(type) {
	case *gwv1.HTTPRoute:
		for i, rule := range o.Spec.Rules {
			for j, match := range rule.Matches {
				names := each(match.Headers, func(h gwv1.HTTPHeaderMatch) string { return string(h.Name) })
				l.matchedNames(o, fmt.Sprintf("spec.rules[%d].matches[%d].headers", i, j), names)
			}
		}
	case *gwv1.GRPCRoute:
		for i, rule := range o.Spec.Rules {
			for j, match := range rule.Matches {
				names := each(match.Headers, func(h gwv1.GRPCHeaderMatch) string { return string(h.Name) })
				l.matchedNames(o, fmt.Sprintf("spec.rules[%d].matches[%d].headers", i, j), names)
			}
		}
	}
}

func (l *linter) matchedNames(o metav1.Object, field string, names []string) {
	for k, name := range names {
		at := fmt.Sprintf("%s[%d].name", field, k)
		first := slices.IndexFunc(names[:k], func(n string) bool { return strings.EqualFold(n, name) })
		switch lower := strings.ToLower(name); {
		case first >= 0:
			l.add(o, at, fmt.Sprintf("%s is the name of headers[%d], too, because case does not count, so this one is ignored", name, first),
				"remove one of the two; for either of two values write two matches")
		case config.RemovedBeforeMatching(lower):
			l.add(o, at, fmt.Sprintf("no request matches, because %s belongs to the connection, not to the message, and is removed before requests are matched", name), "match another header")
		case config.SetBeforeMatching(lower) && lower != "x-request-id" && l.trustsNone[kind.KeyOf(o)]: // requestIDs may preserve that one
			l.add(o, at, fmt.Sprintf("it is not matched against what clients send: the gateway sets or removes %s itself before requests are matched", name),
				"match another header, or name the proxies in front of the gateway in trustedProxies of its GatewayParameters")
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

// foldsCase matches flags for which the parser of regular expressions takes long.
var foldsCase = regexp.MustCompile(`\(\?[imsU-]*i`)

// relative reports regular expressions that match no path, because each path begins with a slash and the whole path must match.
func (l *linter) relative(route *gwv1.HTTPRoute, field string, path *gwv1.HTTPPathMatch) {
	if path == nil || path.Value == nil || path.Type == nil || *path.Type != gwv1.PathMatchRegularExpression || foldsCase.MatchString(*path.Value) {
		return
	}
	parsed, err := syntax.Parse(*path.Value, syntax.Perl)
	if err != nil {
		return // a condition of the route reports it
	}
	if slash, _ := begins(parsed, '/'); !slash {
		l.add(route, field+".value", fmt.Sprintf("%q matches no path, because every path begins with \"/\", and the whole path must match", *path.Value),
			`let the expression begin with "/", or with ".*" if anything may come before`)
	}
}

// begins reports whether a text that an expression matches may begin with c, and whether the text may be empty.
func begins(e *syntax.Regexp, c rune) (with, empty bool) {
	switch e.Op {
	case syntax.OpNoMatch:
		return false, false
	case syntax.OpLiteral:
		return e.Rune[0] == c, false
	case syntax.OpCharClass:
		for i := 0; i < len(e.Rune); i += 2 {
			with = with || e.Rune[i] <= c && c <= e.Rune[i+1]
		}
		return with, false
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true, false
	case syntax.OpCapture, syntax.OpPlus:
		return begins(e.Sub[0], c)
	case syntax.OpStar, syntax.OpQuest:
		with, _ = begins(e.Sub[0], c)
		return with, true
	case syntax.OpRepeat:
		with, empty = begins(e.Sub[0], c)
		return with && e.Max != 0, empty || e.Min == 0
	case syntax.OpConcat:
		for _, sub := range e.Sub {
			here, none := begins(sub, c)
			if with = with || here; !none {
				return with, false
			}
		}
		return with, true
	case syntax.OpAlternate:
		for _, sub := range e.Sub {
			here, none := begins(sub, c)
			with, empty = with || here, empty || none
		}
		return with, empty
	}
	return false, true // an assertion, such as ^, or nothing
}

// unreserved matches a character that needs no escape (RFC 3986 section 2.3).
var unreserved = regexp.MustCompile(`^[A-Za-z0-9._~-]$`)

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

// matchKey returns the same key for matches with the same meaning.
func matchKey(m *config.Match) string {
	var conditions []string
	for _, h := range m.Headers {
		conditions = append(conditions, fmt.Sprintf("header %s %t %q", h.Name, h.RegularExpression, h.Value))
	}
	for _, q := range m.QueryParams {
		conditions = append(conditions, fmt.Sprintf("query %q %t %q", q.Name, q.RegularExpression, q.Value))
	}
	slices.Sort(conditions)
	return strings.Join(append([]string{fmt.Sprintf("path %s %q", m.Path.GetType(), m.Path.GetValue()), "method " + m.Method}, conditions...), "\n")
}
