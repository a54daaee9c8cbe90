package ratelimit

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// request is "<method> <path>[?<query>]" of a client, with lines "name: value".
func request(t testing.TB, line, client string, lines ...string) *Request {
	t.Helper()
	method, target, _ := strings.Cut(line, " ")
	path, query, _ := strings.Cut(target, "?")
	r := &Request{Request: &message.Request{Method: []byte(method), Host: []byte("H.:8080"), MatchHost: []byte("h")}, Path: []byte(path), Query: []byte(query), Client: netip.MustParseAddr(client)}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		r.Header.Add([]byte(name), []byte(value))
	}
	return r
}

func compile(t testing.TB, s *Store, limits ...*config.RateLimit) *Rules {
	t.Helper()
	for i, l := range limits {
		if l.Name == "" {
			l.Name = fmt.Sprintf("default/p/rule/%d", i)
		}
		if l.PeriodSeconds == 0 {
			l.PeriodSeconds = 3600
		}
	}
	r, release, err := s.Compile(&config.RateLimits{Local: limits}, "HTTPRoute/default/r")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return r
}

// same compares decisions.
func same(a, b Decision) bool { return reflect.DeepEqual(a, b) }

// passes counts how many of n requests pass.
func passes(r *Rules, req *Request, n int) (passed int) {
	var d Decision
	for range n {
		if r.Check(req, nil, &d); !d.Limited && !d.Exceeded {
			passed++
		}
	}
	return passed
}

func exact(name, value string, invert bool) *config.RateLimitValue {
	return &config.RateLimitValue{Name: name, Value: value, Invert: invert}
}

func each(name string) *config.RateLimitValue {
	return &config.RateLimitValue{Name: name, Type: config.RateLimitMatch_RATE_LIMIT_MATCH_DISTINCT}
}

func like(name, value string, invert bool) *config.RateLimitValue {
	return &config.RateLimitValue{Name: name, Type: config.RateLimitMatch_RATE_LIMIT_MATCH_REGULAR_EXPRESSION, Value: value, Invert: invert}
}

