package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter/externalauth/extauthz"
	"github.com/moongate-dev/moongate/internal/testkit"
)

const (
	authKey     = "Service/default/auth/80"
	authKeyGRPC = "Service/default/auth/80/http2"
)

// guardedBy has the rule ask the server of c.
func guardedBy(t testing.TB, c *config.ExternalAuth) func(*config.Rule) {
	return func(r *config.Rule) { r.Filters = append(r.Filters, filterOf(t, c)) }
}

// authByHTTP starts a gateway whose requests pass where the handler says so, and end at the backend.
func authByHTTP(t testing.TB, c *config.ExternalAuth, auth, behind http.HandlerFunc) *gateway {
	t.Helper()
	c.Backend = authKey
	g := startGateway(t, Timeouts{})
	g.apply(backend(authKey, httpBackend(t, auth)))
	g.serve(httpBackend(t, behind), guardedBy(t, c))
	return g
}

// authAwaitingBody starts a gateway for requests whose bodies, of up to 100 bytes, do not arrive completely: neither the authorization server nor the backend
// may get one.
func authAwaitingBody(t testing.TB, change func(*config.Rule)) *gateway {
	t.Helper()
	never := httpBackend(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("a server got %s %s", r.Method, r.URL) })
	g := startGateway(t, Timeouts{})
	g.apply(backend(authKey, never))
	g.serve(never, func(r *config.Rule) {
		guardedBy(t, &config.ExternalAuth{Backend: authKey, MaxBodyBytes: 100})(r)
		change(r)
	})
	return g
}

// checker is an authorization server that speaks gRPC.
type checker func(*extauthz.CheckRequest) (*extauthz.CheckResponse, error)

// serveChecks starts one.
func serveChecks(t testing.TB, check checker) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.auth.v3.Authorization", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Check", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			r := &extauthz.CheckRequest{}
			if err := decode(r); err != nil {
				return nil, err
			}
			return check(r)
		}}},
	}, struct{}{})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func authByGRPC(t testing.TB, c *config.ExternalAuth, check checker, behind http.HandlerFunc) *gateway {
	t.Helper()
	c.Backend, c.Grpc, c.Authority = authKeyGRPC, true, "auth.default.svc:80"
	g := startGateway(t, Timeouts{})
	g.apply(backend(authKeyGRPC, serveChecks(t, check)))
	g.apply([]*config.Resource{h2c(authKeyGRPC)})
	g.serve(httpBackend(t, behind), guardedBy(t, c))
	return g
}

func (g *gateway) request(t testing.TB, method, target string, header http.Header, body io.Reader) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+g.addr()+target, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "shop.example.com"
	for n, values := range header {
		r.Header[n] = values
	}
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// TestExternalAuthHTTP: what the server is asked, and what becomes of its answer.
func TestExternalAuthHTTP(t *testing.T) {
	t.Parallel()
	var asked atomic.Pointer[http.Request]
	auth := func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r)
		switch r.Header.Get("Authorization") {
		case "good":
			w.Header().Set("X-User", "alice")
			w.Header().Add("X-Group", "a")
			w.Header().Add("X-Group", "b")
			w.Header().Set("X-Other", "kept out where a list is")
			io.WriteString(w, "welcome")
		case "moved":
			http.Redirect(w, r, "https://login.example.com/", http.StatusFound)
		case "created":
			w.WriteHeader(http.StatusCreated)
		case "broken":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, "who are you?")
		}
	}
	var passed atomic.Int64
	behind := func(w http.ResponseWriter, r *http.Request) {
		passed.Add(1)
		fmt.Fprintf(w, "%s %q %q %q %q %q", r.Header.Get("Content-Type"), r.Header["X-User"], r.Header["X_user"], r.Header["X-Group"], r.Header["X-Other"], r.Header.Get("Host"))
	}
	g := authByHTTP(t, &config.ExternalAuth{Path: "/check", RequestHeaders: []string{"x-tenant"}, ResponseHeaders: []string{"x-user", "x-group"}}, auth, behind)
	forged := http.Header{"Authorization": {"good"}, "X-User": {"root"}, "X_user": {"root"}, "X-Tenant": {"t1", "t2"}, "X-Secret": {"s"}, "Content-Type": {"text/css"}}

	resp, body := g.request(t, "PUT", "/a/b?q=1", forged, strings.NewReader("the body"))
	if want := `text/css ["alice"] [] ["a" "b"] [] ""`; resp.StatusCode != 200 || body != want {
		t.Errorf("got %s %s, want %s", resp.Status, body, want)
	}
	got := asked.Load()
	if got := fmt.Sprint(got.Method, " ", got.RequestURI, " ", got.Host, " ", got.ContentLength, got.Header["Content-Length"], got.Header["X-Tenant"]); got != "PUT /check/a/b?q=1 shop.example.com 0 [0] [t1 t2]" {
		t.Errorf("the server was asked %s", got)
	}
	for _, n := range []string{"X-Secret", "X-User", "Content-Type", "X-Forwarded-For", "X-Request-Id"} {
		if got.Header.Get(n) != "" {
			t.Errorf("the server was sent %s", n)
		}
	}

	for credentials, want := range map[string]struct {
		status              int
		header, value, body string
	}{
		"":        {401, "WWW-Authenticate", "Bearer", "who are you?"},
		"moved":   {302, "Location", "https://login.example.com/", ""},
		"created": {403, "", "", ""},
		"broken":  {503, "", "", "moongate: 503 auth_failed\n"},
	} {
		before := passed.Load()
		resp, body := g.request(t, "POST", "/", http.Header{"Authorization": {credentials}}, strings.NewReader("unread"))
		if resp.StatusCode != want.status || body != want.body || want.header != "" && resp.Header.Get(want.header) != want.value {
			t.Errorf("%q: %s %v %q, want %v", credentials, resp.Status, resp.Header, body, want)
		}
		if passed.Load() != before {
			t.Errorf("%q: the request went on", credentials)
		}
	}

	if resp, _ := g.request(t, "HEAD", "/", http.Header{}, nil); resp.StatusCode != 401 || resp.ContentLength != -1 {
		t.Errorf("HEAD: %s, with a length of %d that GET has not", resp.Status, resp.ContentLength)
	}
	r, err := http.NewRequest("POST", "http://"+g.addr()+"/shop.Cart/Get", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	h2 := clientOfHTTP2()
	defer h2.CloseIdleConnections()
	if resp, err := h2.Do(r); err != nil || resp.StatusCode != 200 || resp.Header.Get("Grpc-Status") != "16" {
		t.Errorf("a gRPC call that is denied: %v, %v", resp, err)
	}

	g = authByHTTP(t, &config.ExternalAuth{}, auth, behind)
	if _, body := g.request(t, "GET", "/", forged, nil); body != `text/css ["alice"] [] ["a" "b"] ["kept out where a list is"] ""` {
		t.Errorf("without lists the backend got %s", body)
	}
	if r := asked.Load(); r.RequestURI != "/" || r.Header.Get("X-Tenant") != "" {
		t.Errorf("without lists the server was asked %s with %v", r.RequestURI, r.Header)
	}
}

