package match

import (
	"fmt"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// written is a match in short: words "=/path" Exact, "~regex", "/prefix", "METHOD",
// "h:name=value", "h:name~regex", "q:name=value", "q:name~regex"; "+name=value" is a header that was added for preflight requests.
func written(words ...string) *config.Match {
	m := &config.Match{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}
	for _, w := range words {
		switch {
		case w[0] == '=':
			m.Path = &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_EXACT, Value: w[1:]}
		case w[0] == '~':
			m.Path = &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_REGULAR_EXPRESSION, Value: w[1:]}
		case w[0] == '/':
			m.Path.Value = w
		case strings.HasPrefix(w, "h:"):
			m.Headers = append(m.Headers, writtenValue(w[2:]))
		case w[0] == '+':
			m.Headers = append(m.Headers, writtenValue(w[1:]))
			m.Preflight, m.AddedHeaders = true, m.AddedHeaders+1
		case strings.HasPrefix(w, "q:"):
			m.QueryParams = append(m.QueryParams, writtenValue(w[2:]))
		default:
			m.Method = w
		}
	}
	return m
}

func writtenValue(w string) *config.ValueMatch {
	i := strings.IndexAny(w, "=~")
	return &config.ValueMatch{Name: w[:i], Value: w[i+1:], RegularExpression: w[i] == '~'}
}

// entry is a route of one rule for hostnames "effective" or "effective<original".
type entry struct {
	name    string // "namespace/name"
	host    string
	created int64
	matches []*config.Match
}

func build(t *testing.T, entries ...entry) *Table[string] {
	t.Helper()
	edit := (*Table[string])(nil).Edit()
	for _, en := range entries {
		namespace, name, _ := strings.Cut(en.name, "/")
		r := &config.Route{Key: "HTTPRoute/" + en.name, Namespace: namespace, Name: name, CreatedUnixNano: en.created,
			Rules: []*config.Rule{{Matches: en.matches}}}
		host, original, ok := strings.Cut(en.host, "<")
		if !ok {
			original = host
		}
		edit.Add(compile(t, r), []*config.Hostname{{Effective: host, Original: original}})
	}
	return edit.Table()
}

func one(words ...string) []*config.Match { return []*config.Match{written(words...)} }

// asked is "METHOD host/path?query", then field lines, of which those that are consumed are where http1 has them.
func asked(line string, fields ...string) *message.Request {
	method, target, _ := strings.Cut(line, " ")
	i := strings.IndexAny(target, "/*")
	path, query, has := strings.Cut(target[i:], "?")
	req := &message.Request{Method: []byte(method), Host: []byte(target[:i]), MatchHost: []byte(target[:i]), Path: []byte(path), Query: []byte(query), HasQuery: has}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		switch strings.ToLower(name) {
		case "content-length":
			req.Consumed = &message.Consumed{Length: []byte(value)}
		case "upgrade":
			req.Consumed = &message.Consumed{Upgrade: []byte(value)}
		case "te":
			req.Consumed = &message.Consumed{TETrailers: true}
		case "expect":
			req.Consumed = &message.Consumed{ExpectContinue: true}
		default:
			req.Header.Add([]byte(name), []byte(value))
		}
	}
	return req
}

func lookup[V any](table *Table[V], req *message.Request) *Rule[V] {
	r, err := table.Lookup(req)
	if err != nil {
		panic(err)
	}
	return r
}

func winner(table *Table[string], req *message.Request) string {
	if r := lookup(table, req); r != nil {
		return r.Route.Namespace + "/" + r.Route.Name
	}
	return ""
}