// TestConditions: a limit counts requests for which all of its conditions hold, and no others.
func TestConditions(t *testing.T) {
	headers := func(v ...*config.RateLimitValue) *config.RateLimit { return &config.RateLimit{HeaderFields: v} }
	query := func(v ...*config.RateLimitValue) *config.RateLimit { return &config.RateLimit{QueryParams: v} }
	paths := func(v ...*config.RateLimitPath) *config.RateLimit { return &config.RateLimit{Paths: v} }
	methods := func(v ...*config.RateLimitMethod) *config.RateLimit {
		return &config.RateLimit{Methods: []*config.RateLimitMethods{{AnyOf: v}}}
	}
	sources := func(v ...*config.RateLimitSource) *config.RateLimit { return &config.RateLimit{Sources: v} }
	prefix := func(p string, invert bool) *config.RateLimitPath {
		return &config.RateLimitPath{Path: &config.RateLimitPath_Prefix{Prefix: p}, Invert: invert}
	}
	whole := func(p string, invert bool) *config.RateLimitPath {
		return &config.RateLimitPath{Path: &config.RateLimitPath_Exact{Exact: p}, Invert: invert}
	}
	expression := func(p string, invert bool) *config.RateLimitPath {
		return &config.RateLimitPath{Path: &config.RateLimitPath_RegularExpression{RegularExpression: p}, Invert: invert}
	}
	const client = "192.0.2.7"
	for _, c := range []struct {
		what  string
		limit *config.RateLimit
		req   *Request
		holds bool
	}{
		{"no condition", &config.RateLimit{}, request(t, "GET /", client), true},
		{"header", headers(exact("x-user", "one", false)), request(t, "GET /", client, "X-User: one"), true},
		{"another value", headers(exact("x-user", "one", false)), request(t, "GET /", client, "X-User: One"), false},
		{"no header", headers(exact("x-user", "one", false)), request(t, "GET /", client), false},
		{"two lines", headers(exact("x-user", "one,two", false)), request(t, "GET /", client, "X-User: one", "x-user: two"), true},
		{"both headers", headers(exact("a", "1", false), exact("b", "2", false)), request(t, "GET /", client, "A: 1", "B: 2"), true},
		{"one of both headers", headers(exact("a", "1", false), exact("b", "2", false)), request(t, "GET /", client, "A: 1"), false},
		{"inverted header", headers(exact("x-user", "one", true)), request(t, "GET /", client, "X-User: one"), false},
		{"inverted header, another value", headers(exact("x-user", "one", true)), request(t, "GET /", client, "X-User: two"), true},
		{"inverted header, none", headers(exact("x-user", "one", true)), request(t, "GET /", client), true},
		{"expression", headers(like("x-user", "o.e", false)), request(t, "GET /", client, "X-User: one"), true},
		{"expression of a part", headers(like("x-user", "o.", false)), request(t, "GET /", client, "X-User: one"), false},
		{"inverted expression", headers(like("x-user", "o.", true)), request(t, "GET /", client, "X-User: one"), true},
		{"distinct header", headers(each("x-user")), request(t, "GET /", client, "X-User: "), true},
		{"distinct header, none", headers(each("x-user")), request(t, "GET /", client), false},
		{"authority", headers(exact(":authority", "h", false)), request(t, "GET /", client), true},
		{"another authority", headers(exact(":authority", "g", false)), request(t, "GET /", client), false},
		{"authority in another form", headers(exact(":authority", "H.:80", false)), request(t, "GET /", client), true},
		{"authority, inverted", headers(exact(":authority", "H:80", true)), request(t, "GET /", client), false},
		{"authority, expression", headers(like(":authority", "[a-h]", false)), request(t, "GET /", client), true},
		{"authority as host", headers(exact("Host", "h", false)), request(t, "GET /", client), true},

		{"first of two lines", headers(exact("x-user", "one", false)), request(t, "GET /", client, "X-User: one", "X-User: two"), true},
		{"second of two lines", headers(exact("x-user", "two", false)), request(t, "GET /", client, "X-User: one", "X-User: two"), true},
		{"none of two lines", headers(exact("x-user", "three", false)), request(t, "GET /", client, "X-User: one", "X-User: two"), false},
		{"expression, second line", headers(like("x-user", "t.o", false)), request(t, "GET /", client, "X-User: one", "X-User: two"), true},
		{"inverted header, one of two lines", headers(exact("x-user", "one", true)), request(t, "GET /", client, "X-User: one", "X-User: two"), true},
		{"inverted header, the same lines", headers(exact("x-user", "one", true)), request(t, "GET /", client, "X-User: one", "X-User: one"), true},

		{"method", methods(&config.RateLimitMethod{Value: "GET"}), request(t, "GET /", client), true},
		{"one of two methods", methods(&config.RateLimitMethod{Value: "GET"}, &config.RateLimitMethod{Value: "PUT"}), request(t, "PUT /", client), true},
		{"none of two methods", methods(&config.RateLimitMethod{Value: "GET"}, &config.RateLimitMethod{Value: "PUT"}), request(t, "POST /", client), false},
		{"inverted method", methods(&config.RateLimitMethod{Value: "GET", Invert: true}), request(t, "GET /", client), false},
		{"inverted method, another", methods(&config.RateLimitMethod{Value: "GET", Invert: true}), request(t, "PUT /", client), true},
		{"methods of two selectors", &config.RateLimit{Methods: []*config.RateLimitMethods{{AnyOf: []*config.RateLimitMethod{{Value: "GET"}}}, {AnyOf: []*config.RateLimitMethod{{Value: "PUT"}}}}},
			request(t, "GET /", client), false},

		{"prefix", paths(prefix("/a", false)), request(t, "GET /a/b", client), true},
		{"prefix of a segment", paths(prefix("/a", false)), request(t, "GET /ab", client), false},
		{"prefix of all", paths(prefix("/", false)), request(t, "GET /ab", client), true},
		{"inverted prefix", paths(prefix("/a", true)), request(t, "GET /a", client), false},
		{"exact path", paths(whole("/a", false)), request(t, "GET /a", client), true},
		{"longer path", paths(whole("/a", false)), request(t, "GET /a/", client), false},
		{"inverted exact path", paths(whole("/a", true)), request(t, "GET /a/", client), true},
		{"path expression", paths(expression("/a/[0-9]+", false)), request(t, "GET /a/12", client), true},
		{"path expression of a part", paths(expression("/a/[0-9]+", false)), request(t, "GET /a/12/", client), false},
		{"inverted path expression", paths(expression("/a/[0-9]+", true)), request(t, "GET /a/12", client), false},
		{"paths of two selectors", paths(prefix("/a", false), prefix("/a/b", true)), request(t, "GET /a/b", client), false},

		{"source", sources(&config.RateLimitSource{Cidr: "192.0.2.0/24"}), request(t, "GET /", client), true},
		{"source with host bits", sources(&config.RateLimitSource{Cidr: "192.0.2.1/24"}), request(t, "GET /", client), true},
		{"another source", sources(&config.RateLimitSource{Cidr: "192.0.3.0/24"}), request(t, "GET /", client), false},
		{"client of IPv4 in IPv6", sources(&config.RateLimitSource{Cidr: "192.0.2.0/24"}), request(t, "GET /", "::ffff:192.0.2.7"), true},
		{"source of IPv4 in IPv6", sources(&config.RateLimitSource{Cidr: "::ffff:192.0.2.0/120"}), request(t, "GET /", client), true},
		{"both in IPv6", sources(&config.RateLimitSource{Cidr: "::ffff:192.0.2.7/128"}), request(t, "GET /", "::ffff:192.0.2.7"), true},
		{"another source in IPv6", sources(&config.RateLimitSource{Cidr: "::ffff:192.0.3.0/120"}), request(t, "GET /", client), false},
		{"inverted source in IPv6", sources(&config.RateLimitSource{Cidr: "::ffff:192.0.2.0/120", Invert: true}), request(t, "GET /", client), false},
		{"client with a zone", sources(&config.RateLimitSource{Cidr: "fe80::/10"}), request(t, "GET /", "fe80::1%eth0"), true},
		{"another family", sources(&config.RateLimitSource{Cidr: "::/0"}), request(t, "GET /", client), false},
		{"IPv6", sources(&config.RateLimitSource{Cidr: "2001:db8::/32"}), request(t, "GET /", "2001:db8:1::1"), true},
		{"inverted source", sources(&config.RateLimitSource{Cidr: "192.0.2.0/24", Invert: true}), request(t, "GET /", client), false},
		{"distinct source", sources(&config.RateLimitSource{Cidr: "0.0.0.0/0", Distinct: true}), request(t, "GET /", client), true},
		{"distinct source, another", sources(&config.RateLimitSource{Cidr: "192.0.3.0/24", Distinct: true}), request(t, "GET /", client), false},

		{"query", query(exact("id", "a b", false)), request(t, "GET /?x=1&id=a+b", client), true},
		{"query, escaped", query(exact("id", "a b", false)), request(t, "GET /?i%64=a%20b", client), true},
		{"query, first one", query(exact("id", "2", false)), request(t, "GET /?id=2&id=1", client), true},
		{"query, second one", query(exact("id", "1", false)), request(t, "GET /?id=2&id=1", client), true},
		{"query, neither", query(exact("id", "3", false)), request(t, "GET /?id=2&id=1", client), false},
		{"query expression, second one", query(like("id", "a b", false)), request(t, "GET /?id=2&id=a%20b", client), true},
		{"inverted query, one of two", query(exact("id", "1", true)), request(t, "GET /?id=1&id=2", client), true},
		{"inverted query, all of two", query(exact("id", "1", true)), request(t, "GET /?id=1&id=1", client), false},
		{"inverted query", query(exact("id", "1", true)), request(t, "GET /?id=1", client), false},
		{"inverted query, none", query(exact("id", "1", true)), request(t, "GET /", client), true},
		{"query expression", query(like("id", "[0-9]+", false)), request(t, "GET /?id=12", client), true},
		{"distinct query", query(each("id")), request(t, "GET /?id", client), true},
		{"distinct query, none", query(each("id")), request(t, "GET /?i", client), false},

		{"all kinds", &config.RateLimit{HeaderFields: []*config.RateLimitValue{exact("a", "1", false)}, QueryParams: []*config.RateLimitValue{exact("q", "2", false)},
			Paths: []*config.RateLimitPath{prefix("/p", false)}, Sources: []*config.RateLimitSource{{Cidr: "192.0.2.7/32"}},
			Methods: []*config.RateLimitMethods{{AnyOf: []*config.RateLimitMethod{{Value: "GET"}}}}}, request(t, "GET /p?q=2", client, "A: 1"), true},
	} {
		c.limit.Requests, c.limit.RequestCost = 1, 1
		want := 3
		if c.holds {
			want = 1
		}
		if n := passes(compile(t, &Store{}, c.limit), c.req, 3); n != want {
			t.Errorf("%s: %d of 3 requests pass a limit of 1", c.what, n)
		}
	}
}

