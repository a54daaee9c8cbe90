package match

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// naive is the specification's order in its plainest form: every match that
// fits, sorted by a text that says the criteria one after the other.
type naive map[string]attached

type attached struct {
	route     *config.Route
	hostnames []*config.Hostname
}

type found struct {
	order string
	where string // route key, rule and match
}

func (n naive) fitting(req *message.Request) []found {
	var all []found
	for _, a := range n {
		for _, h := range a.hostnames {
			if !naiveHost(h.Effective, string(req.MatchHost)) {
				continue
			}
			for _, rule := range a.route.Rules {
				for i, m := range rule.Matches {
					if naiveFits(m, req) {
						all = append(all, found{naiveOrder(req, a.route, h, rule, i), where(a.route, rule, i)})
					}
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(a.order, b.order) })
	return all
}

func (n naive) winner(req *message.Request) string {
	if all := n.fitting(req); len(all) > 0 {
		return all[0].where
	}
	return ""
}

func where(route *config.Route, rule *config.Rule, match int) string {
	return fmt.Sprintf("%s rule %d match %d", route.Key, rule.Index, match)
}

func whereRule(r *Rule[string]) string {
	if r == nil {
		return ""
	}
	return where(r.Route, r.Config, slices.Index(r.Config.Matches, r.Match))
}

func naiveOrder(req *message.Request, route *config.Route, h *config.Hostname, rule *config.Rule, match int) string {
	m := rule.Matches[match]
	path := "9"
	switch m.Path.Type {
	case config.PathMatchType_PATH_MATCH_TYPE_EXACT:
		path = "1"
	case config.PathMatchType_PATH_MATCH_TYPE_REGULAR_EXPRESSION:
		path = fmt.Sprintf("2 %04d", 9999-len(m.Path.Value))
	case config.PathMatchType_PATH_MATCH_TYPE_PREFIX:
		path = fmt.Sprintf("3 %04d", 9999-len(naivePath(m.Path.Value)))
	}
	method := "without"
	if m.Method != "" {
		method = "with"
	}
	kind := "another"
	if strings.HasPrefix(route.Key, "GRPCRoute") == naiveCall(req) {
		kind = "a kind for it"
	}
	asked := "asked"
	if m.Preflight {
		asked = "for another"
	}
	return fmt.Sprintf("%s|%s|%s|%s|%7s|%04d|%04d|%s|%020d|%s/%s\x00|%s\x00|%04d|%04d",
		naiveHostOrder(h.Effective), naiveHostOrder(h.Original), kind, path, method, 9999-len(m.Headers)+int(m.AddedHeaders), 9999-len(m.QueryParams), asked,
		route.CreatedUnixNano, route.Namespace, route.Name, route.Key, rule.Index, match)
}

var naiveGRPC = regexp.MustCompile(`^(?i:application/grpc)([-+][^;]*)?[ \t]*(;.*)?$`)

func naiveCall(req *message.Request) bool {
	var types []string
	for i := range req.Header.Len() {
		if f := req.Header.At(i); strings.EqualFold(string(f.Name), "content-type") {
			types = append(types, string(f.Value))
		}
	}
	return string(req.Method) == "POST" && len(types) == 1 && naiveGRPC.MatchString(types[0])
}

func naiveHostOrder(hostname string) string {
	switch {
	case hostname == "":
		return "3"
	case hostname[0] == '*':
		return fmt.Sprintf("2 %04d", 9999-len(hostname))
	}
	return "1"
}

func naiveHost(pattern, host string) bool {
	if pattern == "" || pattern == host {
		return true
	}
	suffix, isWild := strings.CutPrefix(pattern, "*")
	return isWild && strings.HasSuffix(host, suffix) && len(host) > len(suffix)
}

func naiveFits(m *config.Match, req *message.Request) bool {
	path := string(req.Path)
	switch m.Path.Type {
	case config.PathMatchType_PATH_MATCH_TYPE_EXACT:
		if path != naivePath(m.Path.Value) {
			return false
		}
	case config.PathMatchType_PATH_MATCH_TYPE_REGULAR_EXPRESSION:
		if !naiveRegex(m.Path.Value, path) {
			return false
		}
	case config.PathMatchType_PATH_MATCH_TYPE_PREFIX:
		want := strings.Split(naivePath(m.Path.Value), "/")
		got := strings.Split(path, "/")
		if m.Path.Value != "" && (len(got) < len(want) || !slices.Equal(got[:len(want)], want)) {
			return false
		}
	}
	if m.Method != "" && m.Method != string(req.Method) {
		return false
	}
	for _, h := range m.Headers {
		if !naiveHeader(h, req) {
			return false
		}
	}
	for _, q := range m.QueryParams {
		if !naiveQuery(q, string(req.Query)) {
			return false
		}
	}
	return true
}

// naivePath knows the values in the pool that are not in normal form.
func naivePath(value string) string {
	normal := map[string]string{"/café": "/caf%C3%A9", "/caf%c3%a9/x": "/caf%C3%A9/x", "/%61/b": "/a/b", "/a b": "/a%20b", "/%2f": "/%2F"}
	if n, ok := normal[value]; ok {
		return n
	}
	return value
}

var naiveRegexes sync.Map

func naiveRegex(pattern, value string) bool {
	cached, ok := naiveRegexes.Load(pattern)
	if !ok {
		re := regexp.MustCompile(pattern)
		re.Longest()
		cached, _ = naiveRegexes.LoadOrStore(pattern, re)
	}
	re := cached.(*regexp.Regexp)
	for _, at := range append(re.FindAllStringIndex(value, -1), re.FindStringIndex(value)) {
		if at != nil && at[0] == 0 && at[1] == len(value) {
			return true
		}
	}
	return false
}

func naiveHeader(h *config.ValueMatch, req *message.Request) bool {
	var values []string
	for i := range req.Header.Len() {
		if strings.EqualFold(string(req.Header.At(i).Name), h.Name) {
			values = append(values, string(req.Header.At(i).Value))
		}
	}
	if h.Name == "host" {
		values = []string{string(req.Host)}
	}
	if h.Name == ":path" {
		values = []string{string(req.Path)}
	}
	if len(values) == 0 {
		return false
	}
	if h.RegularExpression {
		return naiveRegex(h.Value, strings.Join(values, ","))
	}
	return naiveJoined(values, h.Value)
}

// naiveJoined tries every way to have or not have a space behind the commas.
func naiveJoined(values []string, want string) bool {
	if len(values) == 1 {
		return values[0] == want
	}
	for _, comma := range []string{",", ", "} {
		if rest, ok := strings.CutPrefix(want, values[0]+comma); ok && naiveJoined(values[1:], rest) {
			return true
		}
	}
	return false
}

func naiveQuery(q *config.ValueMatch, query string) bool {
	for param := range strings.SplitSeq(query, "&") {
		if param == "" {
			continue
		}
		name, value, _ := strings.Cut(param, "=")
		if naiveDecode(name) != q.Name {
			continue
		}
		if q.RegularExpression {
			return naiveRegex(q.Value, naiveDecode(value))
		}
		return naiveDecode(value) == q.Value
	}
	return false
}

func naiveDecode(s string) string {
	if out, err := url.QueryUnescape(s); err == nil {
		return out
	}
	// A broken escape stands for itself, what surrounds it is decoded.
	if s[0] == '%' {
		if len(s) > 2 {
			if out, err := url.QueryUnescape(s[:3]); err == nil {
				return out + naiveDecode(s[3:])
			}
		}
		return "%" + naiveDecode(s[1:])
	}
	i := strings.IndexByte(s, '%')
	return naiveDecode(s[:i]) + naiveDecode(s[i:])
}

// chooser makes choices out of bytes, so that a fuzzer can steer them.
type chooser struct{ data []byte }

func (c *chooser) below(n int) int {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return int(b) % n
}

func pick[T any](c *chooser, list ...T) T { return list[c.below(len(list))] }

func (c *chooser) hostname() *config.Hostname {
	effective := pick(c, "", "example.com", "*.example.com", "a.example.com", "*.a.example.com", "b.a.example.com", "*.com", "com", "other.org")
	originals := []string{effective}
	for _, o := range []string{"*.com", "*.example.com", "*.a.example.com", ""} {
		if o != effective && naiveHost(o, strings.TrimPrefix(effective, "*.")) || o == "" {
			originals = append(originals, o)
		}
	}
	return &config.Hostname{Effective: effective, Original: pick(c, originals...)}
}

func (c *chooser) path() *config.PathMatch {
	switch c.below(4) {
	case 0:
		return &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_EXACT,
			Value: pick(c, "/", "/a", "/a/b", "/a/b/", "/ab", "/café", "/%61/b", "/a b", "/%2f", "/a/b/c/d/e")}
	case 1:
		return &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_REGULAR_EXPRESSION,
			Value: pick(c, "/a.*", "/[ab]/.+", "/a/b", "/a|/a/b", ".*", "/(a|b)")}
	}
	return &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX,
		Value: pick(c, "", "/a", "/a/b", "/a/b/c", "/ab", "/café", "/caf%c3%a9/x", "/a b", "/%2f", "/a/b/c/d/e", "/a//b")}
}

