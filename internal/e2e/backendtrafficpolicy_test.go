package e2e

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTaskBackendTrafficPolicy does what the document says while the first attempt fails.
func TestTaskBackendTrafficPolicy(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	b := newBackend(t, "app", func(w http.ResponseWriter, _ *http.Request) bool {
		if n.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	})
	runTask(t, "backend-traffic-policy", map[int]*backend{3000: b})
	if n := n.Load(); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
}

const trafficPolicy = `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: policy}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: a}]
`

// TestInvalidTrafficPolicy: one that cannot be carried out fails the requests that it is for and no others, until it is mended or gone.
func TestInvalidTrafficPolicy(t *testing.T) {
	t.Parallel()
	b, port := newBackend(t, "app", nil), freePort(t)
	rule := func(path string) string {
		return "  rules:\n  - matches: [{path: {value: " + path + "}}]\n    backendRefs: [{name: app, port: 80}]\n"
	}
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + route("a", rule("/a")) + route("b", rule("/b")) + service("default", "app", b)})
	status := func(path string, want int) {
		t.Helper()
		testkit.Eventually(t, path+" is answered", func() bool {
			if other := (ask{url: local(port, "/b")}).do(t).StatusCode; other != 200 {
				t.Errorf("the other route is answered %d", other)
			}
			return (ask{url: local(port, path)}).do(t).StatusCode == want
		})
	}
	status("/a", 200)
	g.write("policy.yaml", trafficPolicy+"  rateLimit: {local: {rules: [{limit: {requests: 1, unit: Second}}]}}\n")
	status("/a", 500)
	g.waitCondition("BackendTrafficPolicy", "policy", "Accepted=False/Invalid")
	g.write("policy.yaml", trafficPolicy+"  circuitBreaker: {maxParallelRequests: 0}\n")
	status("/a", 503)
	g.write("policy.yaml", trafficPolicy+"  loadBalancer: {type: RoundRobin}\n")
	status("/a", 200)
	g.remove("policy.yaml")
	status("/a", 200)
}