// TestDistinct: each value has a limit of its own, and values of two conditions together.
func TestDistinct(t *testing.T) {
	r := compile(t, &Store{}, &config.RateLimit{Requests: 2, RequestCost: 1, HeaderFields: []*config.RateLimitValue{each("a"), each("b")},
		QueryParams: []*config.RateLimitValue{each("q")}, Sources: []*config.RateLimitSource{{Cidr: "0.0.0.0/0", Distinct: true}}})
	for _, req := range []*Request{
		request(t, "GET /?q=1", "192.0.2.1", "A: x", "B: y"),
		request(t, "GET /?q=1", "192.0.2.2", "A: x", "B: y"),
		request(t, "GET /?q=2", "192.0.2.1", "A: x", "B: y"),
		request(t, "GET /?q=1", "192.0.2.1", "A: y", "B: x"),
		request(t, "GET /?q=1", "192.0.2.1", "A: x", "A: y", "B: y"),
		request(t, "GET /?q=1", "192.0.2.1", "A: x", "B: y", "B: y"),
		request(t, "GET /?q=1&q=1", "192.0.2.1", "A: x", "B: y"),
		request(t, "GET /?q="+strings.Repeat("1", 5000), "192.0.2.1", "A: x", "B: y"),
	} {
		if n := passes(r, req, 5); n != 2 {
			t.Errorf("%d requests with values of their own pass a limit of 2", n)
		}
	}
	if n := passes(r, request(t, "PUT /else?q=%31&x", "192.0.2.1", "b: y", "X: z", "a: x"), 5); n != 0 {
		t.Errorf("%d requests with the values of others pass", n)
	}
}

