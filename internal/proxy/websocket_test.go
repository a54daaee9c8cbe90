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
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// The pair of keys of RFC 6455 section 1.3.
const (
	upgradeRequest  = "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	upgradeResponse = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)

// serveWebSocket sends everything to one backend whose port has appProtocol kubernetes.io/ws.
func (g *gateway) serveWebSocket(addr string, change func(*config.Rule)) {
	g.t.Helper()
	g.serve(addr, change)
	g.apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{
		Key: "Service/default/b/80", Protocol: config.BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET}}}})
}

// upgraded opens a tunnel and returns both ends of it.
func (g *gateway) upgraded(accepted <-chan *net.TCPConn) (client net.Conn, r *bufio.Reader, backend *net.TCPConn) {
	g.t.Helper()
	client = g.dial()
	if _, err := io.WriteString(client, upgradeRequest); err != nil {
		g.t.Fatal(err)
	}
	r = bufio.NewReader(client)
	head, err := readHead(r)
	if err != nil || !strings.HasPrefix(head, "HTTP/1.1 101 ") || !strings.Contains(head, "Upgrade: websocket\r\n") {
		g.t.Fatalf("%q %v", head, err)
	}
	return client, r, <-accepted
}

// passes has a message pass.
func passes(t testing.TB, from io.Writer, to io.Reader) {
	t.Helper()
	io.WriteString(from, "message")
	got := make([]byte, len("message"))
	if _, err := io.ReadFull(to, got); string(got) != "message" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
}

// switching is a backend that switches protocols, and hands its connections over.
func switching(t testing.TB) (addr string, accepted <-chan *net.TCPConn) {
	conns, done := make(chan *net.TCPConn), make(chan struct{})
	addr = rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err != nil {
			return
		}
		io.WriteString(c, upgradeResponse)
		select {
		case conns <- c.(*net.TCPConn):
		case <-done:
			return
		}
		<-done
	})
	t.Cleanup(func() { close(done) })
	return addr, conns
}

// TestWebSocketMessages exchanges messages of many sizes with a WebSocket server, by raw calls and without, in cleartext and over TLS on either side.
func TestWebSocketMessages(t *testing.T) {
	t.Parallel()
	echo := websocket.Handler(func(c *websocket.Conn) {
		for {
			var m []byte
			if websocket.Message.Receive(c, &m) != nil || websocket.Message.Send(c, m) != nil {
				return
			}
		}
	})
	cert := certificate(t, "Secret/default/b", newECDSA(t), "b.example.com")
	for _, tc := range []struct {
		name                  string
		plainIO, https, toTLS bool
	}{{name: "cleartext"}, {name: "plain IO", plainIO: true}, {name: "HTTPS", https: true}, {name: "HTTPS and plain IO", https: true, plainIO: true},
		{name: "TLS to the backend", toTLS: true}, {name: "TLS on both sides", https: true, toTLS: true}} {
		t.Run(tc.name, func(t *testing.T) {
			checkLeaks(t)
			addr := httpBackend(t, echo.ServeHTTP)
			g := startGatewayWith(t, Options{PlainIO: tc.plainIO})
			g.serveWebSocket(addr, nil)
			if tc.toTLS {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				pair, err := tls.X509KeyPair(cert.GetCertificate().ChainPem, cert.GetCertificate().KeyPem)
				if err != nil {
					t.Fatal(err)
				}
				server := &http.Server{Handler: echo, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}} // which would choose HTTP/2
				go server.ServeTLS(l, "", "")
				t.Cleanup(func() { server.Close() })
				g.apply(append(backend("Service/default/b/80", l.Addr().String()),
					overTLS("Service/default/b/80", "b.example.com", cert.GetCertificate().ChainPem, config.BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET)...))
			}
			var c net.Conn
			scheme := "ws"
			if tc.https {
				g.apply([]*config.Resource{cert, g.httpsListener("http", "", "Secret/default/b")})
				scheme = "wss"
				var err error
				if c, err = tls.Dial("tcp", g.addr(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}); err != nil {
					t.Fatal(err)
				}
				defer c.Close()
			} else {
				c = g.dial()
			}
			c.SetDeadline(time.Now().Add(30 * time.Second))
			cfg, err := websocket.NewConfig(scheme+"://h/chat", "http://h/")
			if err != nil {
				t.Fatal(err)
			}
			ws, err := websocket.NewClient(cfg, c)
			if err != nil {
				t.Fatal(err)
			}
			var sent int64
			for _, n := range []int{0, 1, 125, 126, 4096, 65535, 65536, 100_000, 1 << 20, 3} {
				want := make([]byte, n)
				rand.Read(want)
				var sender sync.WaitGroup
				sender.Go(func() {
					if err := websocket.Message.Send(ws, want); err != nil {
						t.Error(err)
					}
				})
				var got []byte
				if err := websocket.Message.Receive(ws, &got); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("a message of %d bytes came back as one of %d, %v", n, len(got), err)
				}
				sender.Wait()
				sent += int64(n)
			}
			ws.Close()
			if words := g.reasonsLogged(1); len(words) != 1 || words[0] != "upgraded" && words[0] != "client_closed" && words[0] != "upstream_truncated" {
				t.Errorf("logged as %v", words)
			}
			for _, key := range []string{`"bytes_received":`, `"bytes_sent":`} {
				_, rest, _ := strings.Cut(g.log.String(), key)
				n := int64(0)
				if fmt.Sscan(rest, &n); n < sent {
					t.Errorf("%s%d, want %d at least: %s", key, n, sent, g.log.String())
				}
			}
		})
	}
}

