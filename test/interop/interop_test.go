package interop

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// host is what the certificates are for, of the gateway and of the server behind TLS.
const host = "grpc.example.com"

// patience bounds each wait. Nothing that works comes near it.
const patience = time.Minute

// cases are those of the client that need nothing but a server: https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md says what each does.
var cases = []string{
	"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream", "timeout_on_sleeping_server",
	"cancel_after_begin", "cancel_after_first_response", "status_code_and_message", "special_status_message", "custom_metadata",
	"unimplemented_method", "unimplemented_service",
}

// TestInterop runs every case over HTTP/2 in cleartext and over TLS, to a server that speaks HTTP/2 in cleartext, and to one over TLS that a BackendTLSPolicy is for.
func TestInterop(t *testing.T) {
	programs := build(t)
	dir := t.TempDir()
	cert, key := selfSigned(t)
	certFile, keyFile := write(t, dir, "tls.crt", cert), write(t, dir, "tls.key", key)
	server := func(args ...string) int {
		port := freePorts(t, 1)[0]
		start(t, programs["server"], append(args, "-port", strconv.Itoa(port))...)
		waitFor(t, port)
		return port
	}
	plain, secure := server(), server("-use_tls", "-tls_cert_file", certFile, "-tls_key_file", keyFile)

	manifests := filepath.Join(dir, "manifests")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 3)
	http, https, reencrypt := ports[0], ports[1], ports[2]
	write(t, manifests, "gateway.yaml", []byte(gateway(http, https, reencrypt, cert, key)+backend("plain", plain)+backend("secure", secure)))
	start(t, programs["moongate"], "run", "-f", manifests, "--bind", "127.0.0.1", "--admin-address", "127.0.0.1:0", "--access-log", "off")

	for _, way := range []struct {
		name string
		port int
		args []string
	}{
		{"h2c", http, nil},
		{"TLS", https, []string{"-use_tls", "-use_test_ca", "-ca_file", certFile}},
		{"TLS to the server too", reencrypt, []string{"-use_tls", "-use_test_ca", "-ca_file", certFile}},
	} {
		waitFor(t, way.port)
		for _, name := range cases {
			t.Run(way.name+"/"+name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				args := append([]string{"-server_host", "127.0.0.1", "-server_port", strconv.Itoa(way.port), "-server_host_override", host, "-test_case", name}, way.args...)
				out, err := exec.CommandContext(ctx, programs["client"], args...).CombinedOutput()
				if err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
	}
}

// build builds the programs of gRPC, and returns where they and Moongate's are.
func build(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	goBuild(t, ".", dir, "google.golang.org/grpc/interop/client", "google.golang.org/grpc/interop/server")
	return map[string]string{"client": filepath.Join(dir, "client"), "server": filepath.Join(dir, "server"), "moongate": buildMoongate(t)}
}

// buildMoongate builds Moongate, and returns where it is.
func buildMoongate(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	goBuild(t, "../..", dir, "./cmd/moongate")
	return filepath.Join(dir, "moongate")
}

func goBuild(t *testing.T, folder, into string, packages ...string) {
	t.Helper()
	build := exec.Command("go", append([]string{"build", "-o", into + string(filepath.Separator)}, packages...)...)
	build.Dir = folder
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", build, err, out)
	}
}

// start starts a program that runs until the test ends; what it has said is shown where the test has failed.
func start(t *testing.T, program string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	c := exec.Command(program, args...)
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		if t.Failed() {
			t.Logf("%v:\n%s", c, &out)
		}
	})
}

// waitFor waits until somebody listens.
func waitFor(t *testing.T, port int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
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

func write(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// selfSigned makes a certificate for host.
func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// gateway is the Gateway with one listener and one route for each way.
func gateway(http, https, reencrypt int, cert, key []byte) string {
	indented := func(text []byte) string { return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ") }
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: default}
spec:
  gatewayClassName: moongate
  listeners:
  - {name: h2c, protocol: HTTP, port: %d}
  - {name: tls, protocol: HTTPS, port: %d, tls: {certificateRefs: [{name: web}]}}
  - {name: reencrypt, protocol: HTTPS, port: %d, tls: {certificateRefs: [{name: web}]}}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: web, namespace: default}
stringData:
  tls.crt: |
    %s
  tls.key: |
    %s
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ca, namespace: default}
data:
  ca.crt: |
    %[4]s
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: secure, namespace: default}
spec:
  targetRefs: [{group: "", kind: Service, name: secure}]
  validation: {hostname: %[6]s, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: plain, namespace: default}
spec:
  parentRefs: [{name: web, sectionName: h2c}, {name: web, sectionName: tls}]
  rules: [{backendRefs: [{name: plain, port: 50051}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: secure, namespace: default}
spec:
  parentRefs: [{name: web, sectionName: reencrypt}]
  rules: [{backendRefs: [{name: secure, port: 50051}]}]
`, http, https, reencrypt, indented(cert), indented(key), host)
}

// backend is a Service with one endpoint.
func backend(name string, port int) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec: {ports: [{port: 50051}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: %[2]d}]
endpoints: [{addresses: [127.0.0.1]}]
`, name, port)
}
