package exchange

import (
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// l4 is a connection whose route leads to a Service with endpoints at ports of 127.0.0.1.
func l4(t *testing.T, ports ...uint16) (*L4, *upstream.Backend) {
	t.Helper()
	const key = "Service/default/s/80"
	endpoints := &config.Endpoints{Key: key}
	for _, p := range ports {
		endpoints.Endpoints = append(endpoints.Endpoints, &config.Endpoint{Address: "127.0.0.1", Port: uint32(p)})
	}
	s := upstream.NewSet(upstream.Options{})
	t.Cleanup(s.Close)
	err := s.Apply([]*config.Resource{
		{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Namespace: "default", Name: "s", Port: 80}}},
		{Kind: &config.Resource_Endpoints{Endpoints: endpoints}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{Observer: &observe.Observer{}}
	x := &L4{engine: e, start: time.Now(), backend: s.Get(key)}
	x.path = tunnelPath{tunnels: &e.tunnels, listener: "l", from: tunnelled{local(1), local(2)}}
	return x, x.backend
}

func local(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

// idleBackend has nothing be counted that has ended.
func idleBackend(t *testing.T, x *L4, b *upstream.Backend) {
	t.Helper()
	if st := b.Stats(); st.InFlight != 0 || st.Open != 0 {
		t.Errorf("%+v is left", st)
	}
	if len(x.engine.tunnels.made) != 0 {
		t.Errorf("%v are known that have ended", x.engine.tunnels.made)
	}
}

// TestL4AsksEachEndpointOnce: an endpoint that cannot be reached is followed by another one, until none is left.
func TestL4AsksEachEndpointOnce(t *testing.T) {
	x, b := l4(t, 1001, 1002, 1003)
	var seed uint64
	asked := map[netip.AddrPort]bool{}
	for i := range 3 {
		to, timeout, next, _ := x.Next(&seed)
		if whole := timeout == upstream.DefaultConnectTimeout; next != L4Dial || asked[to] || whole != (i == 2) { // less while another one is fit
			t.Fatalf("endpoint %d: %v is asked, within %v, by %v", i, to, timeout, next)
		}
		asked[to] = true
		x.Dialling(local(5000))
		if again, reason := x.Failed(syscall.ECONNREFUSED); again != (i+1 < maxConnects) || reason != observe.ReasonConnectFailed {
			t.Fatalf("endpoint %d: %v, %v", i, again, reason)
		}
		idleBackend(t, x, b)
	}
	if _, _, next, reason := x.Next(&seed); next != L4End || reason != observe.ReasonConnectFailed {
		t.Errorf("behind the last endpoint: %v, %v", next, reason)
	}
	x.Finish(observe.ReasonConnectFailed, tunnel.End{})
	if st := b.Stats(); st.Failures != 3 || st.Dialled != 0 {
		t.Errorf("%+v", st)
	}
	idleBackend(t, x, b)
}

// TestL4Moves: an endpoint that takes long is followed by another one, long before the connect timeout.
func TestL4Moves(t *testing.T) {
	x, b := l4(t, 1001, 1002)
	var seed uint64
	slow, timeout, _, _ := x.Next(&seed)
	x.Dialling(local(5000))
	if again, reason := x.Failed(os.ErrDeadlineExceeded); !again || reason != observe.ReasonConnectTimeout || timeout >= upstream.DefaultConnectTimeout {
		t.Fatal(again, reason, timeout)
	}
	other, _, _, _ := x.Next(&seed)
	x.Dialling(local(5001))
	if again, _ := x.Failed(syscall.ECONNREFUSED); !again || other == slow {
		t.Fatal(again, slow, other)
	}
	if _, _, next, reason := x.Next(&seed); next != L4End || reason != observe.ReasonConnectFailed {
		t.Errorf("behind an endpoint that refuses only others are asked: %v, %v", next, reason)
	}
	x.Finish(observe.ReasonConnectFailed, tunnel.End{})
	idleBackend(t, x, b)
}

// TestL4Counts: what is counted of a connection goes with it, however far it has come.
func TestL4Counts(t *testing.T) {
	for name, c := range map[string]struct {
		until    func(x *L4)
		inFlight int64
		open     int64
	}{
		"before a dial": {func(*L4) {}, 1, 0},
		"while dialled": {func(x *L4) { x.Dialling(local(5000)) }, 1, 0},
		"joined":        {func(x *L4) { x.Dialling(local(5000)); x.Made() }, 1, 1},
	} {
		x, b := l4(t, 1001)
		var seed uint64
		if _, _, next, _ := x.Next(&seed); next != L4Dial {
			t.Fatal(next)
		}
		c.until(x)
		if st := b.Stats(); st.InFlight != c.inFlight || st.Open != c.open {
			t.Errorf("%s: %+v", name, st)
		}
		x.Finish(observe.ReasonOK, tunnel.End{})
		idleBackend(t, x, b)
	}
}

// TestL4Circles: a connection that comes back, or that the system has made to itself, is refused once that is known.
func TestL4Circles(t *testing.T) {
	var seed uint64
	x, b := l4(t, 1001)
	x.Next(&seed)
	x.Dialling(local(1001)) // as happens where nobody listens at a port of the range that connections are made from
	if reason := x.Made(); reason != observe.ReasonConnectFailed {
		t.Errorf("with itself: %v", reason)
	}
	x.Finish(observe.ReasonConnectFailed, tunnel.End{})
	idleBackend(t, x, b)

	x, b = l4(t, 1001)
	x.Next(&seed)
	x.Dialling(local(5000))
	// The client's connection turns out to be one that was made for a tunnel of the same listener.
	x.engine.tunnels.add(x.path.from, &pass{listener: "l"})
	if reason := x.Made(); reason != observe.ReasonLoopDetected {
		t.Errorf("in a circle: %v", reason)
	}
	x.engine.tunnels.remove(x.path.from, x.engine.tunnels.get(x.path.from))
	x.Finish(observe.ReasonLoopDetected, tunnel.End{})
	idleBackend(t, x, b)
}

// TestL4LeavesToJoin: what may have to wait is not begun.
func TestL4LeavesToJoin(t *testing.T) {
	var seed uint64
	x, b := l4(t)
	if _, _, next, reason := x.Next(&seed); next != L4End || reason != observe.ReasonNoEndpoints {
		t.Errorf("without endpoints: %v, %v", next, reason)
	}
	idleBackend(t, x, b)
	x, b = l4(t, 1001)
	b.Config().Traffic = &config.BackendTraffic{Policy: "BackendTrafficPolicy default/p"}
	if _, _, next, _ := x.Next(&seed); next != L4Join {
		t.Errorf("by a policy: %v", next)
	}
	idleBackend(t, x, b)
}