// TestDistinctIPv6: who has a /64 has one limit, of a proxy and in Redis, but where the range is as narrow; an address of IPv4 has its own, however it is written.
func TestDistinctIPv6(t *testing.T) {
	for _, c := range []struct {
		name   string
		source *config.RateLimitSource
		a, b   string
		same   bool
	}{
		{"one /64", &config.RateLimitSource{Cidr: "::/0"}, "2001:db8::1", "2001:db8::ffff:0:0:1", true},
		{"two /64", &config.RateLimitSource{Cidr: "::/0"}, "2001:db8::1", "2001:db8:0:1::1", false},
		{"a range of less than 64 bits", &config.RateLimitSource{Cidr: "2001:db8::/63"}, "2001:db8::1", "2001:db8::2", true},
		{"a range of 64 bits", &config.RateLimitSource{Cidr: "2001:db8::/64"}, "2001:db8::1", "2001:db8::2", false},
		{"a range of more", &config.RateLimitSource{Cidr: "2001:db8::/112"}, "2001:db8::1", "2001:db8::2", false},
		{"IPv4", &config.RateLimitSource{Cidr: "0.0.0.0/0"}, "192.0.2.1", "192.0.2.2", false},
		{"IPv4 in IPv6", &config.RateLimitSource{Cidr: "::ffff:0:0/96"}, "::ffff:192.0.2.1", "::ffff:192.0.2.2", false},
		{"IPv4 in two ways", &config.RateLimitSource{Cidr: "0.0.0.0/0"}, "::ffff:192.0.2.1", "192.0.2.1", true},
	} {
		c.source.Distinct = true
		r := compile(t, &Store{}, &config.RateLimit{Requests: 2, RequestCost: 1, Sources: []*config.RateLimitSource{c.source}})
		a, b := request(t, "GET /", c.a), request(t, "GET /", c.b)
		passes(r, a, 2)
		if n := passes(r, b, 2); (n == 0) != c.same {
			t.Errorf("%s: %d requests pass beside those of another address", c.name, n)
		}
		l := r.local[0]
		if same := string(l.appendDistinct(nil, a)) == string(l.appendDistinct(nil, b)); same != c.same {
			t.Errorf("%s: the same key in Redis: %v", c.name, same)
		}
	}
}

