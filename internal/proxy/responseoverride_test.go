package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func overriding(all ...*config.ResponseOverride) func(*config.Rule) {
	return func(r *config.Rule) {
		r.Traffic = &config.RuleTraffic{Policy: "BackendTrafficPolicy default/p", ResponseOverrides: all}
	}
}

func statuses(first, last uint32) []*config.StatusRange {
	return []*config.StatusRange{{First: first, Last: last}}
}

// receivedResponse is a response as a client has it.
type receivedResponse struct {
	status int
	header http.Header
	body   string
	length int64
}

func (g *gateway) receive(t *testing.T, client http.RoundTripper, req *http.Request) receivedResponse {
	t.Helper()
	resp, err := client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return receivedResponse{resp.StatusCode, resp.Header, string(body), resp.ContentLength}
}

// logged waits for n lines of the access log and returns the last of them.
func (g *gateway) logged(t *testing.T, n int) (line struct {
	Status           int `json:"response_code"`
	OverriddenStatus int `json:"overridden_response_code"`
	Reason           string
	Attempts         int
	BytesSent        int64 `json:"bytes_sent"`
}) {
	t.Helper()
	g.reasonsLogged(n)
	lines := strings.Split(strings.TrimSpace(g.log.String()), "\n")
	if err := json.Unmarshal([]byte(lines[n-1]), &line); err != nil {
		t.Fatal(err)
	}
	return line
}

// TestResponseOverrideOfBackend: a response that matches has the status, the content and the fields of the override, by all protocols, and any other one is relayed as it is.
func TestResponseOverrideOfBackend(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
		g := paced(t, backend2, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			for _, name := range []string{"Content-Encoding", "Content-Language", "ETag", "Last-Modified", "Accept-Ranges", "Content-Disposition", "X-Kept", "Set-Cookie", "X-Set"} {
				w.Header().Set(name, "of-the-backend")
			}
			w.Header().Set("Content-Type", "application/x-own")
			status := 0
			fmt.Sscanf(r.URL.Path, "/%d", &status)
			w.WriteHeader(status)
			if status != 204 && status != 304 {
				io.WriteString(w, "the backend's body")
			}
		}, overriding(
			&config.ResponseOverride{Statuses: statuses(500, 599), StatusCode: 418, ContentType: "text/html", Body: proto.String("<h1>%RESPONSE_CODE% %REQ(X-Name)% %REQ(:METHOD)% %REQ(:PATH)%</h1>"),
				Header: &config.ResponseHeaderModifier{Set: []*config.HeaderField{{Name: "X-Set", Value: "1"}}, Add: []*config.HeaderField{{Name: "X-Add", Value: "2"}}}},
			&config.ResponseOverride{Statuses: statuses(404, 404), Body: proto.String("gone")},
			&config.ResponseOverride{Statuses: statuses(405, 405), StatusCode: 400, ContentType: "text/x-other"},
			&config.ResponseOverride{Statuses: statuses(406, 406), StatusCode: 204},
			&config.ResponseOverride{Statuses: statuses(204, 204), StatusCode: 200},
			&config.ResponseOverride{Statuses: statuses(407, 407), StatusCode: 205},
			&config.ResponseOverride{Statuses: statuses(304, 304), Body: proto.String("unused")},
			&config.ResponseOverride{Statuses: statuses(408, 408), Body: proto.String("")},
			&config.ResponseOverride{Statuses: statuses(500, 599), Body: proto.String("never: the first counts")},
		))
		client := g.client(client2)
		for i, c := range []struct {
			method, path string
			body         string // of the request
			status       int
			want         string
			length       int64
			contentType  string
			kept         bool // what describes the backend's content
		}{
			{"GET", "/500?q=1", "", 418, "<h1>418 &#60;b&#62; GET /500?q&#61;1</h1>", 41, "text/html", false},
			{"POST", "/503", strings.Repeat("b", 100_000), 418, "<h1>418 &#60;b&#62; POST /503</h1>", 34, "text/html", false},
			{"HEAD", "/500", "", 418, "", 34, "text/html", false},
			{"GET", "/404", "", 404, "gone", 4, "text/plain; charset=utf-8", false},
			{"HEAD", "/404", "", 404, "", 4, "text/plain; charset=utf-8", false},
			{"GET", "/405", "", 400, "the backend's body", 18, "text/x-other", true},
			{"GET", "/406", "", 204, "", -2, "", false},
			{"GET", "/204", "", 200, "", 0, "", false},
			{"GET", "/407", "", 205, "", 0, "", false},
			{"GET", "/304", "", 304, "", -2, "", false},
			{"GET", "/408", "", 408, "", 0, "", false},
			{"GET", "/201", "", 201, "the backend's body", 18, "application/x-own", true},
			{"GET", "/499", "", 499, "the backend's body", 18, "application/x-own", true},
		} {
			req := g.newRequest(t, c.method, nil)
			if c.body != "" {
				req = g.newRequest(t, c.method, strings.NewReader(c.body))
			}
			path, query, _ := strings.Cut(c.path, "?")
			req.URL.Path, req.URL.RawQuery = path, query
			req.Header.Set("X-Name", "<b>")
			got := g.receive(t, client, req)
			if got.status != c.status || got.body != c.want || c.length != -2 && got.length != c.length || got.header.Get("Content-Type") != c.contentType {
				t.Errorf("%s %s: got %d, %q of %d bytes, %q; want %d, %q of %d, %q", c.method, c.path, got.status, got.body, got.length, got.header.Get("Content-Type"), c.status, c.want,
					c.length, c.contentType)
			}
			for _, name := range []string{"Content-Encoding", "Content-Language", "ETag", "Last-Modified", "Accept-Ranges", "Content-Disposition"} {
				if has := got.header.Get(name) != ""; has != c.kept {
					t.Errorf("%s %s: %s is there: %v", c.method, c.path, name, has)
				}
			}
			set, add := "of-the-backend", ""
			if c.status == 418 {
				set, add = "1", "2"
			}
			if got.header.Get("X-Kept") == "" || got.header.Get("Set-Cookie") == "" || got.header.Get("X-Set") != set || got.header.Get("X-Add") != add || got.header.Get("Date") == "" {
				t.Errorf("%s %s: header %v", c.method, c.path, got.header)
			}
			was := 0
			fmt.Sscanf(c.path, "/%d", &was)
			if was == 201 || was == 499 {
				was = 0 // not overridden
			}
			if line := g.logged(t, i+1); line.Status != c.status || line.OverriddenStatus != was || line.Reason != "ok" || line.BytesSent != int64(len(c.want)) {
				t.Errorf("%s %s: logged %+v", c.method, c.path, line)
			}
		}
	})
}

