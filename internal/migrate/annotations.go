package migrate

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// prefix is the prefix of the annotations of ingress-nginx.
const prefix = "nginx.ingress.kubernetes.io/"

// settings is the translated content of an Ingress's annotations.
type settings struct {
	sslRedirect, forceSSL, preserveSlash bool
	rewrite                              string
	appRoot                              string
	appRootWithheld                      bool // its redirect cannot be expressed
	redirect                             *redirect
	cors, auth, mirror                   object
	requestHeaders                       []object
	vhost                                string
	session                              object
	policy                               object // the spec of a BackendTrafficPolicy, without targetRefs
	body                                 int64  // bytes; 0 means no limit
	withheld                             string // why no backend may receive requests; "" if one may
	withheldAuth                         string // the same, except for ACME challenges, for which ingress-nginx requires no authentication
	unredirected                         bool   // because of a redirect that cannot be expressed, which no filter may replace
	ranges                               bool   // some addresses are denied
	wwwRedirect                          bool
	weight, weightTotal                  int
}

type redirect struct {
	scheme, host string
	port         int
	path         string // "" means that of the request
	code         int
}

func (c *converter) value(ing *ingress, name string) string {
	return strings.TrimSpace(ing.Annotations[prefix+name])
}

func (c *converter) enabled(ing *ingress, name string) bool {
	return boolean(c.value(ing, name), false)
}

// boolean parses a value as ingress-nginx does: True, 1 and t are true too, and an invalid value counts as the default.
func boolean(v string, byDefault bool) bool {
	if on, err := strconv.ParseBool(v); err == nil {
		return on
	}
	return byDefault
}

// addEntry adds an entry about an annotation, or a field that begins with spec., of an Ingress. It has the position of the annotation, or of
// the key of the ConfigMap that sets its default.
func (c *converter) addEntry(ing *ingress, name string, outcome Outcome, message, remedy string) {
	c.entries[[2]string{ing.String(), name}] = true
	e := Entry{Position: ing.at, Object: ing.String(), Field: name, Outcome: outcome, Message: message, Remedy: remedy}
	if _, ok := ing.Annotations[prefix+name]; ok && !ing.defaults[name] {
		e.Line, e.Field = cmp.Or(ing.lines[prefix+name], e.Line), prefix+name
	} else if m := c.global.from; ing.defaults[name] {
		key := cmp.Or(c.global.keys[name], "block-cidrs")
		e.Position, e.Field = manifest.Position{File: m.at.File, Line: cmp.Or(m.lines[key], m.at.Line)}, m.String()+" "+key
	} else if strings.HasPrefix(name, "spec.") {
		e.Line = manifest.Locate(ing.text, ing.at.Line, name)
	}
	c.report = append(c.report, e)
}

// reportApproximated adds an entry with the outcome Approximated.
func (c *converter) reportApproximated(ing *ingress, name, message, remedy string) {
	c.addEntry(ing, name, Approximated, message, remedy)
}

// reportNotTranslated adds an entry with the outcome NotTranslated.
func (c *converter) reportNotTranslated(ing *ingress, name, message, remedy string) {
	c.addEntry(ing, name, NotTranslated, message, remedy)
}

// reportTranslated adds an entry with the outcome Translated.
func (c *converter) reportTranslated(ing *ingress, name, message string) {
	c.addEntry(ing, name, Translated, message, "")
}

// reader reads the annotations of one Ingress one by one, and records which of them are left.
type reader struct {
	*converter
	ing *ingress
	set *settings
	got map[string]bool
}

// take returns an annotation's value, and whether it is set. Afterwards it does not count as unknown.
func (r *reader) take(name string) (string, bool) {
	r.got[name] = true
	v, ok := r.ing.Annotations[prefix+name]
	return strings.TrimSpace(v), ok
}

// flag reads a boolean annotation; an invalid value counts as the default, as in ingress-nginx.
func (r *reader) flag(name string, byDefault bool) (on, given bool) {
	v, ok := r.take(name)
	if !ok {
		return byDefault, false
	}
	on, err := strconv.ParseBool(v)
	if err != nil {
		r.addEntry(r.ing, name, Translated, fmt.Sprintf("%q is not a boolean, and has no effect in ingress-nginx either", v), "")
		return byDefault, false
	}
	return on, true
}

// number reads a numeric annotation.
func (r *reader) number(name string) (n int, given bool) {
	v, ok := r.take(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		r.addEntry(r.ing, name, Translated, fmt.Sprintf("%q is not a number, and has no effect in ingress-nginx either", v), "")
		return 0, false
	}
	return n, true
}

// settingsOf returns the settings of an Ingress; the first call reports them.
func (c *converter) settingsOf(ing *ingress) *settings {
	if s := c.settings[ing]; s != nil {
		return s
	}
	r := &reader{converter: c, ing: ing, set: &settings{sslRedirect: true, body: 1 << 20, weightTotal: 100}, got: map[string]bool{}}
	c.settings[ing] = r.set
	if c.enabled(ing, "canary") {
		r.canary()
		if !c.serving[ing] {
			r.ignoredByCanary()
			return r.set
		}
	}
	if c.serving[ing] && c.global.protects() {
		r.set.withheld = "what the ConfigMap demands of all requests cannot be translated for a canary with paths of its own"
		r.reportNotTranslated(ing, "canary", "its own paths are served by nginx with what "+c.global.from.String()+" demands of all requests; so that nothing is open, they are answered 500", "make it an Ingress of its own, without canary")
	}
	if catchAll(ing) {
		r.withoutRules()
	} else {
		r.redirects()
		r.paths()
	}
	r.vhost()
	r.cors()
	r.protection()
	r.limits()
	r.upstreams()
	r.fixed()
	r.admit()
	return r.set
}

// withoutRules reports annotations without effect in an Ingress that only has a default backend.
func (r *reader) withoutRules() {
	r.set.sslRedirect = false
	for _, name := range []string{"ssl-redirect", "force-ssl-redirect", "preserve-trailing-slash", "app-root", "temporal-redirect", "temporal-redirect-code", "permanent-redirect", "permanent-redirect-code",
		"from-to-www-redirect", "relative-redirects", "use-regex", "rewrite-target", "x-forwarded-prefix", "server-alias", "auth-tls-secret", "auth-tls-verify-client", "auth-tls-verify-depth", "auth-tls-error-page",
		"auth-tls-pass-certificate-to-upstream", "auth-tls-match-cn"} {
		if _, ok := r.take(name); ok {
			r.reportTranslated(r.ing, name, "has no effect in an Ingress without rules, in ingress-nginx either")
		}
	}
}

