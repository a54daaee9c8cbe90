package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// tlsListener is a listener of protocol TLS.
func tlsListener(name string, port int, hostname, settings string) string {
	if hostname != "" {
		settings += fmt.Sprintf("}, hostname: %q", hostname)
	} else {
		settings += "}"
	}
	return fmt.Sprintf("{name: %s, protocol: TLS, port: %d, tls: {%s}", name, port, settings)
}

// tlsRoute is a TLSRoute on Gateway "gw" with these hostnames and backendRefs.
func tlsRoute(name, hostnames, refs string) string {
	return strings.Replace(route(name, "  hostnames: ["+hostnames+"]\n  rules: [{backendRefs: ["+refs+"]}]"), "kind: HTTPRoute", "kind: TLSRoute", 1)
}

// secureConnection is a client's over TLS; shown is whose certificate the client was shown.
type secureConnection struct {
	*tls.Conn
	shown string
}

func connectTLS(t testing.TB, port int, serverName string) (*secureConnection, error) {
	t.Helper()
	raw, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { raw.Close() })
	raw.SetDeadline(time.Now().Add(patience))
	c := tls.Client(raw, &tls.Config{ServerName: serverName, InsecureSkipVerify: true})
	if err := c.Handshake(); err != nil {
		return nil, err
	}
	leaf := c.ConnectionState().PeerCertificates[0]
	return &secureConnection{c, leaf.DNSNames[0]}, nil
}

// greetingTLS is who answers a new connection for a server name and whose certificate it shows, as "a (*.a.test)", or "reset".
func greetingTLS(t testing.TB, port int, serverName string) string {
	t.Helper()
	c, err := connectTLS(t, port, serverName)
	var said []byte
	if err == nil {
		defer c.NetConn().Close()
		if err = c.CloseWrite(); err == nil { // else a reset was seen by the write, and a read sees the end alone
			said, err = io.ReadAll(c)
		}
	}
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case err != nil: // while the listener's mode changes, an alert
		return err.Error()
	}
	return fmt.Sprintf("%s (%s)", strings.TrimSuffix(string(said), "\n"), c.shown)
}

// showing has a server show a certificate for a host.
func showing(t testing.TB, by *testkit.Authority, host string) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{*issue(t, by, host)}}
}

// TestTLSRoute: on one port the server name tells apart whose TLS is passed on, whose ends at the gateway, and who sends requests. What cannot be routed is reset.
// Each connection is logged and counted.
func TestTLSRoute(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	log := &testkit.Log{}
	authority := testkit.NewAuthority(t)
	web := newBackend(t, "web", nil)
	passed, both := newTCPBackend(t, "passed", showing(t, authority, "passed.internal")), newTCPBackend(t, "both", showing(t, authority, "both.internal"))
	g := start(t, map[string]string{"all.yaml": gatewayWith(
		tlsListener("p", port, "*.p.test", "mode: Passthrough"), tlsListener("t", port, "*.t.test", "certificateRefs: [{name: cert}]"),
		httpsListener("https", port, "web.test", "{name: cert}")) +
		secret(t, "default", "cert", "*.t.test", "web.test") + service("default", "web", web) + service("default", "passed", passed) + service("default", "both", both) +
		service("default", "plain", newTCPBackend(t, "plain", nil)) +
		strings.Replace(route("web", "  rules: [{backendRefs: [{name: web, port: 80}]}]"), "spec:", "spec:\n  hostnames: [web.test]", 1) +
		tlsRoute("passed", `a.p.test, "*.b.p.test"`, "{name: passed, port: 80}") + tlsRoute("plain", "a.t.test", "{name: plain, port: 80}") +
		tlsRoute("both", "both.p.test, both.t.test", "{name: both, port: 80}") + tlsRoute("missing", "missing.p.test", "{name: missing, port: 80}") +
		backendTLSPolicy("both", "both", `hostname: both.internal, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]`) + "---\n" + configMap("ca", authority)},
		func(o *cli.RunOptions) { o.AccessLog, o.Stdout = "json", log })
	g.waitCondition("TLSRoute", "missing", "ResolvedRefs=False/BackendNotFound")
	g.waitCondition("TLSRoute", "both", "Accepted=True/Accepted")
	listeners := map[string]string{}
	for _, l := range g.status("Gateway", "gw").Status.Listeners {
		listeners[string(l.Name)] = fmt.Sprint(l.AttachedRoutes)
		for _, k := range l.SupportedKinds {
			listeners[string(l.Name)] += " " + string(k.Kind)
		}
	}
	if want := map[string]string{"p": "3 TLSRoute", "t": "2 TLSRoute TCPRoute", "https": "1 HTTPRoute GRPCRoute"}; fmt.Sprint(listeners) != fmt.Sprint(want) {
		t.Errorf("listeners %v, want %v", listeners, want)
	}
	for serverName, want := range map[string]string{
		"a.p.test": "passed (passed.internal)", "x.b.p.test": "passed (passed.internal)", "a.t.test": "plain (*.t.test)",
		"both.p.test": "both (both.internal)", "both.t.test": "both (*.t.test)",
		"b.p.test": "reset", "missing.p.test": "reset", "other.test": "reset", "b.t.test": "reset",
	} {
		if got := greetingTLS(t, port, serverName); got != want {
			t.Errorf("%s: %s, want %s", serverName, got, want)
		}
	}
	if c, err := connectTLS(t, port, "web.test"); err != nil {
		t.Error(err)
	} else {
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n")
		if answer, err := io.ReadAll(c); !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") || err != nil {
			t.Errorf("%.100q %v", answer, err)
		}
	}
	for _, line := range []map[string]any{
		{"reason": "tunnel_ended", "listener": "p", "route": "TLSRoute/default/passed", "authority": "x.b.p.test"},
		{"reason": "tunnel_ended", "listener": "t", "route": "TLSRoute/default/both", "authority": "both.t.test"},
		{"reason": "backend_invalid", "listener": "p", "route": "TLSRoute/default/missing"}, {"reason": "route_not_found", "authority": "other.test"},
	} {
		line["scheme"], line["protocol"] = "tls", "TLS"
		logged(t, log, line)
	}
	if metrics := string(g.adminGet("/metrics")); !strings.Contains(metrics, `route="TLSRoute/default/passed"`) {
		t.Error("/metrics has no connections of the route")
	}
}

