package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestMatches sends one request for each kind of match, and one that misses it.
func TestMatches(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	names := []string{"exact", "prefix", "deep", "regex", "header", "headers", "like", "query", "method", "fallback"}
	objects := gatewayWith(httpListener("http", port, ""))
	for _, name := range names {
		objects += service("default", name, newBackend(t, name, nil))
	}
	rules := ""
	for _, r := range []struct{ backend, match string }{
		{"exact", `path: {type: Exact, value: /exact}`},
		{"prefix", `path: {type: PathPrefix, value: /prefix}`},
		{"deep", `path: {type: PathPrefix, value: /prefix/deep/}`},
		{"regex", `path: {type: RegularExpression, value: "/re/[0-9]+"}`},
		{"header", `headers: [{name: X-One, value: "1"}]`},
		{"headers", `headers: [{name: X-One, value: "1"}, {name: X-Two, value: "2"}]`},
		{"like", `headers: [{name: X-Like, type: RegularExpression, value: "a+"}]`},
		{"query", `queryParams: [{name: q, value: "a b"}]`},
		{"method", `method: DELETE`},
		{"fallback", `path: {value: /}`},
	} {
		rules += fmt.Sprintf("  - matches: [{%s}]\n    backendRefs: [{name: %s, port: 80}]\n", r.match, r.backend)
	}
	start(t, map[string]string{"all.yaml": objects + route("r", "  rules:\n"+rules)})

	for _, c := range []struct {
		want, method, path string
		header             map[string]string
	}{
		{"exact", "GET", "/exact", nil},
		{"fallback", "GET", "/exact/", nil},
		{"exact", "GET", "/a/../exact", nil}, // what is matched is what is forwarded
		{"exact", "GET", "/%65xact", nil},
		{"prefix", "GET", "/prefix", nil},
		{"prefix", "GET", "/prefix/x?y", nil},
		{"fallback", "GET", "/prefixed", nil},
		{"deep", "GET", "/prefix/deep", nil},
		{"deep", "GET", "/prefix/deep/er", nil},
		{"regex", "GET", "/re/42", nil},
		{"fallback", "GET", "/re/42x", nil},
		{"header", "GET", "/", map[string]string{"x-one": "1"}},
		{"headers", "GET", "/", map[string]string{"X-One": "1", "X-Two": "2"}},
		{"fallback", "GET", "/", map[string]string{"X-One": "2"}},
		{"like", "GET", "/", map[string]string{"X-Like": "aaa"}},
		{"fallback", "GET", "/", map[string]string{"X-Like": "baaa"}},
		{"query", "GET", "/?q=a+b", nil},
		{"query", "GET", "/?x=1&q=a%20b&q=c", nil},
		{"fallback", "GET", "/?q=ab", nil},
		{"method", "DELETE", "/", nil},
		{"prefix", "DELETE", "/prefix", nil}, // path goes before method
	} {
		req, err := http.NewRequest(c.method, local(port, ""), nil)
		if err != nil {
			t.Fatal(err)
		}
		path, query, has := strings.Cut(c.path, "?")
		req.URL.Opaque, req.URL.RawQuery, req.URL.ForceQuery = "//"+req.URL.Host+path, query, has && query == ""
		for name, value := range c.header {
			req.Header.Set(name, value)
		}
		resp, err := noRedirects.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("X-Backend"); resp.StatusCode != 200 || got != c.want {
			t.Errorf("%s %s %v: %d from %q, want %q", c.method, c.path, c.header, resp.StatusCode, got, c.want)
		}
	}
}