func (r *reader) redirects() {
	s := r.set
	var given bool
	if s.sslRedirect, given = r.flag("ssl-redirect", true); given {
		r.reportTranslated(r.ing, "ssl-redirect", "as it says, where a host has TLS")
	}
	if s.forceSSL, given = r.flag("force-ssl-redirect", false); given {
		r.reportTranslated(r.ing, "force-ssl-redirect", "as it says")
	}
	if s.preserveSlash, given = r.flag("preserve-trailing-slash", false); given {
		r.reportTranslated(r.ing, "preserve-trailing-slash", "redirects keep the path as it is")
	}
	if v, ok := r.take("app-root"); ok {
		if u, err := url.ParseRequestURI(v); err != nil || u.IsAbs() {
			r.addEntry(r.ing, "app-root", Translated, "is no absolute path, and has no effect in ingress-nginx either", "")
		} else if u.RawQuery != "" || strings.ContainsAny(v, "$#") {
			r.reportNotTranslated(r.ing, "app-root", "a redirect cannot have a query or variables of its own", "redirect in the application")
		} else if !sendable(v) {
			s.appRoot, s.appRootWithheld = v, true
			r.reportNotTranslated(r.ing, "app-root", "is no path that can be sent; so that nothing is open, / is answered 500", "write a space as %20, and no control characters")
		} else {
			s.appRoot = v
			r.reportApproximated(r.ing, "app-root", "redirects / with 302; the query of the request is kept, which nginx drops", "nothing, unless the application minds the query")
		}
	}
	for _, kind := range []struct {
		name, code     string
		byDefault, max int
	}{{"temporal-redirect", "temporal-redirect-code", 302, 307}, {"permanent-redirect", "permanent-redirect-code", 301, 308}} {
		v, ok := r.take(kind.name)
		code, hasCode := r.number(kind.code)
		if !ok || v == "" || s.redirect != nil {
			if ok || hasCode {
				r.addEntry(r.ing, kind.name, Translated, "has no effect in ingress-nginx either, where temporal-redirect goes first", "")
			}
			continue
		}
		if code < 300 || code > kind.max {
			code = kind.byDefault
		}
		s.redirect = r.target(kind.name, v, code)
		if hasCode {
			r.reportTranslated(r.ing, kind.code, "redirects with "+itoa(code))
		}
	}
	if on, given := r.flag("from-to-www-redirect", false); given {
		s.wwwRedirect = on
		r.reportApproximated(r.ing, "from-to-www-redirect", "redirects with 308; nginx names the port in Location and removes a slash at the end, which is kept here", "nothing, unless clients depend on it")
	}
	if on, _ := r.flag("relative-redirects", false); on {
		r.reportNotTranslated(r.ing, "relative-redirects", "Location is always absolute", "nothing, unless clients depend on it")
	}
	if on, _ := r.flag("use-port-in-redirects", false); on {
		r.reportNotTranslated(r.ing, "use-port-in-redirects", "the port of https is left out of Location where it is 443", "set port in the RequestRedirect filter")
	}
}

var redirectCodes = []int{301, 302, 303, 307, 308}

