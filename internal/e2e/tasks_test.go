package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTasksOfRoutes does what the pages about rules of HTTPRoutes say, with backends that echo.
func TestTasksOfRoutes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"default-gateways", "headers", "matching", "redirects", "weights"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runTask(t, name, map[int]*backend{3000: newBackend(t, "app", nil), 3001: newBackend(t, "other", nil)})
		})
	}
}

// TestTaskDebug: answers of the gateway itself are led to their causes.
func TestTaskDebug(t *testing.T) {
	t.Parallel()
	runTask(t, "debug-404-503", map[int]*backend{3000: newBackend(t, "cart", nil)})
}

// TestTaskLocalRateLimits does what the page says, with the manifest that stands among the examples.
func TestTaskLocalRateLimits(t *testing.T) {
	t.Parallel()
	asExample(t, "local-rate-limits")
	runTask(t, "local-rate-limits", map[int]*backend{3000: newBackend(t, "app", nil)})
}

// TestTaskGlobalRateLimits has a Redis in the place of the document's.
func TestTaskGlobalRateLimits(t *testing.T) {
	t.Parallel()
	asExample(t, "global-rate-limits")
	server := testkit.StartRedis(t)
	runTaskWith(t, "global-rate-limits", map[int]*backend{3000: newBackend(t, "app", nil)}, "", nil, func(r *taskRun) {
		r.options = func(o *cli.RunOptions) {
			o.RateLimits.Redis, o.RateLimits.KeyPrefix, o.RateLimits.FailureMode, o.RateLimits.Algorithm, o.RateLimits.Timeout = server.Address, "examples:", "Closed", "FixedWindow", 10*time.Second
		}
	})
}

// TestRedisOfParameters: global limits count in the Redis that GatewayParameters name as the page of global rate limits says, without --redis; when it leaves the policy says so.
func TestRedisOfParameters(t *testing.T) {
	t.Parallel()
	var manifest string
	for _, b := range fenced(t, "docs/tasks/global-rate-limits.md", "yaml") {
		if strings.Contains(b.content, "urlSecretRef") {
			manifest = b.use()
		}
	}
	server, port := testkit.StartRedis(t), freePort(t)
	manifest = strings.NewReplacer("rediss://moongate:PASSWORD@redis.example:6379/0", "redis://"+server.Address+"/1", "port: 8080", fmt.Sprint("port: ", port)).Replace(manifest)
	manifest = class + manifest + `
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: shop}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{name: app, port: 80}]}]
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: p, namespace: shop}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}]
  rateLimit: {global: {rules: [{limit: {requests: 1, unit: Year}}]}}
---
` + service("shop", "app", newBackend(t, "app", nil))
	g := start(t, map[string]string{"m.yaml": manifest}, func(o *cli.RunOptions) {
		o.RateLimits.FailureMode, o.RateLimits.Algorithm, o.RateLimits.Timeout = "Closed", "GCRA", 10*time.Second
	})
	for i, want := range []int{200, 429} {
		if got := (ask{url: local(port, "/")}).do(t).StatusCode; got != want {
			t.Errorf("request %d: answered %d, want %d", i, got, want)
		}
	}
	server.Kill()
	testkit.Eventually(t, "the policy says that Redis is away", func() bool { return strings.Contains(string(g.adminGet("/status")), "requests are refused with 503") })
	if got := (ask{url: local(port, "/")}).do(t).StatusCode; got != 503 {
		t.Errorf("while Redis is away: answered %d, want 503", got)
	}
	server.Start(t)
	testkit.Eventually(t, "the policy says nothing any more", func() bool { return !strings.Contains(string(g.adminGet("/status")), "RedisUnavailable") })
}

// TestTaskHTTP2Backends: the backend is spoken to in HTTP/2.
func TestTaskHTTP2Backends(t *testing.T) {
	t.Parallel()
	b := &backend{name: "app", Server: httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the backend was asked by %s", r.Proto)
		}
	}))}
	b.Config.Protocols = new(http.Protocols)
	b.Config.Protocols.SetHTTP1(true)
	b.Config.Protocols.SetUnencryptedHTTP2(true)
	b.Start()
	t.Cleanup(b.Close)
	b.port = b.Listener.Addr().(*net.TCPAddr).Port
	runTask(t, "http2-backends", map[int]*backend{3000: b})
}
