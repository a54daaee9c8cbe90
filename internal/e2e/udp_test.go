package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// newUDPBackend starts a server that answers each datagram with its name.
func newUDPBackend(t testing.TB, name string) *backend {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 65535)
		for {
			_, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			c.WriteToUDPAddrPort([]byte(name), from)
		}
	}()
	return &backend{name: name, port: c.LocalAddr().(*net.UDPAddr).Port}
}

// overUDP makes what the helpers for TCP write one of UDP.
func overUDP(manifest string) string {
	return strings.NewReplacer("kind: TCPRoute", "kind: UDPRoute", "protocol: TCP", "protocol: UDP", "{port: 80", "{protocol: UDP, port: 80").Replace(manifest)
}

// answered is who answers a new client, "" for nobody within a moment.
func answered(t testing.TB, port int) string {
	t.Helper()
	c, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, 100)
	c.SetDeadline(time.Now().Add(500 * time.Millisecond))
	c.Write([]byte("hello"))
	n, _ := c.Read(b)
	return string(b[:n])
}

const udpServices = `---
apiVersion: v1
kind: Service
metadata: {name: a}
spec: {ports: [{port: 80, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: b}
spec: {ports: [{port: 80, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, labels: {kubernetes.io/service-name: a}}
addressType: IPv4
endpoints: [{addresses: [127.0.0.1]}]
ports: [{port: %d, protocol: UDP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: b, labels: {kubernetes.io/service-name: b}}
addressType: IPv4
endpoints: [{addresses: [127.0.0.1]}]
ports: [{port: %d, protocol: UDP}]
`

// TestUDPRoute: of two routes on a listener the oldest has the datagrams and the other one takes over when it goes; both are counted. What nobody gets is logged.
func TestUDPRoute(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	log := &testkit.Log{}
	made := func(manifest, when string) string {
		return overUDP(strings.Replace(manifest, "metadata: {", "metadata: {creationTimestamp: "+when+", ", 1))
	}
	g := start(t, map[string]string{"gateway.yaml": overUDP(gatewayWith(tcpListener("udp", port))),
		"services.yaml": fmt.Sprintf(udpServices, newUDPBackend(t, "a").port, newUDPBackend(t, "b").port),
		"oldest.yaml":   made(tcpRoute("oldest", "{name: a, port: 80}"), "2020-01-01T00:00:00Z"),
		"newer.yaml":    made(tcpRoute("newer", "{name: b, port: 80}"), "2021-01-01T00:00:00Z")},
		func(o *cli.RunOptions) { o.AccessLog, o.Stdout = "json", log })
	becomes := func(want string) {
		t.Helper()
		testkit.Eventually(t, "new clients get "+want, func() bool { return answered(t, port) == want })
	}
	becomes("a")
	g.waitCondition("UDPRoute", "oldest", "Accepted=True/Accepted")
	g.waitCondition("UDPRoute", "newer", "Accepted=True/Accepted")
	if l := g.status("Gateway", "gw").Status.Listeners; len(l) != 1 || l[0].AttachedRoutes != 2 || len(l[0].SupportedKinds) != 1 || l[0].SupportedKinds[0].Kind != "UDPRoute" {
		t.Errorf("listeners %+v, want one with two attached UDPRoutes", l)
	}
	if status := string(g.adminGet("/status")); !strings.Contains(status, "all datagrams to listener") {
		t.Errorf("the newer route does not say who has the datagrams: %s", status)
	}
	g.remove("oldest.yaml")
	becomes("b")
	g.write("newer.yaml", overUDP(tcpRoute("newer", "{name: missing, port: 80}")))
	g.waitCondition("UDPRoute", "newer", "ResolvedRefs=False/BackendNotFound")
	becomes("")
	logged(t, log, map[string]any{"scheme": "udp", "protocol": "UDP", "gateway": "default/gw", "listener": "udp", "route": "UDPRoute/default/newer", "reason": "backend_invalid"})
	g.remove("newer.yaml")
	testkit.Eventually(t, "datagrams have no route", func() bool {
		return answered(t, port) == "" && strings.Contains(log.String(), `"reason":"route_not_found"`)
	})
	logged(t, log, map[string]any{"reason": "route_not_found", "listener": "udp"})
	logged(t, log, map[string]any{"reason": "session_ended", "route": "UDPRoute/default/oldest", "bytes_received": 5.0, "bytes_sent": 1.0})
	if want := `reason="route_not_found"`; !strings.Contains(string(g.adminGet("/metrics")), want) {
		t.Errorf("/metrics has no %s", want)
	}
}

// TestTaskUDP does what the page says, and sends the datagrams that it is about.
func TestTaskUDP(t *testing.T) {
	t.Parallel()
	g := runTask(t, "udp", map[int]*backend{15353: newUDPBackend(t, "blue"), 15354: newUDPBackend(t, "green")})
	manifest, err := os.ReadFile(filepath.Join(g.dir, "udp.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(listenerPort.FindStringSubmatch(string(manifest))[1])
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for range 60 {
		seen[answered(t, port)]++
	}
	if seen["blue"] < 30 || seen["green"] == 0 {
		t.Errorf("%v, want most clients at blue and the others at green", seen)
	}
}