func (c *chooser) match() *config.Match {
	m := &config.Match{Path: c.path(), Method: pick(c, "", "", "GET", "POST", "get")}
	for _, name := range []string{"x-a", "x-b", "host"} {
		if c.below(4) == 1 {
			regex := c.below(3) == 1
			value := pick(c, "1", "2", "1,2", "1, 2", "", "example.com", "example.com:80")
			m.Headers = append(m.Headers, &config.ValueMatch{Name: name, Value: value, RegularExpression: regex})
		}
	}
	for _, name := range []string{"q", "a b"} {
		if c.below(4) == 1 {
			regex := c.below(3) == 1
			value := pick(c, "1", "2", "x y", "", "%zz", "ä")
			m.QueryParams = append(m.QueryParams, &config.ValueMatch{Name: name, Value: value, RegularExpression: regex})
		}
	}
	if m.Method != "" && c.below(3) == 1 {
		m.Preflight, m.AddedHeaders = true, uint32(c.below(len(m.Headers)+1))
	}
	return m
}

func (c *chooser) attached() attached {
	r := &config.Route{Namespace: pick(c, "a", "a-b", "b"), Name: pick(c, "r", "r-1", "s"), CreatedUnixNano: int64(c.below(3))}
	r.Key = pick(c, "HTTPRoute", "HTTPRoute", "HTTPRoute", "GRPCRoute") + "/" + r.Namespace + "/" + r.Name
	if c.below(3) == 1 {
		r.Key = config.RoutePartKey(r.Key, 1)
	}
	for i := range 1 + c.below(3) {
		rule := &config.Rule{Index: uint32(2 * i)}
		for range 1 + c.below(3) {
			rule.Matches = append(rule.Matches, c.match())
		}
		r.Rules = append(r.Rules, rule)
	}
	a := attached{route: r}
	for range 1 + c.below(3) {
		a.hostnames = append(a.hostnames, c.hostname())
	}
	return a
}

