package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func (g *gateway) tcpListener(name string) *config.Resource {
	r := g.httpListener(name, "")
	r.GetListener().Protocol = config.Protocol_PROTOCOL_TCP
	return r
}

func l4RouteOf(name, listener string, refs ...*config.BackendRef) *config.Resource {
	return &config.Resource{Kind: &config.Resource_L4Route{L4Route: &config.L4Route{
		Key: "TCPRoute/default/" + name, Namespace: "default", Name: name,
		Attachments: []*config.Attachment{{Listener: listener, Hostnames: []*config.Hostname{{}}}},
		BackendRefs: refs,
	}}}
}

// greeting is a backend that says its name, and then what it is told, to the end.
func greeting(t testing.TB, name string) string {
	return rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		io.WriteString(c, name+"\n")
		io.Copy(c, r)
	})
}

// wantReset has a connection be reset, which may be so soon that it is not even made.
func (g *gateway) wantReset() {
	g.t.Helper()
	c, err := net.Dial("tcp", g.addr())
	if err == nil {
		defer c.Close()
		c.SetDeadline(time.Now().Add(testkit.Patience))
		_, err = io.ReadAll(c)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		g.t.Errorf("a connection ended by %v, want a reset", err)
	}
}

// TestTCP: connections are joined to backends by weight, whatever passes through them, and each is logged once.
func TestTCP(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.apply(append(append(backend("Service/default/a/80", greeting(t, "a")), backend("Service/default/b/80", greeting(t, "b"))...),
		g.tcpListener("tcp"), l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: "Service/default/a/80", Weight: 3},
			&config.BackendRef{Backend: "Service/default/b/80", Weight: 1}, &config.BackendRef{Backend: "Service/default/b/80"})))
	if b := g.Bound(); len(b) != 1 || b[0].Routes != 1 {
		t.Errorf("%+v, want one listener with one route", b)
	}
	names := map[string]int{}
	const connections = 80
	for range connections {
		c := g.dial()
		b, err := func() ([]byte, error) {
			c.(*net.TCPConn).CloseWrite()
			return io.ReadAll(c)
		}()
		if err != nil {
			t.Fatal(err)
		}
		names[string(b)]++
	}
	if a, b := names["a\n"], names["b\n"]; a+b != connections || a < connections/2 || b < connections/16 {
		t.Errorf("chosen %v, want 3 to 1", names)
	}
	for _, w := range g.reasonsLogged(connections) {
		if w != "tunnel_ended" {
			t.Fatalf("logged as %s", w)
		}
	}
	for _, want := range []string{`"scheme":"tcp"`, `"protocol":"TCP"`, `"response_code":0`, `"bytes_sent":2,`, `"route":"TCPRoute/default/r"`} {
		if n := strings.Count(g.log.String(), want); n != connections {
			t.Errorf("%d lines with %s, want %d: %.500s", n, want, connections, g.log.String())
		}
	}

	want := make([]byte, 3<<20)
	rand.Read(want)
	c := g.dial()
	r := bufio.NewReader(c)
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	var sender sync.WaitGroup
	sender.Go(func() {
		c.Write(want)
		c.(*net.TCPConn).CloseWrite()
	})
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, equal %v, %v", len(got), bytes.Equal(got, want), err)
	}
	sender.Wait()
}

// TestTCPFailures: a connection that cannot be joined is reset, and the log says why.
func TestTCPFailures(t *testing.T) {
	t.Parallel()
	dead := refusedAddr(t)
	ref := &config.BackendRef{Backend: "Service/default/b/80", Weight: 1}
	for name, tc := range map[string]struct {
		endpoints []string
		route     *config.Resource
		reason    string
	}{
		"no route":         {nil, nil, "route_not_found"},
		"another listener": {nil, l4RouteOf("r", "default/gw/other", ref), "route_not_found"},
		"no backend":       {nil, l4RouteOf("r", "default/gw/tcp"), "no_backend"},
		"no weight":        {nil, l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: "Service/default/b/80"}), "no_backend"},
		"invalid backend":  {nil, l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Weight: 1, Failure: &config.Failure{Status: 500, Reason: "backend_invalid"}}), "backend_invalid"},
		"no endpoint":      {nil, l4RouteOf("r", "default/gw/tcp", ref), "no_endpoints"},
		"refused":          {[]string{dead}, l4RouteOf("r", "default/gw/tcp", ref), "connect_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			up := append(backend("Service/default/b/80", tc.endpoints...), g.tcpListener("tcp"))
			if tc.route != nil {
				up = append(up, tc.route)
			}
			g.apply(up)
			g.wantReset()
			if words := g.reasonsLogged(1); words[0] != tc.reason {
				t.Errorf("logged as %v, want %s", words, tc.reason)
			}
		})
	}
	t.Run("the next endpoint", func(t *testing.T) {
		checkLeaks(t)
		g := startGateway(t, Timeouts{})
		g.apply(append(backend("Service/default/b/80", dead, greeting(t, "b")), g.tcpListener("tcp"), l4RouteOf("r", "default/gw/tcp", ref)))
		for range 10 {
			c := g.dial()
			c.(*net.TCPConn).CloseWrite()
			if b, err := io.ReadAll(c); string(b) != "b\n" || err != nil {
				t.Fatalf("%q %v", b, err)
			}
		}
	})
}

