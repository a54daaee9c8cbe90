package upstream

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// tlsIdentity is a certificate of example.com, and a Backend that trusts it.
func tlsIdentity(t *testing.T) (tls.Certificate, []*config.Resource) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return s.TLS.Certificates[0], []*config.Resource{securedBackend(key, ca), authoritiesResource(ca)}
}

func tcpState(t *testing.T, c *net.TCPConn) (state uint8) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { //nolint:errcheck // a closed socket has state 0
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			state = info.State
		}
	})
	return state
}

const (
	// finWait2 is the state of a socket whose peer has acknowledged all of the stream and its end (TCP_FIN_WAIT2).
	finWait2 = 5
	// tcpClosed is the state of a socket that was reset (TCP_CLOSE).
	tcpClosed = 7
)

// TestWasReset: a reset that breaks a response off shows, by the read or by WasReset, also where a write has taken the error; one that
// comes after the end of the stream breaks nothing off. BrokeOff is true without a reset, too, where TLS did not end with close_notify.
func TestWasReset(t *testing.T) {
	cert, secured := tlsIdentity(t)
	for _, over := range []string{"socket", "plain", "TLS"} {
		for i := range 16 {
			notify, fin, reset, write := i&1 > 0, i&2 > 0, i&4 > 0, i&8 > 0
			if notify && over != "TLS" || !fin && !reset {
				continue
			}
			t.Run(fmt.Sprintf("%s, close_notify %v, FIN %v, reset %v, write %v", over, notify, fin, reset, write), func(t *testing.T) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				s, b := newSet(t, Options{PlainIO: over == "plain"}, endpoint(netip.MustParseAddrPort(l.Addr().String())))
				if over == "TLS" {
					apply(t, s, secured...)
				}
				accepted := make(chan net.Conn, 1)
				go func() {
					peer, err := l.Accept()
					if err == nil && over == "TLS" {
						secure := tls.Server(peer, &tls.Config{Certificates: []tls.Certificate{cert}, SessionTicketsDisabled: true})
						secure.Handshake() //nolint:errcheck // else the dial fails
						peer = secure
					}
					accepted <- peer
				}()
				c := dial(t, b.Endpoints()[0])
				peer := <-accepted
				socket, isSocket := peer.(*net.TCPConn)
				if !isSocket {
					socket = peer.(*tls.Conn).NetConn().(*net.TCPConn)
				}

				io.WriteString(peer, strings.Repeat("x", 1000))
				if notify {
					peer.(*tls.Conn).CloseWrite()
				}
				if fin {
					socket.CloseWrite()
					testkit.Eventually(t, "the end has arrived", func() bool { return tcpState(t, socket) == finWait2 })
				} else {
					testkit.Eventually(t, "all has arrived", func() bool {
						n, err := unsent(socket)
						return n == 0 && err == nil
					})
				}
				if reset {
					socket.SetLinger(0)
					socket.Close()
					testkit.Eventually(t, "the reset has arrived", func() bool { return tcpState(t, c.socket()) == tcpClosed })
				}
				if write {
					c.Write([]byte("more of a request"))
				}
				var into lent
				n := 0
				for err == nil {
					var more int
					more, err = c.ReadInto(&into)
					n += more
				}
				broken := reset && !fin && !notify
				if want := broken || over == "TLS" && !notify; err == io.EOF && c.BrokeOff() != want {
					t.Errorf("broken off by BrokeOff: %v, want %v", !want, want)
				}
				if err == io.EOF && c.WasReset() {
					err = errors.New("was reset")
				}
				if n != 1000 || (err != io.EOF) != broken {
					t.Errorf("%d bytes, then %v; broken off: %v", n, err, broken)
				}
				if broken && !write && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%v, want the error of the system", err)
				}
				socket.Close()
			})
		}
	}
}

// unsent returns how many bytes the peer has not acknowledged.
func unsent(c *net.TCPConn) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	if ctl := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); ctl != nil {
		return 0, ctl
	}
	return n, err
}

// lent is a Buffer.
type lent [64 << 10]byte

func (b *lent) Take() []byte { return b[:] }
func (b *lent) Give()        {}

// TestCloseWriteOverTLS: an endpoint that is slow to take what it was sent gets the end of the stream too, however long that takes. crypto/tls gives it 5 s.
func TestCloseWriteOverTLS(t *testing.T) {
	t.Parallel()
	cert, secured := tlsIdentity(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, b := newSet(t, Options{}, endpoint(netip.MustParseAddrPort(l.Addr().String())))
	apply(t, s, secured...)
	accepted := make(chan *net.TCPConn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, SessionTicketsDisabled: true}).Handshake() //nolint:errcheck // else the dial fails
			accepted <- c.(*net.TCPConn)
		}
	}()
	c := dial(t, b.Endpoints()[0])
	peer, raw := <-accepted, c.socket()
	defer peer.Close()
	testkit.CloseWriteToSlowPeer(t, raw, peer, c.CloseWrite)
}
