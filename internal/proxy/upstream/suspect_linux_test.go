package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestSlowConnectIsGivenUp is that a connect which takes longer than others is given up where there is another endpoint, and not where there is none.
func TestSlowConnectIsGivenUp(t *testing.T) {
	full := testkit.FullListener(t)
	at := full.Addr().(*net.TCPAddr).AddrPort()
	server := listen(t)
	_, b := newSet(t, Options{ConnectTimeout: testkit.Patience}, endpoint(at), endpoint(server.addrPort()))
	slow, other := b.Endpoints()[0], b.Endpoints()[1]
	dial(t, other).Release() // from now on it is known how long connects take
	for _, connect := range []func() error{
		func() error { _, _, err := slow.Connect(context.Background(), time.Time{}, true); return err },
		func() error { _, err := slow.ConnectTunnel(context.Background(), nil); return err },
	} {
		slow.reached()
		var dialError *DialError
		if err := connect(); !errors.As(err, &dialError) || dialError.Reason != ReasonSlow || !dialError.Retryable {
			t.Fatalf("%v", err)
		}
		if slow.fit() || other.avoided() {
			t.Error("the endpoint is not avoided")
		}
	}
	// Without another endpoint, or where that is avoided, the connect timeout counts.
	for _, alone := range []bool{true, false} {
		if alone {
			apply(t, b.set, endpointsResource(key, endpoint(at)))
		} else {
			apply(t, b.set, endpointsResource(key, endpoint(at), endpoint(server.addrPort())))
			b.Endpoints()[1].suspectFor(time.Hour)
		}
		slow.reached()
		b.set.options.ConnectTimeout = 2 * leastPatience
		var dialError *DialError
		if _, err := slow.Dial(context.Background(), time.Time{}); !errors.As(err, &dialError) || dialError.Reason != ReasonTimeout {
			t.Errorf("%v", err)
		}
	}
}

// TestSessionsStayWithSlowEndpoints is that a request of a session waits for its endpoint, and others of it are not sent elsewhere meanwhile.
func TestSessionsStayWithSlowEndpoints(t *testing.T) {
	full := testkit.FullListener(t)
	server := listen(t)
	_, b := newSet(t, Options{ConnectTimeout: testkit.Patience}, endpoint(full.Addr().(*net.TCPAddr).AddrPort()), endpoint(server.addrPort()))
	slow := b.Endpoints()[0]
	if _, _, err := slow.Connect(context.Background(), time.Time{}, true); !isSlow(err) {
		t.Fatal(err)
	}
	if slow.fit() || b.SessionEndpointAs(nil, slow.SessionID()) != slow {
		t.Error("a session leaves an endpoint that was slow once")
	}
	b.health.slowest.Store(1)
	if _, err := slow.ConnectOwn(context.Background(), time.Time{}, false); !isSlow(err) {
		t.Errorf("%v", err)
	}
	b.set.options.ConnectTimeout = 4 * leastPatience
	var dialError *DialError
	if _, err := slow.ConnectOwn(context.Background(), time.Time{}, true); !errors.As(err, &dialError) || dialError.Reason != ReasonTimeout {
		t.Errorf("a connection for one request of a session: %v", err)
	}
	slow.reached()
	if _, _, err := slow.ConnectPatiently(context.Background(), time.Time{}, true); !errors.As(err, &dialError) || dialError.Reason != ReasonTimeout {
		t.Errorf("%v", err)
	}
	if b.SessionEndpointAs(nil, slow.SessionID()) != nil {
		t.Error("a session stays with an endpoint that takes no connection in time")
	}
}

// sharedDials is how many shared connections are being made, and how many of them for long.
func sharedDials(e *Endpoint) (dialling, slow int) {
	e.use().sharing.mu.Lock()
	defer e.use().sharing.mu.Unlock()
	return e.use().sharing.dialling, e.use().sharing.slow
}

