package e2e

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// newTCPBackend starts a server that says its name on each connection, and then what it is told. With TLS settings it does so over TLS.
func newTCPBackend(t testing.TB, name string, secure *tls.Config) *backend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				if secure != nil {
					c = tls.Server(c, secure)
				}
				io.WriteString(c, name+"\n")
				io.Copy(c, c)
				c.(interface{ CloseWrite() error }).CloseWrite()
			})
		}
	})
	t.Cleanup(func() { l.Close() })
	return &backend{name: name, port: l.Addr().(*net.TCPAddr).Port}
}

// tcpListener is a listener of protocol TCP.
func tcpListener(name string, port int) string {
	return fmt.Sprintf("{name: %s, protocol: TCP, port: %d}", name, port)
}

// tcpRoute is a TCPRoute on Gateway "gw" with these backendRefs.
func tcpRoute(name, refs string) string {
	return strings.Replace(route(name, "  rules: [{backendRefs: ["+refs+"]}]"), "kind: HTTPRoute", "kind: TCPRoute", 1)
}

// connection is a client's.
type connection struct {
	*net.TCPConn
	t testing.TB
}

// connect makes a connection to the gateway.
func connect(t testing.TB, port int) *connection {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return &connection{c.(*net.TCPConn), t}
}

// expect reads these bytes.
func (c *connection) expect(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		c.t.Fatalf("%q %v, want %q", got[:n], err, want)
	}
}

// ping checks that the connection is joined to its backend.
func (c *connection) ping() {
	c.t.Helper()
	io.WriteString(c, "ping")
	c.expect("ping")
}

// greeting is who answers a new connection, or "reset".
func greeting(t testing.TB, port int) string {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	var said []byte
	if err == nil {
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		c.(*net.TCPConn).CloseWrite()
		said, err = io.ReadAll(c)
	}
	switch {
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case err != nil:
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(said), "\n")
}

// logged waits for a line of the access log with the fields.
func logged(t testing.TB, log *testkit.Log, fields map[string]any) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the access log: %s", log)
		}
	}()
	testkit.Eventually(t, fmt.Sprintf("a line of the access log with %v", fields), func() bool {
		for line := range strings.Lines(log.String()) {
			var got map[string]any
			if json.Unmarshal([]byte(line), &got) != nil {
				continue // half of it
			}
			fits := true
			for field, want := range fields {
				fits = fits && got[field] == want
			}
			if fits {
				return true
			}
		}
		return false
	})
}

// TestTCPRoute: connections are forwarded as they are, each stream to its end, and shared out by weight: the share of a backend that does not exist is
// refused. Each is logged and counted.
func TestTCPRoute(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	log := &testkit.Log{}
	g := start(t, map[string]string{"all.yaml": gatewayWith(tcpListener("tcp", port)) +
		service("default", "a", newTCPBackend(t, "a", nil)) + service("default", "b", newTCPBackend(t, "b", nil)) +
		tcpRoute("r", "{name: a, port: 80, weight: 6}, {name: b, port: 80, weight: 2}, {name: missing, port: 80, weight: 2}, {name: b, port: 80, weight: 0}")},
		func(o *cli.RunOptions) { o.AccessLog, o.Stdout = "json", log })
	g.waitCondition("TCPRoute", "r", "ResolvedRefs=False/BackendNotFound")
	g.waitCondition("TCPRoute", "r", "Accepted=True/Accepted")
	if l := g.status("Gateway", "gw").Status.Listeners; len(l) != 1 || l[0].AttachedRoutes != 1 || len(l[0].SupportedKinds) != 1 || l[0].SupportedKinds[0].Kind != "TCPRoute" {
		t.Errorf("listeners %+v", l)
	}
	seen := map[string]int{}
	const connections = 100
	for range connections {
		seen[greeting(t, port)]++
	}
	if seen["a"]+seen["b"]+seen["reset"] != connections || seen["a"] < 40 || seen["b"] < 5 || seen["reset"] < 5 {
		t.Errorf("%v of %d connections, want 6:2:2", seen, connections)
	}
	for _, reason := range []string{"tunnel_ended", "backend_invalid"} {
		logged(t, log, map[string]any{"scheme": "tcp", "protocol": "TCP", "gateway": "default/gw", "listener": "tcp", "route": "TCPRoute/default/r", "reason": reason})
		if want := `reason="` + reason + `"`; !strings.Contains(string(g.adminGet("/metrics")), want) {
			t.Errorf("/metrics has no %s", want)
		}
	}

	var c *connection
	for c == nil { // others are of the share that is refused, of which a dial may see the reset already
		raw, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, syscall.ECONNRESET) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		raw.SetDeadline(time.Now().Add(patience))
		if _, err := raw.Read(make([]byte, 1)); err == nil {
			c = &connection{raw.(*net.TCPConn), t}
		}
	}
	c.expect("\n")
	sent := make([]byte, 1<<20)
	rand.Read(sent)
	go func() {
		c.Write(sent)
		c.CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back after the end of the client's stream, equal %v, %v", len(got), bytes.Equal(got, sent), err)
	}
}

