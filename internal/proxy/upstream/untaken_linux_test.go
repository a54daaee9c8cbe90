package upstream

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// deaf is a TLS endpoint that is connected to, and writes by hand. It reads nothing.
type deaf struct {
	*net.TCPConn
	records *testkit.Sealer
}

// connectDeaf connects to a deaf endpoint.
func connectDeaf(t *testing.T) (*Set, *Endpoint, *Conn, deaf) {
	t.Helper()
	cert, secured := tlsIdentity(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s, b := newSet(t, Options{IdleTimeout: time.Hour}, endpoint(netip.MustParseAddrPort(l.Addr().String())))
	apply(t, s, secured...)
	var keys bytes.Buffer
	accepted := make(chan *net.TCPConn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, SessionTicketsDisabled: true, KeyLogWriter: &keys}).Handshake() //nolint:errcheck // else the dial fails
		accepted <- c.(*net.TCPConn)
	}()
	e := b.Endpoints()[0]
	c, peer := dial(t, e), <-accepted
	t.Cleanup(func() { peer.Close() })
	return s, e, c, deaf{peer, testkit.SealerOf(t, keys.String(), testkit.ServerTrafficSecret)}
}

// asksForKeys sends a KeyUpdate that must be answered.
func (d deaf) asksForKeys(t *testing.T, c *Conn) {
	t.Helper()
	if _, err := d.Write(d.records.Rekey(true)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it has come", func() bool { return unread(c.socket()) > 0 })
}

// mustNotWait fails the test where f waits.
func mustNotWait(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(4 * time.Second): // crypto/tls waits for 5 s
		t.Fatal(what + " waits")
	}
}

// TestKeyUpdateIsAnswered: an idle connection whose endpoint wants other keys is alive, and goes on with them.
func TestKeyUpdateIsAnswered(t *testing.T) {
	_, _, c, peer := connectDeaf(t)
	for range 2 {
		peer.asksForKeys(t, c)
		if !c.Alive() {
			t.Fatal("the connection is not alive")
		}
		const answerSize = 27
		peer.SetReadDeadline(time.Now().Add(testkit.Patience))
		if n, err := peer.Read(make([]byte, 100)); n != answerSize {
			t.Fatalf("the answer is %d bytes, %v", n, err)
		}
	}
	peer.Write(peer.records.Seal(testkit.TLSData, []byte("x")))
	if b := make([]byte, 1); readAll(c, b) != nil || b[0] != 'x' {
		t.Errorf("read %q", b)
	}
}

func readAll(c net.Conn, b []byte) error {
	c.SetReadDeadline(time.Now().Add(testkit.Patience))
	_, err := c.Read(b)
	return err
}

// TestDeafEndpointHoldsUpNobody: neither the look at an idle connection nor its end waits for an endpoint that takes nothing of what TLS has to say to it.
func TestDeafEndpointHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *Set, *Endpoint, *Conn, deaf){
		"swept": func(t *testing.T, s *Set, e *Endpoint, c *Conn, peer deaf) {
			c.Release()
			peer.asksForKeys(t, c)
			now := time.Now()
			s.Sweep(now) // connections that were released since the last one are not looked at
			s.Sweep(now.Add(time.Second))
		},
		"swept when it has idled": func(t *testing.T, s *Set, e *Endpoint, c *Conn, peer deaf) {
			c.Release()
			s.Sweep(time.Now().Add(2 * time.Hour))
		},
		"looked at": func(t *testing.T, s *Set, e *Endpoint, c *Conn, peer deaf) {
			peer.asksForKeys(t, c)
			if c.Alive() {
				t.Error("what cannot be answered is alive")
			}
			c.Close()
		},
		"looked at for another reason": func(t *testing.T, s *Set, e *Endpoint, c *Conn, peer deaf) {
			peer.Write(make([]byte, 100)) // no TLS, which takes an alert
			testkit.Eventually(t, "it has come", func() bool { return unread(c.socket()) > 0 })
			if c.Alive() {
				t.Error("what breaks the protocol is alive")
			}
			c.Close()
		},
		"retired": func(t *testing.T, s *Set, e *Endpoint, c *Conn, peer deaf) {
			c.Release()
			apply(t, s, endpointsResource(key))
		},
		"closed while others wait": func(t *testing.T, s *Set, e *Endpoint, c *Conn, peer deaf) {
			peer.asksForKeys(t, c)
			ended := make(chan error, 1)
			go func() { ended <- readAll(c, make([]byte, 1)) }()
			testkit.Eventually(t, "the answer is being written", func() bool { return unread(c.socket()) == 0 })
			time.Sleep(20 * time.Millisecond) // most likely it waits; the end is the same if it does not
			c.Close()
			if err := <-ended; err == nil {
				t.Error("the read has not failed")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, e, c, peer := connectDeaf(t)
			testkit.FillTCP(t, c.socket(), peer.TCPConn)
			mustNotWait(t, "who has the connection", func() { end(t, s, e, c, peer) })
			if open := e.Stats().Open; open != 0 {
				t.Errorf("%d connections are open", open)
			}
		})
	}
}
