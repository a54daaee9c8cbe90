package e2e

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/moongate-dev/moongate/internal/cli"
)

// TestTaskSessions does what the page says; which of both endpoints answers is left to chance, that it is one is not.
func TestTaskSessions(t *testing.T) {
	t.Parallel()
	a, b := newBackend(t, "a", nil), newBackend(t, "b", nil)
	g := runTask(t, "sessions", map[int]*backend{3000: a, 3001: b})
	port := strings.TrimPrefix(g.listening(t), "127.0.0.1:")
	first := ask{url: "http://127.0.0.1:" + port + "/cart"}.do(t)
	cookies := first.Cookies()
	if len(cookies) != 1 || cookies[0].Name != "cart-session" || cookies[0].MaxAge != 12*60*60 {
		t.Fatalf("cookies %v", cookies)
	}
	field := map[string]string{"Cookie": cookies[0].Name + "=" + cookies[0].Value}
	for range 20 {
		if got := (ask{url: "http://127.0.0.1:" + port + "/cart", header: field}).do(t); got.echo.Backend != first.echo.Backend || len(got.Cookies()) != 0 {
			t.Fatalf("from %s to %s, cookies %v", first.echo.Backend, got.echo.Backend, got.Cookies())
		}
	}
	with := map[string]*backend{"a": a, "b": b}[first.echo.Backend]
	stdout, stderr, _ := moongate("explain", "-f", filepath.Join(g.dir, "sessions.yaml"), "-H", "Cookie: "+field["Cookie"], "GET", "http://127.0.0.1:"+port+"/cart")
	if want := fmt.Sprintf("that of this request is with 127.0.0.1:%d", with.port); !strings.Contains(stdout, want) {
		t.Errorf("no %q in %s%s", want, stdout, stderr)
	}
	if metrics := string(g.adminGet("/metrics")); !strings.Contains(metrics, `moongate_upstream_session_requests_total{backend="Service/default/shop/80",result="kept"}`) {
		t.Error("no metric of sessions")
	}
}

// listening is the address of the only HTTP listener.
func (g *gateway) listening(t *testing.T) string {
	t.Helper()
	var config struct {
		Resources []struct {
			Listener *struct{ Port int }
		}
	}
	if err := json.Unmarshal(g.adminGet("/config"), &config); err != nil {
		t.Fatal(err)
	}
	for _, r := range config.Resources {
		if r.Listener != nil {
			return fmt.Sprintf("127.0.0.1:%d", r.Listener.Port)
		}
	}
	t.Fatal("no listener")
	return ""
}

// TestSessionProtocols: HTTP/2, WebSocket and gRPC clients stay where they are, over a restart too, and the cookie is secure where the client came by TLS.
func TestSessionProtocols(t *testing.T) {
	t.Parallel()
	plain, secure := freePort(t), freePort(t)
	var web, calls, sockets []*backend
	for i := range 6 {
		name := fmt.Sprint(i)
		web = append(web, newBackend(t, name, nil))
		calls = append(calls, newGRPCBackend(t, name))
		greet := websocket.Handler(func(c *websocket.Conn) { io.WriteString(c, name) })
		sockets = append(sockets, newBackend(t, name, func(w http.ResponseWriter, r *http.Request) bool {
			greet.ServeHTTP(w, r)
			return true
		}))
	}
	secretFile := filepath.Join(t.TempDir(), "secret")
	manifests := map[string]string{"all.yaml": gatewayWith(httpListener("http", plain, ""), httpsListener("https", secure, "", "{name: cert}")) + secret(t, "default", "cert", "a.test") +
		service("default", "web", web...) + service("default", "calls", calls...) +
		strings.Replace(service("default", "sockets", sockets...), "{port: 80}", "{port: 80, appProtocol: kubernetes.io/ws}", 1) +
		route("web", `  hostnames: [a.test]
  rules:
  - matches: [{path: {value: /socket}}]
    sessionPersistence: {cookie: {name: socket}}
    backendRefs: [{name: sockets, port: 80}]
  - sessionPersistence: {cookie: {name: web, path: /app}}
    backendRefs: [{name: web, port: 80}]
`) + grpcRoute("calls", `  hostnames: [calls.test]
  rules: [{sessionPersistence: {type: Header, header: {name: x-session}}, backendRefs: [{name: calls, port: 80}]}]
`)}
	withSecret := func(o *cli.RunOptions) { o.SecretFile = secretFile }
	g := start(t, manifests, withSecret)

	overHTTP2 := &http.Client{Timeout: patience, Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "a.test"}}}
	var cookie, socketCookie *http.Cookie
	var with, socketWith, callsWith string
	session := ""
	check := func(t *testing.T) {
		for i := range 30 {
			r := ask{url: fmt.Sprintf("https://127.0.0.1:%d/app", secure), host: "a.test", client: overHTTP2, header: map[string]string{}}
			if cookie != nil {
				r.header["Cookie"] = cookie.Name + "=" + cookie.Value
			}
			got := r.do(t)
			if got.ProtoMajor != 2 {
				t.Fatalf("by %s", got.Proto)
			}
			if cookie == nil {
				cookie, with = got.Cookies()[0], got.echo.Backend
				if !cookie.Secure || !cookie.HttpOnly || cookie.Path != "/app" || cookie.SameSite != http.SameSiteStrictMode {
					t.Errorf("cookie %v", cookie)
				}
			}
			if got.echo.Backend != with {
				t.Fatalf("request %d: from %s to %s", i, with, got.echo.Backend)
			}
		}
		for i := range 30 {
			head, greeting := greeted(t, plain, socketCookie)
			if socketCookie == nil {
				socketCookie, socketWith = head.Cookies()[0], greeting
				if socketCookie.Secure {
					t.Error("a cookie for cleartext is secure")
				}
			}
			if greeting != socketWith {
				t.Fatalf("WebSocket %d: from %s to %s", i, socketWith, greeting)
			}
		}
		client := dialGRPC(t, plain, "calls.test", false)
		for i := range 50 {
			ctx, header := t.Context(), metadata.MD{}
			if session != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "x-session", session)
			}
			if _, err := client.EmptyCall(ctx, &grpc_testing.Empty{}, grpc.Header(&header)); err != nil {
				t.Fatal(err)
			}
			name := strings.Join(header.Get("x-backend"), ",")
			if session == "" {
				callsWith = name
			}
			if session = strings.Join(header.Get("x-session"), ""); session == "" || name != callsWith {
				t.Fatalf("call %d: from %s to %s, token %q", i, callsWith, name, session)
			}
		}
	}
	t.Run("first", check)
	g.end()
	start(t, manifests, withSecret)
	t.Run("after a restart", check)
}

// greeted opens a WebSocket and returns the head of the response and the byte that the server sends.
func greeted(t *testing.T, port int, cookie *http.Cookie) (head *http.Response, greeting string) {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req, err := http.NewRequest("GET", "http://a.test/socket", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
		"Origin": "http://a.test"} {
		req.Header.Set(name, value)
	}
	if cookie != nil {
		req.AddCookie(cookie)
	}
	if err := req.Write(c); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	head, err = http.ReadResponse(r, req)
	if err != nil || head.StatusCode != 101 {
		t.Fatalf("%v, %v", head, err)
	}
	var frame [3]byte
	if _, err := io.ReadFull(r, frame[:]); err != nil {
		t.Fatal(err)
	}
	return head, string(frame[2:])
}