// TestUpgradeGuards: what stands behind a request goes to the backend when that has switched, and is the next request where it has not.
func TestUpgradeGuards(t *testing.T) {
	t.Parallel()
	const next = "GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	for name, tc := range map[string]struct {
		request, response string
		protocol          config.BackendProtocol
		want              []string // of all that the client gets, in order
		tunnelled, asked  bool
		reasons           string
	}{
		"switched":           {upgradeRequest, upgradeResponse, 2, []string{"HTTP/1.1 101 ", "\r\n\r\ntunnel:" + next}, true, true, "upgraded"},
		"refused":            {upgradeRequest, "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno", 2, []string{"HTTP/1.1 426 ", "\r\n\r\nno", "HTTP/1.1 200 ", "/next"}, false, true, "ok ok"},
		"without proof":      {upgradeRequest, strings.Replace(upgradeResponse, "s3p", "S3P", 1), 2, []string{"HTTP/1.1 502 ", "upstream_malformed", "HTTP/1.1 200 ", "/next"}, false, true, "upstream_malformed ok"},
		"to something else":  {upgradeRequest, strings.Replace(upgradeResponse, ": websocket", ": other", 1), 2, []string{"HTTP/1.1 502 ", "HTTP/1.1 200 "}, false, true, "upstream_malformed ok"},
		"unasked":            {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", upgradeResponse, 2, []string{"HTTP/1.1 502 ", "HTTP/1.1 200 "}, false, false, "upstream_malformed ok"},
		"by HTTP/1.0":        {strings.Replace(upgradeRequest, "chat HTTP/1.1", "chat HTTP/1.0", 1), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 2, []string{"HTTP/1.1 200 ", "HTTP/1.1 200 "}, false, false, "ok ok"},
		"with a body":        {strings.Replace(upgradeRequest, "Host", "Content-Length: 1\r\nHost", 1) + "x", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 2, []string{"HTTP/1.1 200 ", "HTTP/1.1 200 "}, false, false, "ok ok"},
		"of another backend": {upgradeRequest, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, []string{"HTTP/1.1 200 ", "HTTP/1.1 200 ", "/next"}, false, false, "upgrade_ignored ok"},
		"which dares":        {upgradeRequest, upgradeResponse, 0, []string{"HTTP/1.1 502 ", "HTTP/1.1 200 "}, false, false, "upstream_malformed ok"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			asked := make(chan string, 10)
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				for {
					head, err := readHead(r)
					if err != nil {
						return
					}
					asked <- head
					if strings.HasPrefix(head, "GET /next") {
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n/next")
						continue
					}
					if strings.Contains(head, "Content-Length: 1\r\n") {
						r.ReadByte()
					}
					c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
					if b, err := r.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("%q %v came before the answer", b, err)
					}
					c.SetReadDeadline(time.Time{})
					io.WriteString(c, tc.response)
					if tc.tunnelled {
						b, _ := io.ReadAll(r)
						fmt.Fprintf(c, "tunnel:%s", b)
						return
					}
				}
			})
			g := startGateway(t, Timeouts{})
			if g.serve(addr, nil); tc.protocol != 0 {
				g.serveWebSocket(addr, nil)
			}
			g.answers(tc.request+next, tc.tunnelled, tc.want)
			if head := <-asked; strings.Contains(head, "Connection: Upgrade\r\nUpgrade: websocket\r\n") != tc.asked || strings.Count(head, "pgrade:") > 1 {
				t.Errorf("the backend was asked %q", head)
			}
			if got := strings.Join(g.reasonsLogged(len(strings.Fields(tc.reasons))), " "); got != tc.reasons {
				t.Errorf("logged as %s, want %s", got, tc.reasons)
			}
		})
	}
}