// TestExternalAuthBody: the server and the backend both get the whole body, however it comes, and a mirror too; one that is too long ends the request.
func TestExternalAuthBody(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	seen := make(chan []byte, 1)
	auth := func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if int64(len(b)) != r.ContentLength {
			b = nil
		}
		seen <- b
	}
	var passed atomic.Int64
	g := authByHTTP(t, &config.ExternalAuth{MaxBodyBytes: limit}, auth, func(w http.ResponseWriter, r *http.Request) {
		passed.Add(1)
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	})
	copies := make(chan copyOf, 1)
	g.apply(backend(mirrorKey, mirrorBackend(t, copies)))
	g.apply([]*config.Resource{routeOf("r", "default/gw/http", "", &config.Rule{
		Matches:     []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
		BackendRefs: []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}},
		Filters:     slices.Concat(rulesOf(t, guardedBy(t, &config.ExternalAuth{Backend: authKey, MaxBodyBytes: limit})), rulesOf(t, mirrorTo(t, mirrorKey))),
	})})
	for _, size := range []int{0, 1, 5_000, 70_000, limit, limit + 1, 3 * limit} {
		for _, chunk := range []int{0, 7_000} {
			t.Run(fmt.Sprintf("%d in %d", size, chunk), func(t *testing.T) {
				body := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
				c := g.dial()
				r := bufio.NewReader(c)
				before := passed.Load()
				for range 2 { // the connection goes on
					go post(c, body, chunk, 0)
					resp, err := http.ReadResponse(r, nil)
					if err != nil {
						t.Fatal(err)
					}
					b, err := io.ReadAll(resp.Body)
					if err != nil {
						t.Fatal(err)
					}
					if size > limit {
						if resp.StatusCode != 413 || passed.Load() != before {
							t.Errorf("%s, %d have passed", resp.Status, passed.Load()-before)
						}
						return
					}
					if resp.StatusCode != 200 || !bytes.Equal(b, body) {
						t.Fatalf("%s with %d bytes", resp.Status, len(b))
					}
					if s := <-seen; !bytes.Equal(s, body) {
						t.Errorf("the server saw %d bytes", len(s))
					}
					if m := <-copies; !bytes.Equal(m.body, body) || m.err != nil || chunk > 0 && m.trailer != "7" {
						t.Errorf("the mirror got %d bytes, %q, %v", len(m.body), m.trailer, m.err)
					}
				}
			})
		}
	}
}

func rulesOf(t testing.TB, change func(*config.Rule)) []*anypb.Any {
	t.Helper()
	r := &config.Rule{}
	change(r)
	return r.Filters
}

// TestExternalAuthContinue: a client that waits for 100 is told to send its body, once.
func TestExternalAuthContinue(t *testing.T) {
	t.Parallel()
	g := authByHTTP(t, &config.ExternalAuth{MaxBodyBytes: 100}, func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); string(b) != "waited" {
			w.WriteHeader(403)
		}
	}, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	c := g.dial()
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 6\r\n\r\n")
	r := bufio.NewReader(c)
	if head, err := readHead(r); err != nil || head != "HTTP/1.1 100 Continue\r\n\r\n" {
		t.Fatalf("%q %v", head, err)
	}
	io.WriteString(c, "waited")
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(b) != "waited" {
		t.Errorf("%s %q", resp.Status, b)
	}
}

func headerOption(n, value string) *extauthz.HeaderValueOption {
	return &extauthz.HeaderValueOption{Header: &extauthz.HeaderValue{Key: n, Value: value}}
}