// Each case is one criterion: "first" wins over "second", which all criteria that follow favour.
func TestPrecedence(t *testing.T) {
	req := asked("GET a.example.com/a/b?q=1&p=2", "X-A: 1", "X-B: 2", "X-C: 3")
	best := one("=/a/b", "GET", "h:x-a=1", "h:x-b=2", "h:x-c=3", "q:q=1", "q:p=2")
	for _, c := range []struct {
		why           string
		first, second entry
	}{
		{"less specific hostname", entry{"z/z", "a.example.com<", 9, one()}, entry{"a/a", "*.example.com", 0, best}},
		{"less specific hostname", entry{"z/z", "*.example.com<", 9, one()}, entry{"a/a", "*.com", 0, best}},
		{"less specific hostname", entry{"z/z", "*.com", 9, one()}, entry{"a/a", "", 0, best}},
		{"less specific hostname of the route", entry{"z/z", "a.example.com", 9, one()}, entry{"a/a", "a.example.com<*.example.com", 0, best}},
		{"less specific hostname of the route", entry{"z/z", "a.example.com<*.example.com", 9, one()}, entry{"a/a", "a.example.com<*.com", 0, best}},
		{"less specific hostname of the route", entry{"z/z", "*.example.com<*.com", 9, one()}, entry{"a/a", "*.example.com<", 0, best}},
		{"path type RegularExpression comes after Exact", entry{"z/z", "", 9, one("=/a/b")}, entry{"a/a", "", 0, one("~/a/b|/longer", "GET", "h:x-a=1", "q:q=1")}},
		{"path type PathPrefix comes after Exact", entry{"z/z", "", 9, one("=/a/b")}, entry{"a/a", "", 0, one("/a/b", "GET", "h:x-a=1", "q:q=1")}},
		{"path type PathPrefix comes after RegularExpression", entry{"z/z", "", 9, one("~/.*")}, entry{"a/a", "", 0, one("/a/b", "GET", "h:x-a=1", "q:q=1")}},
		{"shorter regular expression", entry{"z/z", "", 9, one("~/a/.*")}, entry{"a/a", "", 0, one("~/.*", "GET", "h:x-a=1", "q:q=1")}},
		{"shorter path prefix", entry{"z/z", "", 9, one("/a/b")}, entry{"a/a", "", 0, one("/a", "GET", "h:x-a=1", "q:q=1")}},
		{"shorter path prefix", entry{"z/z", "", 9, one("/a")}, entry{"a/a", "", 0, one("GET", "h:x-a=1", "q:q=1")}},
		{"shorter path prefix", entry{"z/z", "", 9, one("/a")}, entry{"a/a", "", 0, one("GET", "h::path~/[^/]+/b", "h:x-a=1")}},
		{"no method match", entry{"z/z", "", 9, one("GET", "h::path~/[^/]+/b")}, entry{"a/a", "", 0, one("h:x-a=1", "h:x-b=2", "h:x-c=3")}},
		{"no method match", entry{"z/z", "", 9, one("/a", "GET")}, entry{"a/a", "", 0, one("/a", "h:x-a=1", "q:q=1")}},
		{"fewer header matches", entry{"z/z", "", 9, one("/a", "h:x-a=1", "h:x-b=2")}, entry{"a/a", "", 0, one("/a", "h:x-a=1", "q:q=1", "q:p=2")}},
		{"fewer header matches", entry{"z/z", "", 9, one("/a", "h:x-a~1")}, entry{"a/a", "", 0, one("/a", "q:q=1", "q:p=2")}},
		{"fewer query parameter matches", entry{"z/z", "", 9, one("h:x-a=1", "q:q=1", "q:p=2")}, entry{"a/a", "", 0, one("h:x-b=2", "q:q=1")}},
		{"shorter path prefix", entry{"z/z", "", 9, one("/a/b", "GET", "+x-a~.+")}, entry{"a/a", "", 0, one("/a", "GET", "h:x-a=1", "h:x-b=2", "q:q=1")}},
		{"no method match", entry{"z/z", "", 9, one("/a", "GET", "+x-a~.+")}, entry{"a/a", "", 0, one("/a", "h:x-a=1", "h:x-b=2", "q:q=1")}},
		{"fewer header matches", entry{"z/z", "", 9, one("/a", "GET", "h:x-a=1")}, entry{"a/a", "", 0, one("/a", "GET", "+x-b~.+", "+x-c=3", "q:q=1")}},
		{"fewer header matches", entry{"z/z", "", 9, one("/a", "GET", "h:x-a=1", "+x-b~.+")}, entry{"a/a", "", 0, one("/a", "GET", "q:q=1")}},
		{"fewer query parameter matches", entry{"z/z", "", 9, one("/a", "GET", "+x-b~.+", "q:q=1")}, entry{"a/a", "", 0, one("/a", "GET")}},
		{"takes OPTIONS only for preflight requests", entry{"z/z", "", 9, one("/a", "GET")}, entry{"a/a", "", 0, one("/a", "GET", "+x-a~.+", "+x-b=2")}},
		{"newer route", entry{"z/z", "", 1, one("/a", "GET", "+x-a~.+")}, entry{"a/a", "", 2, one("/a", "GET", "+x-a~.+", "+x-b=2")}},
		{"newer route", entry{"z/z", "", 1, one("/a", "h:x-a=1")}, entry{"a/a", "", 2, one("/a", "h:x-b=2")}},
		{"newer route", entry{"z/z", "", 0, one("/a")}, entry{"a/a", "", 1, one("/a")}},
		{"later in namespace/name order", entry{"a/z", "", 1, one("/a")}, entry{"b/a", "", 1, one("/a")}},
		{"later in namespace/name order", entry{"a/a", "", 1, one("/a")}, entry{"a/b", "", 1, one("/a")}},
		// One text, not two fields: "-" sorts before "/".
		{"later in namespace/name order", entry{"a-b/z", "", 1, one("/a")}, entry{"a/a", "", 1, one("/a")}},
	} {
		t.Run(c.why+" "+c.second.name, func(t *testing.T) {
			for _, order := range [][]entry{{c.first, c.second}, {c.second, c.first}} {
				table := build(t, order...)
				if got := winner(table, req); got != c.first.name {
					t.Fatalf("%s wins, want %s", got, c.first.name)
				}
				list := table.Explain(req)
				if len(list) != 2 || !list[0].Matched || list[0].Why != "" || !list[1].Matched || list[1].Why != c.why {
					t.Errorf("explained as %+v", list)
				}
				if got := winner(build(t, c.second), req); got != c.second.name {
					t.Errorf("alone, the second does not match: the case says nothing")
				}
			}
		})
	}
}