// TestPatienceWithSharedConnections: a request that waits patiently for a place gets one also where the connect takes long. Others do not wait with it where there is another
// endpoint, nor for the one connection that a limit allows.
func TestPatienceWithSharedConnections(t *testing.T) {
	for name, traffic := range map[string]*config.BackendTraffic{"": nil, "one connection": {CircuitBreaker: &config.CircuitBreaker{MaxConnections: proto.Uint32(1)}}} {
		t.Run(name, func(t *testing.T) {
			full := testkit.FullListener(t)
			server := listen(t)
			_, b := newSet(t, Options{ConnectTimeout: testkit.Patience}, endpoint(full.Addr().(*net.TCPAddr).AddrPort()), endpoint(server.addrPort()))
			apply(t, b.set, &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Protocol: config.BackendProtocol_BACKEND_PROTOCOL_H2C, Traffic: traffic}}})
			slow := b.Endpoints()[0]
			b.health.slowest.Store(1)
			patient := make(chan error, 1)
			go func() {
				_, place, err := slow.ConnectPatiently(context.Background(), time.Time{}, true)
				if err == nil && place == nil {
					err = errors.New("no place")
				}
				patient <- err
			}()
			testkit.Eventually(t, "the patient one has a connection made", func() bool { n, _ := sharedDials(slow); return n == 1 })
			for range 2 {
				if _, _, err := slow.Connect(context.Background(), time.Time{}, true); !isSlow(err) {
					t.Fatalf("one that is not patient: %v", err)
				}
				if slow.fit() || !slow.fitForSession() {
					t.Error("the endpoint is not avoided, or its sessions leave it")
				}
			}
			if dialling, slow := sharedDials(slow); dialling != 1 || slow != 1 {
				t.Errorf("%d connections are made, %d of them for long", dialling, slow)
			}
			if n := slow.use().failures.Load(); n != 1 {
				t.Errorf("%d failures", n)
			}
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			s := &http.Server{Protocols: protocols, Handler: http.NotFoundHandler()}
			defer s.Close()
			go s.Serve(full)
			if err := <-patient; err != nil {
				t.Errorf("the patient one: %v", err)
			}
			if dialling, many := sharedDials(slow); !slow.fit() || dialling != 0 || many != 0 {
				t.Errorf("fit %v, %d connections are made, %d of them for long", slow.fit(), dialling, many)
			}
			if got := b.health.patience(); got != leastPatience {
				t.Errorf("others wait for %v", got)
			}
		})
	}
}

// TestPatienceEnds: a request that waits patiently ends with its own limit, and a connect that has failed is counted once.
func TestPatienceEnds(t *testing.T) {
	full := testkit.FullListener(t)
	server := listen(t)
	_, b := newSet(t, Options{ConnectTimeout: 4 * leastPatience}, endpoint(full.Addr().(*net.TCPAddr).AddrPort()), endpoint(server.addrPort()))
	apply(t, b.set, &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Protocol: config.BackendProtocol_BACKEND_PROTOCOL_H2C}}})
	slow := b.Endpoints()[0]
	b.health.slowest.Store(1)
	var dialError *DialError
	if _, _, err := slow.ConnectPatiently(context.Background(), time.Time{}, true); !errors.As(err, &dialError) || dialError.Reason != ReasonTimeout {
		t.Errorf("%v", err)
	}
	testkit.Eventually(t, "the connect ends", func() bool { n, _ := sharedDials(slow); return n == 0 })
	if n := slow.use().failures.Load(); n != 1 || slow.fitForSession() {
		t.Errorf("%d failures; sessions stay: %v", n, slow.fitForSession())
	}
}

