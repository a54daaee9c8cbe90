package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
)

// headBackend answers with the request head that it got as its body.
func headBackend(t testing.TB, response string) string {
	return rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			head, err := readHead(r)
			if err != nil {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", response, len(head), head)
		}
	})
}

func fields(list ...string) (out []*config.HeaderField) {
	for _, f := range list {
		name, value, _ := strings.Cut(f, "=")
		out = append(out, &config.HeaderField{Name: name, Value: value})
	}
	return out
}

func replacePrefix(prefix, by string) *config.PathModifier {
	return &config.PathModifier{Kind: &config.PathModifier_ReplacePrefix{ReplacePrefix: &config.ReplacePrefix{Prefix: prefix, Replacement: by}}}
}

// TestFiltersEndToEnd checks on the wire what filters of rules and backendRefs make of messages.
func TestFiltersEndToEnd(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, request string
		rule          func(*config.Rule)
		has, lacks    []string // in the response, whose body is what the backend got
	}{
		{
			name:    "request header, rule before backendRef",
			request: "GET / HTTP/1.1\r\nHost: h\r\nA: old\r\na: older\r\nGone: 1\r\nConnection: close\r\n\r\n",
			rule: func(r *config.Rule) {
				r.Filters = append(r.Filters, filterOf(t, &config.RequestHeaderModifier{Set: fields("A=rule"), Add: fields("B=rule"), Remove: []string{"gone"}}))
				r.BackendRefs[0].Filters = append(r.BackendRefs[0].Filters, filterOf(t, &config.RequestHeaderModifier{Set: fields("A=ref"), Add: fields("B=ref")}))
			},
			has:   []string{"\r\nA: ref\r\n", "\r\nB: rule\r\n", "\r\nB: ref\r\n"},
			lacks: []string{"old", "A: rule", "Gone"},
		},
		{
			name:    "response header, backendRef before rule",
			request: "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
			rule: func(r *config.Rule) {
				r.Filters = append(r.Filters, filterOf(t, &config.ResponseHeaderModifier{Set: fields("Server=gateway"), Add: fields("Vary=b"), Remove: []string{"X-Inner"}}))
				r.BackendRefs[0].Filters = append(r.BackendRefs[0].Filters, filterOf(t, &config.ResponseHeaderModifier{Set: fields("X-Inner=1", "Server=ref"), Add: fields("Vary=a")}))
			},
			has:   []string{"\r\nServer: gateway\r\n", "\r\nVary: a\r\nVary: b\r\n"},
			lacks: []string{"origin", "X-Inner", "Server: ref"},
		},
		{
			name:    "framing and connection are no filter's",
			request: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
			rule: func(r *config.Rule) {
				evil := fields("Content-Length=0", "Transfer-Encoding=chunked", "Connection=keep-alive")
				r.Filters = append(r.Filters, filterOf(t, &config.RequestHeaderModifier{Set: evil, Remove: []string{"Content-Length"}}),
					filterOf(t, &config.ResponseHeaderModifier{Set: evil, Add: evil, Remove: []string{"Content-Length"}}))
			},
			has:   []string{"\r\nConnection: close\r\n", "\r\nContent-Length: 2\r\n"},
			lacks: []string{"Transfer-Encoding", "Content-Length: 0", "keep-alive"},
		},
		{
			name:    "rewrite of host and prefix",
			request: "GET /foo/bar?q=%2f&r HTTP/1.1\r\nHost: h:81\r\nConnection: close\r\n\r\n",
			rule: func(r *config.Rule) {
				r.Filters = append(r.Filters, filterOf(t, &config.UrlRewrite{Hostname: "inner.example", Path: replacePrefix("/foo", "/xyz/")}))
			},
			has:   []string{"GET /xyz/bar?q=%2f&r HTTP/1.1\r\nHost: inner.example\r\n", "X-Forwarded-Host: h:81\r\n"},
			lacks: []string{"Host: h\r\n"},
		},
		{
			name:    "rewrite of the prefix to nothing",
			request: "GET /foo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
			rule: func(r *config.Rule) {
				r.Filters = append(r.Filters, filterOf(t, &config.UrlRewrite{Path: replacePrefix("/foo", "/")}))
			},
			has: []string{"GET / HTTP/1.1\r\nHost: h\r\n"},
		},
		{
			name:    "rewrite of the whole path",
			request: "GET /a/../b%41?q HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
			rule: func(r *config.Rule) {
				r.Filters = append(r.Filters, filterOf(t, &config.UrlRewrite{Path: &config.PathModifier{Kind: &config.PathModifier_ReplaceFullPath{ReplaceFullPath: "/one"}}}))
			},
			has: []string{"GET /one?q HTTP/1.1\r\n"},
		},
		{
			name:    "redirect keeps the query and has the response's filters",
			request: "GET /foo/bar?q=1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
			rule: func(r *config.Rule) {
				r.Filters = append(r.Filters, filterOf(t, &config.RequestRedirect{Scheme: "https", Hostname: "other.example", StatusCode: 302, Path: replacePrefix("/foo", "/new")}),
					filterOf(t, &config.ResponseHeaderModifier{Add: fields("X-Filter=1")}))
			},
			has:   []string{"HTTP/1.1 302 Found\r\n", "Location: https://other.example/new/bar?q=1\r\n", "X-Filter: 1\r\n", "Content-Length: 0\r\n"},
			lacks: []string{"origin"},
		},
		{
			name:    "a redirect answers a request whose body it does not read",
			request: "POST /foo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nabc",
			rule: func(r *config.Rule) {
				r.Filters = append(r.Filters, filterOf(t, &config.RequestRedirect{Scheme: "https", StatusCode: 308}))
			},
			has: []string{"HTTP/1.1 308 Permanent Redirect\r\n", "Connection: close\r\n"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkLeaks(t)
			g := startGateway(t, Timeouts{Linger: 50e6})
			g.serve(headBackend(t, "Server: origin\r\n"), tc.rule)
			got := g.roundTrip(tc.request)
			for _, want := range tc.has {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in\n%q", want, got)
				}
			}
			for _, never := range tc.lacks {
				if strings.Contains(got, never) {
					t.Errorf("%q is in\n%q", never, got)
				}
			}
		})
	}
}

