package migrate

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// An object with one invalid value is rejected as a whole: a cluster does not accept it, and in files it is not served. If a route
// is not served, a wider path of its host may lead to the same backend without what protects the route. So everything is validated
// before it is written, by the rules for manifests: first the result of each Ingress's annotations, then whole objects.

// problems returns why an object would not be accepted.
func problems(d *document) []manifest.Problem {
	var b bytes.Buffer
	d.write(&b)
	read := manifest.Decode(b.Bytes())
	found := read.Problems
	for _, e := range read.Entries {
		found = append(found, e.Problems...)
	}
	return found
}

// madeOf maps parts of field paths to the annotations from which the fields are made, the more specific parts first.
var madeOf = []struct{ part, names string }{
	{".cors.allowOrigins", "cors-allow-origin"},
	{".cors.allowMethods", "cors-allow-methods"},
	{".cors.allowHeaders", "cors-allow-headers"},
	{".cors.exposeHeaders", "cors-expose-headers"},
	{".cors.maxAge", "cors-max-age"},
	{".cors", "enable-cors"},
	{".externalAuth.http.allowedResponseHeaders", "auth-response-headers"},
	{".externalAuth", "auth-url"},
	{".requestMirror", "mirror-target"},
	{".requestHeaderModifier", "x-forwarded-prefix"},
	{".urlRewrite.hostname", "upstream-vhost"},
	{".urlRewrite", "rewrite-target"},
	{".requestRedirect", "temporal-redirect permanent-redirect app-root"},
	{".sessionPersistence", "session-cookie-name affinity"},
	{".headers", "canary-by-header-value canary-by-header-pattern canary-by-header canary-by-cookie"},
	{"spec.rateLimit", "limit-rps limit-rpm allowlist-source-range whitelist-source-range denylist-source-range"},
	{"spec.timeout.tcp", "proxy-connect-timeout"},
	{"spec.timeout", "proxy-read-timeout proxy-send-timeout"},
	{"spec.retry", "proxy-next-upstream-tries proxy-next-upstream"},
	{"spec.loadBalancer", "upstream-hash-by load-balance"},
}

// origin returns the annotation of an Ingress from which a field was made, or otherwise.
func (ing *ingress) origin(path, otherwise string) string {
	for _, m := range madeOf {
		if !strings.Contains(path, m.part) {
			continue
		}
		for name := range strings.FieldsSeq(m.names) {
			if _, ok := ing.Annotations[prefix+name]; ok {
				return name
			}
		}
	}
	return otherwise
}

// refuse reports that the result of an annotation or a field of an Ingress would not be accepted. It replaces what was reported
// about the annotation before.
func (c *converter) refuse(ing *ingress, name, message, remedy string) {
	c.reportNotTranslated(ing, name, message, remedy)
	if strings.HasPrefix(name, "spec.") { // a field may have several entries
		return
	}
	last := c.report[len(c.report)-1]
	c.report = slices.DeleteFunc(c.report, func(e Entry) bool {
		return e.Object == last.Object && e.Field == last.Field && e.Outcome != NotTranslated
	})
	c.claims[ing] = slices.DeleteFunc(c.claims[ing], func(one claim) bool { return one.name == name })
}

const answered500 = "; so that nothing is open, its paths are answered 500"

// admit withholds the rules of an Ingress whose annotations result in something that would not be accepted.
func (r *reader) admit() {
	r.admitPolicy()
	s := r.set
	hold := func(why string) { s.withheld = why }
	var rules []object
	var leave []func(why string) // called for each rule whose part is left out
	try := func(part object, otherwise func(string)) {
		rules, leave = append(rules, part), append(leave, otherwise)
	}
	filter := func(kind, name string, config object, otherwise func(string)) {
		if len(config) > 0 {
			try(fields("filters", []object{fields("type", kind, name, config)}), otherwise)
		}
	}
	filter("CORS", "cors", s.cors, func(why string) { s.cors = nil; hold(why) })
	filter("ExternalAuth", "externalAuth", s.auth, func(why string) { s.auth, s.withheldAuth = nil, why })
	filter("RequestMirror", "requestMirror", s.mirror, func(why string) { s.mirror = nil; hold(why) })
	filter("RequestHeaderModifier", "requestHeaderModifier", fields("set", s.requestHeaders), func(why string) { s.requestHeaders = nil; hold(why) })
	filter("URLRewrite", "urlRewrite", fields("hostname", nonEmpty(s.vhost)), func(why string) { s.vhost = ""; hold(why) })
	if len(s.session) > 0 {
		try(fields("sessionPersistence", s.session), func(why string) { s.session = nil; hold(why) })
	}
	if s.redirect != nil {
		try(fields("filters", []object{s.redirect.filter()}), func(why string) { s.redirect, s.unredirected = nil, true; hold(why) })
	}
	if s.appRoot != "" && !s.appRootWithheld {
		try(fields("filters", []object{(&redirect{path: s.appRoot, code: 302}).filter()}), func(string) { s.appRootWithheld = true })
	}
	if len(rules) == 0 {
		return
	}
	left := map[int]bool{}
	for _, p := range problems(&document{body: meta("gateway.networking.k8s.io/v1", "HTTPRoute", "", "annotations", fields("rules", rules))}) {
		i, inner, ok := ruleOf(p.Field)
		if !ok || i >= len(rules) {
			continue
		}
		name := r.ing.origin(p.Field, "metadata.annotations")
		if !left[i] {
			left[i] = true
			leave[i]("what " + name + " says would not be accepted")
		}
		paths := answered500
		if name == "app-root" {
			paths = "; so that nothing is open, / is answered 500"
		}
		r.refuse(r.ing, name, "would become "+inner+", which would not be accepted: "+p.Message+paths, p.Remedy)
	}
}

