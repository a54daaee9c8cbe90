//go:build !race

package proxy

import (
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// descriptor is a socket of which the process holds nothing but its number.
type descriptor int

// take has nothing held of a connection but its socket.
func take(t *testing.T, c net.Conn) descriptor {
	t.Helper()
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(f.Fd())) // which blocks from then on
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	c.Close()
	return descriptor(fd)
}

func (d descriptor) Read(b []byte) (int, error)  { return unix.Read(int(d), b) }
func (d descriptor) Write(b []byte) (int, error) { return unix.Write(int(d), b) }

// TestIdleTunnelMemory bounds what an idle tunnel costs: no goroutine, both sockets and the state of its exchange. Afterwards bytes pass as before.
func TestIdleTunnelMemory(t *testing.T) {
	t.Run("TCP", func(t *testing.T) { testIdleMemory(t, joinsTCP(t, Timeouts{}), 8<<10) })
	t.Run("WebSocket", func(t *testing.T) { testIdleMemory(t, joinsWebSocket(t, Timeouts{}), 10<<10) })
}

func testIdleMemory(t *testing.T, g *joiner, most int64) {
	const conns = 500
	idle := func() uint64 {
		testkit.Eventually(t, "no goroutine for an idle tunnel", func() bool { return tunnelling() == 0 })
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc // objects alone: there are no stacks, and the sum does not depend on where there was room for them
	}
	var ends [conns][2]descriptor
	fill := func() {
		for i := range ends {
			client, backend := g.open()
			ends[i] = [2]descriptor{take(t, client), take(t, backend)}
		}
	}
	fill() // what is made once, and what pools and maps keep
	for _, e := range ends {
		unix.Close(int(e[0]))
		unix.Close(int(e[1]))
	}
	g.reasonsLogged(conns)
	before := idle()
	fill()
	each := int64(idle()-before) / conns
	t.Logf("%d bytes for each tunnel", each)
	if each > most {
		t.Errorf("%d bytes for each tunnel, want %d at most", each, most)
	}
	for _, e := range ends {
		passes(t, e[1], e[0])
		passes(t, e[0], e[1])
		unix.Close(int(e[0]))
		unix.Close(int(e[1]))
	}
}