// TestTCPEdits: connections outlive the route that they came by, new ones obey what is in force, and all end with the gateway.
func TestTCPEdits(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	ref := func(name string) *config.BackendRef {
		return &config.BackendRef{Backend: "Service/default/" + name + "/80", Weight: 1}
	}
	g.apply(append(append(backend("Service/default/a/80", greeting(t, "a")), backend("Service/default/b/80", greeting(t, "b"))...),
		g.tcpListener("tcp"), l4RouteOf("r", "default/gw/tcp", ref("a"))))
	open := func(want string) (net.Conn, *bufio.Reader) {
		t.Helper()
		c := g.dial()
		r := bufio.NewReader(c)
		if got, err := r.ReadString('\n'); got != want+"\n" || err != nil {
			t.Fatalf("%q %v, want %s", got, err, want)
		}
		return c, r
	}
	first, r := open("a")
	alive := func() {
		t.Helper()
		io.WriteString(first, "ping\n")
		if got, err := r.ReadString('\n'); got != "ping\n" || err != nil {
			t.Fatalf("%q %v", got, err)
		}
	}
	g.apply([]*config.Resource{l4RouteOf("r", "default/gw/tcp", ref("b"))})
	open("b")
	alive()
	g.apply(nil, config.ID{Kind: config.KindL4Route, Key: "TCPRoute/default/r"})
	g.wantReset()
	alive()
	// The port cannot be of two protocols.
	http := g.httpListener("http", "x.example.com")
	g.generation++
	if r := g.Apply(&config.Update{Generation: g.generation, Upserts: []*config.Resource{http}}); r.Listeners["default/gw/http"] == nil && r.Listeners["default/gw/tcp"] == nil {
		t.Errorf("listeners of two protocols share a port: %v", r.Listeners)
	}
	alive()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := g.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the connections were cut before their time: %v", err)
	}
	if words := strings.Join(g.reasonsLogged(3), " "); !strings.Contains(words, "shutting_down") {
		t.Errorf("logged as %s", words)
	}
}

// TestTCPOverTLS: to a backend with TLS no protocol is offered, whatever its port speaks to requests, since nobody knows what the client will send. The end of
// the client's stream is passed on.
func TestTCPOverTLS(t *testing.T) {
	checkLeaks(t)
	cert := certificate(t, "c", newECDSA(t), "backend.example").GetCertificate()
	pair, err := tls.X509KeyPair(cert.ChainPem, cert.KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	offered := make(chan []string, 1)
	addr := rawBackend(t, func(c net.Conn, _ *bufio.Reader) {
		s := tls.Server(c, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			offered <- h.SupportedProtos
			return &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}, nil
		}})
		io.WriteString(s, "hello\n")
		io.Copy(s, s)
		s.CloseWrite()
	})
	for _, protocol := range []config.BackendProtocol{config.BackendProtocol_BACKEND_PROTOCOL_HTTP, config.BackendProtocol_BACKEND_PROTOCOL_H2C} {
		g := startGateway(t, Timeouts{})
		g.apply(append(append(backend("Service/default/b/80", addr), overTLS("Service/default/b/80", "backend.example", cert.ChainPem, protocol)...), g.tcpListener("tcp"),
			l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: "Service/default/b/80", Weight: 1})))
		c := g.dial()
		io.WriteString(c, "ping")
		c.(*net.TCPConn).CloseWrite()
		if b, err := io.ReadAll(c); string(b) != "hello\nping" || err != nil {
			t.Errorf("%s: %q %v", protocol, b, err)
		}
		select {
		case protocols := <-offered:
			if len(protocols) > 0 {
				t.Errorf("%s: offered %q by ALPN, want nothing", protocol, protocols)
			}
		default:
			t.Errorf("%s: no TLS handshake", protocol)
		}
	}
}

