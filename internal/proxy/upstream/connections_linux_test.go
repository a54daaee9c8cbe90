package upstream

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// connectionsOf has the backend of newSet be reached as a policy says.
func connectionsOf(t testing.TB, s *Set, c *config.BackendConnections, protocol config.BackendProtocol) {
	t.Helper()
	r := backendResource(key)
	r.GetBackend().Protocol = protocol
	if c != nil {
		r.GetBackend().Traffic = &config.BackendTraffic{Connections: c}
	}
	apply(t, s, r)
}

// socketOption reads an option of a connection's socket.
func socketOption(t testing.TB, c *Conn, level, name int) (value int) {
	t.Helper()
	var err error
	if failed := c.probe.rawConn().Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, name) }); failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	return value
}

// TestSocketOptions: keepalive and buffers are a policy's on connections of all purposes, and the system's where it leaves them out.
func TestSocketOptions(t *testing.T) {
	srv := listen(t)
	s, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	plain := dial(t, e)
	system := socketOption(t, plain, unix.SOL_SOCKET, unix.SO_SNDBUF)
	connectionsOf(t, s, &config.BackendConnections{Keepalive: &config.Keepalive{Probes: 5, IdleSeconds: 77}, SocketBufferBytes: 64 << 10}, 0)
	tunnel, err := e.ConnectTunnel(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tunnel.KeepAlive() // has the policy's already
	for name, c := range map[string]*Conn{"request": dial(t, e), "tunnel": tunnel} {
		if n := socketOption(t, c, unix.SOL_SOCKET, unix.SO_KEEPALIVE); n != 1 {
			t.Errorf("%s: keepalive is %d", name, n)
		}
		for option, want := range map[int]int{unix.TCP_KEEPCNT: 5, unix.TCP_KEEPIDLE: 77} {
			if n := socketOption(t, c, unix.IPPROTO_TCP, option); n != want {
				t.Errorf("%s: option %d is %d, want %d", name, option, n, want)
			}
		}
		for _, option := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
			if n := socketOption(t, c, unix.SOL_SOCKET, option); n != 128<<10 { // which Linux doubles
				t.Errorf("%s: a buffer has %d bytes, that of the system %d", name, n, system)
			}
		}
	}
	if n := socketOption(t, plain, unix.SOL_SOCKET, unix.SO_SNDBUF); n != system {
		t.Errorf("the buffer of a connection that was there has %d bytes", n)
	}
}