// TestExternalAuthGRPC: what a server is told by gRPC, and what becomes of its answer.
func TestExternalAuthGRPC(t *testing.T) {
	t.Parallel()
	denials := map[string]int32{"not modified": 304, "carried out": 200, "empty": 204}
	var asked atomic.Pointer[extauthz.CheckRequest]
	check := func(r *extauthz.CheckRequest) (*extauthz.CheckResponse, error) {
		asked.Store(r)
		appended := headerOption("X-Group", "b")
		appended.Append = wrapperspb.Bool(true)
		switch r.Attributes.Request.Http.Headers["authorization"] {
		case "good":
			return &extauthz.CheckResponse{Status: &extauthz.Status{}, HttpResponse: &extauthz.CheckResponse_OkResponse{OkResponse: &extauthz.OKHTTPResponse{
				Headers:                 []*extauthz.HeaderValueOption{headerOption("X-User", "alice"), appended, headerOption("Content-Length", "7"), headerOption("Host", "elsewhere")},
				HeadersToRemove:         []string{"x-secret", "Host"},
				ResponseHeadersToAdd:    []*extauthz.HeaderValueOption{headerOption("X-Checked", "yes")},
				QueryParametersToSet:    []*extauthz.QueryParameter{{Key: "user", Value: "a b"}},
				QueryParametersToRemove: []string{"token"},
			}}}, nil
		case "plain":
			return &extauthz.CheckResponse{Status: &extauthz.Status{}}, nil
		case "split":
			return &extauthz.CheckResponse{Status: &extauthz.Status{}, HttpResponse: &extauthz.CheckResponse_OkResponse{OkResponse: &extauthz.OKHTTPResponse{
				Headers: []*extauthz.HeaderValueOption{headerOption("X-User", "a\r\nX-Admin: yes")}}}}, nil
		case "silent": // a message that has no status has status 0
			return &extauthz.CheckResponse{}, nil
		case "torn":
			return &extauthz.CheckResponse{Status: &extauthz.Status{}, HttpResponse: &extauthz.CheckResponse_DeniedResponse{}}, nil
		case "torn too":
			return &extauthz.CheckResponse{HttpResponse: &extauthz.CheckResponse_DeniedResponse{DeniedResponse: &extauthz.DeniedHTTPResponse{}}}, nil
		case "error":
			return nil, fmt.Errorf("no")
		case "teapot":
			return &extauthz.CheckResponse{Status: &extauthz.Status{Code: 7}, HttpResponse: &extauthz.CheckResponse_DeniedResponse{DeniedResponse: &extauthz.DeniedHTTPResponse{
				Status: &extauthz.HTTPStatus{Code: 418}, Body: "short and stout",
				Headers: []*extauthz.HeaderValueOption{headerOption("Set-Cookie", "a=1"), headerOption("Set-Cookie", "b=2")},
			}}}, nil
		}
		if status, ok := denials[r.Attributes.Request.Http.Headers["authorization"]]; ok {
			return &extauthz.CheckResponse{Status: &extauthz.Status{Code: 7}, HttpResponse: &extauthz.CheckResponse_DeniedResponse{DeniedResponse: &extauthz.DeniedHTTPResponse{
				Status: &extauthz.HTTPStatus{Code: status}, Body: "no"}}}, nil
		}
		return &extauthz.CheckResponse{Status: &extauthz.Status{Code: 16}}, nil
	}
	var passed atomic.Int64
	behind := func(w http.ResponseWriter, r *http.Request) {
		passed.Add(1)
		w.Header().Set("X-Checked", "by itself")
		fmt.Fprintf(w, "%s %s %q %q %q", r.Host, r.RequestURI, r.Header["X-User"], r.Header["X-Group"], r.Header["X-Secret"])
	}
	g := authByGRPC(t, &config.ExternalAuth{MaxBodyBytes: 100}, check, behind)
	header := http.Header{"Authorization": {"good"}, "X-User": {"root"}, "X_user": {"root"}, "X-Group": {"a"}, "X-Secret": {"s"}, "Cookie": {"a=1", "b=2"}, "X-Bytes": {"a\xffb"}}
	resp, body := g.request(t, "POST", "/p?token=t&x=1&user=u", header, strings.NewReader("\xff"))
	if want := `shop.example.com /p?x=1&user=a+b ["alice"] ["a" "b"] []`; resp.StatusCode != 200 || body != want || !slices.Equal(resp.Header["X-Checked"], []string{"yes"}) {
		t.Errorf("got %s %v %s, want %s", resp.Status, resp.Header, body, want)
	}
	r := asked.Load().Attributes
	h := r.Request.Http
	if h.Method != "POST" || h.Path != "/p?token=t&x=1&user=u" || h.Host != "shop.example.com" || h.Scheme != "http" || h.Protocol != "HTTP/1.1" || h.Size != 1 || string(h.RawBody) != "\xff" ||
		h.Id == "" || h.Headers["cookie"] != "a=1; b=2" || h.Headers[":path"] != h.Path || h.Headers["x-bytes"] != "a\uFFFDb" || h.Headers["x-secret"] != "s" ||
		r.Source.Address.SocketAddress.Address != "127.0.0.1" || r.Source.Address.SocketAddress.PortValue == 0 ||
		r.Destination.Address.SocketAddress.Address != "127.0.0.1" || r.Destination.Address.SocketAddress.PortValue != uint32(g.port) || r.Request.Time.AsTime().IsZero() {
		t.Errorf("the server was told %v", r)
	}
	for credentials, want := range map[string]struct {
		status int
		body   string
	}{
		"plain": {200, `shop.example.com /p?token=t ["root"] [] []`}, "": {403, ""}, "teapot": {418, "short and stout"},
		"split": {503, "moongate: 503 auth_failed\n"}, "silent": {200, `shop.example.com /p?token=t ["root"] [] []`}, "error": {503, "moongate: 503 auth_failed\n"},
		"torn": {503, "moongate: 503 auth_failed\n"}, "torn too": {503, "moongate: 503 auth_failed\n"}, "not modified": {403, "no"}, "carried out": {403, "no"}, "empty": {403, "no"},
	} {
		before := passed.Load()
		resp, body := g.request(t, "GET", "/p?token=t", http.Header{"Authorization": {credentials}, "X-User": {"root"}}, nil)
		if resp.StatusCode != want.status || body != want.body {
			t.Errorf("%q: %s %q, want %v", credentials, resp.Status, body, want)
		}
		if credentials == "teapot" && len(resp.Header["Set-Cookie"]) != 2 {
			t.Errorf("cookies: %q", resp.Header["Set-Cookie"])
		}
		if want.status != 200 && passed.Load() != before {
			t.Errorf("%q: the request went on", credentials)
		}
	}

	g = authByGRPC(t, &config.ExternalAuth{RequestHeaders: []string{"authorization"}}, check, behind)
	g.request(t, "POST", "/", header, strings.NewReader("body"))
	if h := asked.Load().Attributes.Request.Http; len(h.Headers) != 1 || h.Size != 4 || h.Body != "" {
		t.Errorf("with a list the server was told %v", h)
	}
	for framing, want := range map[string]int64{"": 0, "Content-Length: 0\r\n": 0, "Content-Length: 70000\r\n": 70000, "Transfer-Encoding: chunked\r\n": -1} {
		g.roundTrip("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" + framing + "\r\n") // and no more, until it is denied
		if h := asked.Load().Attributes.Request.Http; h.Size != want {
			t.Errorf("%q: the server was told of %d bytes, want %d", framing, h.Size, want)
		}
	}
	h2 := clientOfHTTP2()
	defer h2.CloseIdleConnections()
	resp, err := h2.Post("http://"+g.addr()+"/", "text/plain", strings.NewReader("by HTTP/2"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if r := asked.Load().Attributes; r.Request.Http.Size != 9 || r.Destination.Address.SocketAddress.Address != "127.0.0.1" {
		t.Errorf("by HTTP/2 the server was told %v", r)
	}
}

// clientOfHTTP2 is a client that speaks HTTP/2 in cleartext.
func clientOfHTTP2() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: protocols}}
}

