package upstream

import (
	"context"
	"testing"
	"time"
)

// TestUnrepeatableRequestsReplaceIdle: a connection that a request needs because those that idle are too old for it takes the place of one of them, so that there are
// never more than were used at a time.
func TestUnrepeatableRequestsReplaceIdle(t *testing.T) {
	for _, name := range []string{"connections are old", "the endpoint is terminating"} {
		srv := listen(t)
		s, b := newSet(t, Options{}, endpoint(srv.addrPort()))
		e := b.Endpoints()[0]
		now := time.Now()
		ageAll := func() {
			if name == "the endpoint is terminating" {
				apply(t, s, endpointsResource(key, terminating(srv.addrPort())))
				return
			}
			for range 3 {
				now = now.Add(time.Second)
				s.Sweep(now)
			}
		}
		for round := range 4 {
			var conns []*Conn
			for range 3 {
				c := e.IdleRecent()
				if c == nil {
					var err error
					if c, _, err = e.Connect(context.Background(), time.Time{}, false); err != nil {
						t.Fatal(err)
					}
				}
				conns = append(conns, c)
			}
			for _, c := range conns {
				c.Release()
			}
			if got := e.Stats(); got.Open != 3 || got.Idle != 3 {
				t.Errorf("%s: after round %d %d connections are open, of which %d idle; want 3", name, round, got.Open, got.Idle)
			}
			ageAll()
		}
	}
}

// TestFreeIdle: of each endpoint the half goes that has idled for longest, and what is in use stays.
func TestFreeIdle(t *testing.T) {
	one, other := listen(t), listen(t)
	s, b := newSet(t, Options{}, endpoint(one.addrPort()), endpoint(other.addrPort()))
	first, second := b.Endpoints()[0], b.Endpoints()[1]
	used := dial(t, first)
	defer used.Close()
	conns := []*Conn{dial(t, first), dial(t, first), dial(t, first), dial(t, second)}
	for _, c := range conns {
		c.Release()
	}
	if !s.FreeIdle() {
		t.Error("nothing was freed")
	}
	if f, s := first.Stats(), second.Stats(); f.Idle != 1 || f.Open != 2 || s.Open != 0 {
		t.Errorf("%+v and %+v are left, want one idle and the one in use, and none", f, s)
	}
	if c := first.Idle(); c != conns[2] {
		t.Error("it is not the one that was released last that is left")
	}
	if s.FreeIdle() {
		t.Error("something was freed, and nothing idled")
	}
	if got := s.sockets.Load(); got != 2 {
		t.Errorf("%d connections are counted, want 2", got)
	}
}

// TestMaxOpen: all connections are bounded, and those of one Backend so that others have some; what idles makes room for what is asked for.
func TestMaxOpen(t *testing.T) {
	const most = 16
	srv := listen(t)
	s := NewSet(Options{MaxOpen: most})
	t.Cleanup(s.Close)
	apply(t, s, backendResource("a"), endpointsResource("a", endpoint(srv.addrPort())), backendResource("b"), endpointsResource("b", endpoint(srv.addrPort())))
	a, b := s.Get("a").Endpoints()[0], s.Get("b").Endpoints()[0]
	var ofA []*Conn
	for range mostOfBackend(most) {
		ofA = append(ofA, dial(t, a))
	}
	_, err := a.Dial(context.Background(), time.Time{})
	wantDialError(t, err, ReasonOverloaded, false)
	for range most - mostOfBackend(most) {
		dial(t, b)
	}
	_, err = b.Dial(context.Background(), time.Time{})
	wantDialError(t, err, ReasonOverloaded, false)
	if b.BeginTunnel() {
		t.Error("a tunnel is begun beyond the limit")
	}
	ofA[0].Release()
	dial(t, b).Close() // in the place of the one that idled
	if !b.BeginTunnel() {
		t.Error("no tunnel is begun within the limit")
	}
	b.TunnelMade()
	b.TunnelClosed()
	dial(t, a).Close()
	if got := s.sockets.Load(); got != most-1 {
		t.Errorf("%d connections are counted, want %d", got, most-1)
	}
}
