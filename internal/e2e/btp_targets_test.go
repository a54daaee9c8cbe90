package e2e

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestPolicyExamples: check has nothing to say of any example, and a page shows each.
func TestPolicyExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../" + policyExamples + "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	pages, err := filepath.Glob("../../docs/tasks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for _, file := range files {
		args := []string{"check", "-f", file}
		switch name := filepath.Base(file); name {
		case "enable-ipv6.yaml": // as it is written for another gateway, without the Services
			args = append(args, "--class", "eg", "-f", "../../"+policyExamples+"enable-ipv6-services.yaml")
		case "enable-ipv6-services.yaml":
			continue
		}
		if stdout, stderr, code := moongate(args...); code != 0 {
			t.Errorf("%s: exit code %d\n%s%s", file, code, stdout, stderr)
		}
		if !strings.Contains(all.String(), policyExamples+filepath.Base(file)) {
			t.Errorf("no page of docs/tasks shows %s", file)
		}
	}
}

// TestPolicyOverview does what docs/tasks/backend-traffic-policy.md says, with the three manifests that it shows.
func TestPolicyOverview(t *testing.T) {
	t.Parallel()
	targets := serveExample(t, map[int]*backend{3000: newBackend(t, "app", nil)}, []string{"policy-targets.yaml"})
	merging := serveExample(t, map[int]*backend{3000: newBackend(t, "app", failing(0))}, []string{"policy-merging.yaml"})
	ipv6 := serveFirstDesign(t)
	runPage(t, "backend-traffic-policy", targets, merging, ipv6)
}

// cookieOf is the name of the cookie that a response sets, which the example names after its policy.
func cookieOf(a *answer) string {
	name, _, _ := strings.Cut(a.Header.Get("Set-Cookie"), "=")
	return name
}

// TestPolicyTargets: the most specific policy is in force, and a selected target is one as long as a ReferenceGrant is there.
func TestPolicyTargets(t *testing.T) {
	t.Parallel()
	e := serveExample(t, map[int]*backend{3000: newBackend(t, "app", nil)}, []string{"policy-targets.yaml"})
	policy := func(host, path string) string {
		t.Helper()
		return cookieOf(ask{url: local(e.port, path), host: host}.do(t))
	}
	for _, c := range []struct{ host, path, want string }{
		{"shop.example", "/", "gateway"},
		{"shop.internal", "/", "listener"},
		{"shop.example", "/orders", "route"},
		{"shop.internal", "/orders", "route"},
		{"shop.example", "/returns", "rule"},
		{"shop.example", "/payments", "selected"},
		{"shop.internal", "/payments", "selected"},
	} {
		if got := policy(c.host, c.path); got != c.want {
			t.Errorf("%s%s: policy %q is in force, want %q", c.host, c.path, got, c.want)
		}
	}
	for name, want := range map[string]string{"gateway": "Overridden=True/Overridden", "listener": "Overridden=True/Overridden", "route": "Overridden=True/Overridden",
		"rule": "Accepted=True/Accepted", "selected": "Accepted=True/Accepted"} {
		e.waitCondition("BackendTrafficPolicy", name, want)
	}
	text := e.served[e.name]
	kept := text[:strings.Index(text, "kind: ReferenceGrant")]
	kept = kept[:strings.LastIndex(kept, "---")]
	rest := text[strings.Index(text, "kind: ReferenceGrant"):]
	e.write(e.name, kept+rest[strings.Index(rest, "---"):])
	testkit.Eventually(t, "without a ReferenceGrant nothing is selected", func() bool { return policy("shop.example", "/payments") == "gateway" })
	e.write(e.name, strings.Replace(text, "labels:\n    team: payments\n", "labels:\n    team: others\n", 1))
	testkit.Eventually(t, "nor without the label", func() bool { return policy("shop.example", "/payments") == "gateway" })
	e.write(e.name, text)
	testkit.Eventually(t, "both are back", func() bool { return policy("shop.example", "/payments") == "selected" })
}

