//go:build !race

package proxy

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/metrics"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rawEnd is one end of a connection to the gateway, without a goroutine and without waiting: what
// has come is known at once, and whether the other end has taken what was sent.
type rawEnd struct {
	fd         int
	here, peer *unix.SockaddrInet4
	got        []byte
	end        string // how the other end has ended: "", "closed", "reset"
	closed     bool   // by us, at least for writing
	gone       bool   // fd is closed
	tls        *tls.Conn
	outbox     []byte // what TLS has made of what we say
	split      int    // so many bytes of it leave at once, the rest with the next step; 0 is all
}

func newRawEnd(fd int) *rawEnd {
	here, _ := unix.Getsockname(fd)
	peer, _ := unix.Getpeername(fd)
	e := &rawEnd{fd: fd}
	e.here, _ = here.(*unix.SockaddrInet4)
	e.peer, _ = peer.(*unix.SockaddrInet4)
	unix.SetNonblock(fd, true)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	return e
}

// dialRaw connects to a port of the loopback.
func dialRaw(t *testing.T, port int) *rawEnd {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	return newRawEnd(fd)
}

// say sends n bytes of b, or all if n is less than 0, and returns what is left.
func (e *rawEnd) say(b []byte, n int) []byte {
	if n < 0 || n > len(b) {
		n = len(b)
	}
	if e.closed || n == 0 {
		return b
	}
	if e.tls != nil {
		e.tls.Write(b[:n])
		e.flush(e.split)
		e.split = 0
		return b[n:]
	}
	sent, err := unix.SendmsgN(e.fd, b[:n], nil, nil, unix.MSG_NOSIGNAL)
	if err != nil {
		return nil // the other end has had enough
	}
	return b[sent:]
}

// flush sends up to n bytes of what TLS has made, 0 is all; what the other end does not take is lost.
func (e *rawEnd) flush(n int) {
	if n == 0 || n > len(e.outbox) {
		n = len(e.outbox)
	}
	if n > 0 && !e.gone {
		unix.SendmsgN(e.fd, e.outbox[:n], nil, nil, unix.MSG_NOSIGNAL)
	}
	e.outbox = e.outbox[n:]
}

// hear takes what has come, and tells whether anything has.
func (e *rawEnd) hear() (moved bool) {
	var buf [64 << 10]byte
	for e.end == "" && !e.gone {
		n, err := e.read(buf[:])
		e.got = append(e.got, buf[:n]...)
		switch {
		case err == nil:
		case errors.Is(err, errNothing):
			return moved || n > 0
		case err == io.EOF:
			e.end = "closed"
		case err == io.ErrUnexpectedEOF:
			e.end = "closed without a word"
		case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
			e.end = "reset"
		default:
			e.end = err.Error()
		}
		moved = true
	}
	return moved
}

func (e *rawEnd) read(b []byte) (int, error) {
	if e.tls != nil {
		return e.tls.Read(b)
	}
	return tlsEnd{rawEnd: e}.Read(b)
}

// nothing is temporary, so that TLS can be asked again.
type nothing struct{ error }

func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

var errNothing net.Error = nothing{errors.New("nothing has come")}

// tlsEnd is the end as TLS uses it.
type tlsEnd struct {
	net.Conn
	*rawEnd
	wait bool // for what comes
}

func (s tlsEnd) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(s.fd, b)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN && s.wait:
			unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, 10_000)
		case err == unix.EAGAIN:
			return 0, errNothing
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

func (s tlsEnd) Write(b []byte) (int, error) {
	s.outbox = append(s.outbox, b...)
	if s.wait {
		s.flush(0)
	}
	return len(b), nil
}

func (tlsEnd) SetDeadline(time.Time) error      { return nil }
func (tlsEnd) SetReadDeadline(time.Time) error  { return nil }
func (tlsEnd) SetWriteDeadline(time.Time) error { return nil }

