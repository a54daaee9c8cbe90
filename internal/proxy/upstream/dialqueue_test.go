package upstream

import (
	"context"
	"testing"
	"time"
)

// allTurnsTaken is an endpoint to which no request may dial, until done is called, and a connection to it in use.
func allTurnsTaken(t *testing.T) (*server, *Set, *Endpoint, *Conn) {
	t.Helper()
	srv := listen(t)
	s, b := newSet(t, Options{MaxDials: 1, ConnectTimeout: time.Minute}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	c := dial(t, e)
	e.dials.mu.Lock()
	e.dials.dialing = 1
	e.dials.mu.Unlock()
	return srv, s, e, c
}

// connected is what Connect has returned.
type connected struct {
	conn  *Conn
	place *Shared
	err   error
}

// connect calls Connect, and returns when it waits.
func connect(t *testing.T, e *Endpoint) <-chan connected {
	t.Helper()
	waiting := e.dials.hungry.Load()
	got := make(chan connected, 1)
	go func() {
		c, s, err := e.Connect(context.Background(), time.Time{})
		got <- connected{c, s, err}
	}()
	eventually(t, "the request waits", func() bool { return e.dials.hungry.Load() == waiting+1 })
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
	e.backend.speech.Store(&speech{http2: true})
	c.Release()
	if g := wait(t, got); g.conn != c || g.place != nil || g.err != nil {
		t.Errorf("%+v", g)
	}
}
