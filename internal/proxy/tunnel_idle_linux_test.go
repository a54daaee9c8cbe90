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

// joiner is a gateway that joins clients to a backend.
type joiner struct {
	*gateway
	listener net.Listener
	hello    string // by which a client asks for it
	answer   string // by which the backend agrees, where it is asked
}

// joinsTCP is a joiner by a TCPRoute, joinsWebSocket one by Upgrade.
func joinsTCP(t *testing.T, timeouts Timeouts) *joiner {
	return joinsTCPWith(t, Options{Timeouts: timeouts})
}

func joinsTCPWith(t *testing.T, o Options) *joiner {
	g, l := startGatewayWith(t, o), listenLocally(t)
	g.apply(append(backend("Service/default/b/80", l.Addr().String()), g.tcpListener("tcp"),
		l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: "Service/default/b/80", Weight: 1})))
	return &joiner{g, l, "", ""}
}

func joinsWebSocket(t *testing.T, timeouts Timeouts) *joiner {
	g, l := startGateway(t, timeouts), listenLocally(t)
	g.serveWebSocket(l.Addr().String(), nil)
	return &joiner{g, l, upgradeRequest, upgradeResponse}
}

// joinsConnect is a joiner by CONNECT, which ends at the gateway.
func joinsConnect(t *testing.T, timeouts Timeouts) *joiner {
	g, l := startGateway(t, timeouts), listenLocally(t)
	g.serve(l.Addr().String(), switchingTo(connectHere))
	return &joiner{g, l, connectRequest, ""}
}

// open makes a connection through the gateway on which a message has passed each way.
func (j *joiner) open() (client, backend net.Conn) {
	j.t.Helper()
	client, err := net.Dial("tcp", j.addr())
	if err != nil {
		j.t.Fatal(err)
	}
	io.WriteString(client, j.hello)
	if backend, err = j.listener.Accept(); err != nil {
		j.t.Fatal(err)
	}
	if j.answer != "" {
		j.skipHead(backend)
		io.WriteString(backend, j.answer)
	}
	if j.hello != "" {
		j.skipHead(client)
	}
	passes(j.t, client, backend)
	passes(j.t, backend, client)
	return client, backend
}

// skipHead reads to the end of a head, and no further.
func (j *joiner) skipHead(c net.Conn) {
	j.t.Helper()
	for head := ""; !strings.HasSuffix(head, "\r\n\r\n"); {
		var b [1]byte
		if _, err := c.Read(b[:]); err != nil {
			j.t.Fatal(err)
		}
		head += string(b[:])
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

// TestIdleTunnelEnds: a tunnel that idles without a goroutine ends by its timeout, by its client, by its backend, and with the gateway.
func TestIdleTunnelEnds(t *testing.T) {
	t.Run("TCP", func(t *testing.T) { testIdleEnds(t, joinsTCP, "tunnel_ended") })
	t.Run("WebSocket", func(t *testing.T) { testIdleEnds(t, joinsWebSocket, "upgraded") })
	t.Run("CONNECT", func(t *testing.T) { testIdleEnds(t, joinsConnect, "upgraded") })
}

func testIdleEnds(t *testing.T, joins func(*testing.T, Timeouts) *joiner, good string) {
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
		"both":    {Timeouts{}, func(_ *gateway, client, backend net.Conn) { client.Close(); backend.Close() }, good},
		"gateway": {Timeouts{}, func(g *gateway, _, _ net.Conn) { g.Shutdown(expired) }, "shutting_down"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			g := joins(t, tc.timeouts)
			client, backend := g.open()
			defer client.Close()
			defer backend.Close()
			testkit.Eventually(t, "no goroutine for an idle connection", func() bool { return tunnelling() == 0 })
			tc.end(g.gateway, client, backend)
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
