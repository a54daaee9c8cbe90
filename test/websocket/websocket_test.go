package websocket

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// host is what the certificates are for: that of the gateway, and that which httptest has for servers.
const host = "example.com"

// patience bounds each wait. Nothing that works comes near it.
const patience = time.Minute

// large is the size of the largest message.
const large = 16 << 20

// server echoes messages, frame by frame.
type server struct {
	*httptest.Server
	received atomic.Int64              // bytes of its connections
	closed   chan websocket.CloseError // by clients
}

func newServer(t *testing.T, secure bool) *server {
	t.Helper()
	s := &server{closed: make(chan websocket.CloseError, 1024)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Listener = countingListener{s.Listener, &s.received}
	if secure {
		s.TLS = &tls.Config{NextProtos: []string{"http/1.1"}}
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"echo"}, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		return // the client has been told
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	for {
		kind, message, err := c.Reader(context.Background())
		if err != nil {
			if status := websocket.CloseStatus(err); status != -1 {
				s.closed <- websocket.CloseError{Code: status}
			}
			return
		}
		first := make([]byte, 6)
		n, err := io.ReadFull(message, first)
		if string(first[:n]) == "close " {
			code, _ := io.ReadAll(message)
			status, _ := strconv.Atoi(string(code))
			c.Close(websocket.StatusCode(status), "as asked")
			return
		}
		out, werr := c.Writer(context.Background(), kind)
		if werr != nil {
			return
		}
		out.Write(first[:n])
		if err == nil {
			_, err = io.Copy(out, message)
		} else if err == io.EOF || err == io.ErrUnexpectedEOF { // a short message
			err = nil
		}
		if err != nil || out.Close() != nil {
			return
		}
	}
}

// countingListener counts what its connections read.
type countingListener struct {
	net.Listener
	received *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countingConn{c, l.received}, err
}

type countingConn struct {
	net.Conn
	received *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// way is how WebSockets get to a server.
type way struct {
	t      *testing.T
	url    string
	client *http.Client
	server *server
}

func (w way) dial(compression websocket.CompressionMode) (*websocket.Conn, *http.Response) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	c, resp, err := websocket.Dial(ctx, w.url, &websocket.DialOptions{HTTPClient: w.client, Host: host, Subprotocols: []string{"other", "echo"}, CompressionMode: compression})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.CloseNow() })
	c.SetReadLimit(-1)
	return c, resp
}

// TestWebSocket goes every way: over HTTP/1.1 and HTTP/2, in cleartext and over TLS, to a server with kubernetes.io/ws and to one over TLS with kubernetes.io/wss.
func TestWebSocket(t *testing.T) {
	plain, secure := newServer(t, false), newServer(t, true)
	cert, key := selfSigned(t)
	dir := t.TempDir()
	ports := freePorts(t, 2)
	clear, encrypted := ports[0], ports[1]
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	write(t, dir, "gateway.yaml", gateway(clear, encrypted, cert, key, ca)+backend("plain", "kubernetes.io/ws", plain)+backend("secure", "kubernetes.io/wss", secure))
	start(t, build(t), "run", "-f", dir, "--bind", "127.0.0.1", "--admin-address", "127.0.0.1:0", "--access-log", "off")
	waitFor(t, clear)
	waitFor(t, encrypted)

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	trust := &tls.Config{RootCAs: roots, ServerName: host}
	http1 := &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}
	over := func(port int, trust *tls.Config) *http.Client {
		c, err := dialHTTP2(fmt.Sprintf("127.0.0.1:%d", port), trust)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if c.opens.Load() == 0 {
				t.Error("HTTP/2 was not used")
			}
			c.conn.Close()
		})
		return &http.Client{Transport: c}
	}
	for _, client := range []struct {
		name   string
		base   string
		client *http.Client
	}{
		{"HTTP1", fmt.Sprintf("ws://127.0.0.1:%d", clear), http1},
		{"HTTP1 over TLS", fmt.Sprintf("wss://127.0.0.1:%d", encrypted), http1},
		{"HTTP2", fmt.Sprintf("ws://127.0.0.1:%d", clear), over(clear, nil)},
		{"HTTP2 over TLS", fmt.Sprintf("wss://127.0.0.1:%d", encrypted), over(encrypted, trust)},
	} {
		for path, server := range map[string]*server{"/plain": plain, "/secure": secure} {
			for name, test := range map[string]func(way){"messages": messages, "fragments": fragments, "ping": ping, "closes": closes, "compression": compression, "many": many} {
				t.Run(client.name+path+"/"+name, func(t *testing.T) { test(way{t, client.base + path, client.client, server}) })
			}
		}
	}
}