// TestTCPRouteEdits: connections that are open outlive every edit, and new ones obey it at once. Of two routes the oldest has the listener, and the other one takes
// over when it goes.
func TestTCPRouteEdits(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	log := &testkit.Log{}
	made := func(manifest, when string) string {
		return strings.Replace(manifest, "metadata: {", "metadata: {creationTimestamp: "+when+", ", 1)
	}
	oldest := made(tcpRoute("oldest", "{name: a, port: 80}"), "2020-01-01T00:00:00Z")
	services := service("default", "a", newTCPBackend(t, "a", nil)) + service("default", "b", newTCPBackend(t, "b", nil))
	g := start(t, map[string]string{"gateway.yaml": gatewayWith(tcpListener("tcp", port)), "services.yaml": services, "oldest.yaml": oldest,
		"newer.yaml": made(tcpRoute("newer", "{name: b, port: 80}"), "2021-01-01T00:00:00Z")},
		func(o *cli.RunOptions) { o.AccessLog, o.Stdout = "json", log })
	becomes := func(want string) {
		t.Helper()
		testkit.Eventually(t, "new connections get "+want, func() bool { return greeting(t, port) == want })
	}

	becomes("a")
	if l := g.status("Gateway", "gw").Status.Listeners; len(l) != 1 || l[0].AttachedRoutes != 2 {
		t.Errorf("listeners %+v, want two attached routes", l)
	}
	if status := string(g.adminGet("/status")); !strings.Contains(status, "go to TCPRoute default/oldest, which comes first") {
		t.Errorf("the newer route does not say who has the connections: %s", status)
	}
	open := connect(t, port)
	open.expect("a\n")
	g.remove("oldest.yaml")
	becomes("b")
	open.ping()
	g.write("oldest.yaml", oldest)
	becomes("a")
	g.remove("oldest.yaml")
	g.remove("newer.yaml")
	becomes("reset")
	logged(t, log, map[string]any{"reason": "route_not_found", "listener": "tcp"})
	open.ping()

	g.write("oldest.yaml", oldest)
	becomes("a")
	g.write("services.yaml", service("default", "a"))
	becomes("reset")
	logged(t, log, map[string]any{"reason": "no_endpoints", "route": "TCPRoute/default/oldest"})
	g.write("services.yaml", service("default", "a", &backend{port: freePort(t)})) // where nobody listens
	logFrom := len(log.String())
	testkit.Eventually(t, "connections to a backend that is away are reset, and the log says why", func() bool {
		return greeting(t, port) == "reset" && strings.Contains(log.String()[logFrom:], `"reason":"connect_failed"`)
	})
	open.ping()
	g.write("gateway.yaml", gatewayWith(tcpListener("tcp", port), httpListener("http", port, "")))
	g.waitCondition("Gateway", "gw", "Conflicted=True/ProtocolConflict")
	open.ping()
	open.CloseWrite()
	if rest, err := io.ReadAll(open); len(rest) > 0 || err != nil {
		t.Errorf("%q %v, want the end of the stream", rest, err)
	}
	logged(t, log, map[string]any{"reason": "tunnel_ended", "route": "TCPRoute/default/oldest", "bytes_received": 16.0, "bytes_sent": 18.0})
}

// TestTCPRouteBackendTLS: where a BackendTLSPolicy is for the backend, connections are made over TLS, and refused where it cannot be verified; none
// is made in cleartext. No protocol is offered.
func TestTCPRouteBackendTLS(t *testing.T) {
	t.Parallel()
	first, second := testkit.NewAuthority(t), testkit.NewAuthority(t)
	offered := make(chan []string, 1)
	db := newTCPBackend(t, "db", &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		select {
		case offered <- h.SupportedProtos:
		default:
		}
		return &tls.Config{Certificates: []tls.Certificate{*issue(t, first, "db.internal")}}, nil
	}})
	port := freePort(t)
	log := &testkit.Log{}
	g := start(t, map[string]string{
		"all.yaml": gatewayWith(tcpListener("tcp", port)) + service("default", "db", db) + tcpRoute("r", "{name: db, port: 80}") +
			backendTLSPolicy("db", "db", `hostname: db.internal, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]`),
		"ca.yaml": configMap("ca", first),
	}, func(o *cli.RunOptions) { o.AccessLog, o.Stdout = "json", log })
	if got := greeting(t, port); got != "db" {
		t.Errorf("%q over TLS, want db", got)
	}
	if protocols := <-offered; len(protocols) > 0 {
		t.Errorf("offered %q by ALPN, want nothing", protocols)
	}
	g.write("ca.yaml", configMap("ca", second))
	testkit.Eventually(t, "another authority", func() bool { return greeting(t, port) == "reset" })
	logged(t, log, map[string]any{"reason": "upstream_tls_failed"})
	g.remove("ca.yaml")
	g.waitCondition("TCPRoute", "r", "ResolvedRefs=False/UnsupportedProtocol")
	testkit.Eventually(t, "no authority", func() bool {
		return greeting(t, port) == "reset" && strings.Contains(log.String(), `"reason":"backend_invalid"`)
	})
}

// TestTaskTCP does what the page says, and makes the connections that it is about.
func TestTaskTCP(t *testing.T) {
	t.Parallel()
	g := runTask(t, "tcp", map[int]*backend{15432: newTCPBackend(t, "blue", nil), 15433: newTCPBackend(t, "green", nil)})
	manifest, err := os.ReadFile(filepath.Join(g.dir, "tcp.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(listenerPort.FindStringSubmatch(string(manifest))[1])
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	n := 0
	for ; n < 60 || seen["green"] == 0 && n < 600; n++ { // 60 at blue alone are one case of 550
		seen[greeting(t, port)]++
	}
	if seen["blue"]+seen["green"] != n || seen["blue"] <= n/2 || seen["green"] == 0 {
		t.Errorf("%v, want most connections at blue and the others at green", seen)
	}
}
