package upstream

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// toldOf is a backend that is told whose connections it gets, by a server that reads all it gets.
func toldOf(t testing.TB, c *config.CircuitBreaker) (*Set, *Backend, *Endpoint) {
	t.Helper()
	srv := listen(t)
	s, _ := newSet(t, Options{ConnectTimeout: time.Minute}, endpoint(srv.addrPort()))
	r := backendResource(key)
	r.GetBackend().Traffic = &config.BackendTraffic{CircuitBreaker: c, Connections: &config.BackendConnections{ProxyHeader: config.ProxyHeader_PROXY_HEADER_V2}}
	apply(t, s, r)
	return s, s.Get(key), s.Get(key).Endpoints()[0]
}

func clientOf(n int) For {
	return For{Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}), 80)}
}

// TestAt: connections of one client serve no other, count for the endpoint, and go by Sweep like any.
func TestAt(t *testing.T) {
	s, b, e := toldOf(t, nil)
	one, other := e.At(clientOf(1)), e.At(clientOf(2))
	if one == other || one == e || e.At(clientOf(1)) != one {
		t.Fatal("clients are not told apart")
	}
	if with := clientOf(1); e.At(For{Client: with.Client, HTTP2: true}) != one {
		t.Error("the version of HTTP counts though it is not the client's")
	}
	c := wait(t, connecting(t.Context(), one, true))
	if c.err != nil {
		t.Fatal(c.err)
	}
	c.conn.Release()
	if other.Idle() != nil || e.Idle() != nil {
		t.Error("a connection serves another client")
	}
	if st := b.Stats(); st.Open != 1 || st.Idle != 1 || st.Dialled != 1 || e.Stats().Open != 1 || e.Stats().Idle != 1 {
		t.Errorf("%+v, of the endpoint %+v", st, e.Stats())
	}
	at := time.Now()
	for range 3 { // two for the connection to be old, and another to see that nobody asks
		at = at.Add(time.Hour)
		s.Sweep(at)
	}
	if st := b.Stats(); st.Open != 0 || len(e.innerList()) != 0 {
		t.Errorf("%+v, %d clients are known", st, len(e.innerList()))
	}
	if again := e.At(clientOf(1)); again == one {
		t.Error("what was dropped is there again")
	}
	c = wait(t, connecting(t.Context(), one, true)) // who had found it before
	if c.err != nil {
		t.Fatal(c.err)
	}
	c.conn.Release()
	testkit.Eventually(t, "its connection is closed", func() bool { return b.Stats().Open == 0 })
}

// known is how many clients have something kept for them.
func (s *Set) known() int {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	if n := int(s.clients.number.Load()); n != len(s.clients.kept) {
		return -1
	}
	return len(s.clients.kept)
}

// TestClientGone: what is kept for a client goes with it, at once or when it is released, and nothing of others.
func TestClientGone(t *testing.T) {
	s, b, e := toldOf(t, nil)
	one := e.At(clientOf(1))
	connect := func(in *Endpoint) *Conn {
		t.Helper()
		c := wait(t, connecting(t.Context(), in, true))
		if c.err != nil {
			t.Fatal(c.err)
		}
		return c.conn
	}
	idle, used, other := connect(one), connect(one), connect(e.At(clientOf(2)))
	idle.Release()
	other.Release()
	s.ClientGone(clientOf(3).Client) // of which nothing is known
	if st := b.Stats(); st.Open != 3 || s.known() != 2 {
		t.Fatalf("%+v, %d clients are known", st, s.known())
	}
	s.ClientGone(clientOf(1).Client)
	if st := b.Stats(); st.Open != 2 || st.Idle != 1 || s.known() != 1 {
		t.Errorf("%+v, %d clients are known", st, s.known())
	}
	used.Release()
	if st := b.Stats(); st.Open != 1 || st.Idle != 1 {
		t.Errorf("%+v", st)
	}
	if e.At(clientOf(1)) == one {
		t.Error("what was kept for a client that has left is there again")
	}
	s.ClientGone(clientOf(1).Client)
	s.ClientGone(clientOf(2).Client)
	if st := b.Stats(); st.Open != 0 || len(e.innerList()) != 0 || s.known() != 0 {
		t.Errorf("%+v, %d clients are known", st, s.known())
	}
	for i := range 5000 {
		if kept := e.At(clientOf(i)); e.At(clientOf(i)) != kept {
			t.Fatalf("nothing is kept for client %d", i)
		}
		s.ClientGone(clientOf(i).Client)
	}
	if len(e.innerList()) != 0 || s.known() != 0 {
		t.Errorf("%d Endpoints are left, %d clients are known", len(e.innerList()), s.known())
	}
	// Those that go otherwise are forgotten too, and one that only a proxy knows never comes.
	e.At(clientOf(1))
	s.Sweep(time.Now().Add(time.Hour))
	s.Sweep(time.Now().Add(2 * time.Hour))
	e.At(For{Client: netip.AddrPortFrom(clientOf(1).Client.Addr(), 0)})
	if s.known() != 0 {
		t.Errorf("%d clients are known after a sweep", s.known())
	}
	e.At(clientOf(1))
	apply(t, s, endpointsResource(key))
	if s.known() != 0 {
		t.Errorf("%d clients of an endpoint that is gone are known", s.known())
	}
}

