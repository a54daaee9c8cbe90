package upstream

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

func TestLastReleasedIsNextTaken(t *testing.T) {
	srv := listen(t)
	_, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	if e.Idle() != nil {
		t.Fatal("a connection out of nothing")
	}
	first, second := dial(t, e), dial(t, e)
	if first.Reused || first.Endpoint() != e {
		t.Errorf("dialled: Reused %v, endpoint %v", first.Reused, first.Endpoint())
	}
	first.Release()
	second.Release()
	if got := e.Stats(); got != (Stats{Open: 2, Idle: 2, Dialled: 2}) {
		t.Errorf("released: %+v", got)
	}
	if c := e.Idle(); c != second || !c.Reused {
		t.Error("not the last released")
	}
	if e.Idle() != first || e.Idle() != nil {
		t.Error("not the first at last")
	}
	if err := echo(first); err != nil {
		t.Error(err)
	}
	if got := b.Stats(); got != (Stats{Open: 2, Dialled: 2}) {
		t.Errorf("taken: %+v", got)
	}
}

// TestIdleRecent: for a request that may not be sent again there is only what was in use a moment ago, and nothing of an endpoint
// that is terminating.
func TestIdleRecent(t *testing.T) {
	srv := listen(t)
	s, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	now := time.Now()
	sweep := func() {
		now = now.Add(time.Second)
		s.Sweep(now)
	}
	sweep()
	dial(t, e).Release()
	sweep()
	c := e.IdleRecent()
	if c == nil {
		t.Fatal("a connection released one interval ago is not given")
	}
	c.Release()
	sweep()
	sweep()
	if e.IdleRecent() != nil {
		t.Error("a connection released two intervals ago is given")
	}
	if c = e.Idle(); c == nil {
		t.Fatal("it is not given to others either")
	}
	c.Release()
	apply(t, s, endpointsResource(key, terminating(srv.addrPort())))
	if e.IdleRecent() != nil {
		t.Error("a connection to an endpoint that is terminating is given")
	}
	apply(t, s, endpointsResource(key, endpoint(srv.addrPort())))
	if e.IdleRecent() != c {
		t.Error("a connection to an endpoint that is ready again is not given")
	}
}

func TestIdleLimit(t *testing.T) {
	srv := listen(t)
	for _, limit := range []int{-1, 1, 2} {
		_, b := newSet(t, Options{MaxIdle: limit}, endpoint(srv.addrPort()))
		e := b.Endpoints()[0]
		for _, c := range []*Conn{dial(t, e), dial(t, e), dial(t, e)} {
			c.Release()
		}
		want := int64(max(limit, 0))
		if got := e.Stats(); got.Idle != want || got.Open != want {
			t.Errorf("limit %d: %+v", limit, got)
		}
	}
}

func TestReleaseClearsDeadlines(t *testing.T) {
	srv := listen(t)
	_, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	past := time.Unix(1, 0)
	for name, set := range map[string]func(*Conn) error{
		"both":  func(c *Conn) error { return c.SetDeadline(past) },
		"read":  func(c *Conn) error { return c.SetReadDeadline(past) },
		"write": func(c *Conn) error { return c.SetWriteDeadline(past) },
	} {
		c := dial(t, e)
		if err := set(c); err != nil {
			t.Fatal(err)
		}
		c.Release()
		if c != e.Idle() {
			t.Fatal("another connection")
		}
		if err := echo(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
}

func TestCloseTwiceAndAfterRelease(t *testing.T) {
	srv := listen(t)
	_, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	c := dial(t, e)
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("closing once more: %v", err)
		}
	}
	c.Release()
	if got := e.Stats(); got != (Stats{Dialled: 1}) {
		t.Errorf("a closed connection was kept: %+v", got)
	}
}

