package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTaskExternalAuth does what the page says.
func TestTaskExternalAuth(t *testing.T) {
	t.Parallel()
	app := newBackend(t, "app", func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Greeting", "hello "+strings.Join(r.Header["X-User"], " and "))
		return false
	})
	auth := newBackend(t, "auth", func(w http.ResponseWriter, r *http.Request) bool {
		user, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || !strings.HasPrefix(r.RequestURI, "/check/orders/") {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
		}
		w.Header().Set("X-User", user)
		return true
	})
	runTask(t, "external-auth", map[int]*backend{3000: app, 4000: auth})
}

// TestExternalAuthEdits: a route without a server's answer never serves, and a server that comes, moves and goes takes effect at once.
func TestExternalAuthEdits(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	deny := newBackend(t, "deny", func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusTeapot)
		return true
	})
	allow := newBackend(t, "allow", nil)
	guarded := route("r", `  rules:
  - filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: auth, port: 80}, http: {}}}]
    backendRefs: [{name: app, port: 80}]
`)
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "app", newBackend(t, "app", nil)) + guarded})
	answers := func(what string, status int) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return ask{url: local(port, "/")}.do(t).StatusCode == status })
	}
	answers("no server: 500", 500)
	g.write("auth.yaml", service("default", "auth", deny))
	answers("the server denies", http.StatusTeapot)
	g.write("auth.yaml", service("default", "auth", allow))
	answers("another server allows", 200)
	deny.Close()
	allow.Close()
	answers("the server is down", 503)
	g.remove("auth.yaml")
	answers("no server again", 500)
}

// TestListenerExternalAuth: a listener's server is asked before a route is looked for, about requests without one too, and routes see what it has said.
func TestListenerExternalAuth(t *testing.T) {
	t.Parallel()
	port, open := freePort(t), freePort(t)
	auth := newBackend(t, "auth", func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		w.Header().Set("X-Plan", r.Header.Get("Authorization"))
		return true
	})
	listener := httpListener("guarded", port, "")
	start(t, map[string]string{"all.yaml": gatewayWith(
		listener[:len(listener)-1]+`, filters: {requests: [{type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: auth, port: 80}, http: {allowedResponseHeaders: [X-Plan]}}}]}}`,
		httpListener("open", open, "")) +
		service("default", "auth", auth) + service("default", "gold", newBackend(t, "gold", nil)) + service("default", "other", newBackend(t, "other", nil)) + route("r", `  rules:
  - matches: [{path: {value: /app}, headers: [{name: X-Plan, value: gold}]}]
    backendRefs: [{name: gold, port: 80}]
  - matches: [{path: {value: /app}}]
    backendRefs: [{name: other, port: 80}]
`)})
	for _, c := range []struct {
		port                int
		path, authorization string
		status              int
		backend             string
	}{
		{port, "/app", "gold", 200, "gold"}, {port, "/app", "silver", 200, "other"}, {port, "/app", "", 401, ""},
		{port, "/nowhere", "", 401, ""}, {port, "/nowhere", "gold", 404, ""}, {open, "/app", "", 200, "gold"},
	} {
		got := ask{url: local(c.port, c.path), header: map[string]string{"Authorization": c.authorization, "X-Plan": "gold"}}.do(t)
		if got.StatusCode != c.status || got.echo.Backend != c.backend {
			t.Errorf("%+v: %s from %q", c, got.Status, got.echo.Backend)
		}
	}
}
