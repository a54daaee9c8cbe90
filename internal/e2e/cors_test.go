package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
)

func TestTaskCORS(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "app", func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == "OPTIONS" {
			t.Error("a preflight request reached the backend")
		}
		return false
	})
	runTask(t, "cors", map[int]*backend{3000: b})
}

// TestCORS checks over both protocols who is told what, and that nobody is told more than the access log.
func TestCORS(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	b := newBackend(t, "b", func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Access-Control-Allow-Origin", "https://of.backend")
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		return false
	})
	const cors = "{type: CORS, cors: {allowOrigins: ['https://a.example'], allowMethods: [PUT], exposeHeaders: [X-Total]}}"
	rules := `  rules:
  - matches: [{path: {value: /rule}, method: PUT}, {path: {value: /rule}, method: GET}]
    filters: [{type: URLRewrite, urlRewrite: {hostname: inner.example}}, ` + cors + `, {type: RequestHeaderModifier, requestHeaderModifier: {remove: [Origin]}}]
    backendRefs: [{name: b, port: 80}]
  - matches: [{path: {value: /ref}}]
    backendRefs: [{name: b, port: 80, filters: [` + cors + `]}]
  - matches: [{path: {value: /moved}}]
    filters: [` + cors + `, {type: RequestRedirect, requestRedirect: {hostname: other.example}}]
  - matches: [{path: {value: /down}}]
    filters: [` + cors + `]
    backendRefs: [{name: none, port: 80}]
  - matches: [{path: {value: /missing}}]
    filters: [` + cors + `]
    backendRefs: [{name: missing, port: 80}]
  - matches: [{path: {value: /rule}}]
    backendRefs: [{name: b, port: 80}]
  - matches: [{path: {value: /alone}, method: PUT}, {path: {value: /alone/any}}]
    filters: [` + cors + `]
  - matches: [{path: {value: /weightless}}]
    filters: [` + cors + `]
    backendRefs: [{name: b, port: 80, weight: 0}]
  - matches: [{path: {value: /guarded}}]
    filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: auth, port: 80}, http: {}}}, ` + cors + `]
  - matches: [{path: {value: /unguarded}}]
    filters: [` + cors + `, {type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: auth, port: 80}, http: {}}}]
  - matches: [{path: {value: /own}, method: GET}, {path: {value: /own/route}, method: GET}]
    filters: [` + cors + `]
    backendRefs: [{name: b, port: 80}]
  - matches: [{path: {value: /own}, method: OPTIONS}]
    backendRefs: [{name: b, port: 80}]
`
	const later = `  rules:
  - matches: [{path: {value: /own/route}, method: OPTIONS}]
    backendRefs: [{name: b, port: 80}]
`
	auth := newBackend(t, "auth", func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	log := filepath.Join(t.TempDir(), "access.log")
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "b", b) + service("default", "none") + service("default", "auth", auth) + route("r", rules) + route("s", later)},
		func(o *cli.RunOptions) { o.AccessLog = log })

	var h2 http.Transport
	h2.Protocols = new(http.Protocols)
	h2.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(h2.CloseIdleConnections)
	clients := map[string]*http.Client{"HTTP/1.1": noRedirects, "HTTP/2": {Transport: &h2, Timeout: patience, CheckRedirect: noRedirects.CheckRedirect}}
	const allowed, other = "https://a.example", "https://b.example"
	want := map[string]int{}
	for protocol, client := range clients {
		for _, c := range []struct {
			name, method, path, origin, asks string
			status                           int
			readable                         bool
			reason                           string
		}{
			{"preflight", "OPTIONS", "/rule", allowed, "PUT", 204, true, "preflight"},
			{"preflight of another origin", "OPTIONS", "/rule", other, "PUT", 403, false, "preflight_refused"},
			{"preflight of a method of another rule", "OPTIONS", "/rule", allowed, "DELETE", 200, false, "ok"},
			{"preflight of a backendRef", "OPTIONS", "/ref", allowed, "PUT", 204, true, "preflight"},
			{"preflight before a redirect", "OPTIONS", "/moved", allowed, "PUT", 204, true, "preflight"},
			{"preflight that another rule has a match on OPTIONS for", "OPTIONS", "/own", allowed, "GET", 200, false, "ok"},
			{"preflight that another route has a match on OPTIONS for", "OPTIONS", "/own/route", allowed, "GET", 200, false, "ok"},
			{"request beside a match on OPTIONS", "GET", "/own/route", allowed, "", 200, true, "ok"},
			{"OPTIONS of another rule", "OPTIONS", "/rule", allowed, "", 200, false, "ok"},
			{"request", "PUT", "/rule", allowed, "", 200, true, "ok"},
			{"request with what belongs to a preflight", "GET", "/rule", allowed, "PUT", 200, true, "ok"},
			{"request of another origin", "GET", "/rule", other, "", 200, false, "ok"},
			{"request of a backendRef", "GET", "/ref", allowed, "", 200, true, "ok"},
			{"request without origin", "GET", "/ref", "", "", 200, false, "ok"},
			{"redirect", "GET", "/moved", allowed, "", 302, true, "redirect"},
			{"redirect of another origin", "GET", "/moved", other, "", 302, false, "redirect"},
			{"preflight without backendRefs", "OPTIONS", "/alone", allowed, "PUT", 204, true, "preflight"},
			{"preflight without backendRefs, of another origin", "OPTIONS", "/alone", other, "PUT", 403, false, "preflight_refused"},
			{"preflight without backendRefs and methods", "OPTIONS", "/alone/any", allowed, "PUT", 204, true, "preflight"},
			{"request without backendRefs", "PUT", "/alone", allowed, "", 500, true, "no_backend"},
			{"OPTIONS without backendRefs", "OPTIONS", "/alone/any", allowed, "", 500, true, "no_backend"},
			{"preflight without weights", "OPTIONS", "/weightless", allowed, "PUT", 204, true, "preflight"},
			{"request without weights", "GET", "/weightless", allowed, "", 500, true, "no_backend"},
			{"preflight with invalid backendRefs", "OPTIONS", "/missing", allowed, "PUT", 204, true, "preflight"},
			{"preflight behind an authorization server", "OPTIONS", "/guarded", allowed, "PUT", 401, false, "auth_denied"},
			{"preflight before an authorization server", "OPTIONS", "/unguarded", allowed, "PUT", 204, true, "preflight"},
			{"request to an authorization server", "GET", "/unguarded", allowed, "", 401, true, "auth_denied"},
			{"no endpoints", "GET", "/down", allowed, "", 503, true, "no_endpoints"},
			{"no Service", "GET", "/missing", allowed, "", 500, true, "backend_invalid"},
			{"no route", "GET", "/", allowed, "", 404, false, "route_not_found"},
		} {
			header := map[string]string{}
			if c.origin != "" {
				header["Origin"] = c.origin
			}
			if c.asks != "" {
				header["Access-Control-Request-Method"] = c.asks
			}
			got := ask{method: c.method, url: local(port, c.path), header: header, client: client}.do(t)
			origin := got.Header.Get("Access-Control-Allow-Origin")
			noFilter := c.path == "/" || c.method == "OPTIONS" && (c.reason == "ok" || c.reason == "auth_denied") // and what the backend or server says counts
			if noFilter && origin == "https://of.backend" {
				origin = ""
			}
			wantOrigin := ""
			if c.readable {
				wantOrigin = allowed
			}
			if got.StatusCode != c.status || origin != wantOrigin || !noFilter && got.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s, %s: %d %v", protocol, c.name, got.StatusCode, got.Header)
			}
			if !noFilter && !strings.Contains(got.Header.Get("Vary"), "Origin") {
				t.Errorf("%s, %s: no Vary: %v", protocol, c.name, got.Header)
			}
			if c.path == "/rule" && c.method != "OPTIONS" && got.echo.Header.Get("Origin") != "" {
				t.Errorf("%s, %s: the backend sees %v", protocol, c.name, got.echo.Header)
			}
			if c.status == 204 && (got.ContentLength > 0 || got.Header.Get("Content-Length") != "" || got.Header.Get("Access-Control-Allow-Methods") != "PUT") {
				t.Errorf("%s, %s: %v", protocol, c.name, got.Header)
			}
			want[c.reason]++
		}
	}
	g.end()
	lines, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for reason, n := range want {
		if got := strings.Count(string(lines), `"reason":"`+reason+`"`); got != n {
			t.Errorf("%d requests are logged as %s, want %d", got, reason, n)
		}
	}
}
