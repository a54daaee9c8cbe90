package upstream

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// holding is a Buffer that knows whether it is held, and how often it was given back.
type holding struct {
	lent
	held  atomic.Bool
	given atomic.Int64
}

func (b *holding) Take() []byte {
	b.held.Store(true)
	return b.lent.Take()
}

func (b *holding) Give() {
	b.held.Store(false)
	b.given.Add(1)
}

// halving is a connection that keeps the second half of what is written to it.
type halving struct {
	net.Conn
	halves bool
	rest   []byte
}

func (h *halving) Write(b []byte) (int, error) {
	now := b
	if h.halves {
		now, h.rest = b[:len(b)/2], bytes.Clone(b[len(b)/2:])
	}
	_, err := h.Conn.Write(now)
	return len(b), err
}

// unread returns how many bytes have come that were not read.
func unread(c *net.TCPConn) (n int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1
	}
	raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) //nolint:errcheck // n is 0 then
	return n
}

// TestReadIdleHoldsNothing: while no more than a session ticket and part of a record has come over TLS, no memory is held, and the end behind
// them is seen.
func TestReadIdleHoldsNothing(t *testing.T) {
	cert, secured := tlsIdentity(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, b := newSet(t, Options{}, endpoint(netip.MustParseAddrPort(l.Addr().String())))
	apply(t, s, secured...)
	type accepted struct {
		*tls.Conn
		wire *halving
	}
	peers := make(chan accepted, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		wire := &halving{Conn: c}
		secure := tls.Server(wire, &tls.Config{Certificates: []tls.Certificate{cert}})
		secure.Handshake() //nolint:errcheck // else the dial fails
		peers <- accepted{secure, wire}
	}()
	c := dial(t, b.Endpoints()[0])
	peer := <-peers
	defer peer.Close()
	var into holding
	type result struct {
		n   int
		err error
	}
	results := make(chan result, 1)
	read := func() {
		n, err := c.ReadIdle(&into)
		results <- result{n, err}
	}
	// after has act be followed by a wait without memory, when all that came was read.
	after := func(what string, act func()) {
		t.Helper()
		given := into.given.Load()
		act()
		testkit.Eventually(t, "nothing is held after "+what, func() bool {
			out, err := unsent(peer.wire.Conn.(*net.TCPConn))
			return err == nil && out == 0 && unread(c.socket()) == 0 && into.given.Load() > given && !into.held.Load()
		})
	}
	after("a ticket", func() { go read() })
	peer.wire.halves = true
	after("part of a record", func() { io.WriteString(peer, "data") })
	peer.wire.Conn.Write(peer.wire.rest)
	if r := <-results; string(into.lent[:r.n]) != "data" || r.err != nil {
		t.Errorf("read %q, %v", into.lent[:r.n], r.err)
	}
	into.Give()
	io.WriteString(peer, "more")
	after("part of another", func() { go read() })
	peer.wire.Conn.(*net.TCPConn).CloseWrite()
	if r := <-results; r.n != 0 || !errors.Is(r.err, io.ErrUnexpectedEOF) {
		t.Errorf("behind part of a record: %d bytes, %v", r.n, r.err)
	}
}

// TestWriteReadOverTLSHoldsNothing: while a response is waited for over TLS no memory is held, on a fresh connection and on one that was used before, and one
// that has ended in the meantime is not used.
func TestWriteReadOverTLSHoldsNothing(t *testing.T) {
	cert, secured := tlsIdentity(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, b := newSet(t, Options{}, endpoint(netip.MustParseAddrPort(l.Addr().String())))
	apply(t, s, secured...)
	peers := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.(*tls.Conn).Handshake() //nolint:errcheck // else the dial fails
		peers <- c
	}()
	e := b.Endpoints()[0]
	c := dial(t, e)
	peer := <-peers
	defer peer.Close()
	var into holding
	for _, reused := range []bool{false, true, true} {
		if c.Reused != reused {
			t.Fatalf("reused %v, want %v", c.Reused, reused)
		}
		type result struct {
			n   int
			err error
		}
		results := make(chan result, 1)
		go func() {
			n, err := c.WriteRead([]byte("head"), []byte("body"), &into)
			results <- result{n, err}
		}()
		got := make([]byte, len("headbody"))
		if _, err := io.ReadFull(peer, got); err != nil || string(got) != "headbody" {
			t.Fatalf("the peer got %q, %v", got, err)
		}
		testkit.Eventually(t, "nothing is held for the wait", func() bool { return unread(c.socket()) == 0 && !into.held.Load() })
		if _, err := peer.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
		if r := <-results; r.err != nil || string(into.Take()[:r.n]) != "answer" {
			t.Fatalf("%+v", r)
		}
		into.Give()
		c.Release()
		if c = e.Idle(); c == nil {
			t.Fatal("the connection is not kept")
		}
	}
	peer.Close()
	testkit.Eventually(t, "the end is seen", func() bool { return !c.Alive() })
	if _, err := c.WriteRead([]byte("head"), nil, &into); err != ErrStale {
		t.Errorf("error %v, want ErrStale", err)
	}
}
