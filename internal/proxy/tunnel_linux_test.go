package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestEndBehindPartOfRecord: a client over TLS that ends its connection within a record ends its tunnel, though the end has come together with
// that part.
func TestEndBehindPartOfRecord(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, accepted := switching(t)
	g := startGateway(t, Timeouts{})
	g.serveWebSocket(addr, nil)
	g.apply([]*config.Resource{certificate(t, "c", newECDSA(t), "h"), g.httpsListener("http", "", "c")})
	const tunnels = 20 // the system tells of data and end at once, or, now and then, of one after the other
	for range tunnels {
		c, _, err := g.dialTLS("h", func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} })
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, upgradeRequest+"x")
		if _, err := readHead(bufio.NewReader(c)); err != nil {
			t.Fatal(err)
		}
		backend := <-accepted
		backend.SetDeadline(time.Now().Add(testkit.Patience))
		if _, err := io.ReadFull(backend, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		wire := c.NetConn().(*net.TCPConn)
		raw, err := wire.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, 1) })
		if err != nil {
			t.Fatal(err)
		}
		wire.Write([]byte{23, 3, 3, 0, 100, 1, 2, 3}) // the beginning of a record, which leaves with the end
		wire.CloseWrite()
		if _, err := io.ReadAll(backend); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("the backend's connection ended by %v, want a reset", err)
		}
	}
	for _, word := range g.reasonsLogged(tunnels) {
		if word != "client_closed" {
			t.Errorf("logged as %s", word)
		}
	}
}