// answers sends text, and with end closes that direction, and checks that what comes back until the end has all of want, in that order.
func (g *gateway) answers(text string, end bool, want []string) {
	g.t.Helper()
	c := g.dial()
	io.WriteString(c, text)
	if end {
		c.(*net.TCPConn).CloseWrite()
	}
	b, err := io.ReadAll(c)
	if err != nil {
		g.t.Error(err)
	}
	rest, found := string(b), true
	for _, w := range want {
		if _, rest, found = strings.Cut(rest, w); !found {
			g.t.Errorf("no %q in its place in %q", w, b)
		}
	}
}

// TestTunnelEnds: half-closed ends go on, and what one side breaks off is broken off to the other.
func TestTunnelEnds(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, accepted := switching(t)
	g := startGateway(t, Timeouts{})
	g.serveWebSocket(addr, func(r *config.Rule) { r.RequestTimeoutNanos = int64(300 * time.Millisecond) })

	t.Run("half-closed", func(t *testing.T) {
		client, r, backend := g.upgraded(accepted)
		io.WriteString(client, "question")
		client.(*net.TCPConn).CloseWrite()
		if b, err := io.ReadAll(backend); string(b) != "question" || err != nil {
			t.Errorf("%q %v", b, err)
		}
		time.Sleep(400 * time.Millisecond) // the rule's timeout is over with the response
		io.WriteString(backend, "answer")
		backend.CloseWrite()
		if b, err := io.ReadAll(r); string(b) != "answer" || err != nil {
			t.Errorf("%q %v", b, err)
		}
		if words := g.reasonsLogged(1); words[0] != "upgraded" {
			t.Errorf("logged as %v", words)
		}
	})
	t.Run("reset by the client", func(t *testing.T) {
		client, _, backend := g.upgraded(accepted)
		client.(*net.TCPConn).SetLinger(0)
		client.Close()
		if _, err := io.ReadAll(backend); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the backend read up to %v", err)
		}
		if words := g.reasonsLogged(2); words[1] != "client_closed" {
			t.Errorf("logged as %v", words)
		}
	})
	t.Run("reset by the backend", func(t *testing.T) {
		_, r, backend := g.upgraded(accepted)
		backend.SetLinger(0)
		backend.Close()
		if _, err := io.ReadAll(r); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client read up to %v", err)
		}
		if words := g.reasonsLogged(3); words[2] != "upstream_truncated" {
			t.Errorf("logged as %v", words)
		}
	})
	t.Run("after an edit", func(t *testing.T) {
		client, r, backend := g.upgraded(accepted)
		g.apply(nil, config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/r"}, config.ID{Kind: config.KindBackend, Key: "Service/default/b/80"},
			config.ID{Kind: config.KindEndpoints, Key: "Service/default/b/80"}, config.ID{Kind: config.KindListener, Key: "default/gw/http"})
		for range 3 {
			io.WriteString(client, "ping")
			if _, err := io.ReadFull(backend, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			io.WriteString(backend, "pong")
			if _, err := io.ReadFull(r, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
		}
		g.Drain()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := g.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the tunnel was cut before its time: %v", err)
		}
		if _, err := io.ReadAll(r); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
		if words := g.reasonsLogged(4); words[3] != "shutting_down" {
			t.Errorf("logged as %v", words)
		}
	})
}

