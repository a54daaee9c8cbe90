package datagram

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// serving returns a Set with a socket whose datagrams come back.
func serving(t *testing.T, o Options) (*Set, *Socket) {
	t.Helper()
	echo, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { echo.Close() })
	go func() {
		b := make([]byte, maxDatagram)
		for {
			n, from, err := echo.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			echo.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	const key = "Service/default/echo/53"
	backends := upstream.NewSet(upstream.Options{})
	t.Cleanup(backends.Close)
	at := echo.LocalAddr().(*net.UDPAddr).AddrPort()
	if err := backends.Apply([]*config.Resource{
		{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key}}},
		{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: key,
			Endpoints: []*config.Endpoint{{Address: at.Addr().String(), Port: uint32(at.Port())}}}}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	metrics := observe.NewMetrics(observe.MetricsOptions{})
	compiler := snapshot.Compiler{Backend: backends.Get, Metrics: metrics}
	route, err := compiler.L4Route(&config.L4Route{Key: "UDPRoute/default/r", Namespace: "default", Name: "r",
		Attachments: []*config.Attachment{{Listener: "default/gw/udp", Hostnames: []*config.Hostname{{}}}},
		BackendRefs: []*config.BackendRef{{Backend: key, Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	set := NewSet(o)
	s, err := set.Open(listen.Addr{IP: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	var routes *match.Hosts[*snapshot.L4Route]
	s.SetListener(&snapshot.Listener{Config: &config.Listener{Key: "default/gw/udp"}, Mode: snapshot.UDP, L4: routes.With("", route),
		Stats: metrics.Listener(observe.ListenerLabels{Gateway: "default/gw", Listener: "udp"})})
	s.Serve()
	return set, s
}

// client is one of the socket.
func (s *Socket) client(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("udp", s.conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// answered reports whether a datagram comes back.
func answered(c net.Conn) bool {
	c.Write([]byte("x"))
	c.SetReadDeadline(time.Now().Add(testkit.Patience))
	_, err := c.Read(make([]byte, 1))
	return err == nil
}

// TestEndsBesideOthers: while a session ends, which takes time where there are thousands, the datagrams of others pass.
func TestEndsBesideOthers(t *testing.T) {
	var clock atomic.Int64
	clock.Store(time.Now().UnixMilli())
	set, s := serving(t, Options{Clock: &clock})
	if !answered(s.client(t)) {
		t.Fatal("a datagram has no answer")
	}
	s.mu.Lock()
	var idle *session
	for _, idle = range s.sessions {
	}
	s.mu.Unlock()
	inUse, release, swept := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go idle.raw.Control(func(uintptr) { // which has closing the socket wait
		close(inUse)
		<-release
	})
	<-inUse
	clock.Add(DefaultIdle.Milliseconds())
	go func() {
		defer close(swept)
		set.Sweep()
	}()
	testkit.Eventually(t, "the session to end", func() bool {
		if !s.mu.TryLock() {
			return true // or that is what others wait for
		}
		defer s.mu.Unlock()
		return idle.ended
	})
	passes := answered(s.client(t))
	close(release)
	<-swept
	if !passes {
		t.Error("datagrams of others wait for the end of a session")
	}
	if n := set.Sessions(); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
	s.Close()
	set.running.Wait()
	if n := set.Sessions(); n != 0 {
		t.Errorf("%d sessions of a socket that is closed", n)
	}
}