// TestTLSRouteEdits: connections that are open outlive every edit, and new ones obey it at once: hostnames, the mode of the listener, routes that come and go.
func TestTLSRouteEdits(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	authority := testkit.NewAuthority(t)
	passthrough := gatewayWith(tlsListener("l", port, "", "mode: Passthrough"))
	older := strings.Replace(tlsRoute("older", "a.test", "{name: a, port: 80}"), "metadata: {", "metadata: {creationTimestamp: 2020-01-01T00:00:00Z, ", 1)
	newer := func(hostnames string) string {
		return strings.Replace(tlsRoute("newer", hostnames, "{name: b, port: 80}"), "metadata: {", "metadata: {creationTimestamp: 2021-01-01T00:00:00Z, ", 1)
	}
	g := start(t, map[string]string{"gateway.yaml": passthrough, "older.yaml": older, "newer.yaml": newer("a.test"),
		"rest.yaml": secret(t, "default", "cert", "gateway.test") + service("default", "a", newTCPBackend(t, "a", showing(t, authority, "a.internal"))) +
			service("default", "b", newTCPBackend(t, "b", showing(t, authority, "b.internal")))})
	becomes := func(serverName, want string) {
		t.Helper()
		testkit.Eventually(t, serverName+" gets "+want, func() bool { return greetingTLS(t, port, serverName) == want })
	}
	becomes("a.test", "a (a.internal)")
	if status := string(g.adminGet("/status")); !strings.Contains(status, "go to TLSRoute default/older, which comes first") {
		t.Errorf("the newer route does not say who has the connections: %s", status)
	}
	open, err := connectTLS(t, port, "a.test")
	if err != nil {
		t.Fatal(err)
	}
	alive := func() {
		t.Helper()
		want := "ping"
		if _, err := io.WriteString(open, want); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(open, got); string(got) != want || err != nil {
			t.Fatalf("%q %v", got, err)
		}
	}
	if _, err := io.ReadFull(open, make([]byte, len("a\n"))); err != nil {
		t.Fatal(err)
	}
	g.write("newer.yaml", newer("a.test, b.test"))
	becomes("b.test", "b (b.internal)")
	g.remove("older.yaml")
	becomes("a.test", "b (b.internal)")
	alive()
	g.write("newer.yaml", newer("b.test"))
	becomes("a.test", "reset")
	alive()
	// To a backend with TLS in cleartext nothing comes but an alert.
	g.write("gateway.yaml", gatewayWith(tlsListener("l", port, "", "mode: Terminate, certificateRefs: [{name: cert}]")))
	testkit.Eventually(t, "the gateway's certificate is shown", func() bool {
		c, err := connectTLS(t, port, "b.test")
		return err == nil && c.shown == "gateway.test"
	})
	alive()
	g.write("gateway.yaml", passthrough)
	becomes("b.test", "b (b.internal)")
	alive()
}

// TestTaskTLSPassthrough does what the page says, and makes the connections that it is about.
func TestTaskTLSPassthrough(t *testing.T) {
	t.Parallel()
	authority := testkit.NewAuthority(t)
	g := runTaskWith(t, "tls-passthrough", map[int]*backend{15443: newTCPBackend(t, "db", showing(t, authority, "db.example.com")), 11883: newTCPBackend(t, "mqtt", nil)},
		"---\n"+secret(t, "default", "mqtt", "mqtt.example.com"), nil)
	manifest, err := os.ReadFile(filepath.Join(g.dir, "tls-passthrough.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(listenerPort.FindStringSubmatch(string(manifest))[1])
	if err != nil {
		t.Fatal(err)
	}
	for serverName, want := range map[string]string{"db.example.com": "db (db.example.com)", "mqtt.example.com": "mqtt (mqtt.example.com)", "other.example.com": "reset"} {
		if got := greetingTLS(t, port, serverName); got != want {
			t.Errorf("%s: %s, want %s", serverName, got, want)
		}
	}
}