// TestSpareFailsAlone: requests that wait behind a connection that none of them has asked for do not fail with it.
func TestSpareFailsAlone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // refuses
	_, b := newSet(t, Options{}, endpoint(l.Addr().(*net.TCPAddr).AddrPort()))
	apply(t, b.set, &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Protocol: config.BackendProtocol_BACKEND_PROTOCOL_H2C}}})
	e := b.Endpoints()[0]
	w := &waiter{ready: make(chan struct{})}
	e.use().sharing.waiting, e.use().sharing.dialling = []*waiter{w}, 1
	e.reserveAnyway()
	limit := e.connectLimit(time.Time{})
	limit.spare = true
	e.dialShared(limit)
	<-w.ready
	if w.err == nil || !e.avoided() {
		t.Errorf("%v; the endpoint is avoided: %v", w.err, e.avoided())
	}
}

// TestShortDeadlines is that an endpoint which answers no connect is found out by requests whose own deadlines are shorter than patience, and not where connects take as long.
func TestShortDeadlines(t *testing.T) {
	full := testkit.FullListener(t)
	server := listen(t)
	_, b := newSet(t, Options{ConnectTimeout: testkit.Patience}, endpoint(full.Addr().(*net.TCPAddr).AddrPort()), endpoint(server.addrPort()))
	silent := b.Endpoints()[0]
	for _, connect := range []func() error{
		func() error {
			_, _, err := silent.Connect(context.Background(), time.Now().Add(leastPatience/2), true)
			return err
		},
		func() error {
			_, _, err := silent.ConnectPatiently(context.Background(), time.Now().Add(leastPatience/2), true)
			return err
		},
	} {
		for slowest, failures := range map[time.Duration]int64{0: 0, time.Hour: 0, 1: 1} {
			silent.reached()
			b.health.slowest.Store(int64(slowest))
			before := silent.use().failures.Load()
			var dialError *DialError
			if err := connect(); !errors.As(err, &dialError) || dialError.Reason != ReasonDeadline {
				t.Fatalf("%v", err)
			}
			if got := silent.use().failures.Load() - before; got != failures || silent.fit() != (failures == 0) {
				t.Errorf("where connects take %v: %d failures, fit %v", slowest, got, silent.fit())
			}
		}
	}
}

func TestPatience(t *testing.T) {
	var g backendHealth
	if got := g.patience(); got != firstPatience {
		t.Errorf("%v before the first connect", got)
	}
	g.connected(time.Millisecond)
	if got := g.patience(); got != leastPatience {
		t.Errorf("%v where connects take 1 ms", got)
	}
	g.connected(300 * time.Millisecond)
	if got := g.patience(); got != 1200*time.Millisecond {
		t.Errorf("%v where connects take 300 ms", got)
	}
	for range 100 {
		g.connected(time.Millisecond)
	}
	if got := g.patience(); got != leastPatience {
		t.Errorf("%v when slow connects are long over", got)
	}
}

// dropping has the kernel drop what comes to a socket.
func dropping(t testing.TB, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &program[0]})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLost is that a connection whose peer acknowledges nothing is told from one whose peer does not answer.
func TestLost(t *testing.T) {
	server := listenTo(t, func(c net.Conn) { <-t.Context().Done() })
	_, b := newSet(t, Options{}, endpoint(server.addrPort()), endpoint(netip.MustParseAddrPort("127.0.0.1:1")))
	e := b.Endpoints()[0]
	slow, lost, idle := dial(t, e), dial(t, e), dial(t, e)
	conns := server.accepted(t, 3)
	for _, c := range conns { // they may be accepted in another order
		if c.RemoteAddr().String() == lost.LocalAddr().String() {
			dropping(t, c)
		}
	}
	for _, c := range []*Conn{slow, lost} {
		if c.Lost() {
			t.Error("lost before anything was sent")
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "the connection is lost", lost.Lost)
	if slow.Lost() {
		t.Error("a connection is lost whose peer does not answer")
	}
	idle.Release()
	e.Suspect()
	if e.fit() || e.Idle() != nil {
		t.Error("the endpoint is chosen, or its idle connection is kept")
	}
	slow.Close()
	if lost.Close(); lost.Lost() {
		t.Error("lost after it was closed")
	}
}