// authModes are the ways in which the servers of unauthorized answer: allowed is 0, denied is 1, and the others end without a whole answer, or with none that allows.
const authModes = 11

// unauthorized is a gateway with a rule that asks by HTTP, one that asks by gRPC and one that asks nobody.
type unauthorized struct {
	*gateway
	mode     atomic.Int64 // of both servers
	asked    atomic.Int64
	leaked   atomic.Int64 // requests that the backend has got and no server has allowed
	mu       sync.Mutex
	sent     int                   // the number of the last request: the backend may get an earlier one, which was given up, after it
	seen     []http.Header         // that request, each time that the backend has got it
	clients  [2]*http.Client       // HTTP/1.1 and HTTP/2
	auth     [2][]*config.Resource // the servers' Endpoints
	statuses map[int]int
}

// reached is called by the backend.
func (u *unauthorized) reached(header http.Header) {
	if header.Get("X-May-Pass") != "true" {
		u.leaked.Add(1)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if header.Get("X-Number") == strconv.Itoa(u.sent) {
		u.seen = append(u.seen, header.Clone())
	}
}

func newUnauthorized(t testing.TB) *unauthorized {
	u := &unauthorized{gateway: startGateway(t, Timeouts{}), clients: [2]*http.Client{{Transport: &http.Transport{}}, clientOfHTTP2()}, statuses: map[int]int{}}
	for _, c := range u.clients {
		t.Cleanup(c.CloseIdleConnections)
	}
	behind := httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		u.reached(r.Header)
		io.Copy(w, r.Body)
	})
	u.auth[0] = backend(authKey, rawBackend(t, u.answerHTTP))
	u.auth[1] = backend(authKeyGRPC, rawFrames(t, nil, u.answerGRPC))
	u.apply(u.auth[0])
	u.apply(u.auth[1])
	u.apply([]*config.Resource{h2c(authKeyGRPC)})
	rule := func(path string, auth *config.ExternalAuth) *config.Rule {
		r := &config.Rule{
			Matches:             []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX, Value: path}}},
			BackendRefs:         []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}},
			RequestTimeoutNanos: int64(100 * time.Millisecond),
		}
		if auth != nil {
			guardedBy(t, auth)(r)
		}
		return r
	}
	u.apply(append(backend("Service/default/b/80", behind), u.httpListener("http", ""), routeOf("r", "default/gw/http", "",
		rule("/http", &config.ExternalAuth{Backend: authKey, MaxBodyBytes: 1 << 20, ResponseHeaders: []string{"x-allowed"}}),
		rule("/grpc", &config.ExternalAuth{Backend: authKeyGRPC, Grpc: true, Authority: "auth.default.svc:80", MaxBodyBytes: 1 << 20}),
		rule("/open", nil))))
	return u
}

