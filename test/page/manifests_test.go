package page

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The routes of teams, which with four others are what the page has.
const (
	teams         = 50
	routesPerTeam = 100
	routes        = teams*routesPerTeam + 4
)

// hostile is what a tenant may write into a match: it must be shown, and do nothing.
const hostile = `<img src=x onerror=alert(1)><script>alert(2)</script>`

// writeManifests writes a Gateway with a listener for HTTP and one for HTTPS, and what belongs to it.
func writeManifests(t *testing.T, clear, secure, backend int) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	chain, key := certificate(t, "shop.example.com", 20*24*time.Hour)
	write("gateway.yaml", fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: moongate
  listeners:
  - {name: http, protocol: HTTP, port: %d, allowedRoutes: {namespaces: {from: All}}}
  - {name: https, protocol: HTTPS, port: %d, hostname: shop.example.com, tls: {certificateRefs: [{name: shop-tls}]}}
---
apiVersion: v1
kind: Secret
metadata: {name: shop-tls, namespace: shop}
type: kubernetes.io/tls
data: {tls.crt: %s, tls.key: %s}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: all, namespace: shop}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}]
  retry: {numRetries: 2, retryOn: {triggers: [connect-failure]}}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: cart, namespace: shop}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: cart}]
  timeout: {http: {requestTimeout: 5s}}
`, clear, secure, base64.StdEncoding.EncodeToString(chain), base64.StdEncoding.EncodeToString(key)))

	shop := strings.Builder{}
	for _, name := range []string{"cart", "checkout", "search"} {
		shop.WriteString(route("shop", name, "shop.example.com", "/"+name, "app", ""))
	}
	shop.WriteString(route("shop", "hostile", "hostile.example.com", "/", "missing", fmt.Sprintf(", headers: [{name: x-note, value: '%s'}]", hostile)))
	shop.WriteString(service("shop", "app", backend))
	write("shop.yaml", shop.String())
	for team := range teams {
		var b strings.Builder
		namespace := fmt.Sprintf("team-%02d", team)
		for i := range routesPerTeam {
			name := fmt.Sprintf("route-%03d", i)
			b.WriteString(route(namespace, name, name+"."+namespace+".example.com", "/", "app", ""))
		}
		b.WriteString(service(namespace, "app", backend))
		write(namespace+".yaml", b.String())
	}
	return dir
}

func route(namespace, name, host, path, backend, match string) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s, namespace: %s}
spec:
  parentRefs: [{name: edge, namespace: shop}]
  hostnames: [%s]
  rules:
  - matches: [{path: {value: %s}%s}]
    backendRefs: [{name: %s, port: 80}]
---
`, name, namespace, host, path, match, backend)
}

func service(namespace, name string, port int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[2]s, namespace: %[1]s}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[2]s-1, namespace: %[1]s, labels: {kubernetes.io/service-name: %[2]s}}
addressType: IPv4
ports: [{port: %[3]d}]
endpoints: [{addresses: [127.0.0.1]}, {addresses: [127.0.0.2]}]
---
`, namespace, name, port)
}

// certificate makes one that expires before long, though it was made for longer.
func certificate(t *testing.T, host string, left time.Duration) (chain, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(left - 90*24*time.Hour), NotAfter: time.Now().Add(left)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	var c, k bytes.Buffer
	_ = pem.Encode(&c, &pem.Block{Type: "CERTIFICATE", Bytes: der}) // to memory
	_ = pem.Encode(&k, &pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	return c.Bytes(), k.Bytes()
}

// freePorts are different ones, below those that the system gives to outgoing connections, of which the test makes many.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for port := 10000 + mathrand.IntN(16000); len(ports) < n; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close()
		ports = append(ports, port)
	}
	return ports
}
