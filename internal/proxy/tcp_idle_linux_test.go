package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// joinedTCP is a gateway with a TCPRoute, and makes connections through it on which a message has passed each way.
func joinedTCP(t *testing.T, timeouts Timeouts) (g *gateway, open func() (client, backend net.Conn)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	g = startGateway(t, timeouts)
	g.apply(append(backend("Service/default/b/80", l.Addr().String()), g.tcpListener("tcp"),
		l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: "Service/default/b/80", Weight: 1})))
	return g, func() (net.Conn, net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", g.addr())
		if err != nil {
			t.Fatal(err)
		}
		backend, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		passes(t, client, backend)
		passes(t, backend, client)
		return client, backend
	}
}

// passes has a message pass.
func passes(t *testing.T, from io.Writer, to io.Reader) {
	t.Helper()
	io.WriteString(from, "message")
	got := make([]byte, len("message"))
	if _, err := io.ReadFull(to, got); string(got) != "message" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
}

// tunnelling is how many goroutines move bytes through tunnels.
func tunnelling() int {
	buf := make([]byte, 1<<20)
	for {
		if n := runtime.Stack(buf, true); n < len(buf) {
			return strings.Count(string(buf[:n]), "tunnel.(*Tunnel).run(")
		}
		buf = make([]byte, 2*len(buf))
	}
}

// TestIdleTCPEnds: a connection that idles without a goroutine ends by its timeout, by its client, by its backend, and with the gateway.
func TestIdleTCPEnds(t *testing.T) {
	expired, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		timeouts Timeouts
		end      func(g *gateway, client, backend net.Conn)
		reason   string
	}{
		"timeout": {Timeouts{Tunnel: 3 * time.Second}, func(*gateway, net.Conn, net.Conn) {}, "tunnel_idle"},
		"client":  {Timeouts{}, func(_ *gateway, client, _ net.Conn) { client.(*net.TCPConn).SetLinger(0); client.Close() }, "client_closed"},
		"backend": {Timeouts{}, func(_ *gateway, _, backend net.Conn) { backend.(*net.TCPConn).SetLinger(0); backend.Close() }, "upstream_truncated"},
		"both":    {Timeouts{}, func(_ *gateway, client, backend net.Conn) { client.Close(); backend.Close() }, "tunnel_ended"},
		"gateway": {Timeouts{}, func(g *gateway, _, _ net.Conn) { g.Shutdown(expired) }, "shutting_down"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			g, open := joinedTCP(t, tc.timeouts)
			client, backend := open()
			defer client.Close()
			defer backend.Close()
			testkit.Eventually(t, "no goroutine for an idle connection", func() bool { return tunnelling() == 0 })
			tc.end(g, client, backend)
			if words := g.reasonsLogged(1); words[0] != tc.reason {
				t.Errorf("logged as %v, want %s", words, tc.reason)
			}
			if name == "both" {
				return
			}
			for who, c := range map[string]net.Conn{"client": client, "backend": backend} {
				if who == name {
					continue
				}
				c.SetReadDeadline(time.Now().Add(testkit.Patience))
				if _, err := c.Read(make([]byte, 1)); err == nil || err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the %s's connection ended by %v, want a reset", who, err)
				}
			}
		})
	}
}
