package proxy

import (
	"net"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestBreakerSuspendedTunnels: a tunnel that idles without a goroutine is counted until it ends.
func TestBreakerSuspendedTunnels(t *testing.T) {
	limits := breakerOf(&config.CircuitBreaker{MaxConnections: proto.Uint32(1), MaxParallelRequests: proto.Uint32(1), MaxPendingRequests: proto.Uint32(1)})
	for name, joins := range map[string]func(*testing.T, Timeouts) *joiner{"TCP": joinsTCP, "WebSocket": joinsWebSocket} {
		for _, ends := range []string{"client", "backend"} {
			t.Run(name+"/"+ends, func(t *testing.T) {
				checkLeaks(t)
				g := joins(t, Timeouts{})
				protocol := config.BackendProtocol_BACKEND_PROTOCOL_HTTP
				if name == "WebSocket" {
					protocol = config.BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET
				}
				g.apply([]*config.Resource{trafficOf(protocol, limits)})
				client, backend := g.open()
				testkit.Eventually(t, "no goroutine for an idle connection", func() bool { return tunnelling() == 0 })
				if n := g.counted("moongate_upstream_circuit_breaker_open", "limit", "connections"); n != 1 {
					t.Errorf("the limit is reached: %v", n)
				}
				if n := g.counted("moongate_upstream_circuit_breaker_open", "limit", "requests"); (n == 1) != (name == "WebSocket") {
					t.Errorf("the limit of requests is reached: %v", n)
				}
				endTunnel(ends, client, backend.(*net.TCPConn), client)
				g.uncounted()
			})
		}
	}
}