// TestResponseOverrideKeepsConnections: the connections of client and backend serve further requests, but that of a backend whose response is not there yet, for which
// nobody waits.
func TestResponseOverrideKeepsConnections(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var conns atomic.Int64
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		conns.Add(1)
		for {
			head, err := readHead(r)
			if err != nil {
				return
			}
			length := "4"
			if strings.HasPrefix(head, "GET /long") {
				length = "1000000"
			}
			fmt.Fprintf(c, "HTTP/1.1 500 Oops\r\nContent-Length: %s\r\n\r\nbody", length)
		}
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, overriding(&config.ResponseOverride{Statuses: statuses(500, 500), Body: proto.String("sorry")}))
	client := g.dial()
	r := bufio.NewReader(client)
	for i, c := range []struct {
		path  string
		conns int64
	}{{"/", 1}, {"/", 1}, {"/long", 1}, {"/", 2}, {"/", 2}} {
		fmt.Fprintf(client, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", c.path)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || string(body) != "sorry" || resp.StatusCode != 500 || resp.Close {
			t.Errorf("%d: got %d, %q, %v, close %v", i, resp.StatusCode, body, err, resp.Close)
		}
		g.reasonsLogged(i + 1) // then the backend's connection was given back
		if n := conns.Load(); n != c.conns {
			t.Errorf("%d: the backend has had %d connections, want %d", i, n, c.conns)
		}
	}
}