// answerHTTP is the server that is asked by HTTP.
func (u *unauthorized) answerHTTP(c net.Conn, r *bufio.Reader) {
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		u.asked.Add(1)
		io.Copy(io.Discard, req.Body)
		switch u.mode.Load() {
		case 0:
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Allowed: yes\r\n\r\nok")
			continue
		case 1:
			io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nX-Allowed: yes\r\n\r\n")
			continue
		case 2: // nothing, and closes
		case 3: // nothing for long
			r.ReadByte()
		case 4: // a part of the head
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le")
		case 5: // a part of the body
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Allowed: yes\r\n\r\no")
		case 6: // a part of the body, and hangs
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Allowed: yes\r\n\r\n1\r\no\r\n")
			r.ReadByte()
		case 7:
			io.WriteString(c, "200 OK\r\n\r\n")
		case 8:
			io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nX-Allowed: yes\r\n\r\n")
		case 9: // reset
			c.(*net.TCPConn).SetLinger(0)
		case 10: // without end
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"+strings.Repeat("x", 300<<10))
		}
		return
	}
}

// answerGRPC is the server that is asked by gRPC. What it sends in all modes but 1 and 7 says that the request is allowed, as far as it comes.
func (u *unauthorized) answerGRPC(f *framePeer) {
	allowed := &extauthz.CheckResponse{Status: &extauthz.Status{}, HttpResponse: &extauthz.CheckResponse_OkResponse{OkResponse: &extauthz.OKHTTPResponse{
		Headers: []*extauthz.HeaderValueOption{headerOption("X-Allowed", "yes")}}}}
	denied := &extauthz.CheckResponse{Status: &extauthz.Status{Code: 7}, HttpResponse: &extauthz.CheckResponse_DeniedResponse{DeniedResponse: &extauthz.DeniedHTTPResponse{
		Status: &extauthz.HTTPStatus{Code: 403}}}}
	message := func(r *extauthz.CheckResponse) []byte {
		b, err := proto.Marshal(r)
		if err != nil {
			panic(err)
		}
		return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
	}
	yes := message(allowed)
	f.serve(func(uint32) bool { return true }, func(stream uint32, _ string) {
		u.asked.Add(1)
		begin := func() { f.head(stream, false, ":status", "200", "content-type", "application/grpc") }
		switch u.mode.Load() {
		case 0:
			begin()
			f.WriteData(stream, false, yes)
			f.head(stream, true, "grpc-status", "0")
			return
		case 1:
			begin()
			f.WriteData(stream, false, message(denied))
			f.head(stream, true, "grpc-status", "0")
			return
		case 2: // nothing, and closes
		case 3: // nothing for long
			return
		case 4: // a part of the message
			begin()
			f.WriteData(stream, false, yes[:len(yes)/2])
		case 5: // the message, and not how the call has ended
			begin()
			f.WriteData(stream, false, yes)
		case 6: // the same, and hangs
			begin()
			f.WriteData(stream, false, yes)
			return
		case 7:
			f.head(stream, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "14")
			return
		case 8: // the message, and that the call has failed
			begin()
			f.WriteData(stream, false, yes)
			f.head(stream, true, "grpc-status", "13")
			return
		case 9:
			begin()
			f.WriteData(stream, false, yes)
			f.WriteRSTStream(stream, http2.ErrCodeInternal)
			return
		case 10: // the message, and nothing of how the call has ended
			begin()
			f.WriteData(stream, true, yes)
			return
		}
		f.c.Close()
	})
}

// ask sends a request as how says, while both servers answer in a mode, or there are none. What they have not allowed reaches no backend.
func (u *unauthorized) ask(t *testing.T, mode, how byte) {
	t.Helper()
	m := int64(mode % authModes)
	u.mode.Store(m)
	way, client, down := int(how)%3, u.clients[how/3%2], how/6%16 == 0
	if down {
		for _, key := range []string{authKey, authKeyGRPC} {
			u.apply([]*config.Resource{{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: key}}}})
		}
		defer func() {
			u.apply(u.auth[0][1:])
			u.apply(u.auth[1][1:])
		}()
	}
	method := "GET"
	var body io.Reader
	if how%5 > 1 {
		method, body = "POST", io.MultiReader(strings.NewReader(strings.Repeat("b", int(mode)*int(how)))) // of unknown length
	}
	r, err := http.NewRequest(method, "http://"+u.addr()+[]string{"/http", "/grpc", "/open"}[way], body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Allowed", "says the client")
	r.Header.Set("X_Allowed", "says the client")
	r.Header.Set("X.Allowed", "says the client")
	what := fmt.Sprintf("%s %s, mode %d, without a server %v", method, r.URL.Path, m, down)
	asked := u.asked.Load()
	allowed := way == 2 || m == 0 && !down
	r.Header.Set("X-May-Pass", strconv.FormatBool(allowed))
	u.mu.Lock()
	u.sent, u.seen = u.sent+1, nil
	r.Header.Set("X-Number", strconv.Itoa(u.sent))
	u.mu.Unlock()
	resp, err := client.Do(r)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	u.mu.Lock()
	passed := u.seen
	u.mu.Unlock()
	if n := u.leaked.Load(); n != 0 {
		t.Fatalf("%s, or one before: %d have passed that nobody has allowed", what, n)
	}
	if err != nil {
		if allowed && len(passed) == 1 {
			return // the response came in the moment in which timeouts.request ran out, so that it breaks off
		}
		t.Fatalf("%s: %v", what, err)
	}
	u.statuses[resp.StatusCode]++
	switch {
	case !allowed && (len(passed) != 0 || resp.StatusCode < 400):
		t.Errorf("%s: %s, and %d have passed", what, resp.Status, len(passed))
	case resp.StatusCode == 200 && len(passed) != 1:
		t.Errorf("%s: %d have passed of one that is allowed", what, len(passed))
	case way == 2 && u.asked.Load() != asked:
		// That may be a call of an earlier request, which the gateway has given up before the server took it in.
		testkit.Eventually(t, what+": no server is asked", func() bool {
			n := u.asked.Load()
			resp, err := client.Get("http://" + u.addr() + "/open")
			if err != nil {
				return false
			}
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			return err == nil && u.asked.Load() == n
		})
		return
	}
	if len(passed) == 0 {
		return
	}
	seen := passed[0]
	want := []string{"yes"}
	if way == 2 {
		want = []string{"says the client"}
	}
	if !slices.Equal(seen["X-Allowed"], want) || (seen["X_allowed"] != nil) != (way == 2) || (seen["X.allowed"] != nil) != (way == 2) {
		t.Errorf("%s: the backend has seen %v", what, seen)
	}
}