// TestDistinctDuplicates: all requests that have a name twice count together, so that a value in a further line or parameter does not make another limit.
func TestDistinctDuplicates(t *testing.T) {
	for _, scope := range []string{"header", "query"} {
		limit := &config.RateLimit{Requests: 2, RequestCost: 1, HeaderFields: []*config.RateLimitValue{each("user")}}
		req := func(values ...string) *Request {
			var lines []string
			for _, v := range values {
				lines = append(lines, "User: "+v)
			}
			return request(t, "GET /", "192.0.2.1", lines...)
		}
		if scope == "query" {
			limit = &config.RateLimit{Requests: 2, RequestCost: 1, QueryParams: []*config.RateLimitValue{each("user")}}
			req = func(values ...string) *Request {
				return request(t, "GET /?user="+strings.Join(values, "&user="), "192.0.2.1")
			}
		}
		r := compile(t, &Store{}, limit)
		if n := passes(r, req("me"), 5); n != 2 {
			t.Errorf("%s: %d requests of one value pass", scope, n)
		}
		passed := 0
		for i := range 20 {
			other := fmt.Sprint(i)
			for _, values := range [][]string{{"me", other}, {other, "me"}, {"me", "me"}, {"", "me", other}} {
				passed += passes(r, req(values...), 1)
			}
		}
		if passed != 2 {
			t.Errorf("%s: %d requests with further values pass, want 2 of all together", scope, passed)
		}
	}
}

// TestStrictest: the strictest of the limits that match decides, whatever their order; that without conditions where no other is enforced; and what one
// refuses takes nothing from the others.
func TestStrictest(t *testing.T) {
	get := []*config.RateLimitMethods{{AnyOf: []*config.RateLimitMethod{{Value: "GET"}}}}
	wide := &config.RateLimit{Name: "a", Requests: 10, RequestCost: 1, Methods: get}
	strict := &config.RateLimit{Name: "b", Requests: 180, PeriodSeconds: 24 * 3600, RequestCost: 60, HeaderFields: []*config.RateLimitValue{exact("x", "1", false)}}
	fallback := &config.RateLimit{Name: "c", Requests: 1, RequestCost: 1}
	for _, order := range [][]*config.RateLimit{{wide, strict, fallback}, {fallback, strict, wide}} {
		r := compile(t, &Store{}, order...)
		if n := passes(r, request(t, "GET /", "192.0.2.1", "X: 1"), 20); n != 3 {
			t.Errorf("%d requests pass the strictest limit, want 3", n)
		}
		if n := passes(r, request(t, "GET /", "192.0.2.1"), 20); n != 7 {
			t.Errorf("%d requests pass the other limit, want 7: those that were refused have not counted", n)
		}
		if n := passes(r, request(t, "PUT /", "192.0.2.1"), 20); n != 1 {
			t.Errorf("%d requests pass the limit for all others, want 1", n)
		}
	}

	r := compile(t, &Store{}, &config.RateLimit{Name: "a", Requests: 2, RequestCost: 1, Methods: get, Shadow: true, Headers: true}, fallback)
	if n := passes(r, request(t, "GET /", "192.0.2.1"), 5); n != 1 {
		t.Errorf("%d requests pass beside a limit in shadow mode, want 1", n)
	}
}

// TestShadow: a limit in shadow mode counts, and refuses nothing; nothing is told of it.
func TestShadow(t *testing.T) {
	s := &Store{}
	r := compile(t, s, &config.RateLimit{Requests: 2, RequestCost: 1, Shadow: true, Headers: true})
	req := request(t, "GET /", "192.0.2.1")
	if n := passes(r, req, 5); n != 5 {
		t.Errorf("%d of 5 requests pass", n)
	}
	var d Decision
	if r.Check(req, nil, &d); !same(d, Decision{}) {
		t.Errorf("it says %+v", d)
	}
	var all []OverLimit
	s.Report(func(o OverLimit) { all = append(all, o) })
	if len(all) != 1 || all[0] != (OverLimit{"default/p/rule/0", Local, 0, 4}) {
		t.Errorf("counted %+v", all)
	}
}