var policyRule = regexp.MustCompile(`^spec\.rateLimit\.local\.rules\[(\d+)\]`)

// admitPolicy removes parts of an Ingress's policy that would not be accepted, and withholds the rules of the policy if a removed
// part rejects requests.
func (r *reader) admitPolicy() {
	s := r.set
	if len(s.policy) == 0 {
		return
	}
	target := []object{fields("group", "gateway.networking.k8s.io", "kind", "HTTPRoute", "name", "annotations")}
	refused, limits := map[string]bool{}, map[int]bool{}
	for _, p := range problems(&document{body: meta("gateway.envoyproxy.io/v1alpha1", "BackendTrafficPolicy", "", "annotations", append(object{{"targetRefs", target}}, s.policy...))}) {
		field, _, _ := strings.Cut(strings.TrimPrefix(p.Field, "spec."), ".")
		name, paths := r.ing.origin(p.Field, "metadata.annotations"), "; it is left out"
		if field == "rateLimit" {
			paths = answered500
			s.withheld = "what " + name + " says would not be accepted"
		}
		if m := policyRule.FindStringSubmatch(p.Field); m != nil {
			i, _ := strconv.Atoi(m[1])
			limits[i] = true
		} else {
			refused[field] = true
		}
		r.refuse(r.ing, name, "would become "+p.Field+" of a BackendTrafficPolicy, which would not be accepted: "+p.Message+paths, p.Remedy)
	}
	s.policy = slices.DeleteFunc(s.policy, func(f field) bool { return refused[f.name] })
	for i, f := range s.policy {
		if f.name == "rateLimit" && len(limits) > 0 {
			s.policy[i].value = withoutLimits(f.value.(object), limits)
		}
	}
	s.policy = slices.DeleteFunc(s.policy, func(f field) bool { o, ok := f.value.(object); return ok && len(o) == 0 })
}

// withoutLimits returns a rate limit without some of its rules.
func withoutLimits(rateLimit object, without map[int]bool) object {
	rules := rateLimit[0].value.(object)[0].value.([]object)
	var kept []object
	for i, one := range rules {
		if !without[i] {
			kept = append(kept, one)
		}
	}
	return fields("local", fields("rules", kept))
}

var rulePath = regexp.MustCompile(`^spec\.rules\[(\d+)\]\.?(.*)$`)

// ruleOf returns the number of the rule in a path, and the rest of the path.
func ruleOf(path string) (i int, inner string, ok bool) {
	m := rulePath.FindStringSubmatch(path)
	if m == nil {
		return 0, "", false
	}
	i, err := strconv.Atoi(m[1])
	return i, m[2], err == nil
}

// admitRoute makes the rules of a route that would not be accepted answer 500, or all routes of its hosts if the problem is not in a
// rule.
func (c *converter) admitRoute(r *route) {
	for _, whole := range []bool{false, true} {
		found := problems(c.routeDocument(r))
		byRule := map[int][]manifest.Problem{}
		for _, p := range found {
			i, _, ok := ruleOf(p.Field)
			if !ok || i >= len(r.rules) {
				c.shut(r, p)
				return
			}
			byRule[i] = append(byRule[i], p)
		}
		if len(found) == 0 {
			return
		}
		var kept []*rule
		for i, one := range r.rules {
			if len(byRule[i]) == 0 || c.mend(r, one, byRule[i], whole) {
				kept = append(kept, one)
			}
		}
		r.rules = kept
	}
	if found := problems(c.routeDocument(r)); len(found) > 0 {
		c.shut(r, found[0])
	}
}

var innerPath = regexp.MustCompile(`^(\w+)(?:\[(\d+)\])?(.*)$`)