// handshake begins TLS.
func (e *rawEnd) handshake(t *testing.T) {
	s := &tlsEnd{rawEnd: e, wait: true}
	e.tls = tls.Client(s, &tls.Config{InsecureSkipVerify: true, ServerName: "h"})
	if err := e.tls.Handshake(); err != nil {
		t.Fatal(err)
	}
	s.wait = false
}

func (e *rawEnd) halfClose() {
	if e.closed {
		return
	}
	if e.tls != nil {
		e.tls.CloseWrite()
		e.flush(0)
	}
	unix.Shutdown(e.fd, unix.SHUT_WR)
	e.closed = true
}

func (e *rawEnd) close() {
	if !e.gone {
		unix.Close(e.fd)
		e.gone, e.closed = true, true
	}
}

func (e *rawEnd) reset() {
	if !e.gone {
		unix.SetsockoptLinger(e.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		e.close()
	}
}

func (e *rawEnd) describe() string { return fmt.Sprintf("%q, %s", e.got, e.end) }

// pending tells whether the other end has not read all that was sent, its end included.
func (e *rawEnd) pending() bool { return unread(e.peer, e.here) > 0 }

// rawListener accepts without waiting.
type rawListener struct {
	fd   int
	addr string
}

func listenRaw(t testing.TB) *rawListener {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 64); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return &rawListener{fd: fd, addr: fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)}
}

func (l *rawListener) accept() (all []*rawEnd) {
	for {
		fd, _, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC)
		if err != nil {
			return all
		}
		all = append(all, newRawEnd(fd))
	}
}

// sockDiag asks the kernel about sockets; opened once.
var sockDiag = func() int {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return -1
	}
	return fd
}()

// unread is how many bytes have come to a socket of this machine that nobody has read, one more if
// the end of the stream is among them; 0 where there is no such socket. See sock_diag(7).
func unread(local, remote *unix.SockaddrInet4) int {
	if local == nil || remote == nil || sockDiag < 0 {
		return 0
	}
	var m [72]byte
	order := binary.NativeEndian
	order.PutUint32(m[0:], uint32(len(m)))
	order.PutUint16(m[4:], unix.SOCK_DIAG_BY_FAMILY)
	order.PutUint16(m[6:], unix.NLM_F_REQUEST)
	m[16], m[17] = unix.AF_INET, unix.IPPROTO_TCP
	order.PutUint32(m[20:], ^uint32(0)) // any state
	binary.BigEndian.PutUint16(m[24:], uint16(local.Port))
	binary.BigEndian.PutUint16(m[26:], uint16(remote.Port))
	copy(m[28:], local.Addr[:])
	copy(m[44:], remote.Addr[:])
	order.PutUint64(m[64:], ^uint64(0)) // no cookie
	if err := unix.Sendto(sockDiag, m[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0
	}
	var reply [512]byte
	n, _, err := unix.Recvfrom(sockDiag, reply[:], 0)
	if err != nil || n < 16+60 || order.Uint16(reply[4:]) != unix.SOCK_DIAG_BY_FAMILY {
		return 0
	}
	return int(order.Uint32(reply[16+4+48+4:]))
}

// inCalls is the least number of goroutines that were ever seen in system calls: those that
// stay there.
var inCalls = ^uint64(0)

// busy tells whether any goroutine but the one that asks has something to do.
func busy() bool {
	s := []metrics.Sample{{Name: "/sched/goroutines/running:goroutines"}, {Name: "/sched/goroutines/runnable:goroutines"},
		{Name: "/sched/goroutines/not-in-go:goroutines"}}
	metrics.Read(s)
	calls := s[2].Value.Uint64()
	inCalls = min(inCalls, calls)
	return s[0].Value.Uint64() > 1 || s[1].Value.Uint64() > 0 || calls > inCalls
}

// moment lets others go on. time.Sleep would take a millisecond, which the poller counts in.
func moment() {
	unix.Nanosleep(&unix.Timespec{Nsec: 50_000}, nil)
}