// TestHosts checks hostnames of listeners and routes, and that listeners are isolated.
func TestHosts(t *testing.T) {
	t.Parallel()
	port, other := freePort(t), freePort(t)
	objects := gatewayWith(httpListener("any", port, ""), httpListener("wild", port, "*.example.com"),
		httpListener("one", port, "one.example.com"), httpListener("other", other, ""))
	for _, name := range []string{"any", "wild", "one", "other"} {
		objects += service("default", name, newBackend(t, name, nil))
	}
	on := func(listener, hostnames, path string) string {
		return strings.Replace(route(listener+strings.ReplaceAll(path, "/", "-")+"r", fmt.Sprintf(
			"  hostnames: %s\n  rules: [{matches: [{path: {value: %s}}], backendRefs: [{name: %s, port: 80}]}]", hostnames, path, listener)),
			"{name: gw}", "{name: gw, sectionName: "+listener+"}", 1)
	}
	start(t, map[string]string{"all.yaml": objects + on("any", "[]", "/") + on("wild", "['*.b.example.com', a.example.com]", "/") +
		on("one", "[one.example.com]", "/only") + on("other", "[]", "/")})

	for _, c := range []struct {
		host, path string
		status     int
		want       string
	}{
		{"unknown.org", "/", 200, "any"},
		{"example.com", "/", 200, "any"}, // not one of *.example.com
		{"a.example.com", "/", 200, "wild"},
		{"A.Example.COM:1234", "/", 200, "wild"},
		{"x.b.example.com", "/", 200, "wild"},
		{"x.y.b.example.com", "/", 200, "wild"},
		{"b.example.com", "/", 404, ""}, // no fall-back to the listener "any"
		{"one.example.com", "/only", 200, "one"},
		{"one.example.com", "/", 404, ""},
	} {
		got := ask{url: local(port, c.path), host: c.host}.do(t)
		if got.StatusCode != c.status || got.echo.Backend != c.want {
			t.Errorf("Host %s %s: %d from %q, want %d from %q", c.host, c.path, got.StatusCode, got.echo.Backend, c.status, c.want)
		}
		if c.status == 200 && got.echo.Host != c.host {
			t.Errorf("Host %s reached the backend as %s", c.host, got.echo.Host)
		}
	}
	if got := (ask{url: local(other, "/"), host: "a.example.com"}).do(t); got.echo.Backend != "other" {
		t.Errorf("port %d answered from %q, want other", other, got.echo.Backend)
	}
}

// TestFailures checks what is answered where nothing can be forwarded.
func TestFailures(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	dead := &backend{port: freePort(t)}
	slow := newBackend(t, "slow", func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-r.Context().Done():
		case <-time.After(patience):
		}
		return false
	})
	objects := gatewayWith(httpListener("http", port, "")) +
		service("default", "good", newBackend(t, "good", nil)) + service("default", "empty") +
		service("default", "dead", dead) + service("default", "slow", slow) + service("elsewhere", "foreign", slow)
	rules := ""
	for _, r := range []struct{ path, rest string }{
		{"/missing", "backendRefs: [{name: missing, port: 80}]"},
		{"/badport", "backendRefs: [{name: good, port: 81}]"},
		{"/kind", "backendRefs: [{group: example.com, kind: Thing, name: good, port: 80}]"},
		{"/foreign", "backendRefs: [{name: foreign, namespace: elsewhere, port: 80}]"},
		{"/none", "{}"},
		{"/zero", "backendRefs: [{name: good, port: 80, weight: 0}]"},
		{"/empty", "backendRefs: [{name: empty, port: 80}]"},
		{"/dead", "backendRefs: [{name: dead, port: 80}]"},
		{"/request", "timeouts: {request: 100ms}\n    backendRefs: [{name: slow, port: 80}]"},
		{"/backend", "timeouts: {backendRequest: 100ms}\n    backendRefs: [{name: slow, port: 80}]"},
		{"/half", "backendRefs: [{name: good, port: 80}, {name: missing, port: 80}]"},
	} {
		rest := r.rest
		if rest == "{}" {
			rest = "name: nothing"
		}
		rules += fmt.Sprintf("  - matches: [{path: {value: %s}}]\n    %s\n", r.path, rest)
	}
	g := start(t, map[string]string{"all.yaml": objects + route("r", "  rules:\n"+rules)})
	for path, want := range map[string]int{"/missing": 500, "/badport": 500, "/kind": 500, "/foreign": 500, "/none": 500, "/zero": 500,
		"/empty": 503, "/dead": 502, "/request": 504, "/backend": 504, "/": 404} {
		if got := (ask{url: local(port, path)}).do(t); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, got.StatusCode, want)
		}
	}
	count := map[int]int{}
	for range 200 {
		count[ask{url: local(port, "/half")}.do(t).StatusCode]++
	}
	if count[200]+count[500] != 200 || count[200] < 60 || count[500] < 60 {
		t.Errorf("half of the backendRefs invalid: %v, want about as many 200 as 500", count)
	}
	if !g.status("HTTPRoute", "r").find("ResolvedRefs=False/BackendNotFound") && !g.status("HTTPRoute", "r").find("ResolvedRefs=False/RefNotPermitted") &&
		!g.status("HTTPRoute", "r").find("ResolvedRefs=False/InvalidKind") {
		t.Errorf("the route's status tells of no unresolved reference: %+v", g.status("HTTPRoute", "r"))
	}
}

