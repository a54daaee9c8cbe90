package proxy

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

const fullBackend = "Service/default/full/80"

// toFull is a gateway whose only layer-4 route leads to an endpoint that accepts no connection, of which the queue is full already, so
// that those who come dial or wait. The listener is its.
func toFull(t *testing.T, o upstream.Options) (*gateway, net.Listener) {
	t.Helper()
	l := fullListener(t)
	t.Cleanup(func() { l.Close() })
	for queued := true; queued; {
		c, err := net.DialTimeout("tcp", l.Addr().String(), 300*time.Millisecond)
		if queued = err == nil; queued {
			t.Cleanup(func() { c.Close() })
		}
	}
	g := startGatewayWith(t, Options{Metrics: observe.NewMetrics(observe.MetricsOptions{}), Upstream: o})
	g.apply(append(backend(fullBackend, l.Addr().String()), g.tcpListener("tcp"), l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: fullBackend, Weight: 1})))
	return g, l
}

// dialling waits until so many connections wait for the endpoint, and so many of them for their turn to dial.
func (g *gateway) dialling(all, waiting float64) {
	g.t.Helper()
	g.eventually("the connection at its endpoint", func() bool {
		return g.counted("moongate_upstream_requests_in_flight", "backend", fullBackend) == all &&
			g.counted("moongate_upstream_requests_waiting", "backend", fullBackend) == waiting
	})
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
	go func() {
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
	}()
	for i, c := range []net.Conn{first, second} {
		c.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(c, "hello")
		c.(*net.TCPConn).CloseWrite()
		if b, err := io.ReadAll(c); string(b) != "hello" || err != nil {
			t.Errorf("connection %d got %q %v when the endpoint had recovered", i, b, err)
		}
	}
}