// TestExternalAuthNeverPasses asks servers that deny and allow, go down, hang, answer with rubbish and die in the middle of an answer, in random order, by HTTP and by
// gRPC. What they have not allowed reaches no backend; a rule without them asks nobody, and adds and takes nothing.
func TestExternalAuthNeverPasses(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	u := newUnauthorized(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		u.ask(t, byte(random.IntN(256)), byte(random.IntN(256)))
	}
	if s := u.statuses; s[200] < 100 || s[403] < 10 || s[503] < 50 || s[504] < 10 {
		t.Errorf("statuses: %v", s)
	}
}

// FuzzExternalAuth: the same in any order.
func FuzzExternalAuth(f *testing.F) {
	for _, script := range []string{"\x00\x06\x02\x06\x00\x06", "\x00\x07\x05\x07\x01\x07\x06\x0a\x00\x0a", "\x00\x00\x00\x06\x00\x08"} {
		f.Add([]byte(script))
	}
	u := newUnauthorized(f)
	f.Fuzz(func(t *testing.T, script []byte) {
		u.t = t
		for i := 0; i+1 < min(len(script), 32); i += 2 {
			u.ask(t, script[i], script[i+1])
		}
	})
}

// TestExternalAuthClientLeaves: a client that leaves while the server is asked ends the wait, and nothing goes on.
func TestExternalAuthClientLeaves(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	asked, gone := make(chan struct{}), make(chan struct{})
	var passed atomic.Int64
	g := authByHTTP(t, &config.ExternalAuth{}, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done() // the gateway has given the call up
		close(gone)
	}, func(http.ResponseWriter, *http.Request) { passed.Add(1) })
	c := g.dial()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-asked
	c.Close()
	<-gone
	if reasons := g.reasonsLogged(1); reasons[0] != "client_closed" || passed.Load() != 0 {
		t.Errorf("%v, %d have passed", reasons, passed.Load())
	}
}

// TestExternalAuthLoop: a server that can be reached by the same rule alone, which asks it again, ends the request.
func TestExternalAuthLoop(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	g.apply(backend(authKey, g.addr()))
	var passed atomic.Int64
	g.serve(httpBackend(t, func(http.ResponseWriter, *http.Request) { passed.Add(1) }), guardedBy(t, &config.ExternalAuth{Backend: authKey}))
	if resp, _ := g.request(t, "GET", "/", nil, nil); resp.StatusCode != 503 || passed.Load() != 0 {
		t.Errorf("%s, %d have passed", resp.Status, passed.Load())
	}
	if n := strings.Count(strings.Join(g.reasonsLogged(4), " "), "loop_detected"); n != 1 {
		t.Errorf("%d loops were found", n)
	}
}