// target converts a URL to a redirect. If it cannot be expressed, the rule is withheld, because nginx does not send requests to a
// backend either.
func (r *reader) target(name, v string, code int) *redirect {
	literal, sameURI := strings.CutSuffix(v, "$request_uri")
	literal, sameHost := strings.CutPrefix(literal, "$scheme://")
	if sameHost {
		literal = "//" + literal
	}
	inexpressible := func(why string) *redirect {
		r.set.withheld, r.set.unredirected = "the redirect "+v+" cannot be expressed", true
		r.reportNotTranslated(r.ing, name, "a redirect with status "+itoa(code)+" to "+v+" cannot be expressed: "+why, "write a RequestRedirect filter that is close to it; until then these paths are answered 500")
		return nil
	}
	u, err := url.Parse(literal)
	if err != nil || strings.Contains(literal, "$") || u.RawQuery != "" || u.Fragment != "" || u.User != nil || !slices.Contains(redirectCodes, code) || (sameURI && strings.Trim(u.Path, "/") != "") ||
		(u.Host == "" && !strings.HasPrefix(u.Path, "/")) {
		return inexpressible("it has a query, a fragment, variables or another status")
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	switch {
	case u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https":
		return inexpressible("its scheme is neither http nor https")
	case host != "" && !hostname.MatchString(host):
		return inexpressible(u.Hostname() + " is no host name of letters, digits and -")
	case u.Port() != "" && !isPort(u.Port()):
		return inexpressible(u.Port() + " is no port")
	}
	out := &redirect{scheme: u.Scheme, host: host, path: u.EscapedPath(), code: code}
	if !sendable(out.path) {
		return inexpressible("its path cannot be sent")
	}
	if p := u.Port(); p != "" {
		out.port, _ = strconv.Atoi(p)
	}
	switch {
	case sameURI:
		out.path = ""
		r.reportTranslated(r.ing, name, "redirects with "+itoa(code))
	case out.path == "":
		out.path = "/"
		r.reportApproximated(r.ing, name, "redirects with "+itoa(code)+"; Location ends with a slash, and has the query of the request, which nginx drops", "nothing, unless clients depend on it")
	default:
		r.reportApproximated(r.ing, name, "redirects with "+itoa(code)+"; the query of the request is kept, which nginx drops", "nothing, unless the target minds the query")
	}
	if !sameURI && out.path != "/" && (!isNormal(out.path) || !strings.HasSuffix(literal, out.path)) {
		r.reportApproximated(r.ing, name, "Location has the path in its normal form: escapes of letters, digits and -._~ are decoded, others in upper case, what may not stand in a path is escaped, and dot segments are gone", "nothing, unless the target tells these forms apart")
	}
	return out
}

// sendable reports whether a path can be used in a redirect or a rewrite.
func sendable(path string) bool {
	return !strings.Contains(path, "%00") && !strings.ContainsFunc(path, func(ch rune) bool { return ch <= ' ' || ch == 0x7f })
}

var (
	normalPath  = regexp.MustCompile(`^(?:[-A-Za-z0-9._~!$&'()*+,;=:@/]|%[0-9A-F]{2})*$`)
	decodedByte = regexp.MustCompile(`%(?:2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])`) // of letters, digits and -._~
	dotSegment  = regexp.MustCompile(`/\.\.?(?:/|$)`)
)

// isNormal reports whether Moongate sends the path in redirects and rewrites byte for byte as it is written.
func isNormal(path string) bool {
	return normalPath.MatchString(path) && !decodedByte.MatchString(path) && !dotSegment.MatchString(path)
}

func (r *reader) paths() {
	if v, ok := r.take("rewrite-target"); ok && v != "" {
		r.set.rewrite = v // reported with each path
	}
	if on, given := r.flag("use-regex", false); given {
		if on {
			r.reportTranslated(r.ing, "use-regex", "paths are case-insensitive regular expressions, which match from the beginning")
		} else {
			r.reportTranslated(r.ing, "use-regex", "as by default")
		}
	}
	if v, ok := r.take("x-forwarded-prefix"); ok {
		switch {
		case r.set.rewrite == "":
			r.reportTranslated(r.ing, "x-forwarded-prefix", "has no effect without rewrite-target, in ingress-nginx either")
		case strings.Contains(v, "$"):
			r.reportNotTranslated(r.ing, "x-forwarded-prefix", "values of variables cannot be set", "set a fixed X-Forwarded-Prefix in the rule")
		default:
			r.set.requestHeaders = append(r.set.requestHeaders, fields("name", "X-Forwarded-Prefix", "value", v))
			r.reportTranslated(r.ing, "x-forwarded-prefix", "a RequestHeaderModifier sets it")
		}
	}
}

func (r *reader) vhost() {
	if v, ok := r.take("upstream-vhost"); ok {
		if !hostname.MatchString(v) {
			r.reportNotTranslated(r.ing, "upstream-vhost", "only a host name without port or variables can be set", "write a URLRewrite filter with hostname")
		} else {
			r.set.vhost = v
			r.reportTranslated(r.ing, "upstream-vhost", "a URLRewrite sets the host")
		}
	}
}

var (
	hostname      = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	corsOrigin    = regexp.MustCompile(`^https?://(?:\*|(?:\*\.)?[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?)(?::(\d+))?$`)
	corsMethods   = regexp.MustCompile(`^([A-Za-z]+,?\s?)+$`) // this and the next two are from ingress-nginx
	corsHeaders   = regexp.MustCompile(`^([A-Za-z0-9\-_]+,?\s?)+$`)
	corsExposed   = regexp.MustCompile(`^(([A-Za-z0-9\-_]+|\*),?\s?)+$`)
	fieldName     = regexp.MustCompile(`^[A-Za-z0-9_-]+$`) // of a header, as ingress-nginx accepts it
	clusterSuffix = regexp.MustCompile(`\.svc(\.cluster\.local)?$`)
)

func list(v string) []string {
	var out []string
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// names splits a list at commas and white space, and removes duplicates regardless of case.
func names(v string) []string {
	return distinct(strings.FieldsFunc(v, func(ch rune) bool { return ch == ',' || unicode.IsSpace(ch) }))
}

// distinct removes duplicates regardless of case.
func distinct(list []string) []string {
	var out []string
	for _, item := range list {
		if !slices.ContainsFunc(out, func(o string) bool { return strings.EqualFold(o, item) }) {
			out = append(out, item)
		}
	}
	return out
}

// isOrigin reports whether a CORS filter accepts an origin.
func isOrigin(origin string) bool {
	m := corsOrigin.FindStringSubmatch(origin)
	return m != nil && (m[1] == "" || isPort(m[1]))
}

// isPort reports whether a text is a port number.
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// httpMethods are the methods that a CORS filter can allow.
var httpMethods = strings.Fields("GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH")

// methods returns the methods of cors-allow-methods that can be allowed.
func (r *reader) methods(given []string) []string {
	var out, unknown []string
	changed := false
	for _, m := range given {
		upper := strings.ToUpper(m)
		changed = changed || upper != m
		if slices.Contains(httpMethods, upper) {
			out = append(out, upper)
		} else {
			unknown = append(unknown, m)
		}
	}
	if len(unknown) > 0 {
		r.reportApproximated(r.ing, "cors-allow-methods", strings.Join(unknown, ", ")+" cannot be allowed for other origins, and is left out; to allow * would allow more than was", "nothing, unless pages of other origins send it; allow * in the CORS filter then")
	}
	if changed {
		r.reportApproximated(r.ing, "cors-allow-methods", "methods are written in upper case, as browsers compare them with case", "nothing, unless pages of other origins must not use these methods")
	}
	return out
}

func (r *reader) cors() {
	on, given := r.flag("enable-cors", false)
	details := map[string]string{}
	for _, name := range []string{"cors-allow-origin", "cors-allow-methods", "cors-allow-headers", "cors-allow-credentials", "cors-expose-headers", "cors-max-age"} {
		if v, ok := r.take(name); ok {
			details[name] = v
			if !on {
				r.reportTranslated(r.ing, name, "has no effect without enable-cors")
			}
		}
	}
	if !on {
		if given {
			r.reportTranslated(r.ing, "enable-cors", "as by default")
		}
		return
	}
	origins := list(details["cors-allow-origin"])
	if _, ok := details["cors-allow-origin"]; !ok || slices.Contains(origins, "*") {
		origins = []string{"*"}
	}
	var allowed []string
	for _, o := range distinct(origins) {
		o = strings.ToLower(o) // as browsers send it; nginx ignores case
		if o == "*" || isOrigin(o) {
			allowed = append(allowed, o)
		} else {
			r.reportNotTranslated(r.ing, "cors-allow-origin", "the origin "+o+" cannot be expressed, and is not allowed", "allow origins of the form https://host or https://*.host")
		}
	}
	if _, ok := details["cors-allow-origin"]; ok {
		if strings.Contains(details["cors-allow-origin"], "*.") {
			r.reportApproximated(r.ing, "cors-allow-origin", "*. stands for any number of labels, in nginx for one", "name the origins")
		} else {
			r.reportTranslated(r.ing, "cors-allow-origin", "as it says")
		}
	}
	if len(allowed) == 0 {
		r.reportNotTranslated(r.ing, "enable-cors", "no origin can be allowed", "correct cors-allow-origin")
		return
	}
	// take returns a list; a value that is not valid for ingress-nginx counts as the default, so that * is not valid as a method or
	// header there.
	take := func(name string, valid *regexp.Regexp, byDefault string) []string {
		v, ok := details[name]
		if !ok {
			return names(byDefault)
		}
		if !valid.MatchString(v) {
			r.reportTranslated(r.ing, name, fmt.Sprintf("%q is no list to ingress-nginx, and its default counts, as there: %s", v, cmp.Or(byDefault, "none")))
			return names(byDefault)
		}
		return names(v)
	}
	methods := r.methods(take("cors-allow-methods", corsMethods, "GET, PUT, POST, DELETE, PATCH, OPTIONS"))
	headers := take("cors-allow-headers", corsHeaders, "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization")
	expose := take("cors-expose-headers", corsExposed, "")
	for _, name := range []string{"cors-allow-methods", "cors-allow-headers", "cors-expose-headers"} {
		if _, ok := details[name]; ok && !r.entries[[2]string{r.ing.String(), name}] {
			r.reportTranslated(r.ing, name, "as it says")
		}
	}
	credentials, age := true, 1728000
	if on, given := r.flag("cors-allow-credentials", true); given {
		credentials = on
		r.reportTranslated(r.ing, "cors-allow-credentials", "as it says")
	}
	if v, ok := details["cors-max-age"]; ok {
		switch n, err := strconv.Atoi(v); {
		case err == nil && n > math.MaxInt32:
			age = math.MaxInt32
			r.reportApproximated(r.ing, "cors-max-age", "is "+itoa(age)+", the longest that can be set", "nothing: browsers remember an answer for a day at most")
		case err == nil && n > 0:
			age = n
			r.reportTranslated(r.ing, "cors-max-age", "as it says")
		default:
			r.reportNotTranslated(r.ing, "cors-max-age", "must be a number from 1", "set maxAge in the CORS filter")
		}
	}
	r.set.cors = fields("allowOrigins", allowed, "allowMethods", methods, "allowHeaders", headers, "exposeHeaders", expose, "maxAge", age)
	if credentials {
		r.set.cors = r.set.cors.with("allowCredentials", true)
	}
	r.reportApproximated(r.ing, "enable-cors", "preflight requests are answered as CORS says, and other OPTIONS requests go to the backend; nginx answers each OPTIONS request of an allowed origin with 204, and lets others pass. "+
		"Allow-Methods, Allow-Headers and Max-Age are in answers to preflight requests only, Allow-Headers if the request asks for headers; with credentials the origin is named instead of *; CORS fields of the backend are dropped", "nothing, for browsers; test other clients that send OPTIONS")
}

// protection translates what keeps requests from backends. If a part cannot be translated, it withholds the rules.
func (r *reader) protection() {
	hold := func(name, what, remedy string) {
		r.set.withheld = what + " cannot be translated"
		r.reportNotTranslated(r.ing, name, what+" cannot be translated; so that nothing is open, its paths are answered 500", remedy)
	}
	// ingress-nginx requires no authentication for ACME challenges. The rest applies to these too.
	holdAuth := func(name, what, remedy string) {
		r.set.withheldAuth = what + " cannot be translated"
		r.reportNotTranslated(r.ing, name, what+" cannot be translated; so that nothing is open, its paths are answered 500, except those of ACME challenges", remedy)
	}
	if v, ok := r.take("auth-type"); ok {
		holdAuth("auth-type", v+" authentication", "put an authorization server behind an ExternalAuth filter, then add the backendRefs")
	}
	for _, name := range []string{"auth-secret", "auth-secret-type", "auth-realm"} {
		if _, ok := r.take(name); ok {
			r.reportNotTranslated(r.ing, name, "see auth-type", "")
		}
	}
	for _, s := range [...]struct{ name, paths string }{{"configuration-snippet", "its paths"}, {"server-snippet", "all paths of its hosts, those of other Ingresses too,"}} {
		if mayRefuse(r.value(r.ing, s.name), httpSnippet) {
			r.take(s.name)
			r.set.withheld = "a snippet that may refuse requests cannot be translated"
			r.reportNotTranslated(r.ing, s.name, "a snippet that may refuse requests cannot be translated; so that nothing is open, "+s.paths+" are answered 500", "express what it does with filters and policies, then add the backendRefs")
		}
	}
	r.clientCertificates()
	if v, ok := r.take("satisfy"); ok {
		if v == "any" {
			hold("satisfy", "one of several protections", "decide which one it is to be")
		} else {
			r.reportTranslated(r.ing, "satisfy", "all protections count")
		}
	}
	for _, name := range []string{"enable-modsecurity", "enable-owasp-core-rules"} {
		if on, given := r.flag(name, false); on {
			hold(name, "the web application firewall", "put it behind or in front of the Gateway, then add the backendRefs")
		} else if given {
			r.reportTranslated(r.ing, name, "as by default")
		}
	}
	r.externalAuth(holdAuth)
	var limits rateLimits
	for _, name := range []string{"denylist-source-range"} {
		if v, ok := r.take(name); ok {
			ranges, bad := cidrs(v)
			if bad != "" {
				hold(name, "the range "+bad, "correct it")
				continue
			}
			for _, p := range ranges {
				limits.rules = append(limits.rules, fields("clientSelectors", []object{fields("sourceCIDR", fields("value", p))}, "limit", fields("requests", 0, "unit", "Second"), "xRateLimitHeaders", "Off"))
			}
			r.set.ranges = true
			limits.claims = append(limits.claims, claim{name, "addresses are refused by a limit of 0 requests, with 429 instead of 403", "nothing, unless clients depend on the status"})
		}
	}
	allow, how := r.take("allowlist-source-range")
	name := "allowlist-source-range"
	if v, ok := r.take("whitelist-source-range"); ok && !how {
		allow, how, name = v, true, "whitelist-source-range"
	}
	if how {
		ranges, bad := cidrs(allow)
		switch {
		case bad != "":
			hold(name, "the range "+bad, "correct it")
		case len(ranges) > 8:
			hold(name, "a list of more than 8 ranges", "join ranges, or have a firewall do it")
		default:
			var selectors []object
			for _, p := range ranges {
				selectors = append(selectors, fields("sourceCIDR", fields("value", p, "invert", true)))
			}
			limits.rules = append(limits.rules, fields("clientSelectors", selectors, "limit", fields("requests", 0, "unit", "Second"), "xRateLimitHeaders", "Off"))
			r.set.ranges = true
			limits.claims = append(limits.claims, claim{name, "other addresses are refused by a limit of 0 requests, with 429 instead of 403", "nothing, unless clients depend on the status"})
		}
	}
	r.rates(limits, hold)
}

// demandsCertificates reports whether an Ingress requires client certificates.
func (c *converter) demandsCertificates(ing *ingress) bool {
	return c.value(ing, "auth-tls-secret") != "" && c.value(ing, "auth-tls-verify-client") != "off"
}

// clientCertificates reports the requirements for client certificates of all paths of a host; location withholds these.
func (r *reader) clientCertificates() {
	if catchAll(r.ing) {
		return // reported by withoutRules
	}
	if _, ok := r.take("auth-tls-secret"); ok {
		if r.demandsCertificates(r.ing) {
			r.reportNotTranslated(r.ing, "auth-tls-secret", "demanding client certificates cannot be translated; so that nothing is open, all paths of its hosts are answered 500, those of other Ingresses too", "set tls.frontend of the Gateway (docs/tasks/client-certificates.md), then add the backendRefs")
		} else {
			r.reportTranslated(r.ing, "auth-tls-secret", "has no effect without a Secret, or with auth-tls-verify-client: off")
		}
	}
	for _, name := range []string{"auth-tls-verify-depth", "auth-tls-verify-client", "auth-tls-error-page", "auth-tls-pass-certificate-to-upstream", "auth-tls-match-cn"} {
		if _, ok := r.take(name); ok {
			r.reportNotTranslated(r.ing, name, "see auth-tls-secret", "")
		}
	}
}

func cidrs(v string) (ranges []string, bad string) {
	for _, item := range list(v) {
		if a, err := netip.ParseAddr(item); err == nil {
			item = netip.PrefixFrom(a, a.BitLen()).String()
		}
		if _, err := netip.ParsePrefix(item); err != nil {
			return nil, item
		}
		ranges = append(ranges, item)
	}
	if len(ranges) == 0 {
		return nil, `""`
	}
	return ranges, ""
}

func (r *reader) externalAuth(hold func(name, what, remedy string)) {
	v, ok := r.take("auth-url")
	dependents := []string{"auth-method", "auth-signin", "auth-signin-redirect-param", "auth-cache-key", "auth-cache-duration", "auth-keepalive", "auth-keepalive-requests", "auth-keepalive-share-vars",
		"auth-keepalive-timeout", "auth-proxy-set-headers", "auth-request-redirect", "auth-always-set-cookie", "auth-snippet"}
	for _, name := range dependents {
		if v, has := r.take(name); has {
			switch {
			case !ok:
				r.reportTranslated(r.ing, name, "has no effect without auth-url")
			case name == "auth-signin":
				r.reportNotTranslated(r.ing, name, "who is not signed in gets the answer of the authorization server, not a redirect to "+v, "have the authorization server redirect")
			case strings.HasPrefix(name, "auth-keepalive"):
				r.reportNotTranslated(r.ing, name, "connections to the server are kept as to any backend; answers do not change", "")
			case name == "auth-snippet" || name == "auth-proxy-set-headers":
				hold(name, "what changes requests to the authorization server", "have the server do without it, then add the backendRefs")
			default:
				r.reportNotTranslated(r.ing, name, "the authorization server is not told", "see docs/tasks/external-auth.md")
			}
		}
	}
	responseHeaders, hasHeaders := r.take("auth-response-headers")
	if !ok {
		if hasHeaders {
			r.reportTranslated(r.ing, "auth-response-headers", "has no effect without auth-url")
		}
		return
	}
	unreachable := func(what string) {
		hold("auth-url", what, "make it a Service, and write an ExternalAuth filter")
		if hasHeaders {
			r.reportNotTranslated(r.ing, "auth-response-headers", "see auth-url", "")
		}
	}
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" || strings.Contains(v, "$") || u.RawQuery != "" || !clusterSuffix.MatchString(u.Hostname()) {
		unreachable("an authorization server that is no Service of the cluster over http, or has a query or variables,")
		return
	}
	parts := strings.Split(clusterSuffix.ReplaceAllString(u.Hostname(), ""), ".")
	if len(parts) != 2 {
		unreachable("an authorization server that is no Service of the cluster")
		return
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	if u.User != nil || u.Fragment != "" || !strings.HasSuffix(strings.TrimSuffix(v, "/"), path) || !isNormal(path) || strings.Contains(path, "//") || strings.Contains(path, "%2F") || !sendable(path) {
		unreachable("an authorization server with a user, a fragment or a path that has spaces, other characters than ASCII, dot segments, repeated or escaped slashes or needless escapes")
		return
	}
	port := 80
	if p := u.Port(); p != "" {
		if !isPort(p) {
			unreachable("an authorization server at port " + p)
			return
		}
		port, _ = strconv.Atoi(p)
	}
	headers := distinct(list(responseHeaders))
	if n := slices.IndexFunc(headers, func(h string) bool { return !fieldName.MatchString(h) }); n >= 0 {
		hold("auth-response-headers", "a list with "+headers[n]+", for which ingress-nginx refuses all requests,", "correct it, then add the backendRefs")
		return
	}
	ofConnection := func(h string) bool { return slices.Contains(connectionFields, strings.ToLower(h)) }
	if n := slices.IndexFunc(headers, ofConnection); n >= 0 {
		ignored := headers[n]
		if headers = slices.DeleteFunc(headers, ofConnection); len(headers) == 0 {
			hold("auth-response-headers", "a list of fields that belong to the connection alone", "name other fields, then add the backendRefs")
			return
		}
		r.reportApproximated(r.ing, "auth-response-headers", ignored+" belongs to the connection, and is not taken from the answer", "")
	}
	ref := fields("name", parts[0])
	if parts[1] != r.ing.Namespace {
		ref = ref.with("namespace", parts[1])
	}
	http := fields("path", nonEmpty(path), "allowedHeaders", []string{"Accept", "Cookie", "Origin", "Referer", "User-Agent", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Requested-With"})
	message := "the server is asked for its path followed by that of the request, with the method of the request, and is sent Authorization, Cookie and some other fields, but no X-Original-URL and X-Original-Method; " +
		"yes is 200 only, in nginx any 2xx; its cookies are not passed on; answers other than 401 and 403 are passed on, where nginx answers 500"
	if len(headers) > 0 {
		http = http.with("allowedResponseHeaders", headers)
		r.reportTranslated(r.ing, "auth-response-headers", "as it says")
	} else {
		if hasHeaders {
			r.reportApproximated(r.ing, "auth-response-headers", "names no field, see auth-url", "")
		}
		message += "; all fields of its answer but Date and Content-* are sent to the backend, in nginx none"
	}
	if path == "" {
		message += "; since it has no path of its own, every path that the server answers 200 to anybody, such as /healthz, is open"
	}
	r.set.auth = fields("protocol", "HTTP", "backendRef", ref.with("port", port), "http", http)
	r.reportApproximated(r.ing, "auth-url", message, "compare with docs/tasks/external-auth.md what your server expects")
}

// connectionFields are fields of responses that are never copied to requests.
var connectionFields = strings.Fields("host authority cdn-loop connection content-length content_length expect http2-settings keep-alive proxy-connection te trailer transfer-encoding transfer_encoding upgrade")

func nonEmpty(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// maxLimits is the maximum number of rules in the rate limit of a BackendTrafficPolicy.
const maxLimits = 16

// rateLimits are the rules of a rate limit, and the report entries of their annotations, which apply if there are not too many
// rules.
type rateLimits struct {
	rules  []object
	claims []claim
}

// rates appends limits to rules that deny addresses.
func (r *reader) rates(limits rateLimits, hold func(name, what, remedy string)) {
	for _, unit := range []struct{ name, unit string }{{"limit-rps", "Second"}, {"limit-rpm", "Minute"}} {
		n, given := r.number(unit.name)
		if !given || n <= 0 {
			if given {
				r.reportTranslated(r.ing, unit.name, "no limit")
			}
			continue
		}
		for _, all := range []string{"0.0.0.0/0", "::/0"} {
			limits.rules = append(limits.rules, fields("clientSelectors", []object{fields("sourceCIDR", fields("type", "Distinct", "value", all))}, "limit", fields("requests", n, "unit", unit.unit), "shared", true, "xRateLimitHeaders", "Off"))
		}
		burst := 5
		if m, ok := r.number("limit-burst-multiplier"); ok && m > 0 {
			burst = m
		}
		limits.claims = append(limits.claims, claim{unit.name, fmt.Sprintf("each client address has %d requests a %s, and as many at once; nginx lets %d at once. What is over the limit is answered 429, not 503", n, strings.ToLower(unit.unit), n*burst+1),
			"raise the limit where clients come in bursts"})
	}
	if _, ok := r.take("limit-burst-multiplier"); ok {
		r.reportNotTranslated(r.ing, "limit-burst-multiplier", "as many requests as the limit pass at once", "raise the limit")
	}
	for _, name := range []string{"limit-allowlist", "limit-whitelist"} {
		if _, ok := r.take(name); ok {
			r.reportNotTranslated(r.ing, name, "its addresses are limited too", "add a clientSelector with sourceCIDR and invert to the limits")
		}
	}
	for _, name := range []string{"limit-connections", "limit-rate", "limit-rate-after"} {
		if v, ok := r.take(name); ok && v != "0" {
			r.reportNotTranslated(r.ing, name, "there is no limit on connections or bytes of each client", "see maxConnections of GatewayParameters and bandwidthLimit of a BackendTrafficPolicy, which hold for all clients together")
		}
	}
	if len(limits.rules) > maxLimits {
		for _, one := range limits.claims {
			if one.name != "denylist-source-range" {
				r.reportNotTranslated(r.ing, one.name, "is left out with denylist-source-range, so that nothing of it holds once backendRefs are added", "see denylist-source-range")
			}
		}
		hold("denylist-source-range", "what makes "+itoa(len(limits.rules))+" rules, one for each range of denylist-source-range, one for the allowlist and two for each limit, of which a BackendTrafficPolicy has "+itoa(maxLimits)+" at most,", "join ranges, or have a firewall do it")
		return
	}
	for _, one := range limits.claims {
		r.reportApproximated(r.ing, one.name, one.message, one.remedy)
		if r.global.forwarded && len(r.global.trusted) == 0 {
			r.reportNotTranslated(r.ing, one.name, "clients are told apart by the address of their connection, and not by X-Forwarded-For as in nginx: behind a proxy all have its address, and whether that is in a range decides about all of them",
				"before requests come, name the ranges of the proxies in trustedProxies of GatewayParameters (docs/tasks/client-address.md), or in proxy-real-ip-cidr of "+r.global.from.String()+" and migrate again")
		}
	}
	if len(limits.rules) > 0 {
		r.set.policy = r.set.policy.with("rateLimit", fields("local", fields("rules", limits.rules)))
	}
}

var byteSize = regexp.MustCompile(`^(\d+)([kKmMgG]?)[bB]?$`)

// bytesOf parses a size as nginx does; ok is false if it is invalid, or too large for a number.
func bytesOf(v string) (int64, bool) {
	m := byteSize.FindStringSubmatch(v)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	shift := map[string]int{"": 0, "k": 10, "m": 20, "g": 30}[strings.ToLower(m[2])]
	return n << shift, err == nil && n <= math.MaxInt64>>shift
}

func (r *reader) limits() {
	if v, ok := r.take("proxy-body-size"); ok {
		if n, ok := bytesOf(v); !ok {
			r.reportNotTranslated(r.ing, "proxy-body-size", v+" is no size, so that bodies of up to 1 MiB are taken, as by default", "correct it, or set maxRequestBodyBytes in GatewayParameters")
		} else {
			r.set.body = n
			// Reported with the host, because it is a setting of listeners.
		}
	}
	var tcp, http object
	if n, ok := r.number("proxy-connect-timeout"); ok && n > 0 {
		tcp = fields("connectTimeout", seconds(n))
		r.reportApproximated(r.ing, "proxy-connect-timeout", "each of up to three attempts to connect takes so long at most", "")
	}
	idle := 0
	for _, name := range []string{"proxy-read-timeout", "proxy-send-timeout"} {
		if n, ok := r.number(name); ok && n > 0 {
			idle = max(idle, n)
			r.reportApproximated(r.ing, name, "the longer of proxy-read-timeout and proxy-send-timeout is how long nothing may move in either direction; it ends tunnels (WebSocket) too, as in nginx", "")
		}
	}
	if idle > 0 {
		http = fields("streamIdleTimeout", seconds(idle))
	}
	r.set.policy = r.set.policy.with("timeout", fields("tcp", tcp, "http", http))
	r.retries()
}

var nextUpstream = regexp.MustCompile(`^http_(50[0234]|403|404|429)$`)

func (r *reader) retries() {
	conditions, has := r.take("proxy-next-upstream")
	tries, hasTries := r.number("proxy-next-upstream-tries")
	if v, ok := r.take("proxy-next-upstream-timeout"); ok && v != "0" {
		r.reportNotTranslated(r.ing, "proxy-next-upstream-timeout", "attempts have no limit of time together", "set timeouts.request of the rule")
	}
	if !has && !hasTries {
		return
	}
	var codes []any
	triggers := []string{}
	off := false
	for c := range strings.FieldsSeq(conditions) {
		switch m := nextUpstream.FindStringSubmatch(c); {
		case m != nil:
			n, _ := strconv.Atoi(m[1])
			codes = append(codes, n)
		case c == "off":
			off = true
		case c == "error":
			triggers = append(triggers, "connect-failure")
		}
	}
	if !has {
		triggers = append(triggers, "connect-failure")
	}
	if !hasTries {
		tries = 3
	}
	name := "proxy-next-upstream"
	if !has {
		name = "proxy-next-upstream-tries"
	}
	switch {
	case off || tries == 1:
		r.set.policy = r.set.policy.with("retry", fields("numRetries", 0))
	case tries == 0:
		r.reportNotTranslated(r.ing, "proxy-next-upstream-tries", "retries without limit cannot be expressed", "set numRetries of a BackendTrafficPolicy")
		return
	case len(codes) > 0:
		triggers = append(triggers, "retriable-status-codes")
		r.set.policy = append(r.set.policy, field{"retry", fields("numRetries", tries-1, "retryOn", fields("triggers", triggers).with("httpStatusCodes", codes))})
	case len(triggers) > 0:
		r.set.policy = r.set.policy.with("retry", fields("numRetries", tries-1, "retryOn", fields("triggers", triggers)))
	}
	r.reportApproximated(r.ing, name, "retries are those of a BackendTrafficPolicy; a timeout or an invalid answer of the backend is no reason for one, and requests that are not idempotent are repeated on a status too, in nginx never", "see docs/tasks/backend-retries.md")
	if has && hasTries {
		r.reportTranslated(r.ing, "proxy-next-upstream-tries", "see proxy-next-upstream")
	}
}

func (r *reader) upstreams() {
	if v, ok := r.take("backend-protocol"); ok {
		switch strings.ToUpper(v) {
		case "HTTP":
			r.reportTranslated(r.ing, "backend-protocol", "as by default")
		case "GRPC":
			r.reportNotTranslated(r.ing, "backend-protocol", "the protocol is not a matter of the route: backends are asked by HTTP/1.1", "write appProtocol: kubernetes.io/h2c to the ports of the Services")
		default:
			r.set.withheld = "backends of protocol " + v + " cannot be translated"
			r.reportNotTranslated(r.ing, "backend-protocol", "backends are not asked by "+v+"; so that nothing is sent in the clear, its paths are answered 500",
				"for HTTPS and GRPCS write a BackendTLSPolicy for the Services (docs/tasks/backend-tls.md), then add the backendRefs")
		}
	}
	switch v, ok := r.take("load-balance"); {
	case !ok:
	case v == "round_robin":
		r.set.policy = r.set.policy.with("loadBalancer", fields("type", "RoundRobin"))
		r.reportTranslated(r.ing, "load-balance", "as it says")
	case v == "ewma":
		r.set.policy = r.set.policy.with("loadBalancer", fields("type", "LeastRequest"))
		r.reportApproximated(r.ing, "load-balance", "the endpoint with fewer requests is chosen, in nginx the faster one", "")
	default:
		r.reportNotTranslated(r.ing, "load-balance", v+" is not a way to balance", "see docs/tasks/load-balancing.md")
	}
	if v, ok := r.take("upstream-hash-by"); ok {
		var hash object
		header := strings.TrimPrefix(v, "$http_")
		switch {
		case v == "$remote_addr" || v == "$binary_remote_addr":
			hash = fields("type", "SourceIP")
		case header != v && regexp.MustCompile(`^\w+$`).MatchString(header):
			hash = fields("type", "Header", "header", fields("name", strings.ReplaceAll(header, "_", "-")))
		}
		if hash == nil || r.value(r.ing, "load-balance") != "" {
			r.reportNotTranslated(r.ing, "upstream-hash-by", "only $remote_addr and one $http_ variable can be translated, without load-balance", "see docs/tasks/consistent-hash.md")
		} else {
			r.set.policy = r.set.policy.with("loadBalancer", fields("type", "ConsistentHash", "consistentHash", hash))
			r.reportApproximated(r.ing, "upstream-hash-by", "equal values go to one endpoint, but not to the one that nginx chose", "")
		}
	}
	for _, name := range []string{"upstream-hash-by-subset", "upstream-hash-by-subset-size"} {
		if _, ok := r.take(name); ok {
			r.reportNotTranslated(r.ing, name, "there are no subsets of endpoints", "")
		}
	}
	r.affinity()
	if v, ok := r.take("mirror-target"); ok {
		literal, all := strings.CutSuffix(v, "$request_uri")
		u, err := url.Parse(literal)
		parts := []string{}
		if err == nil && u.Scheme == "http" && all && strings.Trim(u.Path, "/") == "" && clusterSuffix.MatchString(u.Hostname()) {
			parts = strings.Split(clusterSuffix.ReplaceAllString(u.Hostname(), ""), ".")
		}
		if len(parts) != 2 {
			r.reportNotTranslated(r.ing, "mirror-target", "only Services of the cluster over http, with $request_uri, can be sent copies", "write an XBackend and a RequestMirror filter")
		} else {
			port := 80
			if p := u.Port(); p != "" {
				port, _ = strconv.Atoi(p)
			}
			ref := fields("name", parts[0])
			if parts[1] != r.ing.Namespace {
				ref = ref.with("namespace", parts[1])
			}
			r.set.mirror = fields("backendRef", ref.with("port", port))
			r.reportApproximated(r.ing, "mirror-target", "copies have the Host of the request, in nginx that of the target", "")
		}
	}
	for _, name := range []string{"mirror-host", "mirror-request-body"} {
		if v, ok := r.take(name); ok {
			if name == "mirror-request-body" && v == "on" {
				r.reportTranslated(r.ing, name, "as by default")
			} else {
				r.reportNotTranslated(r.ing, name, "copies are sent as the request is, with its body", "")
			}
		}
	}
}

func (r *reader) affinity() {
	v, ok := r.take("affinity")
	name, hasName := r.take("session-cookie-name")
	age, hasAge := r.number("session-cookie-max-age")
	rest := []string{"affinity-mode", "affinity-canary-behavior", "session-cookie-change-on-failure", "session-cookie-conditional-samesite-none", "session-cookie-domain", "session-cookie-expires", "session-cookie-path", "session-cookie-samesite", "session-cookie-secure"}
	for _, n := range rest {
		if _, has := r.take(n); has {
			r.reportNotTranslated(r.ing, n, "the cookie's attributes are Moongate's own, and a client moves only when its endpoint is gone", "see docs/tasks/sessions.md")
		}
	}
	if !ok || v != "cookie" {
		if ok {
			r.reportNotTranslated(r.ing, "affinity", "only cookie is a kind of affinity", "")
		}
		return
	}
	if name == "" {
		name = "INGRESSCOOKIE"
	}
	r.set.session = fields("type", "Cookie", "cookie", fields("name", name))
	if hasAge && age > 0 {
		r.set.session = fields("type", "Cookie", "absoluteTimeout", seconds(age), "cookie", fields("name", name, "lifetimeType", "Permanent"))
		r.reportTranslated(r.ing, "session-cookie-max-age", "as it says")
	}
	if hasName {
		r.reportTranslated(r.ing, "session-cookie-name", "as it says")
	}
	r.reportApproximated(r.ing, "affinity", "cookies that nginx has given out are not known, so each client is assigned an endpoint anew once", "")
}

// canary reads the annotations of a canary.
func (r *reader) canary() {
	claims := func(name, message string) {
		r.claims[r.ing] = append(r.claims[r.ing], claim{name: name, message: message})
	}
	claims("canary", "its Service is a backend of the other Ingress's rules")
	r.got["canary"] = true
	if n, ok := r.number("canary-weight-total"); ok && n >= 100 {
		r.set.weightTotal = n
		claims("canary-weight-total", "as it says")
	}
	if n, ok := r.number("canary-weight"); ok {
		r.set.weight = min(max(n, 0), r.set.weightTotal)
		claims("canary-weight", "as weights of backendRefs")
	}
	for _, name := range []string{"canary-by-header", "canary-by-header-value", "canary-by-header-pattern", "canary-by-cookie"} {
		if _, ok := r.take(name); !ok {
			continue
		}
		switch name {
		case "canary-by-header":
			if h := r.value(r.ing, name); h != "" && !fieldName.MatchString(h) {
				r.reportNotTranslated(r.ing, name, h+" is no name of a header field, so that no request has it; it is left out", "correct it")
				continue
			}
		case "canary-by-header-pattern":
			if _, err := regexp.Compile(r.value(r.ing, name)); err != nil {
				r.reportNotTranslated(r.ing, name, "is no regular expression of RE2, and left out", "write it without lookarounds and backreferences")
				continue
			}
		}
		claims(name, "as a match of a rule of its own")
	}
}

// ignoredByCanary reports annotations that ingress-nginx reads from the other Ingress.
func (r *reader) ignoredByCanary() {
	for name := range r.ing.Annotations {
		if short, ok := strings.CutPrefix(name, prefix); ok && !r.got[short] {
			r.reportTranslated(r.ing, short, "ingress-nginx takes nothing but the canary's own annotations from a canary, and neither does this")
		}
	}
}

// verdict is reported for an annotation whatever its value.
type verdict struct{ message, remedy string }

const (
	noEffect = "does not change answers"
	snippet  = "snippets of nginx's configuration are never translated"
)

// fixedVerdicts are the annotations that are never translated.
var fixedVerdicts = map[string]verdict{
	"configuration-snippet":             {snippet, "express what it does with filters and policies"},
	"server-snippet":                    {snippet, "express what it does with filters and policies"},
	"stream-snippet":                    {snippet, "express what it does with listeners and policies"},
	"modsecurity-snippet":               {snippet, "see enable-modsecurity"},
	"modsecurity-transaction-id":        {"see enable-modsecurity", ""},
	"custom-http-errors":                {"errors of backends are passed on", "use responseOverride of a BackendTrafficPolicy"},
	"default-backend":                   {"without endpoints the answer is 503", "use responseOverride of a BackendTrafficPolicy"},
	"disable-proxy-intercept-errors":    {"see custom-http-errors", ""},
	"custom-headers":                    {"the ConfigMap is not read", "write a ResponseHeaderModifier filter, or an HTTPFilter for several routes"},
	"ssl-passthrough":                   {"TLS is ended at the Gateway, as in ingress-nginx without --enable-ssl-passthrough", "give --enable-ssl-passthrough where the controller has that argument, which makes a TLSRoute (docs/tasks/tls-passthrough.md)"},
	"ssl-ciphers":                       {"suites are Moongate's", "set moongate.dev/tls-cipher-suites in tls.options of the listener"},
	"ssl-prefer-server-ciphers":         {"the order of suites is Moongate's", ""},
	"proxy-cookie-domain":               {"cookies are passed on as they are", "have the application set them"},
	"proxy-cookie-path":                 {"cookies are passed on as they are", "have the application set them"},
	"proxy-redirect-from":               {"Location is passed on as it is", "have the application send it as clients see it"},
	"proxy-redirect-to":                 {"Location is passed on as it is", "have the application send it as clients see it"},
	"proxy-ssl-secret":                  {"TLS to backends is a matter of a BackendTLSPolicy", "docs/tasks/backend-tls.md"},
	"proxy-ssl-ciphers":                 {"TLS to backends is a matter of a BackendTLSPolicy", "docs/tasks/backend-tls.md"},
	"proxy-ssl-name":                    {"TLS to backends is a matter of a BackendTLSPolicy", "docs/tasks/backend-tls.md"},
	"proxy-ssl-protocols":               {"TLS to backends is a matter of a BackendTLSPolicy", "docs/tasks/backend-tls.md"},
	"proxy-ssl-server-name":             {"TLS to backends is a matter of a BackendTLSPolicy", "docs/tasks/backend-tls.md"},
	"proxy-ssl-verify":                  {"TLS to backends is a matter of a BackendTLSPolicy", "docs/tasks/backend-tls.md"},
	"proxy-ssl-verify-depth":            {"TLS to backends is a matter of a BackendTLSPolicy", "docs/tasks/backend-tls.md"},
	"connection-proxy-header":           {"Connection is Moongate's own", ""},
	"fastcgi-index":                     {"FastCGI is not spoken", "put a server that speaks it before the application"},
	"fastcgi-params-configmap":          {"FastCGI is not spoken", "put a server that speaks it before the application"},
	"service-upstream":                  {"requests go to endpoints of Services, not to their address", "set routingType: Service in a BackendTrafficPolicy"},
	"proxy-buffering":                   {noEffect, ""},
	"proxy-buffers-number":              {noEffect, ""},
	"proxy-buffer-size":                 {"heads of responses have 32 KiB at most, whatever it says", ""},
	"proxy-busy-buffers-size":           {noEffect, ""},
	"proxy-max-temp-file-size":          {noEffect, ""},
	"proxy-request-buffering":           {"bodies are streamed", "set requestBuffer in a BackendTrafficPolicy where backends need them whole"},
	"proxy-http-version":                {"backends are asked by HTTP/1.1", ""},
	"client-body-buffer-size":           {noEffect, ""},
	"http2-push-preload":                {"clients do not take pushes any more", ""},
	"enable-access-log":                 {"the access log is one for all routes", ""},
	"enable-rewrite-log":                {noEffect, ""},
	"enable-opentelemetry":              {"tracing is set for a Gateway", "docs/tasks/tracing.md"},
	"opentelemetry-trust-incoming-span": {"tracing is set for a Gateway", "docs/tasks/tracing.md"},
	"opentelemetry-operation-name":      {"tracing is set for a Gateway", "docs/tasks/tracing.md"},
}

// fixed reports the remaining annotations.
func (r *reader) fixed() {
	r.got["server-alias"] = true // reported with the host
	if r.options.Passthrough {
		r.got["ssl-passthrough"] = true // reported with the host
	}
	for _, name := range []string{"canary", "canary-weight", "canary-weight-total", "canary-by-header", "canary-by-header-value", "canary-by-header-pattern", "canary-by-cookie"} {
		if _, ok := r.take(name); ok && !r.enabled(r.ing, "canary") {
			r.reportTranslated(r.ing, name, "has no effect without canary: \"true\"")
		}
	}
	if _, ok := r.take("enable-global-auth"); ok {
		if r.global.from == nil {
			r.reportNotTranslated(r.ing, "enable-global-auth", "global authentication is set in the controller's ConfigMap, which is not in the input", "give it as input, too")
		} else {
			r.reportTranslated(r.ing, "enable-global-auth", "as it says, of global-auth-url in the ConfigMap")
		}
	}
	for name := range r.ing.Annotations {
		short, ok := strings.CutPrefix(name, prefix)
		if !ok || r.got[short] {
			continue
		}
		if v, known := fixedVerdicts[short]; known {
			r.reportNotTranslated(r.ing, short, v.message, v.remedy)
		} else {
			r.reportNotTranslated(r.ing, short, "is no annotation that ingress-nginx 1.14 documents", "find out what it is for")
		}
	}
}

// seconds returns a duration in the format of the Gateway API, whose numbers have at most five digits.
func seconds(n int) string {
	if n < 100000 {
		return itoa(n) + "s"
	}
	out := itoa(min(n/3600, 99999)) + "h"
	if n%3600 > 0 {
		out += itoa(n%3600) + "s"
	}
	return out
}

func itoa(n int) string { return strconv.Itoa(n) }