// TestWeights checks that traffic is split as asked, within what chance allows.
func TestWeights(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	objects := gatewayWith(httpListener("http", port, "")) + service("default", "a", newBackend(t, "a", nil)) +
		service("default", "b", newBackend(t, "b", nil)) + service("default", "c", newBackend(t, "c", nil))
	start(t, map[string]string{"all.yaml": objects + route("r", `  rules:
  - backendRefs: [{name: a, port: 80, weight: 8}, {name: b, port: 80, weight: 2}, {name: c, port: 80, weight: 0}]`)})
	const n = 1000
	count := map[string]int{}
	for range n {
		count[ask{url: local(port, "/")}.do(t).echo.Backend]++
	}
	// Five standard deviations of a binomial(1000, 0.2) are 63.
	if count["a"]+count["b"] != n || count["b"] < 200-63 || count["b"] > 200+63 {
		t.Errorf("%v, want about 800 a and 200 b", count)
	}
}

// TestEndpoints checks what of EndpointSlices gets traffic: several slices, named ports,
// ready, serving and terminating.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	one, two, unready, ending := newBackend(t, "one", nil), newBackend(t, "two", nil), newBackend(t, "unready", nil), newBackend(t, "ending", nil)
	slice := func(name, service, portName string, port int, conditions string) string {
		return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s, labels: {kubernetes.io/service-name: %s}}
addressType: IPv4
ports: [{name: %q, port: %d}]
endpoints: [{addresses: [127.0.0.1], conditions: {%s}}]
---
`, name, service, portName, port, conditions)
	}
	named := func(name string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {ports: [{name: web, port: 80}, {name: admin, port: 90}]}\n---\n", name)
	}
	objects := gatewayWith(httpListener("http", port, "")) + named("many") + named("leaving") +
		slice("one", "many", "web", one.port, "ready: true") + slice("two", "many", "web", two.port, "") +
		slice("three", "many", "admin", unready.port, "ready: true") + slice("four", "many", "web", unready.port, "ready: false") +
		slice("five", "many", "web", ending.port, "ready: false, serving: true, terminating: true") +
		slice("six", "leaving", "web", ending.port, "ready: false, serving: true, terminating: true") +
		slice("seven", "leaving", "web", unready.port, "ready: false, serving: false, terminating: true")
	start(t, map[string]string{"all.yaml": objects + route("r", `  rules:
  - matches: [{path: {value: /many}}]
    backendRefs: [{name: many, port: 80}]
  - matches: [{path: {value: /leaving}}]
    backendRefs: [{name: leaving, port: 80}]`)})
	seen := map[string]int{}
	for range 100 {
		seen[ask{url: local(port, "/many")}.do(t).echo.Backend]++
	}
	if seen["one"] == 0 || seen["two"] == 0 || len(seen) != 2 {
		t.Errorf("/many: %v, want one and two only", seen)
	}
	if got := (ask{url: local(port, "/leaving")}).do(t); got.echo.Backend != "ending" {
		t.Errorf("/leaving: %d from %q, want the endpoint that still serves", got.StatusCode, got.echo.Backend)
	}
}

// TestReferenceGrant follows a grant that comes and goes.
func TestReferenceGrant(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	const grant = `
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: g, namespace: elsewhere}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: default}]
  to: [{group: "", kind: Service, name: far}]