// echo sends a message and wants it back.
func echo(t *testing.T, c *websocket.Conn, kind websocket.MessageType, message []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var sent sync.WaitGroup
	sent.Go(func() {
		if err := c.Write(ctx, kind, message); err != nil {
			t.Errorf("%d bytes: %v", len(message), err)
		}
	})
	gotKind, got, err := c.Read(ctx)
	sent.Wait()
	if err != nil || gotKind != kind || !bytes.Equal(got, message) {
		t.Errorf("a message of type %v of %d bytes came back as one of type %v of %d bytes, %v", kind, len(message), gotKind, len(got), err)
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// messages have all lengths that frames tell apart, and the subprotocol is that of the server.
func messages(w way) {
	c, resp := w.dial(websocket.CompressionDisabled)
	if c.Subprotocol() != "echo" || resp.Header.Get("Sec-WebSocket-Extensions") != "" {
		w.t.Errorf("subprotocol %q, extensions %q", c.Subprotocol(), resp.Header.Get("Sec-WebSocket-Extensions"))
	}
	for _, n := range []int{0, 1, 125, 126, 65535, 65536, large} {
		echo(w.t, c, websocket.MessageBinary, random(n))
	}
	echo(w.t, c, websocket.MessageText, []byte(strings.Repeat("grüße ", 1000)))
}

// fragments are frames of one message.
func fragments(w way) {
	c, _ := w.dial(websocket.CompressionDisabled)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	out, err := c.Writer(ctx, websocket.MessageBinary)
	if err != nil {
		w.t.Fatal(err)
	}
	want := random(100_000)
	var sent sync.WaitGroup
	sent.Go(func() {
		for part := range bytes.SplitSeq(want, []byte{0}) {
			out.Write(part)
			out.Write([]byte{0})
		}
		out.Close()
	})
	_, got, err := c.Read(ctx)
	sent.Wait()
	if err != nil || !bytes.Equal(got, append(want, 0)) { // behind the last part is a 0 too
		w.t.Errorf("%d bytes, %v", len(got), err)
	}
}

// ping is answered by the server, between messages.
func ping(w way) {
	c, _ := w.dial(websocket.CompressionDisabled)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	var read sync.WaitGroup
	read.Go(func() {
		if _, got, err := c.Read(ctx); err != nil || string(got) != "behind it" {
			w.t.Errorf("%q %v", got, err)
		}
	})
	for range 3 {
		if err := c.Ping(ctx); err != nil {
			w.t.Error(err)
		}
	}
	if err := c.Write(ctx, websocket.MessageText, []byte("behind it")); err != nil {
		w.t.Error(err)
	}
	read.Wait()
}

// closes have a code, whoever begins.
func closes(w way) {
	c, _ := w.dial(websocket.CompressionDisabled)
	if err := c.Close(4001, "bye"); err != nil {
		w.t.Error(err)
	}
	select {
	case got := <-w.server.closed:
		if got.Code != 4001 {
			w.t.Errorf("the server was told %d", got.Code)
		}
	case <-time.After(patience):
		w.t.Error("the server was told nothing")
	}
	c, _ = w.dial(websocket.CompressionDisabled)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageText, []byte("close 4002")); err != nil {
		w.t.Error(err)
	}
	if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != 4002 {
		w.t.Errorf("the client was told %v", err)
	}
}

// compression is agreed on by client and server, and what they send arrives as compressed as it was.
func compression(w way) {
	c, resp := w.dial(websocket.CompressionContextTakeover)
	if got := resp.Header.Get("Sec-WebSocket-Extensions"); !strings.HasPrefix(got, "permessage-deflate") {
		w.t.Errorf("extensions %q", got)
	}
	before := w.server.received.Load()
	echo(w.t, c, websocket.MessageBinary, make([]byte, 4<<20))
	if n := w.server.received.Load() - before; n > 1<<20 {
		w.t.Errorf("the server has received %d bytes", n)
	}
	echo(w.t, c, websocket.MessageBinary, random(100_000))
}

// many are open at the same time; over HTTP/2 on one connection.
func many(w way) {
	const open, rounds = 100, 5
	var all []*websocket.Conn
	for range open {
		c, _ := w.dial(websocket.CompressionDisabled)
		all = append(all, c)
	}
	var talk sync.WaitGroup
	for i, c := range all {
		talk.Go(func() {
			for round := range rounds {
				echo(w.t, c, websocket.MessageText, fmt.Appendf(nil, "message %d of %d", round, i))
				echo(w.t, c, websocket.MessageBinary, random(10_000))
			}
		})
	}
	talk.Wait()
	for _, c := range all {
		c.CloseNow()
	}
}

// build builds the gateway, and returns where it is.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "moongate")
	build := exec.Command("go", "build", "-o", program, "./cmd/moongate")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", build, err, out)
	}
	return program
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

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
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

// gateway is a Gateway with a listener in cleartext and one with TLS, and a route to each backend.
func gateway(clear, encrypted int, cert, key, ca []byte) string {
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
  - {name: clear, protocol: HTTP, port: %d}
  - {name: encrypted, protocol: HTTPS, port: %d, tls: {certificateRefs: [{name: web}]}}
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
    %s
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: secure, namespace: default}
spec:
  targetRefs: [{group: "", kind: Service, name: secure}]
  validation: {hostname: %s, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: default}
spec:
  parentRefs: [{name: web}]
  rules:
  - {matches: [{path: {value: /plain}}], backendRefs: [{name: plain, port: 80}]}
  - {matches: [{path: {value: /secure}}], backendRefs: [{name: secure, port: 80}]}
`, clear, encrypted, indented(cert), indented(key), indented(ca), host)
}

// backend is a Service with one endpoint.
func backend(name, appProtocol string, s *server) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec: {ports: [{port: 80, appProtocol: %[2]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: %[3]d}]
endpoints: [{addresses: [127.0.0.1]}]
`, name, appProtocol, s.Listener.Addr().(*net.TCPAddr).Port)
}
