package upstream

import (
	"context"
	"sync"
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

// TestEvictIdle: what has idled for long goes first, wherever it is, then the rest, and what is in use stays.
func TestEvictIdle(t *testing.T) {
	one, other := listen(t), listen(t)
	s, b := newSet(t, Options{}, endpoint(one.addrPort()), endpoint(other.addrPort()))
	first, second := b.Endpoints()[0], b.Endpoints()[1]
	used := dial(t, first)
	defer used.Close()
	conns := []*Conn{dial(t, first), dial(t, first), dial(t, first), dial(t, second)}
	now := time.Now()
	s.Sweep(now)
	conns[0].Release()
	conns[3].Release()
	s.Sweep(now.Add(11 * time.Second))
	conns[1].Release()
	s.Sweep(now.Add(14 * time.Second))
	conns[2].Release()
	for i, want := range []struct{ first, second int64 }{{2, 0}, {1, 0}, {0, 0}} {
		if !s.EvictIdle() {
			t.Errorf("%d: nothing was freed", i)
		}
		if f, s := first.Stats(), second.Stats(); f.Idle != want.first || f.Open != want.first+1 || s.Open != want.second {
			t.Errorf("%d: %+v and %+v are left, want %+v idle and the one in use", i, f, s, want)
		}
	}
	if s.EvictIdle() {
		t.Error("something was freed, and nothing idled")
	}
	dial(t, first).Release()
	if s.EvictIdle() {
		t.Error("it was looked again at once")
	}
	s.eviction.notBefore.Store(0)
	if !s.EvictIdle() {
		t.Error("it was not looked again")
	}
	if got := s.sockets.Load(); got != 1 || b.use().sockets.Load() != 1 {
		t.Errorf("%d and %d connections are counted, want 1", got, b.use().sockets.Load())
	}
}

// TestEvictIdleIsBounded: one pass closes no more than a batch, and many that ask at the same moment have one.
func TestEvictIdleIsBounded(t *testing.T) {
	srv := listen(t)
	s, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	var conns []*Conn
	for range evictBatch + 10 {
		conns = append(conns, dial(t, e))
	}
	for _, c := range conns {
		c.Release()
	}
	if !s.EvictIdle() || e.Stats().Idle != 10 {
		t.Errorf("%+v", e.Stats())
	}
}

// TestSpareEvictsNothing: a connection that no request asks for takes the place of none.
func TestSpareEvictsNothing(t *testing.T) {
	srv := listen(t)
	s := NewSet(Options{MaxOpen: 8})
	t.Cleanup(s.Close)
	apply(t, s, backendResource("a"), endpointsResource("a", endpoint(srv.addrPort())))
	e := s.Get("a").Endpoints()[0]
	for range mostOfBackend(8) {
		dial(t, e)
	}
	e.backend.set.open.first.Release()
	limit := e.connectLimit(time.Time{})
	limit.spare = true
	e.reserveAnyway()
	_, err := e.dialBy(context.Background(), limit, forRequest, nil)
	wantDialError(t, err, ReasonOverloaded, false)
	if n, idle := e.backend.totals().refused.Load(), e.Stats().Idle; n != 0 || idle != 1 {
		t.Errorf("%d requests were counted as refused, and %d connections idle; want none and 1", n, idle)
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
	s.eviction.notBefore.Store(0)
	dial(t, b).Close() // in the place of the one that idled
	if !b.BeginTunnel() {
		t.Error("no tunnel is begun within the limit")
	}
	b.TunnelMade(time.Millisecond)
	b.TunnelClosed()
	dial(t, a).Close()
	if got := s.sockets.Load(); got != most-1 {
		t.Errorf("%d connections are counted, want %d", got, most-1)
	}
}

// TestMaxOpenTogether: connections that are made at the same moment take the places of ones that idle, be these of any age, and none is refused while there are such.
func TestMaxOpenTogether(t *testing.T) {
	const most = 16
	srv := listen(t)
	s := NewSet(Options{MaxOpen: most})
	t.Cleanup(s.Close)
	apply(t, s, backendResource("a"), endpointsResource("a", endpoint(srv.addrPort())))
	a := s.Get("a").Endpoints()[0]
	var idle []*Conn
	for range mostOfBackend(most) {
		idle = append(idle, dial(t, a))
	}
	for _, c := range idle {
		c.Release()
	}
	idle[0].released = s.clock.Load() - int64(time.Minute)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			c, err := a.Dial(context.Background(), time.Time{})
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { c.Close() })
		})
	}
	all.Wait()
	if got := s.sockets.Load(); got > mostOfBackend(most) {
		t.Errorf("%d connections are counted", got)
	}
}
