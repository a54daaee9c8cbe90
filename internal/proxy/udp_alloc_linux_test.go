//go:build !race

package proxy

import (
	"runtime"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestUDPAllocations: a datagram and its answer allocate nothing.
func TestUDPAllocations(t *testing.T) {
	g := startGateway(t, Timeouts{})
	g.serveUDP(udpEcho(t, "").LocalAddr())
	c := g.sender()
	ask(t, c, "1")
	b := make([]byte, 10)
	c.SetReadDeadline(time.Now().Add(testkit.Patience))
	if n := testing.AllocsPerRun(2000, func() {
		c.Write(b[:1])
		if _, err := c.Read(b); err != nil {
			t.Fatal(err)
		}
	}); n >= 2 { // the server of this test makes one
		t.Errorf("%v allocations", n)
	}
}

// TestUDPSessionMemory: a session that idles holds no buffers.
func TestUDPSessionMemory(t *testing.T) {
	g := startGateway(t, Timeouts{})
	g.serveUDP(udpEcho(t, "").LocalAddr())
	const sessions = 1000
	used := func() uint64 {
		for range 3 {
			runtime.GC() // what pools hold lives for two
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	ask(t, g.sender(), "1")
	before := used()
	for range sessions {
		c := g.sender()
		ask(t, c, "1")
		c.Close()
	}
	if each := (int64(used()) - int64(before)) / sessions; each > 8<<10 {
		t.Errorf("%d bytes for each session", each)
	} else {
		t.Logf("%d bytes for each session", each)
	}
}