// TestExternalAuthTrailers: what the server has decided on does not come by the trailer section instead, in any spelling, whether the section is there before the server
// has answered or comes after that; other trailer fields pass, to backends and mirrors alike.
func TestExternalAuthTrailers(t *testing.T) {
	t.Parallel()
	allow := func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Group", "staff") }
	check := func(*extauthz.CheckRequest) (*extauthz.CheckResponse, error) {
		return &extauthz.CheckResponse{Status: &extauthz.Status{}, HttpResponse: &extauthz.CheckResponse_OkResponse{OkResponse: &extauthz.OKHTTPResponse{
			Headers: []*extauthz.HeaderValueOption{headerOption("X-Group", "staff")}, HeadersToRemove: []string{"X-User"},
		}}}, nil
	}
	behind := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		n := 0
		for _, values := range r.Trailer { // names that were announced are there in any case
			n += len(values)
		}
		fmt.Fprint(w, n, " ", r.Trailer.Get("X-Fine"))
	}
	const body = "3\r\nabc\r\n0\r\nX-User: root\r\nx_user: root\r\nx.user: root\r\nX+Group: root\r\nX-GROUP: root\r\nX_Group: root\r\nX-Fine: 1\r\n\r\n"
	for _, maxBody := range []int64{0, 100} { // the section comes after the answer, and before
		for name, g := range map[string]*gateway{
			"HTTP with a list":   authByHTTP(t, &config.ExternalAuth{MaxBodyBytes: maxBody, ResponseHeaders: []string{"x-user", "x_group"}}, allow, behind),
			"HTTP, what is sent": authByHTTP(t, &config.ExternalAuth{MaxBodyBytes: maxBody, RequestHeaders: []string{"x-user"}, ResponseHeaders: []string{"x_group"}}, allow, behind),
			"gRPC with a list":   authByGRPC(t, &config.ExternalAuth{MaxBodyBytes: maxBody, RequestHeaders: []string{"authorization"}}, check, behind),
			"gRPC":               authByGRPC(t, &config.ExternalAuth{MaxBodyBytes: maxBody}, check, behind), // which is sent all
		} {
			want := "1 1"
			if name == "gRPC" {
				want = "0 "
			}
			t.Run(fmt.Sprintf("%s, %d", name, maxBody), func(t *testing.T) {
				got := g.roundTrip("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTrailer: X-User, x_user, X-Group, X_Group, X-Fine\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
				if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.HasSuffix(got, "\r\n\r\n"+want) {
					t.Errorf("got %q", got)
				}
				if got := g.postWithTrailer(http.Header{"X-User": {"root"}, "X_user": {"root"}, "X-Group": {"root"}, "X-Fine": {"1"}}); got != want {
					t.Errorf("by HTTP/2: %q", got)
				}
			})
		}
	}
	g := authByHTTP(t, &config.ExternalAuth{MaxBodyBytes: 100}, allow, behind) // without a list: what the server sends
	if got := g.roundTrip("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX_Group: root\r\nX-Fine: 1\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\n1 1") {
		t.Errorf("without a list: %q", got)
	}
	copies := make(chan copyOf, 1)
	g.apply(backend(mirrorKey, mirrorBackend(t, copies)))
	g.apply([]*config.Resource{routeOf("r", "default/gw/http", "", &config.Rule{
		Matches:     []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
		BackendRefs: []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}},
		Filters:     slices.Concat(rulesOf(t, guardedBy(t, &config.ExternalAuth{Backend: authKey, ResponseHeaders: []string{"x-sum"}})), rulesOf(t, mirrorTo(t, mirrorKey))),
	})})
	g.roundTrip("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx_sum: 6\r\nX-Sum: 7\r\n\r\n")
	if m := <-copies; m.trailer != "" || string(m.body) != "abc" {
		t.Errorf("the mirror got %q", m.trailer)
	}
}

// TestExternalAuthOfAsterisk: servers answer OPTIONS * by themselves, whoever asks, which is no yes.
func TestExternalAuthOfAsterisk(t *testing.T) {
	t.Parallel()
	var passed atomic.Int64
	g := authByHTTP(t, &config.ExternalAuth{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, func(http.ResponseWriter, *http.Request) { passed.Add(1) })
	if got := g.roundTrip("OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403 ") || passed.Load() != 0 {
		t.Errorf("%d have passed; got %q", passed.Load(), got)
	}
}

// TestExternalAuthByDeadline: timeouts.request ends the wait for a body that the server is to see, which the client sends too slowly, and its connection.
func TestExternalAuthByDeadline(t *testing.T) {
	t.Parallel()
	g := authAwaitingBody(t, func(r *config.Rule) { r.RequestTimeoutNanos = int64(50 * time.Millisecond) })
	for _, body := range []string{"Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"} {
		if got := g.roundTrip("POST / HTTP/1.1\r\nHost: h\r\n" + body); !strings.HasPrefix(got, "HTTP/1.1 504 ") || !strings.Contains(got, "\r\nConnection: close\r\n") ||
			!strings.HasSuffix(got, "\r\n\r\nmoongate: 504 request_timeout\n") {
			t.Errorf("%q: %q", body, got)
		}
	}
	slow, w := io.Pipe()
	defer w.Close()
	r, err := http.NewRequest("POST", "http://"+g.addr()+"/", slow)
	if err != nil {
		t.Fatal(err)
	}
	h2 := clientOfHTTP2()
	defer h2.CloseIdleConnections()
	resp, err := h2.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 504 {
		t.Errorf("by HTTP/2: %s", resp.Status)
	}
}

// TestExternalAuthByStreamLimit: a limit on streams ends the wait for a body that the server is to have.
func TestExternalAuthByStreamLimit(t *testing.T) {
	t.Parallel()
	g := authAwaitingBody(t, func(r *config.Rule) {
		r.Traffic = &config.RuleTraffic{StreamIdleTimeoutNanos: int64(100 * time.Millisecond)}
	})
	if got := g.roundTrip("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc"); !strings.HasSuffix(got, "moongate: 504 stream_idle\n") {
		t.Errorf("by HTTP/1.1: %q", got)
	}
	r := g.rawHTTP2()
	r.head(1, false, request2("POST", "/", [2]string{"content-length", "10"})...)
	r.fr.WriteData(1, false, []byte("abc"))
	if got := r.outcome(1); !strings.HasPrefix(got, "504 ") {
		t.Errorf("by HTTP/2: %s", got)
	}
}

// TestExternalAuthBodyAtShutdown: a client that is still sending the body that the server is to have when Shutdown runs out of time is
// told nothing, and is not blamed.
func TestExternalAuthBodyAtShutdown(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := authAwaitingBody(t, func(*config.Rule) {})
	c := g.dial()
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
	testkit.Eventually(t, "the body is waited for", func() bool { return strings.Contains(fmt.Sprint(stacksOf(t)), "exchange.(*Exchange).ReadBody") })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	g.Shutdown(ctx) //nolint:errcheck // it runs out of time
	if got, _ := io.ReadAll(c); len(got) > 0 {
		t.Errorf("answered %q", got)
	}
	if got := g.reasonsLogged(1); got[0] != "shutting_down" {
		t.Errorf("logged %q", got)
	}
}

// TestExternalAuthDeniedAtLength: a denial that is long is no answer, so that no server has much held for clients that read slowly.
func TestExternalAuthDeniedAtLength(t *testing.T) {
	t.Parallel()
	never := func(http.ResponseWriter, *http.Request) { t.Error("the request went on") }
	for size, want := range map[int]int{60 << 10: 401, 64<<10 + 1: 503} {
		body := strings.Repeat("x", size)
		g := authByHTTP(t, &config.ExternalAuth{}, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(401)
			io.WriteString(w, body)
		}, never)
		if resp, got := g.request(t, "GET", "/", nil, nil); resp.StatusCode != want || want == 401 && got != body {
			t.Errorf("%d bytes by HTTP: %s", size, resp.Status)
		}
		g = authByGRPC(t, &config.ExternalAuth{}, func(*extauthz.CheckRequest) (*extauthz.CheckResponse, error) {
			return &extauthz.CheckResponse{Status: &extauthz.Status{Code: 7}, HttpResponse: &extauthz.CheckResponse_DeniedResponse{DeniedResponse: &extauthz.DeniedHTTPResponse{
				Status: &extauthz.HTTPStatus{Code: 401}, Body: body}}}, nil
		}, never)
		if resp, got := g.request(t, "GET", "/", nil, nil); resp.StatusCode != want || want == 401 && got != body {
			t.Errorf("%d bytes by gRPC: %s", size, resp.Status)
		}
	}
}

