package proxy

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

const fullBackend = "Service/default/full/80"

// toFull is a gateway whose only layer-4 route leads to an endpoint that accepts no connection, of which the queue is full already, so
// that those who come dial or wait. The listener is its.
func toFull(t *testing.T, o upstream.Options) (*gateway, net.Listener) {
	t.Helper()
	l := testkit.FullListener(t)
	g := startGatewayWith(t, Options{Metrics: observe.NewMetrics(observe.MetricsOptions{}), Upstream: o})
	g.apply(append(backend(fullBackend, l.Addr().String()), g.tcpListener("tcp"), l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: fullBackend, Weight: 1})))
	return g, l
}

// echoAll accepts all connections, and sends back what comes.
func echoAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			io.Copy(c, c)
		}()
	}
}

// dialling waits until so many connections wait for the endpoint, and so many of them for their turn to dial.
func (g *gateway) dialling(all, waiting float64) {
	g.t.Helper()
	g.eventually("the connection at its endpoint", func() bool {
		return g.counted("moongate_upstream_requests_in_flight", "backend", fullBackend) == all &&
			g.counted("moongate_upstream_requests_waiting", "backend", fullBackend) == waiting
	})
}

// TestTCPSlowConnectIsGivenUp: a connection whose endpoint does not answer goes to another one long before the connect timeout, and those that follow go there at once.
func TestTCPSlowConnectIsGivenUp(t *testing.T) {
	checkLeaks(t)
	full := testkit.FullListener(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go echoAll(l)
	g := startGatewayWith(t, Options{Metrics: observe.NewMetrics(observe.MetricsOptions{}), Upstream: upstream.Options{ConnectTimeout: time.Hour}})
	g.apply(append(backend(fullBackend, full.Addr().String(), l.Addr().String()), g.tcpListener("tcp"),
		l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: fullBackend, Weight: 1})))
	for range 20 {
		c := g.dial()
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 5)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
			t.Fatalf("%q, %v", b, err)
		}
		c.Close()
	}
}

// TestTCPDialsAreBounded: connections wait for their turn to dial as requests do, and those beyond the limit are reset.
func TestTCPDialsAreBounded(t *testing.T) {
	checkLeaks(t)
	g, l := toFull(t, upstream.Options{MaxDials: 1, MaxWaiting: 1, ConnectTimeout: time.Minute})
	first := g.dial()
	g.dialling(1, 0)
	second := g.dial()
	g.dialling(2, 1)
	g.wantReset()
	if words := g.reasonsLogged(1); words[0] != "overloaded" {
		t.Errorf("logged as %v, want overloaded", words)
	}
	go echoAll(l)
	for i, c := range []net.Conn{first, second} {
		c.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(c, "hello")
		c.(*net.TCPConn).CloseWrite()
		if b, err := io.ReadAll(c); string(b) != "hello" || err != nil {
			t.Errorf("connection %d got %q %v when the endpoint had recovered", i, b, err)
		}
	}
}

// TestTCPClientLeavesWhileDialling: a client that resets its connection is not dialled for any longer, whether it waits for its turn or for the
// endpoint. One that has only sent its last waits on.
func TestTCPClientLeavesWhileDialling(t *testing.T) {
	checkLeaks(t)
	g, l := toFull(t, upstream.Options{MaxDials: 1, ConnectTimeout: time.Minute})
	dials, waits := g.dial(), g.dial()
	g.dialling(2, 1)
	patient := g.dial()
	io.WriteString(patient, "hello")
	patient.(*net.TCPConn).CloseWrite()
	g.dialling(3, 2)
	for _, c := range []net.Conn{dials, waits} {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	for _, w := range g.reasonsLogged(2) {
		if w != "client_closed" {
			t.Errorf("logged as %s, want client_closed", w)
		}
	}
	g.dialling(1, 0)
	go echoAll(l)
	patient.SetDeadline(time.Now().Add(time.Minute))
	if b, err := io.ReadAll(patient); string(b) != "hello" || err != nil {
		t.Errorf("the client that had sent its last got %q %v", b, err)
	}
}

// TestTCPEndpointLeavesWhileDialling: where the only endpoint leaves before it has answered, none is left, and that is what is told.
func TestTCPEndpointLeavesWhileDialling(t *testing.T) {
	checkLeaks(t)
	g, _ := toFull(t, upstream.Options{ConnectTimeout: time.Hour})
	c := g.dial()
	g.dialling(1, 0)
	g.apply(backend(fullBackend))
	c.SetDeadline(time.Now().Add(testkit.Patience))
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("ended by %v, want a reset", err)
	}
	if words := g.reasonsLogged(1); words[0] != "no_endpoints" {
		t.Errorf("logged as %v, want no_endpoints", words)
	}
}