// TestTunnelIdle: a tunnel ends when nothing has passed for a while, in neither direction.
func TestTunnelIdle(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, accepted := switching(t)
	g := startGateway(t, Timeouts{Tunnel: 4 * time.Second})
	g.serveWebSocket(addr, nil)
	client, r, backend := g.upgraded(accepted)
	began := time.Now()
	for i := range 6 {
		time.Sleep(time.Second)
		from, to := io.Writer(client), io.Reader(backend)
		if i%2 == 1 {
			from, to = backend, r
		}
		io.WriteString(from, "x")
		if _, err := io.ReadFull(to, make([]byte, 1)); err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
	}
	io.ReadAll(r)
	io.ReadAll(backend)
	if words := g.reasonsLogged(1); words[0] != "tunnel_idle" {
		t.Errorf("logged as %v", words)
	}
}

// TestTunnelStalls: a tunnel ends when one side leaves what it is sent untaken for a while, be the other side silent or not.
func TestTunnelStalls(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, accepted := switching(t)
	g := startGateway(t, Timeouts{TunnelWrite: 500 * time.Millisecond})
	g.serveWebSocket(addr, nil)
	for i, side := range []string{"client", "backend"} {
		client, _, backend := g.upgraded(accepted)
		client.SetDeadline(time.Now().Add(time.Minute))
		from := net.Conn(backend)
		if side == "backend" {
			from = client
		}
		for part, err := make([]byte, 64<<10), error(nil); err == nil; {
			_, err = from.Write(part)
		}
		if words := g.reasonsLogged(i + 1); words[i] != "tunnel_idle" {
			t.Errorf("the %s takes nothing: logged as %v", side, words)
		}
	}
}

// TestTunnelGivesInputBack: what the head of the request that began a tunnel was read to is given back, and the tunnel is logged as
// it was asked for nevertheless.
func TestTunnelGivesInputBack(t *testing.T) {
	checkLeaks(t)
	var lent atomic.Int64
	buffer.Count(&lent)
	defer buffer.Count(nil)
	addr, accepted := switching(t)
	g := startGatewayWith(t, Options{KeepRequestIDs: true})
	g.serveWebSocket(addr, nil)
	long := "GET /%s HTTP/1.1\r\nUser-Agent: %[1]s\r\nX-Request-Id: %[1]s\r\nX-Long: " + strings.Repeat("x", 6000)
	client := g.dial()
	head := strings.Replace(upgradeRequest, "GET /chat HTTP/1.1", fmt.Sprintf(long, "first"), 1)
	io.WriteString(client, head+"early")
	if head, err := readHead(bufio.NewReader(client)); err != nil || !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		t.Fatalf("%q %v", head, err)
	}
	backend := <-accepted
	got := make([]byte, 5)
	if _, err := io.ReadFull(backend, got); string(got) != "early" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	g.eventually("an open tunnel holds no buffer", func() bool { return lent.Load() == 0 })
	for range 4 { // which take the buffer that was given back
		g.roundTrip(fmt.Sprintf(long, "other") + "\r\nHost: other\r\nConnection: close\r\n\r\n")
	}
	client.(*net.TCPConn).CloseWrite()
	backend.CloseWrite()
	client.(*net.TCPConn).SetReadDeadline(time.Now().Add(testkit.Patience))
	if b, err := io.ReadAll(client); len(b) > 0 || err != nil {
		t.Errorf("%q %v", b, err)
	}
	if words := g.reasonsLogged(5); !slices.Contains(words, "upgraded") {
		t.Errorf("logged as %v", words)
	}
	for line := range strings.Lines(g.log.String()) {
		if !strings.Contains(line, `"reason":"upgraded"`) {
			continue
		}
		for _, want := range []string{`"GET"`, `"/first"`, `"user_agent":"first"`, `"request_id":"first"`, `"h"`} {
			if !strings.Contains(line, want) {
				t.Errorf("no %s in %s", want, line)
			}
		}
	}
}
