package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTaskClientAddress: the backend sees the client that the PROXY header names, and not the request that is too long.
func TestTaskClientAddress(t *testing.T) {
	t.Parallel()
	saw := make(chan string, 10)
	runTask(t, "client-address", map[int]*backend{3000: newBackend(t, "app", func(_ http.ResponseWriter, r *http.Request) bool {
		saw <- r.Header.Get("X-Forwarded-For")
		return false
	})})
	if got := <-saw; got != "192.0.2.7" || len(saw) > 0 {
		t.Errorf("X-Forwarded-For: %q, and %d requests more", got, len(saw))
	}
}

// TestProxyProtocolSharedPort: of Gateways that share a port, one that wants its connections to begin otherwise is told so, and what to do.
func TestProxyProtocolSharedPort(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	g := start(t, map[string]string{"all.yaml": fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: moongate.dev/v1alpha1
kind: GatewayParameters
metadata: {name: edge}
spec: {trustedProxies: [127.0.0.0/8], ports: [{port: %[1]d, proxyProtocol: true}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: a}
spec:
  gatewayClassName: moongate
  infrastructure: {parametersRef: {group: moongate.dev, kind: GatewayParameters, name: edge}}
  listeners: [{name: http, protocol: HTTP, port: %[1]d, hostname: a.test}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: b}
spec:
  gatewayClassName: moongate
  listeners: [{name: http, protocol: HTTP, port: %[1]d, hostname: b.test}]
`, port)})
	testkit.Eventually(t, "the Gateway that comes second says why it is not served", func() bool {
		status := string(g.adminGet("/status"))
		return strings.Contains(status, "PortUnavailable") && strings.Contains(status, "give them the same proxyProtocol and trustedProxies")
	})
}