// TestResponseOverrideSource: what the gateway answers itself is Local, what a backend has answered Backend.
func TestResponseOverrideSource(t *testing.T) {
	t.Parallel()
	const local, backendOnly, both = config.ResponseSource_RESPONSE_SOURCE_LOCAL, config.ResponseSource_RESPONSE_SOURCE_BACKEND, config.ResponseSource_RESPONSE_SOURCE_ALL
	for _, source := range []config.ResponseSource{local, backendOnly, both} {
		for _, client2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/HTTP2 %v", source, client2), func(t *testing.T) {
				t.Parallel()
				checkLeaks(t)
				override := &config.ResponseOverride{Statuses: statuses(503, 503), Source: source, ContentType: "application/problem+json",
					Body: proto.String(`{"why": "%RESPONSE_CODE_DETAILS%", "who": "%REQ(X-Name):5%", "other": "%REQ(X-None?X-Name)%", "none": "%REQ(X-None)%", "by": "%PROTOCOL%"}`)}
				g := startGateway(t, Timeouts{})
				ask := func() receivedResponse {
					req := g.newRequest(t, "GET", nil)
					req.Header.Set("X-Name", `a"b\c d`)
					return g.receive(t, g.client(client2), req)
				}
				by := "HTTP/1.1"
				if client2 {
					by = "HTTP/2"
				}
				body := func(why string) string {
					return fmt.Sprintf(`{"why": %q, "who": "a\u0022b\u005Cc", "other": "a\u0022b\u005Cc d", "none": "-", "by": %q}`, why, by)
				}
				g.serve(httpBackend(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }), overriding(override))
				want := body("ok")
				if source == local {
					want = ""
				}
				if got := ask(); got.status != 503 || got.body != want {
					t.Errorf("of the backend: got %d, %q, want %q", got.status, got.body, want)
				}
				g.serve(refusedAddr(t), func(r *config.Rule) {
					overriding(override)(r)
					r.Traffic.FaultInjection = &config.FaultInjection{Abort: &config.FaultAbort{HttpStatus: 503, PerMillion: all}}
				})
				if want = body("fault_injected"); source == backendOnly {
					want = "moongate: 503 fault_injected\n"
				}
				if got := ask(); got.status != 503 || got.body != want {
					t.Errorf("of the gateway: got %d, %q, want %q", got.status, got.body, want)
				}
			})
		}
	}
}

// TestResponseOverrideOfGateway: whatever the gateway answers where a rule was found is overridden: limits, missing endpoints, filters. A preflight request is not, and
// neither is what belongs to no rule.
func TestResponseOverrideOfGateway(t *testing.T) {
	t.Parallel()
	any := &config.ResponseOverride{Statuses: statuses(200, 599), StatusCode: 299, Body: proto.String("%RESPONSE_CODE_DETAILS%"), Source: config.ResponseSource_RESPONSE_SOURCE_LOCAL}
	cors := filterOf(t, &config.CORS{AllowOrigins: []string{"http://app"}, AllowMethods: []string{"GET"}, MaxAgeSeconds: 5})
	for _, c := range []struct {
		name   string
		change func(*config.Rule)
		method string
		host   string
		status int
		body   string
	}{
		{"limit", limited(&config.RateLimit{Requests: 0, RequestCost: 1}), "GET", "h", 299, "rate_limited"},
		{"no backend", func(r *config.Rule) { r.BackendRefs = nil }, "GET", "h", 299, "no_backend"},
		{"refused", func(*config.Rule) {}, "GET", "h", 299, "connect_failed"},
		{"failure of the rule", func(r *config.Rule) { r.Failure = &config.Failure{Status: 500, Reason: "rule_invalid"} }, "GET", "h", 299, "rule_invalid"},
		{"redirect", func(r *config.Rule) {
			r.Filters = append(r.Filters, filterOf(t, &config.RequestRedirect{Hostname: "other"}))
		}, "GET", "h", 299, "redirect"},
		{"preflight", func(*config.Rule) {}, "OPTIONS", "h", 204, ""},
		{"no rule", func(*config.Rule) {}, "GET", "other", 404, "moongate: 404 route_not_found\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			g.serve(refusedAddr(t), func(r *config.Rule) {
				r.Filters = append(r.Filters, cors)
				r.Matches[0].Headers = []*config.ValueMatch{{Name: "x-here", Value: "1"}}
				c.change(r)
				if r.Traffic == nil {
					r.Traffic = &config.RuleTraffic{}
				}
				r.Traffic.ResponseOverrides = []*config.ResponseOverride{any}
			})
			for _, client2 := range []bool{false, true} {
				req := g.newRequest(t, c.method, nil)
				if c.host == "h" {
					req.Header.Set("X-Here", "1")
				}
				req.Header.Set("Origin", "http://app")
				if c.method == "OPTIONS" {
					req.Header.Set("Access-Control-Request-Method", "GET")
				}
				got := g.receive(t, g.client(client2), req)
				if got.status != c.status || got.body != c.body {
					t.Errorf("HTTP2 %v: got %d, %q, want %d, %q", client2, got.status, got.body, c.status, c.body)
				}
				if origin := got.header.Get("Access-Control-Allow-Origin"); (origin != "http://app") != (c.name == "no rule") {
					t.Errorf("HTTP2 %v: a script of the page may read it: %q", client2, origin)
				}
			}
		})
	}
}

