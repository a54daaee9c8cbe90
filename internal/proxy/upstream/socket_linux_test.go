package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

func TestAlive(t *testing.T) {
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain %v", plain), func(t *testing.T) { testAlive(t, Options{PlainIO: plain}) })
	}
}

func testAlive(t *testing.T, o Options) {
	srv := listen(t)
	_, b := newSet(t, o, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]

	c := dial(t, e)
	if err := echo(c); err != nil {
		t.Fatal(err)
	}
	if !c.Alive() {
		t.Error("an open connection is not alive")
	}
	srv.accepted(t, 1)[0].Close()
	testkit.Eventually(t, "a connection that the peer closed is not alive", func() bool { return !c.Alive() })

	c = dial(t, e)
	peer := srv.accepted(t, 2)[1]
	if _, err := peer.Write([]byte("HTTP/1.1 408 ")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "a connection with unasked bytes is not alive", func() bool { return !c.Alive() })
	var first [4]byte
	if _, err := c.Read(first[:]); err != nil || string(first[:]) != "HTTP" {
		t.Errorf("Alive took bytes away: %q, %v", first, err)
	}
	c.Close()
	if c.Alive() {
		t.Error("a closed connection is alive")
	}
}

func TestDialWithoutAnswer(t *testing.T) {
	_, b := newSet(t, Options{ConnectTimeout: 50 * time.Millisecond}, endpoint(full(t)))
	e := b.Endpoints()[0]

	_, err := e.Dial(context.Background(), time.Now().Add(5*time.Millisecond))
	wantDialError(t, err, ReasonDeadline, false)

	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(5*time.Millisecond, cancel)
	_, err = e.Dial(ctx, time.Time{})
	wantDialError(t, err, ReasonCanceled, false)
	if e.avoided() {
		t.Error("the endpoint is blamed for the caller's haste")
	}

	_, err = e.Dial(context.Background(), time.Now().Add(time.Hour))
	wantDialError(t, err, ReasonTimeout, true)
	if !e.avoided() {
		t.Error("an endpoint that does not answer is not avoided")
	}
}

// TestDialIsGivenUpWithItsEndpoint: a pod that is gone answers nothing, so its end is known from the configuration alone.
func TestDialIsGivenUpWithItsEndpoint(t *testing.T) {
	_, b := newSet(t, Options{ConnectTimeout: time.Hour}, endpoint(full(t)))
	e := b.Endpoints()[0]
	ended := make(chan error, 1)
	go func() {
		_, err := e.Dial(context.Background(), time.Time{})
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("ended by itself: %v", err)
	case <-time.After(10 * time.Millisecond): // it is under way, most likely; the end is the same if it is not
	}
	apply(t, b.set, endpointsResource(key))
	wantDialError(t, <-ended, ReasonGone, true)
	if e.avoided() || e.Stats().Failures != 0 {
		t.Errorf("the endpoint is blamed: %+v", e.Stats())
	}
}

// TestWaitingIsGivenUp: by the deadline, by the client's leaving, and when the endpoint leaves. Nothing is left of it.
func TestWaitingIsGivenUp(t *testing.T) {
	s, e := sharedEndpoint(t, Options{ConnectTimeout: time.Minute}, full(t))
	_, _, err := e.Connect(context.Background(), time.Now().Add(20*time.Millisecond), true)
	wantDialError(t, err, ReasonDeadline, false)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, _, err = e.Connect(ctx, time.Time{}, true)
	wantDialError(t, err, ReasonCanceled, false)
	if n := e.use().sharing.numWaiting.Load(); n != 0 || len(e.use().sharing.waiting) != 0 {
		t.Errorf("%d wait", n)
	}
	time.AfterFunc(20*time.Millisecond, func() { apply(t, s, endpointsResource(key)) })
	_, _, err = e.Connect(context.Background(), time.Time{}, true)
	wantDialError(t, err, ReasonGone, true)
}