// mend removes what would not be accepted from a rule, or everything except its matches, and its backends. It returns false if the
// rule itself must be omitted, because without it requests match the rule with the same path and without the header.
func (c *converter) mend(r *route, one *rule, found []manifest.Problem, whole bool) bool {
	for _, p := range found {
		_, inner, _ := ruleOf(p.Field)
		if one.canary != nil && strings.HasPrefix(inner, "matches") && strings.Contains(inner, ".headers") {
			c.refuse(one.canary, one.canary.origin(p.Field, "canary"), "would become "+inner+" of a rule, which would not be accepted: "+p.Message+"; the rule is left out", p.Remedy)
			return false
		}
	}
	without := map[string]bool{"backendRefs": true}
	filters, matches := map[int]bool{}, map[int]bool{}
	for _, p := range found {
		_, inner, _ := ruleOf(p.Field)
		m := innerPath.FindStringSubmatch(inner)
		if m == nil {
			m = []string{"", "", "", ""} // the rule itself
			whole = true
		}
		n, err := strconv.Atoi(m[2])
		switch {
		case m[1] == "filters" && err == nil:
			filters[n] = true
		case m[1] == "matches" && err == nil:
			matches[n] = true
		case m[1] == "matches":
			whole = true
		default:
			without[m[1]] = true
		}
		name := one.from.origin(p.Field, one.field)
		if name == "" {
			name = "spec.rules"
		}
		c.refuse(one.from, name, "would become "+orRule(inner)+" of HTTPRoute "+r.namespace+"/"+r.name+", which would not be accepted: "+p.Message+"; so that nothing is open, requests for it are answered 500", p.Remedy)
		r.note(one.from.String() + ": what " + name + " says would not be accepted")
	}
	var body object
	for _, f := range one.body {
		switch list, _ := f.value.([]object); {
		case f.name == "matches":
			covered := slices.Clone(list)
			for i := range covered {
				if whole || matches[i] {
					covered[i] = cover(covered[i])
				}
			}
			body = body.with(f.name, covered)
		case whole || without[f.name]:
		case f.name == "filters":
			var kept []object
			for i, filter := range list {
				if !filters[i] {
					kept = append(kept, filter)
				}
			}
			body = body.with(f.name, kept)
		default:
			body = append(body, f)
		}
	}
	one.body = body
	return true
}

func orRule(inner string) string {
	if inner == "" {
		return "a rule"
	}
	return inner
}

// maxPath is the maximum length in bytes of the path of a match that an API server accepts.
const maxPath = 1024

// cover returns a match for all requests that another one matches, and for as few others as possible. It is a regular expression of
// the maximum length, so that no other match takes precedence.
func cover(match object) object {
	begin := "/"
	for _, f := range match {
		if path, ok := f.value.(object); ok && f.name == "path" {
			begin, _ = path[1].value.(string)
			if path[0].value == "RegularExpression" {
				expression, anchored := strings.CutPrefix(begin, "(?i)")
				if begin = beginning(expression); !anchored {
					begin = ""
				}
			}
		}
	}
	const before, after = "(?i)", ".*"
	cut := 0
	for n := 1; n <= len(begin) && len(before)+len(regexp.QuoteMeta(begin[:n]))+len(after) <= maxPath; n++ {
		if tail := begin[max(0, n-2):n]; !strings.Contains(tail, "%") { // else it would be within an escape
			cut = n
		}
	}
	expression := before + regexp.QuoteMeta(begin[:cut]) + after
	return pathMatch("RegularExpression", expression+strings.Repeat("$", max(0, maxPath-len(expression))))
}

// shut answers all requests for the hosts of a route with 500, because the route would not be accepted and other routes of its hosts
// would get its requests.
func (c *converter) shut(r *route, p manifest.Problem) {
	from := r.sources[0]
	c.refuse(from, "spec.rules", "HTTPRoute "+r.namespace+"/"+r.name+" would not be accepted: "+p.Field+": "+p.Message+"; so that nothing is open, all paths of its hosts are answered 500", p.Remedy)
	for _, other := range c.routes {
		if !slices.ContainsFunc(other.listeners, func(l string) bool { return slices.Contains(r.listeners, l) }) {
			continue
		}
		other.note(from.String() + ": its HTTPRoute would not be accepted")
		for _, one := range other.rules {
			one.body = slices.DeleteFunc(slices.Clone(one.body), func(f field) bool { return f.name == "backendRefs" })
		}
	}
}

// unaccepted reports objects other than HTTPRoutes that would not be accepted. Without them requests are not served.
func (c *converter) unaccepted(docs []*document) {
	for _, d := range docs {
		if d.kind == "HTTPRoute" {
			continue
		}
		for _, p := range problems(d) {
			object := d.kind + " " + d.name
			if d.namespace != "" {
				object = d.kind + " " + d.namespace + "/" + d.name
			}
			c.report = append(c.report, Entry{Object: object, Field: p.Field, Outcome: NotTranslated, Message: "would not be accepted: " + p.Message, Remedy: p.Remedy})
		}
	}
}