func TestSweepClosesWhatIdledTooLong(t *testing.T) {
	srv := listen(t)
	start := time.Now()
	s, b := newSet(t, Options{IdleTimeout: 10 * time.Second}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	a, c := dial(t, e), dial(t, e)
	s.Sweep(start)
	a.Release()
	s.Sweep(start.Add(5 * time.Second))
	c.Release()
	for _, step := range []struct {
		after time.Duration
		idle  int64
	}{{9 * time.Second, 2}, {10 * time.Second, 1}, {14 * time.Second, 1}, {15 * time.Second, 0}} {
		s.Sweep(start.Add(step.after))
		if got := e.Stats(); got.Idle != step.idle || got.Open != step.idle {
			t.Errorf("after %v: %+v, want %d", step.after, got, step.idle)
		}
	}
}

func TestSweepBatches(t *testing.T) {
	srv := listen(t)
	s, b := newSet(t, Options{IdleTimeout: time.Second}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	conns := make([]*Conn, 2*sweepBatch+5)
	for i := range conns {
		conns[i] = dial(t, e)
	}
	peers := srv.accepted(t, len(conns))
	now := time.Now()
	s.Sweep(now)
	for _, c := range conns {
		c.Release()
	}
	s.Sweep(now)
	s.Sweep(now.Add(time.Millisecond))
	if e.Stats().Idle != int64(len(conns)) {
		t.Fatalf("the living were swept: %+v", e.Stats())
	}
	for i := 0; i < len(peers); i += 2 {
		peers[i].Close()
	}
	testkit.Eventually(t, "exactly the connections that the peer closed are swept", func() bool {
		s.Sweep(now.Add(time.Millisecond))
		return e.Stats().Idle == int64(len(conns)/2)
	})
	s.Sweep(now.Add(2 * time.Second))
	if got := e.Stats(); got.Open != 0 || got.Idle != 0 {
		t.Errorf("after the timeout: %+v", got)
	}
}

func TestRemovedEndpointClosesItsConnections(t *testing.T) {
	srv := listen(t)
	_, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	idle, used := dial(t, e), dial(t, e)
	idle.Release()
	apply(t, b.set, endpointsResource(key))
	if got := b.Stats(); got.Open != 1 {
		t.Errorf("the idle connection was not closed: %+v", got)
	}
	if err := echo(used); err != nil {
		t.Errorf("the connection in use was disturbed: %v", err)
	}
	used.Release()
	if got := b.Stats(); got != (Stats{Dialled: 2}) {
		t.Errorf("the connection in use was kept: %+v", got)
	}
	// The same address again is a new endpoint.
	apply(t, b.set, endpointsResource(key, endpoint(srv.addrPort())))
	if b.Endpoints()[0] == e {
		t.Error("a removed endpoint came back")
	}
}

func wantDialError(t *testing.T, err error, reason Reason, retryable bool) {
	t.Helper()
	var d *DialError
	if !errors.As(err, &d) || d.Reason != reason || d.Retryable != retryable {
		t.Fatalf("%v, want %s, retryable %v", err, reason, retryable)
	}
	if d.Error() == "" || d.Unwrap() == nil {
		t.Errorf("an empty error: %#v", d)
	}
}

func TestDialRefused(t *testing.T) {
	srv := listen(t)
	_, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	srv.stop()
	c, err := e.Dial(context.Background(), time.Time{})
	if c != nil {
		t.Error("a connection beside the error")
	}
	wantDialError(t, err, ReasonRefused, true)
	if !e.avoided() || e.Stats() != (Stats{Failures: 1}) || b.Stats().Failures != 1 {
		t.Errorf("avoided %v, %+v", e.avoided(), e.Stats())
	}
	again, err := net.Listen("tcp", srv.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	dial(t, e)
	if e.avoided() {
		t.Error("still avoided after a connect")
	}
}

func TestDialGivenUpByTheCaller(t *testing.T) {
	srv := listen(t)
	_, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := e.Dial(ctx, time.Time{})
	wantDialError(t, err, ReasonCanceled, false)
	ctx, cancel = context.WithTimeout(context.Background(), -1)
	defer cancel()
	_, err = e.Dial(ctx, time.Time{})
	wantDialError(t, err, ReasonDeadline, false)
	_, err = e.Dial(context.Background(), time.Now().Add(-time.Second))
	wantDialError(t, err, ReasonDeadline, false)
	if e.avoided() || e.Stats().Failures != 0 {
		t.Errorf("the endpoint is blamed: %+v", e.Stats())
	}
}

func TestPoolAllocatesNothing(t *testing.T) {
	srv := listen(t)
	s, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	dial(t, e).Release()
	later := time.Now()
	for name, f := range map[string]func(){
		"Idle and Release": func() { e.Idle().Release() },
		"with a deadline": func() {
			c := e.Idle()
			c.SetReadDeadline(later.Add(time.Hour)) //nolint:errcheck
			c.Release()
		},
		"Alive": func() {
			c := e.Idle()
			if !c.Alive() {
				t.Fatal("not alive")
			}
			c.Release()
		},
		"Sweep": func() {
			later = later.Add(time.Microsecond)
			s.Sweep(later)
		},
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if e.Stats().Dialled != 1 || e.Stats().Idle != 1 {
		t.Errorf("%+v", e.Stats())
	}
}

func BenchmarkIdleRelease(b *testing.B) {
	srv := listen(b)
	_, backend := newSet(b, Options{}, endpoint(srv.addrPort()))
	e := backend.Endpoints()[0]
	dial(b, e).Release()
	b.ReportAllocs()
	for b.Loop() {
		e.Idle().Release()
	}
}

func BenchmarkAlive(b *testing.B) {
	srv := listen(b)
	_, backend := newSet(b, Options{}, endpoint(srv.addrPort()))
	c := dial(b, backend.Endpoints()[0])
	b.ReportAllocs()
	for b.Loop() {
		c.Alive()
	}
}

// BenchmarkSweep256 looks at 256 idle sockets.
func BenchmarkSweep256(b *testing.B) {
	srv := listen(b)
	s, backend := newSet(b, Options{}, endpoint(srv.addrPort()))
	e := backend.Endpoints()[0]
	conns := make([]*Conn, DefaultMaxIdle)
	for i := range conns {
		conns[i] = dial(b, e)
	}
	for _, c := range conns {
		c.Release()
	}
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Microsecond)
		s.Sweep(now)
	}
}