// TestOwnConnectionsAreKeptAlive: a connection for one request may become a tunnel that is silent for long.
func TestOwnConnectionsAreKeptAlive(t *testing.T) {
	_, b := newSet(t, Options{}, endpoint(listen(t).addrPort()))
	c, err := b.Endpoints()[0].ConnectOwn(t.Context(), time.Time{}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := socketOption(t, c, unix.SOL_SOCKET, unix.SO_KEEPALIVE); n != 1 {
		t.Errorf("keepalive is %d", n)
	}
}

// TestConnectTimeoutOfPolicy: a policy's takes the place of the default, and an edit takes it away.
func TestConnectTimeoutOfPolicy(t *testing.T) {
	full := testkit.FullListener(t)
	s, b := newSet(t, Options{ConnectTimeout: time.Hour}, endpoint(full.Addr().(*net.TCPAddr).AddrPort()))
	connectionsOf(t, s, &config.BackendConnections{ConnectTimeoutNanos: int64(50 * time.Millisecond)}, 0)
	_, _, err := b.Endpoints()[0].Connect(t.Context(), time.Time{}, true)
	var failure *DialError
	if !errors.As(err, &failure) || failure.Reason != ReasonTimeout {
		t.Error(err)
	}
	connectionsOf(t, s, nil, 0)
	if d := b.Endpoints()[0].connectTimeout(); d != time.Hour {
		t.Errorf("%v without a policy", d)
	}
}

// TestLifeOfConnections: a connection that is older than a policy allows is used no more, and one that idles for longer is closed by Sweep; edits concern those that are there. HTTP/2 streams that
// are open go on.
func TestLifeOfConnections(t *testing.T) {
	srv := silent(t)
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP2 %v", h2), func(t *testing.T) {
			protocol := config.BackendProtocol_BACKEND_PROTOCOL_HTTP
			if h2 {
				protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
			}
			s, b := newSet(t, Options{IdleTimeout: time.Hour}, endpoint(srv.addrPort()))
			connectionsOf(t, s, nil, protocol)
			e := b.Endpoints()[0]
			use := func() (release func()) {
				t.Helper()
				if c := e.Idle(); c != nil {
					return c.Release
				}
				if p := e.Place(); p != nil {
					return func() { p.Leave(true) }
				}
				got := wait(t, connecting(t.Context(), e, true))
				switch {
				case got.err != nil:
					t.Fatal(got.err)
				case got.conn != nil:
					return got.conn.Release
				}
				return func() { got.place.Leave(true) }
			}
			dialled := func(want int64) {
				t.Helper()
				if n := e.Stats().Dialled; n != want {
					t.Errorf("%d connections were made, want %d", n, want)
				}
			}
			use()()
			use()()
			dialled(1)
			connectionsOf(t, s, &config.BackendConnections{MaxDurationNanos: 1}, protocol)
			use()()
			dialled(2)
			connectionsOf(t, s, &config.BackendConnections{MaxDurationNanos: int64(time.Hour), IdleTimeoutNanos: int64(time.Minute)}, protocol)
			s.Sweep(time.Now())
			release := use()
			dialled(3 - int64(btoi(h2))) // by HTTP/1.1 the second is closed as soon as it is released
			release()
			s.Sweep(time.Now().Add(30 * time.Second))
			use()()
			dialled(3 - int64(btoi(h2)))
			s.Sweep(time.Now().Add(2 * time.Minute))
			use()()
			dialled(4 - int64(btoi(h2)))
			testkit.Eventually(t, "one connection is left", func() bool { return b.Stats().Open == 1 })
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestNoPreconnectToTheSick: an endpoint that refuses a connection is asked for no spare ones, which would count as its failures too.
func TestNoPreconnectToTheSick(t *testing.T) {
	srv := listen(t)
	s, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	connectionsOf(t, s, &config.BackendConnections{PreconnectPerEndpointPercent: 300}, 0)
	srv.stop()
	e := b.Endpoints()[0]
	for i := range int64(3) {
		e.Begin()
		if got := wait(t, connecting(t.Context(), e, true)); got.err == nil {
			t.Fatal("a connection to nobody")
		}
		e.End()
		testkit.Eventually(t, "no connection is being made", func() bool { return e.use().spares.Load() == 0 })
		if n := e.Stats().Failures; n != i+1 {
			t.Fatalf("%d connects have failed after %d requests", n, i+1)
		}
	}
	zero(t, b)
}

// TestPreconnect: there are spare connections for a share of the requests, as far as a breaker allows them, and no more.
func TestPreconnect(t *testing.T) {
	srv := listen(t)
	s, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	connectionsOf(t, s, &config.BackendConnections{PreconnectPerEndpointPercent: 300}, 0)
	e := b.Endpoints()[0]
	var all []*Conn
	for i := range 3 {
		e.Begin()
		c := e.Idle()
		if (c != nil) != (i > 0) {
			t.Errorf("request %d finds a spare connection: %v", i, c != nil)
		}
		if c == nil {
			c = wait(t, connecting(t.Context(), e, true)).conn
		}
		all = append(all, c)
		want := int64(3 * (i + 1))
		testkit.Eventually(t, "spare connections are there", func() bool { st := e.Stats(); return st.Open == want && st.Idle == want-int64(i)-1 })
	}
	for _, c := range all {
		c.Release()
		e.End()
	}
	e.Begin()
	e.Idle().Release()
	if n := e.Stats().Open; n != 9 {
		t.Errorf("%d connections are open", n)
	}
	e.End()
	zero(t, b)
}