// TestModifiedTrailers: what filters set or remove does not come in the trailer section instead, in any spelling. Other trailer fields pass.
func TestModifiedTrailers(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	behind := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		var sent []string
		for name, values := range r.Trailer { // names that were announced are there in any case
			for _, v := range values {
				sent = append(sent, name+"="+v)
			}
		}
		slices.Sort(sent)
		fmt.Fprint(w, r.Header["X-User"], r.Header["X-Group"], sent)
	}
	g.serve(httpBackend(t, behind), func(r *config.Rule) {
		r.Filters = append(r.Filters, filterOf(t, &config.RequestHeaderModifier{Set: fields("X-User=nobody"), Add: fields("X-Fine=2"), Remove: []string{"x-debug"}}))
		r.BackendRefs[0].Filters = append(r.BackendRefs[0].Filters, filterOf(t, &config.RequestHeaderModifier{Set: fields("x-group=none")}))
	})
	const want = "[nobody] [none] [X-Fine=1]"
	const names = "X-User, x_user, X-Group, x_group, X-Debug, x_Debug, X-Fine"
	const section = "x-USER: root\r\nx_user: root\r\nx.user: root\r\nX-Group: root\r\nX_Group: root\r\nX+Group: root\r\nX-Debug: 1\r\nX_debug: 1\r\nX~debug: 1\r\nX-Fine: 1\r\n\r\n"
	const head = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTrailer: " + names + "\r\nTransfer-Encoding: chunked\r\n\r\n"
	if got := g.roundTrip(head + "3\r\nabc\r\n0\r\n" + section); !strings.HasSuffix(got, "\r\n\r\n"+want) {
		t.Errorf("got %q", got)
	}
	long := strings.Repeat("x", 200_000)
	if got := g.roundTrip(fmt.Sprintf("%s%x\r\n%s\r\n0\r\n%s", head, len(long), long, section)); !strings.HasSuffix(got, "\r\n\r\n"+want) {
		t.Errorf("after a long body: %q", got)
	}
	if got := g.postWithTrailer(http.Header{"X-User": {"root"}, "X_user": {"root"}, "X-Group": {"root"}, "X_debug": {"1"}, "X.debug": {"1"}, "X-Fine": {"1"}}); got != want {
		t.Errorf("by HTTP/2: %q", got)
	}
}

// TestDisguisedFields: a client's fields that CGI-like servers take for one that a filter sets or removes do not reach the backend, by HTTP/1.1 and by HTTP/2.
func TestDisguisedFields(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		var sent []string
		for name, values := range r.Header {
			if strings.HasPrefix(name, "X") && len(name) == len("X-User") {
				sent = append(sent, strings.ToLower(name)+"="+strings.Join(values, ","))
			}
		}
		slices.Sort(sent)
		fmt.Fprint(w, sent)
	}), func(r *config.Rule) {
		r.Filters = append(r.Filters, filterOf(t, &config.RequestHeaderModifier{Set: fields("X-User=nobody"), Remove: []string{"X_Root"}}))
	})
	const want = "[x-user=nobody x.team=1]"
	if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX_User: a\r\nX.User: b\r\nX-User: c\r\nX-Root: d\r\nX.Root: e\r\nX.Team: 1\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\n"+want) {
		t.Errorf("by HTTP/1.1: %q", got)
	}
	r := g.newRequest(t, "GET", nil)
	for name, value := range map[string]string{"X_User": "a", "X.User": "b", "X-User": "c", "X-Root": "d", "X.Root": "e", "X.Team": "1"} {
		r.Header[name] = []string{value}
	}
	resp, err := g.client(true).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); string(got) != want || err != nil {
		t.Errorf("by HTTP/2: %q, %v", got, err)
	}
}

