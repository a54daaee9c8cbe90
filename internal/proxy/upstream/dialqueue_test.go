package upstream

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// allTurnsTaken is an endpoint to which no request may dial, until done is called, and a connection to it in use.
func allTurnsTaken(t *testing.T) (*server, *Set, *Endpoint, *Conn) {
	t.Helper()
	srv := listen(t)
	s, b := newSet(t, Options{MaxDials: 1, ConnectTimeout: time.Minute}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	c := dial(t, e)
	e.use().dials.mu.Lock()
	e.use().dials.dialing = 1
	e.use().dials.mu.Unlock()
	return srv, s, e, c
}

// connected is what Connect has returned.
type connected struct {
	conn  *Conn
	place *Shared
	err   error
}

// connect calls Connect, and returns when it waits.
func connect(t *testing.T, e *Endpoint) <-chan connected { t.Helper(); return connectAs(t, e, true) }

func connectAs(t *testing.T, e *Endpoint, repeatable bool) <-chan connected {
	t.Helper()
	waiting := e.use().dials.numWaiting.Load()
	got := make(chan connected, 1)
	go func() {
		c, s, err := e.Connect(context.Background(), time.Time{}, repeatable)
		got <- connected{c, s, err}
	}()
	testkit.Eventually(t, "the request waits", func() bool { return e.use().dials.numWaiting.Load() == waiting+1 })
	return got
}

// wait waits for what Connect returns.
func wait(t *testing.T, got <-chan connected) connected {
	t.Helper()
	select {
	case c := <-got:
		return c
	case <-time.After(5 * time.Second):
		t.Fatal("the request still waits")
		panic("unreachable")
	}
}

// TestHandedOverSpeaksAsBefore has the backend's protocol change while a connection by HTTP/1.1 is handed over: it
// does not become one by HTTP/2.
func TestHandedOverSpeaksAsBefore(t *testing.T) {
	_, _, e, c := allTurnsTaken(t)
	got := connect(t, e)
	e.backend.transport.Store(&transport{http2: true})
	c.Release()
	if g := wait(t, got); g.conn != c || g.place != nil || g.err != nil {
		t.Errorf("%+v", g)
	}
}

// TestGivenBackBeforeTheWait has a connection be given back when a request has found none idle, and before it waits.
func TestGivenBackBeforeTheWait(t *testing.T) {
	_, _, e, c := allTurnsTaken(t)
	if e.Idle() != nil {
		t.Fatal("an idle connection")
	}
	c.Release()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if got, _, err := e.Connect(ctx, time.Time{}, true); got != c || err != nil {
		t.Fatalf("%v %v, want the connection that is idle", got, err)
	}
	if st := e.Stats(); st.Waiting != 0 || !c.Reused {
		t.Errorf("%+v, reused %v", st, c.Reused)
	}
}

// TestKeptWhileAnotherBeganToWait has a request look for idle connections between the releaser's look for requests
// that wait and its keeping the connection.
func TestKeptWhileAnotherBeganToWait(t *testing.T) {
	_, _, e, c := allTurnsTaken(t)
	if e.use().dials.hand(c) {
		t.Fatal("handed to nobody")
	}
	got := connect(t, e)
	if !e.keep(c) {
		t.Fatal("not kept")
	}
	e.serveWaiting()
	if g := wait(t, got); g.conn != c {
		t.Errorf("%+v", g)
	}
}

// TestDeadIsNotHandedOver has a connection that the endpoint has closed be released to a request that waits: it waits on, for the
// next one.
func TestDeadIsNotHandedOver(t *testing.T) {
	srv, _, e, dead := allTurnsTaken(t)
	alive := dial(t, e)
	for _, c := range srv.accepted(t, 2) {
		if c.RemoteAddr().String() == dead.LocalAddr().String() {
			c.Close()
		}
	}
	testkit.Eventually(t, "the end of the connection is seen", func() bool { return !dead.Alive() })
	got := connect(t, e)
	dead.Release()
	testkit.Eventually(t, "the dead connection is closed, and the request waits", func() bool {
		return e.Stats().Open == 1 && e.use().dials.numWaiting.Load() == 1
	})
	alive.Release()
	if g := wait(t, got); g.conn != alive || !alive.Reused {
		t.Errorf("%+v", g)
	}
}

// TestTerminatingIsHandedToRepeatable: a connection of a terminating endpoint goes to the first request that may be sent again.
func TestTerminatingIsHandedToRepeatable(t *testing.T) {
	srv, s, e, c := allTurnsTaken(t)
	once := connectAs(t, e, false)
	repeatable := connectAs(t, e, true)
	apply(t, s, endpointsResource(key, terminating(srv.addrPort())))
	c.Release()
	if g := wait(t, repeatable); g.conn != c {
		t.Errorf("%+v", g)
	}
	c.Release()
	if n := e.Stats().Idle; n != 1 {
		t.Errorf("%d idle connections, want 1: nobody may have it", n)
	}
	e.dialDone(forRequest) // its turn to dial
	g := wait(t, once)
	if g.err != nil || g.conn == c || g.conn.Reused {
		t.Errorf("%+v", g)
	}
}

// TestOldIsNotHandedToUnrepeatable has a request that may not be sent again wait where an old connection is idle, which it must not
// have: the endpoint may be closing it. A recent one it may.
func TestOldIsNotHandedToUnrepeatable(t *testing.T) {
	_, s, e, old := allTurnsTaken(t)
	recent := dial(t, e)
	old.Release()
	now := time.Now()
	for i := range 3 {
		s.Sweep(now.Add(time.Duration(20+i) * time.Second))
	}
	once := connectAs(t, e, false)
	served := make(chan struct{})
	go func() {
		e.serveWaiting() // as whoever has just kept another one, which was taken meanwhile
		close(served)
	}()
	select {
	case g := <-once:
		t.Fatalf("got %+v, old %v", g, g.conn == old)
	case <-served:
	case <-time.After(5 * time.Second):
		t.Fatal("the search does not end")
	}
	if st := e.Stats(); st.Idle != 1 || st.Waiting != 1 {
		t.Errorf("%+v", st)
	}
	repeatable := &dialWaiter{ready: make(chan struct{}), purpose: forRepeatable}
	e.use().dials.mu.Lock()
	e.use().dials.waiting = append(e.use().dials.waiting, repeatable)
	e.use().dials.numWaiting.Store(2)
	e.use().dials.mu.Unlock()
	e.serveWaiting()
	if repeatable.conn != old {
		t.Fatalf("%+v, want the old connection to go to the request that may be sent again", repeatable)
	}
	e.pass(repeatable) // it is not made recent by having been handed over
	if st := e.Stats(); st.Idle != 1 || st.Waiting != 1 {
		t.Errorf("%+v", st)
	}
	recent.Release()
	if g := wait(t, once); g.conn != recent {
		t.Errorf("%+v", g)
	}
}

// connectTunnel calls ConnectTunnel, and returns when it waits.
func connectTunnel(t *testing.T, e *Endpoint) <-chan connected {
	t.Helper()
	waiting := e.use().dials.numWaiting.Load()
	got := make(chan connected, 1)
	go func() {
		c, err := e.ConnectTunnel(context.Background(), nil)
		got <- connected{conn: c, err: err}
	}()
	testkit.Eventually(t, "the tunnel waits", func() bool { return e.use().dials.numWaiting.Load() == waiting+1 })
	return got
}

// TestTunnelsWaitForTheirTurn: a tunnel dials in its turn among requests, and gets no connection that was used before, which goes to
// a request behind it.
func TestTunnelsWaitForTheirTurn(t *testing.T) {
	_, _, e, used := allTurnsTaken(t)
	tunnel := connectTunnel(t, e)
	searched := make(chan struct{})
	go func() {
		e.serveWaiting() // as whoever has just kept a connection, which was taken meanwhile
		close(searched)
	}()
	select {
	case <-searched:
	case <-time.After(5 * time.Second):
		t.Fatal("the search for a connection that a tunnel may have does not end")
	}
	request := connect(t, e)
	used.Release()
	if g := wait(t, request); g.conn != used {
		t.Errorf("the request got %+v, want the connection that was given back", g)
	}
	used.Release()
	if st := e.Stats(); st.Idle != 1 || st.Waiting != 1 {
		t.Errorf("%+v, want an idle connection, which the tunnel does not get", st)
	}
	e.dialDone(forRequest) // its turn to dial
	if g := wait(t, tunnel); g.err != nil || g.conn == used || g.conn.Reused {
		t.Errorf("the tunnel got %+v, want a new connection", g)
	}
}

// TestTunnelsBeyondTheLimitAreRefused counts tunnels among those who wait.
func TestTunnelsBeyondTheLimitAreRefused(t *testing.T) {
	_, s, e, _ := allTurnsTaken(t)
	s.options.MaxWaiting = 1
	connectTunnel(t, e)
	var refused *DialError
	if _, err := e.ConnectTunnel(context.Background(), nil); !errors.As(err, &refused) || refused.Reason != ReasonOverloaded {
		t.Errorf("%v, want %s", err, ReasonOverloaded)
	}
	e.dialDone(forRequest)
}
