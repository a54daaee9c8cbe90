package e2e

import (
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTaskHTTPFilter does what the page says.
func TestTaskHTTPFilter(t *testing.T) {
	t.Parallel()
	runTask(t, "http-filter", map[int]*backend{3000: newBackend(t, "app", nil)})
}

// TestListenerFilters: they are run in their order on every request, before the one search for a route, which sees what they have made of it; their responses' parts last, on
// what the gateway answers itself, too. While one is not there every request fails.
func TestListenerFilters(t *testing.T) {
	t.Parallel()
	port, other := freePort(t), freePort(t)
	const filters = `, filters: {requests: [{type: ExtensionRef, extensionRef: {group: moongate.dev, kind: HTTPFilter, name: first}}, {type: ExtensionRef, extensionRef: {group: moongate.dev, kind: HTTPFilter, name: second}}]}}`
	listener := httpListener("filtered", port, "")
	second := `
apiVersion: moongate.dev/v1alpha1
kind: HTTPFilter
metadata: {name: second}
spec: {requestHeaders: {set: [{name: X-Version, value: "2"}], remove: [X-First]}, responseHeaders: {set: [{name: X-Last, value: second}]}}
---
`
	g := start(t, map[string]string{"all.yaml": gatewayWith(listener[:len(listener)-1]+filters, httpListener("open", other, "")) + `
apiVersion: moongate.dev/v1alpha1
kind: HTTPFilter
metadata: {name: first}
spec: {requestHeaders: {set: [{name: X-Version, value: "1"}, {name: X-First, value: "yes"}], add: [{name: X-Trail, value: first}]}, responseHeaders: {set: [{name: X-Last, value: first}]}}
---
` + service("default", "one", newBackend(t, "one", nil)) + service("default", "two", newBackend(t, "two", nil)) + route("r", `  rules:
  - matches: [{path: {value: /app}, headers: [{name: X-Version, value: "1"}]}]
    backendRefs: [{name: one, port: 80}]
  - matches: [{path: {value: /app}, headers: [{name: X-Version, value: "2"}]}]
    filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-Last, value: rule}]}}]
    backendRefs: [{name: two, port: 80}]
`), "second.yaml": second})
	checkServed := func() {
		t.Helper()
		for _, version := range []string{"1", "2", "3"} {
			got := ask{url: local(port, "/app"), header: map[string]string{"X-Version": version, "X-Trail": "client"}}.do(t)
			if got.StatusCode != 200 || got.echo.Backend != "two" || got.Header.Get("X-Last") != "second" {
				t.Errorf("version %s: %s from %q, X-Last %q", version, got.Status, got.echo.Backend, got.Header.Get("X-Last"))
			}
			if trail := got.echo.Header["X-Trail"]; len(trail) != 2 || trail[1] != "first" || got.echo.Header.Get("X-First") != "" {
				t.Errorf("the backend got %v", got.echo.Header)
			}
		}
		if got := (ask{url: local(port, "/elsewhere")}).do(t); got.StatusCode != 404 || got.Header.Get("X-Last") != "second" {
			t.Errorf("without a route: %s, X-Last %q", got.Status, got.Header.Get("X-Last"))
		}
		if got := (ask{url: local(other, "/app"), header: map[string]string{"X-Version": "1"}}).do(t); got.echo.Backend != "one" || got.Header.Get("X-Last") != "" {
			t.Errorf("the other listener: %s from %q", got.Status, got.echo.Backend)
		}
	}
	checkServed()
	g.remove("second.yaml")
	g.waitCondition("Gateway", "gw", "ResolvedRefs=False/InvalidListenerFilterRef")
	testkit.Eventually(t, "requests fail", func() bool { return (ask{url: local(port, "/app")}).do(t).StatusCode == 500 })
	if out, stderr, _ := moongate("explain", "-f", g.dir, "GET", local(port, "/app")); !strings.Contains(out, "500 listener_invalid") {
		t.Errorf("explain: %s%s", out, stderr)
	}
	if got := (ask{url: local(other, "/app"), header: map[string]string{"X-Version": "1"}}).do(t); got.StatusCode != 200 {
		t.Errorf("the other listener: %s", got.Status)
	}
	g.write("second.yaml", second)
	testkit.Eventually(t, "requests are served", func() bool { return (ask{url: local(port, "/app")}).do(t).StatusCode == 200 })
	checkServed()
}
