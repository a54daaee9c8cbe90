package upstream

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	eventually(t, "a connection that the peer closed is not alive", func() bool { return !c.Alive() })

	c = dial(t, e)
	peer := srv.accepted(t, 2)[1]
	if _, err := peer.Write([]byte("HTTP/1.1 408 ")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a connection with unasked bytes is not alive", func() bool { return !c.Alive() })
	var first [4]byte
	if _, err := c.Read(first[:]); err != nil || string(first[:]) != "HTTP" {
		t.Errorf("Alive took bytes away: %q, %v", first, err)
	}
	c.Close()
	if c.Alive() {
		t.Error("a closed connection is alive")
	}
}

// full is a listener that nobody accepts from and whose queue is full, so that a
// connect gets no answer.
func full(t *testing.T) netip.AddrPort {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*unix.SockaddrInet4).Port))
	_, b := newSet(t, Options{ConnectTimeout: 50 * time.Millisecond}, endpoint(a))
	for range 8 {
		if _, err := b.Endpoints()[0].Dial(context.Background(), time.Time{}); err != nil {
			return a
		}
	}
	t.Fatal("the queue takes every connection")
	return a
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
	_, _, err := e.Connect(context.Background(), time.Now().Add(20*time.Millisecond))
	wantDialError(t, err, ReasonDeadline, false)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, _, err = e.Connect(ctx, time.Time{})
	wantDialError(t, err, ReasonCanceled, false)
	if n := e.sharing.hungry.Load(); n != 0 || len(e.sharing.waiting) != 0 {
		t.Errorf("%d wait", n)
	}
	time.AfterFunc(20*time.Millisecond, func() { apply(t, s, endpointsResource(key)) })
	_, _, err = e.Connect(context.Background(), time.Time{})
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
