package client

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestEvictedWhenHandedOver: who ends a connection of a loop after that has become a Conn changes nothing, and the Conn counts until it ends.
func TestEvictedWhenHandedOver(t *testing.T) {
	metrics := observe.NewMetrics(observe.MetricsOptions{})
	engine := &exchange.Engine{Observer: &observe.Observer{Metrics: metrics}}
	engine.Clock.Store(time.Now().UnixMilli())
	socket := &snapshot.Socket{Socket: &listen.Socket{}, Stats: metrics.Socket(observe.SocketLabels{Port: 443})}
	port := &snapshot.Port{Owner: socket, Mode: snapshot.TLSPassthrough, Number: 443}
	engine.Snapshot.Store(&snapshot.Snapshot{Sockets: []*snapshot.Port{port}})
	set := NewSet(engine, Timeouts{}, false)
	set.Limit(ConnectionLimits{Total: 1000}, discard)
	t.Cleanup(func() {
		set.Cut()
		<-set.Empty()
		set.Close()
	})
	peer, accepted := testkit.TCPPair(t)
	raw, err := accepted.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if err != nil {
		t.Fatal(err)
	}
	accepted.Close()
	set.ServeL4(socket, listen.Raw{FD: fd, Peer: peer.LocalAddr().(*net.TCPAddr).AddrPort()}, port)
	var c *l4Conn
	set.l4.each(func(found *l4Conn) { c = found })
	c.loop.Locked(func() { c.handOver(c.pair.GiveUp()) })
	if c.end() {
		t.Error("it ends, though it is another's")
	}
	a := &set.connections
	counts := func() (open, ending int64, clients int) {
		return a.open.Load(), a.ending.Load(), a.byClientCounts()[c.key]
	}
	if open, ending, clients := counts(); open != 1 || ending != 0 || clients != 1 {
		t.Errorf("%d connections count, %d of the client, and %d end; want 1, 1 and 0", open, clients, ending)
	}
	peer.Close()
	testkit.Eventually(t, "the connection has ended", func() bool { return socket.Open.Load() == 0 })
	if open, ending, clients := counts(); open != 0 || ending != 0 || clients != 0 {
		t.Errorf("%d connections count behind it, %d of the client, and %d end", open, clients, ending)
	}
}