`
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + service("elsewhere", "far", newBackend(t, "far", nil)) +
		route("r", "  rules: [{backendRefs: [{name: far, namespace: elsewhere, port: 80}]}]")})
	answers := func(want int) func() bool {
		return func() bool { return ask{url: local(port, "/")}.do(t).StatusCode == want }
	}
	testkit.Eventually(t, "without a grant 500", answers(500))
	g.waitCondition("HTTPRoute", "r", "ResolvedRefs=False/RefNotPermitted")
	g.write("grant.yaml", grant)
	testkit.Eventually(t, "with the grant 200", answers(200))
	g.waitCondition("HTTPRoute", "r", "ResolvedRefs=True/ResolvedRefs")
	g.remove("grant.yaml")
	testkit.Eventually(t, "the grant revoked 500", answers(500))
}

// TestMirror checks that copies arrive and change nothing for the client.
func TestMirror(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	var copies, bytes atomic.Int64
	mirror := newBackend(t, "mirror", func(w http.ResponseWriter, r *http.Request) bool {
		buf := make([]byte, 100)
		n, _ := r.Body.Read(buf)
		bytes.Add(int64(n))
		copies.Add(1)
		w.WriteHeader(500)
		return true
	})
	start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "main", newBackend(t, "main", nil)) +
		service("default", "copy", mirror) + route("r", `  rules:
  - filters: [{type: RequestMirror, requestMirror: {backendRef: {name: copy, port: 80}}}]
    backendRefs: [{name: main, port: 80}]`)})
	for range 10 {
		got := ask{method: "POST", url: local(port, "/"), body: "hello"}.do(t)
		if got.StatusCode != 200 || got.echo.Backend != "main" || got.echo.Body != "hello" {
			t.Fatalf("%d %s", got.StatusCode, got.body)
		}
	}
	testkit.Eventually(t, "10 copies of 5 bytes", func() bool { return copies.Load() == 10 && bytes.Load() == 50 })
}

// TestMirrors checks several mirrors of one rule, and shares of requests.
func TestMirrors(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	const n = 400
	copies := map[string]*atomic.Int64{}
	objects := gatewayWith(httpListener("http", port, "")) + service("default", "main", newBackend(t, "main", nil))
	filters := ""
	for name, share := range map[string]string{"all": "percent: 100", "none": "percent: 0", "quarter": "percent: 25", "half": "fraction: {numerator: 5, denominator: 10}"} {
		count := &atomic.Int64{}
		copies[name] = count
		objects += service("default", name, newBackend(t, name, func(http.ResponseWriter, *http.Request) bool { count.Add(1); return true }))
		filters += fmt.Sprintf("    - {type: RequestMirror, requestMirror: {backendRef: {name: %s, port: 80}, %s}}\n", name, share)
	}
	start(t, map[string]string{"all.yaml": objects + route("r", "  rules:\n  - backendRefs: [{name: main, port: 80}]\n    filters:\n"+filters)})
	for range n {
		if got := (ask{url: local(port, "/")}).do(t); got.echo.Backend != "main" {
			t.Fatalf("%d from %q", got.StatusCode, got.echo.Backend)
		}
	}
	testkit.Eventually(t, "a copy of each request", func() bool { return copies["all"].Load() == n })
	// Five standard deviations of a binomial(400, 0.5) are 50, with 0.25 44.
	for name, want := range map[string]struct{ mean, off int64 }{"none": {}, "quarter": {n / 4, 44}, "half": {n / 2, 50}} {
		testkit.Eventually(t, "copies to "+name, func() bool { return copies[name].Load() >= want.mean-want.off })
		if got := copies[name].Load(); got > want.mean+want.off {
			t.Errorf("%s: %d copies, want %d within %d", name, got, want.mean, want.off)
		}
	}
}