// descriptors counts the open descriptors of the process.
func descriptors(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestWaitForStreamEndsByConnectTimeout has requests arrive all the time for an endpoint with HTTP/2 that answers no connect, so that
// a dial is always under way: each of them is told after the connect timeout nevertheless.
func TestWaitForStreamEndsByConnectTimeout(t *testing.T) {
	const timeout = 200 * time.Millisecond
	_, e := sharedEndpoint(t, Options{ConnectTimeout: timeout, MaxDials: 4}, full(t))
	e.use().sharing.limit.Store(1) // a stream on each connection, so that each request wants a dial of its own
	ended := make(chan error, 1)
	go func() {
		_, _, err := e.Connect(context.Background(), time.Time{}, true)
		ended <- err
	}()
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	giveUp := time.After(10 * timeout)
	for {
		select {
		case err := <-ended:
			wantDialError(t, err, ReasonTimeout, true)
			return
		case <-giveUp:
			t.Fatalf("the first request still waits after %v", 10*timeout)
		case <-time.After(timeout / 8):
			work.Go(func() { e.Connect(ctx, time.Time{}, true) }) //nolint:errcheck
		}
	}
}

// TestTurnAndDialEndByConnectTimeout has the turn of a request come late: its dial has what is left of the connect timeout, and
// the endpoint is not blamed.
func TestTurnAndDialEndByConnectTimeout(t *testing.T) {
	const timeout = 2 * time.Second
	_, b := newSet(t, Options{ConnectTimeout: timeout, MaxDials: 1}, endpoint(full(t)))
	e := b.Endpoints()[0]
	e.use().dials.dialing = 1
	time.AfterFunc(timeout*3/4, func() { e.dialDone(forRequest) })
	begun := time.Now()
	_, _, err := e.Connect(context.Background(), time.Time{}, true)
	wantDialError(t, err, ReasonOverloaded, true)
	if took := time.Since(begun); took > timeout*3/2 {
		t.Errorf("took %v", took)
	}
	if e.avoided() || b.Stats().Refused != 1 {
		t.Errorf("avoided %v, %+v", e.avoided(), b.Stats())
	}
}

// full is an endpoint to which connections are neither made nor refused.
func full(t *testing.T) netip.AddrPort {
	t.Helper()
	return testkit.FullListener(t).Addr().(*net.TCPAddr).AddrPort()
}

// TestTunnelsLeaveRoomForRequests: however many tunnels wait for an endpoint that accepts no connection, requests find turns to dial there and places to
// wait; and everybody is served when it accepts.
func TestTunnelsLeaveRoomForRequests(t *testing.T) {
	l := testkit.FullListener(t)
	_, b := newSet(t, Options{MaxDials: 4, MaxWaiting: 8, ConnectTimeout: time.Minute}, endpoint(l.Addr().(*net.TCPAddr).AddrPort()))
	e := b.Endpoints()[0]
	const tunnels = 20
	ended := make(chan error, tunnels+3)
	connect := func(f func() (*Conn, error)) {
		go func() {
			c, err := f()
			if err == nil {
				c.Close()
			}
			ended <- err
		}()
	}
	for range tunnels {
		connect(func() (*Conn, error) { return e.ConnectTunnel(context.Background(), nil) })
	}
	const admitted = 3 + 6 // three quarters of either
	for range tunnels - admitted {
		var refused *DialError
		if err := <-ended; !errors.As(err, &refused) || refused.Reason != ReasonOverloaded {
			t.Fatalf("a tunnel beyond those that have room: %v", err)
		}
	}
	for range 3 {
		connect(func() (*Conn, error) {
			c, _, err := e.Connect(context.Background(), time.Time{}, true)
			return c, err
		})
	}
	testkit.Eventually(t, "a request dials, and two wait", func() bool {
		e.use().dials.mu.Lock()
		defer e.use().dials.mu.Unlock()
		return e.use().dials.dialing == 4 && len(e.use().dials.waiting) == 8
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	for range admitted + 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if e.use().dials.mu.Lock(); e.use().dials.dialing != 0 || len(e.use().dials.waiting) != 0 {
		t.Errorf("%d dials, %d wait", e.use().dials.dialing, len(e.use().dials.waiting))
	}
	e.use().dials.mu.Unlock()
}
