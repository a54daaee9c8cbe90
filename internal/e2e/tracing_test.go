package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTaskTracing does what the page says. What the collector gets is for the proxy's tests.
func TestTaskTracing(t *testing.T) {
	t.Parallel()
	app := newBackend(t, "app", func(w http.ResponseWriter, r *http.Request) bool {
		if parts := strings.Split(r.Header.Get("Traceparent"), "-"); len(parts) == 4 && parts[2] != "b7ad6b7169203331" {
			w.Header().Set("X-Trace", parts[1])
		}
		return false
	})
	g := runTask(t, "tracing", map[int]*backend{3000: app, 4000: newBackend(t, "collector", nil)})
	g.waitCondition("XTelemetryPolicy", "tracing", "Accepted=True/Accepted")
	stdout, stderr, code := moongate("explain", "-f", g.dir+"/tracing.yaml", "GET", "http://"+g.listening(t)+"/orders")
	if want := "traced: span of service web-gateway to Service default/collector port 4317"; code != 0 || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d, want %q in %s%s", code, want, stdout, stderr)
	}
}

// TestTelemetryPolicyEdits: a policy that comes, changes and goes takes effect, and no request fails for it or for its collector.
func TestTelemetryPolicyEdits(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	app := newBackend(t, "app", func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Parent", r.Header.Get("Traceparent"))
		return false
	})
	policy := func(tracing string) string {
		return "apiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XTelemetryPolicy\nmetadata: {name: t, namespace: default}\nspec:\n" +
			"  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}]\n  tracing: {" + tracing + "}\n"
	}
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "app", app) +
		service("default", "collector", newBackend(t, "collector", nil)) + route("r", "  rules: [{backendRefs: [{name: app, port: 80}]}]\n")})
	told := func(what string, is func(parent string) bool) {
		t.Helper()
		testkit.Eventually(t, what, func() bool {
			got := ask{url: local(port, "/")}.do(t)
			if got.StatusCode != 200 {
				t.Fatalf("%s: %s", what, got.Status)
			}
			return is(got.Header.Get("X-Parent"))
		})
	}
	const provider = "provider: {backendRef: {name: collector, port: 80}}"
	told("without a policy", func(parent string) bool { return parent == "" })
	g.write("policy.yaml", policy("mode: Enabled, "+provider))
	told("all are recorded", func(parent string) bool { return strings.HasSuffix(parent, "-01") })
	g.write("policy.yaml", policy("mode: Enabled, "+provider+", samplingRate: {numerator: 0}"))
	told("none is recorded", func(parent string) bool { return strings.HasSuffix(parent, "-00") })
	g.write("policy.yaml", policy("mode: Enabled, provider: {backendRef: {name: gone, port: 80}}"))
	told("no collector", func(parent string) bool { return parent == "" })
	g.write("policy.yaml", policy("mode: Enabled, "+provider))
	told("all again", func(parent string) bool { return strings.HasSuffix(parent, "-01") })
	g.remove("policy.yaml")
	told("the policy is gone", func(parent string) bool { return parent == "" })
}