// TestResponseOverrideRedirect: clients are sent on from where they came, whatever the rule's filters have made of the request.
func TestResponseOverrideRedirect(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
		g := paced(t, backend2, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v3/a" {
				t.Errorf("the backend is asked for %s", r.URL.Path)
			}
			w.WriteHeader(int(r.URL.Query().Get("s")[0]-'0')*100 + 1)
			io.WriteString(w, "the backend's body")
		}, func(r *config.Rule) {
			overriding(
				&config.ResponseOverride{Statuses: statuses(401, 401), Redirect: &config.RequestRedirect{Scheme: "https", Hostname: "login.example", StatusCode: 301}},
				&config.ResponseOverride{Statuses: statuses(501, 501), Redirect: &config.RequestRedirect{Hostname: "status.example", Port: 8443, StatusCode: 302,
					Path: &config.PathModifier{Kind: &config.PathModifier_ReplaceFullPath{ReplaceFullPath: "/down"}}}},
			)(r)
			r.Filters = append(r.Filters, filterOf(t, &config.UrlRewrite{Hostname: "b.example", Path: &config.PathModifier{Kind: &config.PathModifier_ReplaceFullPath{ReplaceFullPath: "/v3/a"}}}))
		})
		client := g.client(client2)
		for _, c := range []struct {
			query    string
			status   int
			location string
		}{
			{"s=4", 301, "https://login.example/api/x?s=4"},
			{"s=5", 302, "http://status.example:8443/down?s=5"},
		} {
			req := g.newRequest(t, "GET", nil)
			req.URL.Path, req.URL.RawQuery = "/api/x", c.query
			got := g.receive(t, client, req)
			if got.status != c.status || got.header.Get("Location") != c.location || got.body != "" || got.length != 0 || got.header.Get("Content-Type") != "" {
				t.Errorf("got %+v, want %d to %s", got, c.status, c.location)
			}
		}
	})
}

// TestResponseOverrideRedirectWithoutHost: a client of HTTP/1.0 that says no Host cannot be sent to another scheme, and gets the response as it is.
func TestResponseOverrideRedirectWithoutHost(t *testing.T) {
	t.Parallel()
	g := paced(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, "the backend's body")
	}, overriding(
		&config.ResponseOverride{Statuses: statuses(401, 401), Redirect: &config.RequestRedirect{Scheme: "https", StatusCode: 302}},
		&config.ResponseOverride{Statuses: statuses(417, 417), Redirect: &config.RequestRedirect{Port: 8443, StatusCode: 302}},
	))
	if got := g.roundTrip("GET / HTTP/1.0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 401 ") || !strings.HasSuffix(got, "the backend's body") {
		t.Errorf("the backend's response: %q", got)
	}
	if got := g.roundTrip("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 302 ") || !strings.Contains(got, "Location: https://a.test/\r\n") {
		t.Errorf("with a Host: %q", got)
	}
	// And one of the gateway's own.
	if got := g.roundTrip("GET / HTTP/1.0\r\nExpect: nothing\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 417 ") || strings.Contains(got, "Location") {
		t.Errorf("the gateway's response: %q", got)
	}
}

