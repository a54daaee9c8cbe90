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