// TestExternalAuthPasses: for a request that has come back several times no call is made, and it does not pass.
func TestExternalAuthPasses(t *testing.T) {
	t.Parallel()
	var asked, passed atomic.Int64
	g := authByHTTP(t, &config.ExternalAuth{}, func(http.ResponseWriter, *http.Request) { asked.Add(1) }, func(http.ResponseWriter, *http.Request) { passed.Add(1) })
	for n, want := range []int{200, 200, 200, 508, 508} {
		asked.Store(0)
		passed.Store(0)
		header := http.Header{"Cdn-Loop": slices.Repeat([]string{"moongate"}, n)}
		resp, body := g.request(t, "GET", "/", header, nil)
		calls := int64(0)
		if want == 200 {
			calls = 1
		} else if body != "moongate: 508 loop_detected\n" {
			t.Errorf("%d passes: %q", n, body)
		}
		if resp.StatusCode != want || asked.Load() != calls || passed.Load() != calls {
			t.Errorf("%d passes: %s, %d calls, %d have passed", n, resp.Status, asked.Load(), passed.Load())
		}
	}
}

// TestMirrorsWaitForLeave: what a backendRef's server refuses is copied to nobody, and what it allows is copied for the rule as the rule's filters have left it.
func TestMirrorsWaitForLeave(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	g.apply(backend(authKey, httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "good" {
			w.WriteHeader(401)
		}
	})))
	copies := make(chan copyOf, 10)
	g.apply(backend(mirrorKey, mirrorBackend(t, copies)))
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }), func(r *config.Rule) {
		r.Filters = rulesOf(t, mirrorTo(t, mirrorKey))
		r.BackendRefs[0].Filters = []*anypb.Any{filterOf(t, &config.UrlRewrite{Path: &config.PathModifier{Kind: &config.PathModifier_ReplaceFullPath{ReplaceFullPath: "/rewritten"}}}),
			filterOf(t, &config.ExternalAuth{Backend: authKey, MaxBodyBytes: 100})}
	})
	for range 5 {
		if resp, _ := g.request(t, "POST", "/refused", nil, strings.NewReader("refused")); resp.StatusCode != 401 {
			t.Fatalf("refused: %s", resp.Status)
		}
	}
	for _, body := range []io.Reader{strings.NewReader("allowed"), struct{ io.Reader }{strings.NewReader("allowed")}} {
		if resp, got := g.request(t, "POST", "/allowed", http.Header{"Authorization": {"good"}}, body); resp.StatusCode != 200 || got != "allowed" {
			t.Fatalf("allowed: %s %q", resp.Status, got)
		}
		if m := <-copies; string(m.body) != "allowed" || m.path != "/allowed" {
			t.Errorf("the mirror got %s with %q", m.path, m.body)
		}
	}
}

// TestExternalAuthCountsBody: what was read of a body for the server is counted, also where it refuses.
func TestExternalAuthCountsBody(t *testing.T) {
	t.Parallel()
	g := authByHTTP(t, &config.ExternalAuth{MaxBodyBytes: 100}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, func(http.ResponseWriter, *http.Request) { t.Error("the request went on") })
	g.roundTrip("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n")
	if reasons := g.reasonsLogged(1); reasons[0] != "auth_denied" || !strings.Contains(g.log.String(), `"bytes_received":7,`) {
		t.Errorf("logged %s", g.log.String())
	}
}