// TestResponseOverrideFields: header fields of the response are matched, too, by all of the conditions.
func TestResponseOverrideFields(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	on := func(how config.StringMatchType, value string) *config.ResponseFieldMatch {
		return &config.ResponseFieldMatch{Name: "x-state", Type: how, Value: value}
	}
	const exact, prefix, suffix, re = config.StringMatchType_STRING_MATCH_TYPE_EXACT, config.StringMatchType_STRING_MATCH_TYPE_PREFIX,
		config.StringMatchType_STRING_MATCH_TYPE_SUFFIX, config.StringMatchType_STRING_MATCH_TYPE_REGULAR_EXPRESSION
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) { w.Header()["X-State"] = r.Header["X-State"] }), overriding(
		&config.ResponseOverride{HeaderFields: []*config.ResponseFieldMatch{on(exact, "down")}, StatusCode: 551},
		&config.ResponseOverride{HeaderFields: []*config.ResponseFieldMatch{on(prefix, "a-"), on(suffix, "-z")}, StatusCode: 552},
		&config.ResponseOverride{HeaderFields: []*config.ResponseFieldMatch{on(re, "E[0-9]+")}, StatusCode: 553},
		&config.ResponseOverride{Statuses: statuses(300, 599), HeaderFields: []*config.ResponseFieldMatch{on(exact, "other")}, StatusCode: 554},
	))
	for _, c := range []struct {
		values []string
		status int
	}{
		{nil, 200}, {[]string{"up"}, 200}, {[]string{"downs"}, 200}, {[]string{"up", "down"}, 551}, {[]string{"a-z"}, 552}, {[]string{"a-y"}, 200}, {[]string{"b-z"}, 200},
		{[]string{"a-b", "b-z"}, 552}, {[]string{"E12"}, 553}, {[]string{"E12x"}, 200}, {[]string{"other"}, 200},
	} {
		req := g.newRequest(t, "GET", nil)
		req.Header["X-State"] = c.values
		if got := g.receive(t, g.client(false), req); got.status != c.status {
			t.Errorf("%q: got %d, want %d", c.values, got.status, c.status)
		}
	}
}

// TestResponseOverrideAfterRetry: a response for which the request is sent again is not overridden, and the last one is.
func TestResponseOverrideAfterRetry(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var asked atomic.Int64
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if n := asked.Add(1); n != 2 {
			w.WriteHeader(503)
		}
	}), func(r *config.Rule) {
		overriding(&config.ResponseOverride{Statuses: statuses(503, 503), StatusCode: 200, Body: proto.String("sorry")})(r)
		r.Retry = &config.Retry{Attempts: 1, Codes: []uint32{503}, BackoffNanos: 1}
	})
	if got, line := g.receive(t, g.client(false), g.newRequest(t, "GET", nil)), g.logged(t, 1); got.status != 200 || got.body != "" || line.Attempts != 2 || line.OverriddenStatus != 0 {
		t.Errorf("got %+v, logged %+v", got, line)
	}
	if got, line := g.receive(t, g.client(false), g.newRequest(t, "GET", nil)), g.logged(t, 2); got.body != "sorry" || line.Attempts != 2 || line.OverriddenStatus != 503 || line.Reason != "retries_exhausted" {
		t.Errorf("got %+v, logged %+v", got, line)
	}
}

// TestResponseOverrideGRPC: a gRPC client has the override as a status where the response was none of gRPC; what is one stays.
func TestResponseOverrideGRPC(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	any := overriding(&config.ResponseOverride{Statuses: statuses(200, 599), Body: proto.String("sorry: 100%%")})
	g := startGateway(t, Timeouts{})
	cc := g.grpcPair()
	rule := &config.Rule{Matches: []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
		BackendRefs: []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}}}
	any(rule)
	g.apply([]*config.Resource{routeOf("r", "default/gw/http", "", rule)})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if s := status.Convert(cc.Invoke(ctx, "/test.Echo/Fail", &emptypb.Empty{}, &emptypb.Empty{})); s.Code() != codes.FailedPrecondition || s.Message() != "not now: 100%" {
		t.Errorf("of a gRPC server: %v", s)
	}
	addr, _ := h2cBackend(t, 0, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(403)
		io.WriteString(w, "the backend's body")
	})
	g.serveH2C(addr, any)
	if s := status.Convert(cc.Invoke(ctx, "/test.Echo/Echo", &emptypb.Empty{}, &emptypb.Empty{})); s.Code() != codes.PermissionDenied || s.Message() != "sorry: 100%" {
		t.Errorf("of another server: %v", s)
	}
	g.serveH2C(addr, func(r *config.Rule) {
		any(r)
		r.BackendRefs = nil
	})
	if s := status.Convert(cc.Invoke(ctx, "/test.Echo/Echo", &emptypb.Empty{}, &emptypb.Empty{})); s.Code() != codes.Unknown || !strings.Contains(s.Message(), "no_backend") {
		t.Errorf("of the gateway: %v", s)
	}
}