func (c *chooser) request() *message.Request {
	host := pick(c, "example.com", "a.example.com", "b.a.example.com", "c.b.a.example.com", "com", "x.com", "other.org", "x.other.org", "", ".example.com", "localhost")
	req := &message.Request{
		Method:    []byte(pick(c, "GET", "POST", "PUT")),
		MatchHost: []byte(host),
		Host:      []byte(host + pick(c, "", ":80")),
		Path:      []byte(pick(c, "/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c/d/e", "/a/b/c/d/e/f/g", "/ab", "/abc/d", "/caf%C3%A9", "/caf%C3%A9/x/y", "/a%20b/c", "/%2F", "/a//b", "//", "*", "/b/x")),
		Query:     []byte(pick(c, "", "q=1", "q=2&q=1", "a+b=x%20y", "a%20b=1&q=2", "q", "q=%zz", "%71=%C3%A4", "&&q=1&", "Q=1", "a%2=1&q=%4&q=1", "q=1=2", "q=x+y")),
	}
	for range pick(c, 0, 0, 1, 2) {
		req.Header.Add([]byte("content-type"), []byte(pick(c, "application/grpc", "Application/GRPC+proto ;a=b", "application/grpc-web", "application/grpcx", "application/json", "application/grpc")))
	}
	for range c.below(4) {
		req.Header.Add([]byte(pick(c, "X-A", "x-a", "X-B", "Host", "X-AA")), []byte(pick(c, "1", "2", "1,2", "")))
	}
	return req
}

// compile fails the test where a route does not compile.
func compile(t testing.TB, r *config.Route) *Route[string] {
	t.Helper()
	out, err := Compile(r, func(rule *config.Rule) string { return fmt.Sprint(r.Key, " ", rule.Index) })
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func show(req *message.Request) string {
	s := fmt.Sprintf("%s %s%s?%s", req.Method, req.MatchHost, req.Path, req.Query)
	for i := range req.Header.Len() {
		s += fmt.Sprintf(" %s: %s", req.Header.At(i).Name, req.Header.At(i).Value)
	}
	return s
}