func TestPrecedenceWithinARoute(t *testing.T) {
	r := &config.Route{Key: "HTTPRoute/a/a", Namespace: "a", Name: "a", Rules: []*config.Rule{
		{Index: 3, Matches: []*config.Match{written("/a", "h:x=1"), written("/a", "h:y=1"), written("/a")}},
		{Index: 4, Matches: []*config.Match{written("/a", "h:z=1"), written("/a", "h:x=1")}},
	}}
	edit := new(Table[string]).Edit()
	edit.Add(compile(t, r), effective(""))
	table := edit.Table()
	for fields, want := range map[string]string{"x y z": "rule 3 match 0", "y z": "rule 3 match 1", "z": "rule 4 match 0", "": "rule 3 match 2"} {
		req := asked("GET h/a")
		for f := range strings.FieldsSeq(fields) {
			req.Header.Add([]byte(f), []byte("1"))
		}
		if got := whereRule(lookup(table, req)); got != "HTTPRoute/a/a "+want {
			t.Errorf("with %q: %s, want %s", fields, got, want)
		}
	}
	var whys []string
	for _, c := range table.Explain(asked("GET h/a", "x: 1", "y: 1", "z: 1")) {
		whys = append(whys, c.Why)
	}
	if got := strings.Join(whys, "|"); got != "|later match of the rule|later rule of the route|later rule of the route|fewer header matches" {
		t.Errorf("why: %s", got)
	}
}

func TestHostnameGivesPrecedenceOnly(t *testing.T) {
	table := build(t,
		entry{"a/exact", "a.example.com", 0, one("/exact")},
		entry{"a/narrow", "a.example.com<*.example.com", 0, one("/narrow")},
		entry{"a/wild", "*.example.com", 0, one("/wild")},
		entry{"a/any", "", 0, one("/any")})
	for path, want := range map[string]string{"/exact": "a/exact", "/narrow": "a/narrow", "/wild": "a/wild", "/any": "a/any", "/none": ""} {
		if got := winner(table, asked("GET a.example.com"+path)); got != want {
			t.Errorf("%s goes to %q, want %q", path, got, want)
		}
	}
}