// TestResponseOverrideCookie: a client that has come without the cookie by which endpoints are chosen is given it with an override, too.
func TestResponseOverrideCookie(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	addr := httpBackend(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	g.balanced(hashBy(&config.ConsistentHash{Cookie: &config.HashCookie{Name: "place"}}), overriding(&config.ResponseOverride{Statuses: statuses(500, 500), Body: proto.String("sorry")}), addr)
	got := g.receive(t, g.client(false), g.newRequest(t, "GET", nil))
	if cookie := got.header.Get("Set-Cookie"); got.body != "sorry" || !strings.HasPrefix(cookie, "place=") {
		t.Errorf("got %q, with cookie %q", got.body, cookie)
	}
}

// TestResponseOverrideFraming: a client finds the next response where it looks for it, whatever a status without content takes the place of, and however the backend has framed that.
func TestResponseOverrideFraming(t *testing.T) {
	t.Parallel()
	const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	for name, response := range map[string]string{
		"205 with a length": fmt.Sprintf("HTTP/1.1 205 Reset Content\r\nContent-Length: %d\r\n\r\n%s", len(evil), evil),
		"205 in chunks":     fmt.Sprintf("HTTP/1.1 205 Reset Content\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(evil), evil),
		"204":               "HTTP/1.1 204 No Content\r\n\r\n",
		"304 with a length": "HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n",
		"304":               "HTTP/1.1 304 Not Modified\r\n\r\n",
		"200":               fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(evil), evil),
	} {
		for _, status := range []uint32{200, 204, 205, 304} {
			t.Run(fmt.Sprintf("%s as %d", name, status), func(t *testing.T) {
				t.Parallel()
				same := strings.HasPrefix(name, fmt.Sprint(status)) // it is relayed as it is
				g := startGateway(t, Timeouts{})
				g.serve(cannedBackend(t, []byte(response), 0), overriding(&config.ResponseOverride{Statuses: statuses(200, 399), StatusCode: status}))
				c := g.dial()
				r := bufio.NewReader(c)
				for range 2 {
					if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
						t.Fatal(err)
					}
					resp, err := http.ReadResponse(r, nil)
					if err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(resp.Body)
					if err != nil || uint32(resp.StatusCode) != status || !same && len(body) > 0 || r.Buffered() > 0 {
						t.Fatalf("%d %v %q, %d bytes behind it, %v", resp.StatusCode, resp.Header, body, r.Buffered(), err)
					}
					if resp.Close {
						return // the next one has a connection of its own
					}
				}
			})
		}
	}
}

// TestResponseOverrideKeepsItsType: a filter does not have a body with values of the request taken for something that these were not escaped for, whoever has answered; without
// such values, and on the next response of the connection, it may.
func TestResponseOverrideKeepsItsType(t *testing.T) {
	t.Parallel()
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			head, err := readHead(r)
			if err != nil {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", head[len("GET /"):len("GET /500")])
		}
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, func(r *config.Rule) {
		overriding(&config.ResponseOverride{Statuses: statuses(500, 500), Body: proto.String("%REQ(:PATH)%")}, &config.ResponseOverride{Statuses: statuses(501, 501), Body: proto.String("plain")})(r)
		r.Filters = append(r.Filters, filterOf(t, &config.ResponseHeaderModifier{Set: fields("Content-Type=text/html")}))
	})
	client := g.dial()
	r := bufio.NewReader(client)
	for _, c := range []struct{ path, contentType, options string }{
		{"/500<b>", "text/plain; charset=utf-8", "nosniff"}, {"/501", "text/html", ""}, {"/200", "text/html", ""}, {"/500", "text/plain; charset=utf-8", "nosniff"},
	} {
		fmt.Fprintf(client, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", c.path)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		if got, options := resp.Header.Get("Content-Type"), resp.Header.Get("X-Content-Type-Options"); got != c.contentType || options != c.options {
			t.Errorf("%s: %q and %q, want %q and %q", c.path, got, options, c.contentType, c.options)
		}
	}
}