// failing has a backend answer 503 the first times that it is asked with a value of X-Case.
func failing(times int) func(http.ResponseWriter, *http.Request) bool {
	var mu sync.Mutex
	asked := map[string]int{}
	return func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if asked[r.Header.Get("X-Case")]++; asked[r.Header.Get("X-Case")] > times {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
}

// TestPolicyMerging: what the Gateway's policy says is in force beside what one of a rule says that is merged onto it.
func TestPolicyMerging(t *testing.T) {
	t.Parallel()
	e := serveExample(t, map[int]*backend{3000: newBackend(t, "app", failing(2))}, []string{"policy-merging.yaml"})
	for _, c := range []struct {
		path   string
		status int
		cookie string
	}{
		{"/plain", 503, "place"},     // two attempts
		{"/strategic", 200, "place"}, // the third, for a status that only the Gateway's policy names
		{"/json", 200, "place"},
		{"/whole", 503, ""},
	} {
		a := ask{url: local(e.port, c.path), header: map[string]string{"X-Case": c.path}}.do(t)
		if a.StatusCode != c.status || cookieOf(a) != c.cookie {
			t.Errorf("%s: %d with cookie %q, want %d with %q", c.path, a.StatusCode, cookieOf(a), c.status, c.cookie)
		}
	}
	for name, want := range map[string]string{"web": "Merged=True/Merged", "strategic": "Merged=True/Merged", "json": "Merged=True/Merged", "whole": "Accepted=True/Accepted"} {
		e.waitCondition("BackendTrafficPolicy", name, want)
	}
	e.waitCondition("BackendTrafficPolicy", "web", "Overridden=True/Overridden")
}

// serveFirstDesign serves the manifest by which the API was designed, whose GatewayClass is of another controller, with Services beside it.
func serveFirstDesign(t *testing.T) *policyExample {
	t.Helper()
	six := &backend{name: "six", Server: httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Backend", "six")
		w.Write([]byte(`{"Backend":"six"}`))
	}))}
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	six.Listener.Close()
	six.Listener, six.port = l, l.Addr().(*net.TCPAddr).Port
	six.Start()
	t.Cleanup(six.Close)
	return serveExample(t, map[int]*backend{3004: newBackend(t, "four", nil), 3006: six}, []string{"enable-ipv6.yaml", "enable-ipv6-services.yaml"},
		func(o *cli.RunOptions) { o.Class = "eg" })
}

// TestPolicyFirstDesign: enableIPv6 decides whether endpoints that have an IPv6 address are used, and the policy of the route counts more than that of the Gateway.
func TestPolicyFirstDesign(t *testing.T) {
	t.Parallel()
	e := serveFirstDesign(t)
	by := map[string]map[string]int{}
	for _, host := range []string{"www.foo.example.com", "www.bar.example.com"} {
		by[host] = map[string]int{}
		for range 40 {
			by[host][ask{url: local(e.port, "/"), host: host}.do(t).echo.Backend]++
		}
	}
	if foo := by["www.foo.example.com"]; foo["four"] != 40 {
		t.Errorf("without IPv6: %v", foo)
	}
	if bar := by["www.bar.example.com"]; bar["four"] == 0 || bar["six"] == 0 { // one of 40 coins, tossed alike once in 10^11
		t.Errorf("with IPv6: %v", bar)
	}
	for _, policy := range []string{"default-ipv-policy", "ipv6-support-policy"} {
		e.waitCondition("BackendTrafficPolicy", policy, "Accepted=True/Accepted")
		e.waitCondition("BackendTrafficPolicy", policy, "Warning=True/DeprecatedField")
	}
	e.waitCondition("BackendTrafficPolicy", "default-ipv-policy", "Overridden=True/Overridden")
	t.Run("the class is kept", func(t *testing.T) { // also where the manifest is written anew, or says nothing of it
		text := e.served[e.name]
		_, rest, _ := strings.Cut(text, "---\n")
		for _, now := range []string{strings.Replace(text, "controllerName: gateway.envoyproxy.io/", "controllerName: example.com/", 1), rest, text} {
			e.write(e.name, strings.Replace(now, "www.foo.example.com", "www.later.example.com", 1))
			testkit.Eventually(t, "the edit is served", func() bool {
				return ask{url: local(e.port, "/"), host: "www.later.example.com"}.do(t).StatusCode == 200
			})
			e.write(e.name, now)
			testkit.Eventually(t, "the next edit is served", func() bool { return ask{url: local(e.port, "/"), host: "www.foo.example.com"}.do(t).StatusCode == 200 })
		}
	})
}