// TestClientGoneWhileAwaited: a request of another connection for which the same client is named still gets its connection.
func TestClientGoneWhileAwaited(t *testing.T) {
	s, b, e := toldOf(t, &config.CircuitBreaker{MaxConnections: proto.Uint32(1)})
	c := wait(t, connecting(t.Context(), e.At(clientOf(1)), true)).conn
	waiting := connecting(t.Context(), e.At(clientOf(2)), true)
	b.waitsFor(t, 1)
	s.ClientGone(clientOf(2).Client)
	c.Release()
	got := wait(t, waiting)
	if got.err != nil {
		t.Fatal(got.err)
	}
	got.conn.Close()
}

// TestAtMakesRoom: with too many clients, those that have not asked for long make room for new ones, though they have connections.
func TestAtMakesRoom(t *testing.T) {
	s, _, e := toldOf(t, nil)
	var all []*Endpoint
	for i := range maxWithin {
		if i == maxWithin/2 {
			s.clock.Add(1)
		}
		all = append(all, e.At(clientOf(i)))
		all[i].use().own.count.Store(1) // as with an idle connection
	}
	s.clock.Add(1)
	late := e.At(clientOf(maxWithin))
	if e.At(clientOf(maxWithin)) != late {
		t.Error("nothing is kept for a new client")
	}
	if e.At(clientOf(0)) == all[0] || e.At(clientOf(maxWithin-1)) != all[maxWithin-1] {
		t.Error("not what was unused for the longest time has made room")
	}
}

// TestAtIsBounded: beyond a number of clients connections are for one request each.
func TestAtIsBounded(t *testing.T) {
	s, b, e := toldOf(t, nil)
	for i := range maxWithin {
		e.At(clientOf(i))
	}
	late := e.At(clientOf(maxWithin))
	if e.At(clientOf(maxWithin)) == late {
		t.Error("more clients are known than may be")
	}
	c := wait(t, connecting(t.Context(), late, true))
	if c.err != nil {
		t.Fatal(c.err)
	}
	c.conn.Release()
	if st := b.Stats(); st.Open != 0 {
		t.Errorf("%+v", st)
	}
	s.Sweep(time.Now().Add(time.Hour)) // nobody asks for the others
	s.Sweep(time.Now().Add(2 * time.Hour))
	if first := e.At(clientOf(maxWithin)); e.At(clientOf(maxWithin)) != first {
		t.Error("a client is not known though there is room")
	}
}

// TestAtSharesLimits: a breaker's limits are for all clients together: a request has the idle connection of another client closed.
func TestAtSharesLimits(t *testing.T) {
	for name, c := range map[string]*config.CircuitBreaker{
		"backend": {MaxConnections: proto.Uint32(1)}, "endpoint": {MaxConnectionsPerEndpoint: proto.Uint32(1)},
	} {
		t.Run(name, func(t *testing.T) {
			_, b, e := toldOf(t, c)
			c := wait(t, connecting(t.Context(), e.At(clientOf(1)), true))
			waiting := connecting(t.Context(), e.At(clientOf(2)), true)
			b.waitsFor(t, 1)
			c.conn.Release()
			got := wait(t, waiting)
			if got.err != nil || b.Stats().Open != 1 {
				t.Fatalf("%+v, %+v", got, b.Stats())
			}
			got.conn.Release()
			again := wait(t, connecting(t.Context(), e.At(clientOf(1)), true))
			if again.err != nil || b.Stats().Open != 1 {
				t.Fatalf("%+v, %+v", again, b.Stats())
			}
			again.conn.Close()
			zero(t, b)
		})
	}
}

// TestAtBeyondItsBound: nobody waits for a limit where nobody would be served: beyond the clients that are known a request is refused, or has what idles closed.
func TestAtBeyondItsBound(t *testing.T) {
	for name, c := range map[string]*config.CircuitBreaker{
		"backend": {MaxConnections: proto.Uint32(1)}, "endpoint": {MaxConnectionsPerEndpoint: proto.Uint32(1)},
	} {
		t.Run(name, func(t *testing.T) {
			_, b, e := toldOf(t, c)
			for i := range maxWithin {
				e.At(clientOf(i))
			}
			c := wait(t, connecting(t.Context(), e.At(clientOf(1)), true))
			if c.err != nil {
				t.Fatal(c.err)
			}
			var refused *DialError
			if got := wait(t, connecting(t.Context(), e.At(clientOf(maxWithin)), true)); !errors.As(got.err, &refused) || refused.Reason != ReasonBreaker {
				t.Fatalf("%+v", got)
			}
			c.conn.Release()
			got := wait(t, connecting(t.Context(), e.At(clientOf(maxWithin)), true))
			if got.err != nil || b.Stats().Open != 1 {
				t.Fatalf("%+v, %+v", got, b.Stats())
			}
			got.conn.Release()
			testkit.Eventually(t, "its connection is closed", func() bool { return b.Stats().Open == 0 })
			zero(t, b)
		})
	}
}

// TestAtOfGoneEndpoint: what is within an endpoint goes with it.
func TestAtOfGoneEndpoint(t *testing.T) {
	s, b, e := toldOf(t, nil)
	one := e.At(clientOf(1))
	c := wait(t, connecting(t.Context(), one, true))
	c.conn.Release()
	held := wait(t, connecting(t.Context(), e.At(clientOf(2)), true))
	apply(t, s, endpointsResource(key))
	if st := b.Stats(); st.Open != 1 {
		t.Errorf("%+v, want the connection in use alone", st)
	}
	held.conn.Release()
	if st := b.Stats(); st.Open != 0 {
		t.Errorf("%+v", st)
	}
	if got := wait(t, connecting(t.Context(), e.At(clientOf(3)), true)); got.err == nil {
		t.Error("a connection to an endpoint that is gone")
	}
}
