package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestSeeingIt checks that what happened to a request is in the access log and in the metrics, by
// the same words.
func TestSeeingIt(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	out := &testkit.Log{}
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "b", newBackend(t, "b", nil)) + route("r", `  rules:
  - name: good
    matches: [{path: {value: /good}}]
    backendRefs: [{name: b, port: 80}]
  - matches: [{path: {value: /bad}}]
    backendRefs: [{name: missing, port: 80}]`)}, func(o *cli.RunOptions) { o.AccessLog, o.Stdout = "json", out })
	for _, path := range []string{"/good?q=1", "/bad", "/none"} {
		ask{url: local(port, path), host: "example.com"}.do(t)
	}
	testkit.Eventually(t, "three lines in the access log", func() bool { return strings.Count(out.String(), "\n") == 3 })
	wants := []map[string]any{
		{"response_code": 200.0, "reason": "ok", "route": "HTTPRoute/default/r", "rule": "good", "gateway": "default/gw", "listener": "http", "method": "GET", "authority": "example.com"},
		{"response_code": 500.0, "reason": "backend_invalid", "route": "HTTPRoute/default/r", "rule": "1"},
		{"response_code": 404.0, "reason": "route_not_found", "route": nil, "listener": "http"},
	}
	for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		for key, want := range wants[i] {
			if got[key] != want {
				t.Errorf("line %d: %s is %v, want %v\n%s", i, key, got[key], want, line)
			}
		}
	}
	metrics := string(g.adminGet("/metrics"))
	for _, want := range []string{`reason="ok"`, `reason="backend_invalid"`, `reason="route_not_found"`, `route="HTTPRoute/default/r"`, `rule="good"`, "moongate_listener_up", "moongate_build_info"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
	if got := g.adminGet("/readyz"); len(got) == 0 {
		t.Error("/readyz says nothing")
	}
}

// TestAllowedRoutes follows a namespace's label that lets its routes attach.
func TestAllowedRoutes(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	namespace := func(label string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {open: %q}}\n", label)
	}
	listener := fmt.Sprintf("{name: http, protocol: HTTP, port: %d, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {open: 'yes'}}}}}", port)
	teamRoute := strings.NewReplacer("metadata: {name: r}", "metadata: {name: r, namespace: team}", "{name: gw}", "{name: gw, namespace: default}").
		Replace(route("r", "  rules: [{backendRefs: [{name: b, port: 80}]}]"))
	g := start(t, map[string]string{"gateway.yaml": gatewayWith(listener), "team.yaml": service("team", "b", newBackend(t, "b", nil)) + teamRoute, "ns.yaml": namespace("no")})
	answers := func(want int) func() bool {
		return func() bool { return ask{url: local(port, "/")}.do(t).StatusCode == want }
	}
	g.waitCondition("HTTPRoute", "r", "Accepted=False/NotAllowedByListeners")
	testkit.Eventually(t, "404 without the label", answers(404))
	g.write("ns.yaml", namespace("yes"))
	testkit.Eventually(t, "200 with the label", answers(200))
	g.waitCondition("HTTPRoute", "r", "Accepted=True/Accepted")
	g.write("ns.yaml", namespace("no"))
	testkit.Eventually(t, "404 without the label again", answers(404))
}