// TestTold: of the limits that say what is left, the one with the least is told, or that which has refused.
func TestTold(t *testing.T) {
	s := &Store{}
	all := &config.RateLimit{Name: "all", Requests: 5, PeriodSeconds: 60, RequestCost: 2, Headers: true, Methods: []*config.RateLimitMethods{{AnyOf: []*config.RateLimitMethod{{Value: "GET"}}}}}
	user := &config.RateLimit{Name: "user", Requests: 3, PeriodSeconds: 1, RequestCost: 1, Headers: true, HeaderFields: []*config.RateLimitValue{each("user")}}
	silent := &config.RateLimit{Name: "silent", Requests: 1, PeriodSeconds: 1, RequestCost: 0, Methods: all.Methods}
	r := compile(t, s, all, user, silent)
	var d Decision
	for i, want := range []Decision{
		{Reported: true, Limit: 3, Window: 1, Left: 2, Reset: 1},
		{Reported: true, Limit: 5, Window: 60, Left: 1, Reset: 48},
		{Limited: true, Reported: true, Limit: 5, Window: 60, Left: 1, Reset: 48},
	} {
		if r.Check(request(t, "GET /", "192.0.2.1", "User: a"), nil, &d); !same(d, want) {
			t.Errorf("request %d: %+v, want %+v", i, d, want)
		}
	}
	if r.Check(request(t, "POST /", "192.0.2.1"), nil, &d); !same(d, Decision{}) {
		t.Errorf("of no limit: %+v", d)
	}
	stricter := &config.RateLimit{Name: "stricter", Requests: 9, PeriodSeconds: 3600, RequestCost: 1, Headers: true, Methods: all.Methods}
	refusing := &config.RateLimit{Name: "refusing", Requests: 1, PeriodSeconds: 60, RequestCost: 2, Methods: all.Methods}
	if compile(t, s, stricter, refusing).Check(request(t, "GET /", "192.0.2.1"), nil, &d); !d.Limited || d.Reported {
		t.Errorf("refused by a limit that tells nothing: %+v", d)
	}
}

// TestCost: a request costs as many tokens as its limit says, and with 0 it is only asked whether there is one.
func TestCost(t *testing.T) {
	s := &Store{}
	req := request(t, "GET /", "192.0.2.1")
	if n := passes(compile(t, s, &config.RateLimit{Name: "a", Requests: 10, RequestCost: 3}), req, 5); n != 3 {
		t.Errorf("%d requests of 3 tokens pass a limit of 10", n)
	}
	for _, of := range [][]*config.RateLimitValue{nil, {each(":authority")}} {
		if n := passes(compile(t, s, &config.RateLimit{Name: "b", Requests: 1, RequestCost: 0, HeaderFields: of}), req, 5); n != 5 {
			t.Errorf("%d of 5 requests pass that cost nothing", n)
		}
		if n := passes(compile(t, s, &config.RateLimit{Name: "c", Requests: 0, RequestCost: 0, HeaderFields: of}), req, 5); n != 0 {
			t.Errorf("%d requests pass a limit of 0", n)
		}
		if n := passes(compile(t, s, &config.RateLimit{Name: "d", Requests: 3, RequestCost: 4, HeaderFields: of}), req, 5); n != 0 {
			t.Errorf("%d requests pass that cost more than the limit", n)
		}
	}
}

// TestEdit: what is counted stays while any rule has the limit, for the route alone or, where it is shared, for all; another limit begins with a full bucket.
func TestEdit(t *testing.T) {
	s := &Store{}
	req := request(t, "GET /", "192.0.2.1", "User: a")
	take := func(route string, l *config.RateLimit) (n int, release func()) {
		t.Helper()
		l.Name, l.RequestCost = "default/p/rule/0", 1
		r, release, err := s.Compile(&config.RateLimits{Local: []*config.RateLimit{l}}, route)
		if err != nil {
			t.Fatal(err)
		}
		return passes(r, req, 100), release
	}
	limit := func() *config.RateLimit { return &config.RateLimit{Requests: 7, PeriodSeconds: 3600} }
	n, release := take("a", limit())
	if n != 7 {
		t.Fatalf("%d requests pass", n)
	}
	edited := limit()
	edited.HeaderFields = []*config.RateLimitValue{exact("user", "a", false)}
	if n, release := take("a", edited); n != 7 {
		t.Errorf("of other conditions %d requests pass", n)
	} else {
		release()
	}
	if n, release := take("b", limit()); n != 7 {
		t.Errorf("of another route %d requests pass", n)
	} else {
		release()
	}
	release()
	if n, release := take("a", limit()); n != 7 {
		t.Errorf("%d requests pass after the rule was gone", n)
	} else {
		defer release()
	}
	if n, release := take("a", &config.RateLimit{Requests: 8, PeriodSeconds: 3600}); n != 8 {
		t.Errorf("of another limit %d requests pass", n)
	} else {
		release()
	}
	if n, release := take("a", &config.RateLimit{Requests: 7, PeriodSeconds: 3600, HeaderFields: []*config.RateLimitValue{each("user")}}); n != 7 {
		t.Errorf("of a limit for each value %d requests pass", n)
	} else {
		release()
	}
	shared := limit()
	shared.Shared = true
	n, release = take("a", shared)
	defer release()
	if n != 7 {
		t.Errorf("of a shared limit %d requests pass", n)
	}
	if n, release := take("b", shared); n != 0 {
		t.Errorf("of another route that shares it %d requests pass", n)
	} else {
		release()
	}
}