func TestRulesThatCannotForwardStillWin(t *testing.T) {
	for name, rule := range map[string]*config.Rule{
		"failure":        {Failure: &config.Failure{Status: 500}, Matches: one("=/a")},
		"no backendRefs": {Matches: one("=/a")},
	} {
		edit := build(t, entry{"a/other", "", 0, one("/a")}).Edit()
		edit.Add(compile(t, &config.Route{Key: "HTTPRoute/b/b", Namespace: "b", Name: "b", CreatedUnixNano: 5, Rules: []*config.Rule{rule}}), effective(""))
		if got := winner(edit.Table(), asked("GET h/a")); got != "b/b" {
			t.Errorf("%s: %s wins", name, got)
		}
	}
}

var predicateCases = []struct {
	match  string // words, separated by ";"
	line   string
	fields string // separated by ";"
	want   string // "" or why not
}{
	{"/abc", "GET h/abc", "", ""},
	{"/abc", "GET h/abc/", "", ""},
	{"/abc", "GET h/abc/def", "", ""},
	{"/abc", "GET h/abcd", "", `path is neither "/abc" nor below it`},
	{"/abc/", "GET h/abc", "", ""},
	{"/abc", "GET h/ABC", "", `path is neither "/abc" nor below it`},
	{"/", "GET h/anything", "", ""},
	{"/", "OPTIONS h*", "", ""},
	{"/a", "OPTIONS h*", "", `path is neither "/a" nor below it`},
	{"/a/b", "GET h/a//b", "", `path is neither "/a/b" nor below it`},
	{"=/abc", "GET h/abc/", "", `path is not "/abc"`},
	{"=/abc/", "GET h/abc/", "", ""},
	{"=/café", "GET h/caf%C3%A9", "", ""},
	{"=/caf%c3%a9", "GET h/caf%C3%A9", "", ""},
	{"/%7Euser", "GET h/~user/x", "", ""},
	{"=/a b", "GET h/a%20b", "", ""},
	{"=/a%2fb", "GET h/a%2Fb", "", ""},
	{"=/a%2fb", "GET h/a/b", "", `path is not "/a%2Fb"`},
	{"=/100%", "GET h/100%25", "", ""},
	{"=/a?b#c", "GET h/a%3Fb%23c", "", ""},
	{"=/%3A", "GET h/:", "", `path is not "/%3A"`},
	{"~/v[0-9]+", "GET h/v12", "", ""},
	{"~/v[0-9]+", "GET h/v12/x", "", `path does not match "/v[0-9]+"`},
	{"~v[0-9]+", "GET h/v12", "", `path does not match "v[0-9]+"`},
	{"~/a|/b", "GET h/ax", "", `path does not match "/a|/b"`},
	{"~(?i)/A", "GET h/a", "", ""},
	{"POST", "POST h/", "", ""},
	{"POST", "post h/", "", "method is not POST"},
	{"h:x-a=1", "GET h/", "X-A: 1", ""},
	{"h:X-A=1", "GET h/", "x-a: 1", ""},
	{"h:x-a=1", "GET h/", "X-A: 2", `header "x-a" is "2", not "1"`},
	{"h:x-a=1", "GET h/", "", `no header "x-a"`},
	{"h:x-a=v", "GET h/", "X-A: V", `header "x-a" is "V", not "v"`},
	{"h:x-a=1,2", "GET h/", "X-A: 1;x-a: 2", ""},
	{"h:x-a=1, 2", "GET h/", "X-A: 1;X-B: 0;x-a: 2", ""},
	{"h:x-a=1, 2", "GET h/", "X-A: 1, 2", ""},
	{"h:x-a=1, 2", "GET h/", "X-A: 1,2", `header "x-a" is "1,2", not "1, 2"`},
	{"h:x-a=1", "GET h/", "X-A: 1;X-A: 2", `header "x-a" is "1,2", not "1"`},
	{"h:x-a=1,2,3", "GET h/", "X-A: 1;X-A: 2", `header "x-a" is "1,2", not "1,2,3"`},
	{"h:x-a~1,.", "GET h/", "X-A: 1;X-A: 2", ""},
	{"h:x-a~[0-9]", "GET h/", "X-A: 12", `header "x-a" is "12", which does not match "[0-9]"`},
	{"h:host=h", "GET h/", "", ""},
	{"h:host~x|h.*", "GET h.example/", "", ""},
	{"h:host=g", "GET h/", "Host: g", `header "host" is "h", not "g"`},
	{"h:content-length=3", "GET h/", "Content-Length: 3", ""},
	{"h:content-length~[0-9]{2}", "GET h/", "Content-Length: 3", `header "content-length" is "3", which does not match "[0-9]{2}"`},
	{"h:content-length=0", "GET h/", "", `no header "content-length"`},
	{"h:upgrade=websocket", "GET h/", "Upgrade: websocket", ""},
	{"h:Upgrade~(?i)websocket", "GET h/", "Upgrade: WebSocket", ""},
	{"h:upgrade=websocket", "GET h/", "Upgrade: WebSocket", `header "upgrade" is "WebSocket", not "websocket"`},
	{"h:upgrade=websocket", "GET h/", "TE: trailers", `no header "upgrade"`},
	{"h:te=trailers", "GET h/", "TE: trailers", ""},
	{"h:te=trailers", "GET h/", "Expect: 100-continue", `no header "te"`},
	{"h:expect=100-continue", "GET h/", "Expect: 100-continue", ""},
	{"h:expect=100-continue", "GET h/", "Content-Length: 3", `no header "expect"`},
	{"q:a=1", "GET h/?a=1", "", ""},
	{"q:a=1", "GET h/?b=0&a=1&a=2", "", ""},
	{"q:a=2", "GET h/?b=0&a=1&a=2", "", `query parameter "a" is "1", not "2"`},
	{"q:a=1", "GET h/?A=1", "", `no query parameter "a"`},
	{"q:a=1", "GET h/", "", `no query parameter "a"`},
	{"q:a=", "GET h/?a", "", ""},
	{"q:a=x y", "GET h/?%61=x+y", "", ""},
	{"q:a=x y", "GET h/?a=x%20y", "", ""},
	{"q:a+b=1", "GET h/?a%2Bb=1", "", ""},
	{"q:a=b=c", "GET h/?a=b=c", "", ""},
	{"q:a=%zz", "GET h/?a=%zz", "", ""},
	{"q:a~x.y", "GET h/?a=x%26y", "", ""},
	{"q:a~x", "GET h/?a=xy", "", `query parameter "a" is "xy", which does not match "x"`},
}

