package e2e

import (
	"crypto/tls"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/dnsserver"
)

// allowLoopback has hosts be reached on this machine, which the ranges of any class of ours do.
const allowLoopback = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: allows}\n" +
	"spec: {controllerName: moongate.dev/gateway-controller, parametersRef: {group: moongate.dev, kind: GatewayParameters, name: allows, namespace: default}}\n" +
	"---\napiVersion: moongate.dev/v1alpha1\nkind: GatewayParameters\nmetadata: {name: allows, namespace: default}\nspec: {classOnly: {allowedExternalAddresses: [127.0.0.0/8]}}\n"

// asking has the gateway ask a server of DNS.
func asking(s *dnsserver.Server) func(*cli.RunOptions) {
	return func(o *cli.RunOptions) { o.DNS.Servers = []string{s.Addr().String()} }
}

// TestTaskExternalHosts does what the page says, with a host and a server of DNS on this machine.
func TestTaskExternalHosts(t *testing.T) {
	t.Parallel()
	authority := testkit.NewAuthority(t)
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(issue(t, authority, "api.example.com"))
	api := newTLSBackend(t, "api", &shown)
	dns := dnsserver.Start(t)
	dns.Set(t, "api.example.com", "api.example.com. 60 IN CNAME edge.example.net.", "edge.example.net. 60 IN A 127.0.0.1")
	g := runTaskWith(t, "external-hosts", map[int]*backend{443: api}, allowLoopback+"---\n"+configMap("ca", authority), nil, func(run *taskRun) {
		run.options = asking(dns)
		run.replace = []string{"wellKnownCACertificates: System", `caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]`}
	})
	g.waitCondition("XBackend", "api", "Accepted=True/Accepted")
	g.waitCondition("XBackend", "api", "ResolvedRefs=True/ResolvedRefs")
}

// TestExternalHosts: an XBackend that comes, changes and goes takes effect, and what it does not allow is not reached.
func TestExternalHosts(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	a, b := newBackend(t, "a", nil), newBackend(t, "b", nil)
	dns := dnsserver.Start(t)
	for _, name := range []string{"a.example.com", "b.example.com"} {
		dns.Set(t, name, name+". 60 IN A 127.0.0.1")
	}
	xbackend := func(host string, to *backend) string {
		return "apiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackend\nmetadata: {name: x, namespace: default}\n" +
			"spec: {type: ExternalHostname, externalHostname: {hostname: " + host + "}, port: {number: " + to.portText() + "}}\n"
	}
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + route("r", "  rules: [{backendRefs: [{group: gateway.networking.x-k8s.io, kind: XBackend, name: x}]}]\n"),
		"allow.yaml": strings.TrimPrefix(allowLoopback, "---\n")}, asking(dns))
	answered := func(what string, is func(*answer) bool) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return is(ask{url: local(port, "/")}.do(t)) })
	}
	by := func(name string) func(*answer) bool {
		return func(r *answer) bool { return r.StatusCode == 200 && r.Header.Get("X-Backend") == name }
	}
	status := func(want int) func(*answer) bool {
		return func(r *answer) bool { return r.StatusCode == want }
	}
	answered("no XBackend", status(500))
	g.waitCondition("HTTPRoute", "r", "ResolvedRefs=False/BackendNotFound")
	g.write("x.yaml", xbackend("a.example.com", a))
	answered("it is there", by("a"))
	g.write("x.yaml", xbackend("b.example.com", b))
	answered("another host", by("b"))
	g.write("x.yaml", xbackend("gone.example.com", b))
	answered("no such host", status(503))
	g.write("x.yaml", xbackend("a.example.com", a))
	answered("the first again", by("a"))
	g.remove("allow.yaml")
	answered("nothing allowed", status(503))
	g.write("allow.yaml", strings.TrimPrefix(allowLoopback, "---\n"))
	answered("allowed", by("a"))
	g.remove("x.yaml")
	answered("it is gone", status(500))
}

// TestTaskSelectPods does what the page says.
func TestTaskSelectPods(t *testing.T) {
	t.Parallel()
	cart := newBackend(t, "cart", nil)
	g := runTaskWith(t, "select-pods", map[int]*backend{3000: cart}, "", nil)
	g.waitCondition("XBackend", "cart", "Accepted=True/Accepted")
	first := curlOnce(t, g, "")
	cookie, _, _ := strings.Cut(first.Header.Get("Set-Cookie"), ";")
	if !strings.HasPrefix(cookie, "cart=") {
		t.Fatalf("Set-Cookie %q", first.Header.Get("Set-Cookie"))
	}
	if again := curlOnce(t, g, cookie); again.StatusCode != 200 || again.Header.Get("Set-Cookie") != "" {
		t.Errorf("with the cookie: %s, Set-Cookie %q", again.Status, again.Header.Get("Set-Cookie"))
	}
}

func curlOnce(t *testing.T, g *gateway, cookie string) *answer {
	t.Helper()
	a := ask{url: "http://" + g.listening(t) + "/"}
	if cookie != "" {
		a.header = map[string]string{"Cookie": cookie}
	}
	return a.do(t)
}