// TestEditOfOthers: what a limit has counted stays where others of its policy come and go before it, and is nobody else's.
func TestEditOfOthers(t *testing.T) {
	s := &Store{}
	compile := func(users ...string) (*Rules, func()) {
		t.Helper()
		c := &config.RateLimits{}
		for i, user := range users {
			v := exact("user", user, false)
			if user == "" {
				v = each("user")
			}
			c.Local = append(c.Local, &config.RateLimit{Name: fmt.Sprintf("default/p/rule/%d", i), Requests: 3, RequestCost: 1, PeriodSeconds: 3600, HeaderFields: []*config.RateLimitValue{v}})
		}
		r, release, err := s.Compile(c, "a")
		if err != nil {
			t.Fatal(err)
		}
		return r, release
	}
	of := func(user string) *Request { return request(t, "GET /", "192.0.2.1", "User: "+user) }
	before := func() {}
	for _, step := range []struct {
		users []string
		user  string
		want  int
	}{
		{[]string{"a", "b"}, "a", 3},
		{[]string{"b"}, "b", 3},      // not what a has used
		{[]string{"z", "b"}, "b", 0}, // not anew
		{[]string{"b", "z"}, "b", 0},
		{[]string{"b", "z"}, "z", 3},
		{[]string{"a", "z"}, "a", 3}, // as it was gone
		{[]string{"a", ""}, "y", 3},
		{[]string{""}, "y", 0},
		{[]string{"x", "x"}, "x", 3}, // two that are alike count each request once each
	} {
		r, release := compile(step.users...)
		before()
		before = release
		if n := passes(r, of(step.user), 10); n != step.want {
			t.Errorf("with limits of %q, %d requests of %q pass, want %d", step.users, n, step.user, step.want)
		}
	}
	before()
}

// TestExpensive: a request whose values are too long for the expressions of the limits is told apart, and takes nothing.
func TestExpensive(t *testing.T) {
	limit := &config.RateLimit{Name: "a", Requests: 1, RequestCost: 1, PeriodSeconds: 60}
	for range 64 {
		limit.HeaderFields = append(limit.HeaderFields, like("x", "(a|b|c|d|e|f)*z{1,200}", true))
	}
	r := compile(t, &Store{}, &config.RateLimit{Name: "b", Requests: 1, RequestCost: 1, Methods: []*config.RateLimitMethods{{AnyOf: []*config.RateLimitMethod{{Value: "GET"}}}}}, limit)
	var d Decision
	if r.Check(request(t, "GET /", "192.0.2.1", "X: "+strings.Repeat("a", 1<<20)), nil, &d); !same(d, Decision{Exceeded: true}) {
		t.Errorf("got %+v", d)
	}
	if n := passes(r, request(t, "GET /", "192.0.2.1"), 3); n != 1 {
		t.Errorf("%d requests pass after it", n)
	}
}

// TestCompileErrors: what a controller of another version may send is refused.
func TestCompileErrors(t *testing.T) {
	s := &Store{}
	for want, c := range map[string]*config.RateLimits{
		"17 local rate limits are more than 16":                        {Local: make([]*config.RateLimit, 17)},
		"local rate limit 0: source: netip.ParsePrefix(\"x\"): no '/'": {Local: []*config.RateLimit{{Sources: []*config.RateLimitSource{{Cidr: "x"}}}}},
		"local rate limit 0: path: it has no value":                    {Local: []*config.RateLimit{{Paths: []*config.RateLimitPath{{}}}}},
		"local rate limit 0: header a: error parsing regexp":           {Local: []*config.RateLimit{{HeaderFields: []*config.RateLimitValue{like("a", "(", false)}}}},
		"local rate limit 0: query parameter a: error parsing regexp":  {Local: []*config.RateLimit{{QueryParams: []*config.RateLimitValue{like("a", "(", false)}}}},
	} {
		_, release, err := s.Compile(c, "r")
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		release()
	}
	if n := s.buckets.Len() + s.over.Len(); n != 0 {
		t.Errorf("%d values are left", n)
	}
}