func TestPredicates(t *testing.T) {
	for _, c := range predicateCases {
		t.Run(c.match+" "+c.line+" "+c.fields, func(t *testing.T) {
			var fields []string
			if c.fields != "" {
				fields = strings.Split(c.fields, ";")
			}
			table := build(t, entry{"a/a", "", 0, one(strings.Split(c.match, ";")...)})
			req := asked(c.line, fields...)
			list := table.Explain(req)
			if len(list) != 1 || list[0].Why != c.want || list[0].Matched != (c.want == "") {
				t.Errorf("explained as %+v, want why %q", list, c.want)
			}
			if got := winner(table, req) == "a/a"; got != (c.want == "") {
				t.Errorf("found is %v", got)
			}
		})
	}
}

func TestCompileRefuses(t *testing.T) {
	for want, m := range map[string]*config.Match{
		"rules[7].matches[1].path: error parsing regexp: missing closing ]":                  written("~/[a"),
		"rules[7].matches[1].path: error parsing regexp: unexpected ): `a)|(b`":              written("~a)|(b"),
		"rules[7].matches[1].headers[1]: error parsing regexp: missing closing )":            written("h:a=1", "h:b~("),
		"rules[7].matches[1].queryParams[0]: error parsing regexp: missing argument":         written("q:a~*"),
		"rules[7].matches[1].path: unknown path match type PATH_MATCH_TYPE_UNSPECIFIED":      {Path: &config.PathMatch{}},
		`rules[7].matches[1].path: value "a" must begin with '/'`:                            {Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX, Value: "a"}},
		`rules[7].matches[1].path: value "" must begin with '/'`:                             written("="),
		"rules[7].matches[1].path: error parsing regexp: invalid or unsupported Perl syntax": written("~/(?=a)"),
	} {
		r := &config.Route{Key: "HTTPRoute/a/b", Rules: []*config.Rule{{Index: 7, Matches: []*config.Match{written(), m}}}}
		_, err := Compile(r, func(*config.Rule) int { return 0 })
		if err == nil || !strings.HasPrefix(err.Error(), "route HTTPRoute/a/b: "+want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}

func TestRuleCarriesItsValue(t *testing.T) {
	calls := 0
	r := &config.Route{Key: "k", Rules: []*config.Rule{{Matches: []*config.Match{written("/a"), {}}}, {Index: 1, Matches: one("/b")}}}
	route, err := Compile(r, func(rule *config.Rule) *int { calls++; i := int(rule.Index); return &i })
	if err != nil || calls != 2 {
		t.Fatalf("error %v, %d calls", err, calls)
	}
	edit := (*Table[*int])(nil).Edit()
	edit.Add(route, effective("")) // the second match has no path: it fits all
	table := edit.Table()
	a, b, any := lookup(table, asked("GET h/a")), lookup(table, asked("GET h/b")), lookup(table, asked("GET h/c"))
	if *a.Value != 0 || *b.Value != 1 || any.Value != a.Value || any.Match != r.Rules[0].Matches[1] || b.Config != r.Rules[1] || b.Route != r {
		t.Errorf("got %+v, %+v, %+v", a, b, any)
	}
	if table.Get("k") != route || table.Get("l") != nil {
		t.Error("Get does not find the route by its key")
	}
	for got := range table.Routes() {
		if got != route {
			t.Error("Routes yields another route")
		}
	}
}

func TestNilTableIsEmpty(t *testing.T) {
	var table *Table[int]
	if lookup(table, asked("GET h/")) != nil || len(table.Explain(asked("GET h/"))) != 0 || table.Len() != 0 || table.Get("x") != nil {
		t.Error("nil table is not empty")
	}
	for range table.Routes() {
		t.Error("nil table has a route")
	}
}

func TestExplainIsBounded(t *testing.T) {
	table := tableByPath(t, 500)
	edit := table.Edit()
	for i := range 100 {
		r := numbered(1000+i, "/team")
		r.Rules = r.Rules[1:]
		r.Rules[0].Matches[0].Headers = []*config.ValueMatch{{Name: "x-tenant", Value: fmt.Sprint(i)}}
		edit.Add(compile(t, r), effective("example.com"))
	}
	table = edit.Table()
	list := table.Explain(asked("GET example.com/team/service-77/x", "X-Tenant: 99"))
	if len(list) != MaxCandidates {
		t.Fatalf("%d candidates, want %d", len(list), MaxCandidates)
	}
	if list[0].Rule.Route.Name != "route-77" || list[0].Why != "" {
		t.Errorf("first is %+v", list[0])
	}
	last := list[MaxCandidates-1]
	if last.Rule.Route.Name != "route-1099" || last.Why != "shorter path prefix" {
		t.Errorf("the match that also fits is not there, last is %+v", last)
	}
	// Nothing fits: what is nearest is shown.
	list = tableByPath(t, 500).Explain(asked("GET example.com/team/service-77x"))
	near := false
	for _, c := range list {
		near = near || c.Rule.Match.Path.Value == "/team/service-77"
	}
	if len(list) != MaxCandidates || !near {
		t.Errorf("%d candidates, the nearest among them: %v", len(list), near)
	}
}

// TestProbesAreBounded counts what a path of thousands of segments is looked up by.
func TestProbesAreBounded(t *testing.T) {
	table := build(t, entry{"a/a", "", 0, one("/a/b/c")}, entry{"a/b", "", 0, one("/a")})
	groups, _ := table.hosts.Get("")
	w := groups[0].requests.prefix.fitting([]byte(repeat("/a", 4000)))
	if w.depth != 3 || len(w.path) != 6 {
		t.Errorf("the walk begins at depth %d with %q", w.depth, w.path)
	}
	if got := winner(table, asked("GET h"+repeat("/a", 4000))); got != "a/b" {
		t.Errorf("winner is %q", got)
	}
	h := (*Hosts[int])(nil).With("*.b.c", 1)
	if start, labels := longestSuffix([]byte(repeat("a.", 4000)+"b.c"), h.labels.deepest()); labels != 2 || start != 8000 {
		t.Errorf("the walk begins with %d labels at %d", labels, start)
	}
	edit := table.Edit()
	edit.Remove("HTTPRoute/a/a")
	groups, _ = edit.Table().hosts.Get("")
	if d := groups[0].requests.prefix.segments.deepest(); d != 1 {
		t.Errorf("after the deep route left, the bound is %d", d)
	}
}