// TestTCPResetOverTLS: a backend that breaks a connection over TLS off has not sent all, so that its client must not see the end of a stream.
func TestTCPResetOverTLS(t *testing.T) {
	checkLeaks(t)
	cert := certificate(t, "c", newECDSA(t), "backend.example").GetCertificate()
	pair, err := tls.X509KeyPair(cert.ChainPem, cert.KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	reset := make(chan struct{})
	addr := rawBackend(t, func(c net.Conn, _ *bufio.Reader) {
		io.WriteString(tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}}), "hello")
		<-reset
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	})
	g := startGateway(t, Timeouts{})
	g.apply(append(append(backend("Service/default/b/80", addr), overTLS("Service/default/b/80", "backend.example", cert.ChainPem, config.BackendProtocol_BACKEND_PROTOCOL_HTTP)...),
		g.tcpListener("tcp"), l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: "Service/default/b/80", Weight: 1})))
	c := g.dial()
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	close(reset)
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%d bytes and %v behind the backend's reset, want a reset", n, err)
	}
}

// TestTCPClientBreaksOff: a client that resets its connection has not sent all, so that its backend must not see the end of a stream, whoever of the
// gateway has met the error: what waits for the next bytes, what moves them, or what writes to the client.
func TestTCPClientBreaksOff(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	accepted := make(chan net.Conn)
	addr := rawBackend(t, func(c net.Conn, _ *bufio.Reader) {
		accepted <- c
		<-accepted
	})
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/b/80", addr), g.tcpListener("tcp"), l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: "Service/default/b/80", Weight: 1})))
	for i := range 20 {
		c := g.dial().(*net.TCPConn)
		b := <-accepted
		c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		c.Write(make([]byte, 32<<20)) // more than fits on the way
		c.SetLinger(0)
		c.Close()
		b.SetDeadline(time.Now().Add(testkit.Patience))
		if n, err := io.Copy(io.Discard, b); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("connection %d: the backend's ended by %v behind %d bytes, want a reset", i, err, n)
		}
		accepted <- nil
	}
}

// TestTCPCircle: a backend that leads back to a listener which the connection has passed gets no connections without end, over TLS neither; one that leads
// to another listener gets its own.
func TestTCPCircle(t *testing.T) {
	t.Parallel()
	const few = 20 // connections that a circle comes to, with luck for it
	cert := certificate(t, "c", newECDSA(t), "backend.example").GetCertificate()
	for _, tc := range []struct {
		name        string
		first, next func(g *gateway, other string) string // where the routes of both listeners lead
		secure      bool
		loops       bool
	}{
		{"to itself", func(g *gateway, _ string) string { return g.addr() }, nil, false, true},
		{"to itself over TLS", func(g *gateway, _ string) string { return g.addr() }, nil, true, true},
		{"by another listener", func(_ *gateway, other string) string { return other }, func(g *gateway, _ string) string { return g.addr() }, false, true},
		{"through another listener", func(_ *gateway, other string) string { return other }, func(*gateway, string) string { return greeting(t, "b") }, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := startGatewayWith(t, Options{Metrics: observe.NewMetrics(observe.MetricsOptions{}), MaxConnections: 1000})
			port := freePort(t)
			other := g.tcpListener("other")
			other.GetListener().Port = uint32(port)
			at := fmt.Sprintf("127.0.0.1:%d", port)
			up := append(backend("Service/default/a/80", tc.first(g, at)), g.tcpListener("tcp"), other,
				l4RouteOf("a", "default/gw/tcp", &config.BackendRef{Backend: "Service/default/a/80", Weight: 1}))
			if tc.next != nil {
				up = append(append(up, backend("Service/default/b/80", tc.next(g, at))...),
					l4RouteOf("b", "default/gw/other", &config.BackendRef{Backend: "Service/default/b/80", Weight: 1}))
			}
			if tc.secure {
				up = append(up, overTLS("Service/default/a/80", "backend.example", cert.ChainPem, config.BackendProtocol_BACKEND_PROTOCOL_HTTP)...)
			}
			g.apply(up)
			for range 10 {
				if tc.loops {
					g.wantReset()
					continue
				}
				c := g.dial()
				c.(*net.TCPConn).CloseWrite()
				if b, err := io.ReadAll(c); string(b) != "b\n" || err != nil {
					t.Fatalf("%q %v", b, err)
				}
			}
			testkit.Eventually(t, "all connections have ended", func() bool { return g.counted(activeConnections) == 0 })
			loops, all := g.counted("moongate_requests_total", "reason", "loop_detected"), g.counted("moongate_requests_total")
			if (loops > 0) != tc.loops || all > 10*few {
				t.Errorf("%v of %v connections were found to be in a circle", loops, all)
			}
		})
	}
}
