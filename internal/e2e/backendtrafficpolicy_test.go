package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

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
	g.write("policy.yaml", trafficPolicy+"  loadBalancer: {type: ConsistentHash, consistentHash: {type: SourceIP, tableSize: 100}}\n")
	status("/a", 500)
	g.waitCondition("BackendTrafficPolicy", "policy", "Accepted=False/Invalid")
	g.write("policy.yaml", trafficPolicy+"  circuitBreaker: {maxParallelRequests: 0}\n")
	status("/a", 503)
	g.write("policy.yaml", trafficPolicy+"  loadBalancer: {type: RoundRobin}\n")
	status("/a", 200)
	g.remove("policy.yaml")
	status("/a", 200)
}

// TestOverriddenNoMore: what a policy says of others that are in force in its place goes with these.
func TestOverriddenNoMore(t *testing.T) {
	t.Parallel()
	b, port := newBackend(t, "app", nil), freePort(t)
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + route("a", "  rules:\n  - backendRefs: [{name: app, port: 80}]\n") + service("default", "app", b),
		"gateway.yaml": `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: for-gateway}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}]
  loadBalancer: {type: RoundRobin}
`,
		"policy.yaml": trafficPolicy + "  loadBalancer: {type: Random}\n"})
	g.waitCondition("BackendTrafficPolicy", "for-gateway", "Overridden=True/Overridden")
	g.remove("policy.yaml")
	testkit.Eventually(t, "nothing is overridden", func() bool {
		shown := g.status("BackendTrafficPolicy", "for-gateway")
		return shown.find("Accepted=True/Accepted") && !shown.find("Overridden=True/Overridden")
	})
}

// TestCheckTellsOfUnattachedPolicy: what is wrong with a policy that is attached to nothing, so that it has no status, is a problem with its line.
func TestCheckTellsOfUnattachedPolicy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	text := `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: policy}
spec:
  loadBalancer: {type: Random}
  targetSelectors:
  - {kind: HTTPRoute}
  - {kind: HTTPRoute, matchExpressions: [{key: tier, operator: Foo}]}
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := moongate("check", "-f", path)
	if want := `policy.yaml:8: BackendTrafficPolicy default/policy: spec.targetSelectors[1]: "Foo" is not a valid label selector operator; `; code != 1 || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d, want %q in\n%s%s", code, want, stdout, stderr)
	}
}