// postWithTrailer sends a request with a trailer section over HTTP/2, and returns the body of the response.
func (g *gateway) postWithTrailer(trailer http.Header) string {
	g.t.Helper()
	r, err := http.NewRequest("POST", "http://"+g.addr()+"/", struct{ io.Reader }{strings.NewReader("abc")})
	if err != nil {
		g.t.Fatal(err)
	}
	r.Trailer = trailer
	h2 := clientOfHTTP2()
	defer h2.CloseIdleConnections()
	resp, err := h2.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return string(body)
}

// TestFiltersLeaveNoTrace: what filters made for one request is not seen by the next on the connection.
func TestFiltersLeaveNoTrace(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(headBackend(t, ""), func(r *config.Rule) {
		r.Matches[0].Path.Value = "/changed"
		r.Filters = append(r.Filters, filterOf(t, &config.RequestHeaderModifier{Add: fields("X-Made=secret")}),
			filterOf(t, &config.UrlRewrite{Hostname: "inner.example", Path: replacePrefix("/changed", "/made/for/one")}))
	})
	g.apply([]*config.Resource{routeOf("plain", "default/gw/http", "", anyRule())})
	c := g.dial()
	for range 20 {
		io.WriteString(c, "GET /changed/a HTTP/1.1\r\nHost: h\r\n\r\nGET /plain HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	io.WriteString(c, "GET /end HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	bodies := strings.Split(string(all), "HTTP/1.1 200 OK\r\n")[1:]
	if len(bodies) != 41 {
		t.Fatalf("%d responses, want 41", len(bodies))
	}
	for i, b := range bodies {
		changed := strings.Contains(b, "GET /made/for/one/a HTTP/1.1\r\nHost: inner.example\r\n") && strings.Count(b, "X-Made: secret\r\n") == 1
		plain := !strings.Contains(b, "made") && !strings.Contains(b, "X-Made") && strings.Contains(b, "\r\nHost: h\r\n")
		if even := i%2 == 0 && i < 40; even && !changed || !even && !plain {
			t.Errorf("response %d: %q", i, b)
		}
	}
}

// TestPreflightOfOneBackend: preflight requests that a rule matches because one of its backendRefs has a CORS filter are answered by that
// filter, or refused; neither backends nor mirrors see them.
func TestPreflightOfOneBackend(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr := httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "OPTIONS" {
			t.Error("a preflight request reached a backend")
		}
	})
	g := startGateway(t, Timeouts{})
	const preflight = "OPTIONS / HTTP/1.1\r\nHost: h\r\nOrigin: https://a.test\r\nAccess-Control-Request-Method: PUT\r\nConnection: close\r\n\r\n"
	serve := func(filters ...*anypb.Any) {
		g.serve(addr, func(r *config.Rule) {
			path := r.Matches[0].Path
			r.Matches = []*config.Match{{Path: path, Method: "PUT"}, {Path: path, Method: "OPTIONS", Preflight: true}}
			r.Filters = filters
			with := proto.Clone(r.BackendRefs[0]).(*config.BackendRef)
			with.Filters = []*anypb.Any{filterOf(t, &config.CORS{AllowOrigins: []string{"https://a.test"}})}
			r.BackendRefs[0].Weight = 1000
			r.BackendRefs = append(r.BackendRefs, with)
		})
	}
	serve(filterOf(t, &config.RequestMirror{Backend: "Service/default/b/80", Numerator: 1, Denominator: 1}))
	for range 10 {
		if got := g.roundTrip(preflight); !strings.HasPrefix(got, "HTTP/1.1 204 ") || !strings.Contains(got, "Access-Control-Allow-Origin: https://a.test\r\n") {
			t.Fatalf("got %q", got)
		}
	}
	serve(filterOf(t, &config.RequestHeaderModifier{Remove: []string{"Origin"}}))
	if got := g.roundTrip(preflight); !strings.HasPrefix(got, "HTTP/1.1 403 ") {
		t.Errorf("without an origin: %q", got)
	}
	if got := g.roundTrip(strings.Replace(preflight, "OPTIONS", "PUT", 1)); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("the request itself: %q", got)
	}
	if words := g.reasonsLogged(12); words[0] != "preflight" || words[10] != "preflight_refused" || words[11] != "ok" {
		t.Errorf("logged as %v", words)
	}
}
