//go:build linux

package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/test/bench/epoll"
)

// conn is one client connection and its request in flight.
type conn struct {
	id      int
	fd      int
	tls     *tls.Conn // nil on plain connections, and so is socket
	socket  *socket
	session *session // nil in HTTP/1.1, and what follows is of no use in HTTP/2

	sent  time.Time
	rest  []byte // of the request, where the socket took only a part
	got   int    // bytes of the response so far
	total int    // bytes of the whole response; 0 until the head is complete
	done  bool   // the only response of this connection is complete
	buf   [4 << 10]byte
}

// patience is how long a handshake or a TLS write may stand still.
const patience = 10 * time.Second

// errAgain: nothing to read now.
var errAgain = errors.New("nothing to read")

// discarded takes what recv on TLS connections drops; its content is never read.
var discarded [32 << 10]byte

// dial opens the connection, with TLS up to the end of the handshake.
func (c *conn) dial(l *loop) error {
	c.fd, c.tls, c.socket, c.session = -1, nil, nil, nil
	fd, err := epoll.Dial(l.spec.Address)
	if err != nil {
		return err
	}
	c.fd = fd
	if !l.spec.PerRequest {
		if err := epoll.NoDelay(fd); err != nil {
			return err
		}
	}
	if l.spec.ServerName != "" {
		if err := c.handshake(l.spec); err != nil {
			return fmt.Errorf("TLS handshake: %w", err)
		}
	}
	return l.poller.Add(fd, c.id)
}

func (c *conn) handshake(spec *Spec) error {
	c.socket = &socket{fd: c.fd, block: true}
	config := tlsConfig(spec.ServerName)
	if spec.Streams > 0 {
		config.NextProtos = []string{"h2"} // whoever does not speak it refuses the handshake
	}
	c.tls = tls.Client(c.socket, config)
	if err := c.tls.HandshakeContext(context.Background()); err != nil {
		return err
	}
	c.socket.block = false
	if spec.Streams > 0 && c.tls.ConnectionState().NegotiatedProtocol != "h2" {
		return errors.New("HTTP/2 was not negotiated")
	}
	return checkTLS(c.tls)
}

// tlsConfig fixes what the contenders could choose differently: TLS 1.3, X25519 and,
// checked by checkTLS, AES-128-GCM. There is no session cache: every handshake is a full one.
func tlsConfig(name string) *tls.Config {
	return &tls.Config{
		ServerName: name, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"},
		MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519},
	}
}

func checkTLS(c *tls.Conn) error {
	if s := c.ConnectionState(); s.CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
		return fmt.Errorf("cipher suite %s, want TLS_AES_128_GCM_SHA256", tls.CipherSuiteName(s.CipherSuite))
	}
	return nil
}

func (c *conn) close() {
	if c.fd >= 0 {
		syscall.Close(c.fd)
		c.fd = -1
	}
}

// start sends a request and forgets the last response.
func (c *conn) start(request []byte) error { return c.startAt(request, time.Now()) }

func (c *conn) startAt(request []byte, now time.Time) error {
	c.sent, c.got, c.total, c.done = now, 0, 0, false
	c.rest = request
	return c.flush()
}

// flush sends what is left of the request, as far as the socket takes it.
func (c *conn) flush() error {
	for len(c.rest) > 0 {
		if c.tls != nil {
			_, err := c.tls.Write(c.rest) // waits for room: socket.Write always does
			c.rest = nil
			return err
		}
		n, errno := epoll.Send(c.fd, c.rest)
		if errno == syscall.EAGAIN {
			return nil
		}
		if errno != 0 {
			return errno
		}
		c.rest = c.rest[n:]
	}
	return nil
}

// recv reads what is there; 0 without an error is the peer's end.
func (c *conn) recv(b []byte) (int, error) {
	if c.tls == nil {
		return result(epoll.Recv(c.fd, b))
	}
	n, err := c.tls.Read(b)
	if err == io.EOF {
		return n, nil
	}
	if err == errSocketEmpty {
		return n, errAgain
	}
	return n, err
}

// discard reads up to n bytes that nobody looks at.
func (c *conn) discard(n int) (int, error) {
	if c.tls == nil {
		return result(epoll.Discard(c.fd, n))
	}
	return c.recv(discarded[:min(n, len(discarded))])
}

func result(n int, errno syscall.Errno) (int, error) {
	switch errno {
	case 0:
		return n, nil
	case syscall.EAGAIN:
		return 0, errAgain
	}
	return 0, errno
}

// socket is the net.Conn beneath a tls.Conn: reads of an empty socket return
// errSocketEmpty instead of waiting, which crypto/tls hands on and survives, since it
// says of itself to be temporary. It reads ahead, to make one receive of a response.
type socket struct {
	fd    int
	block bool // wait for input: during the handshake
	ahead []byte
	// batches: who reads goes on until the socket is empty, and drained: the last receive was short, so it is.
	batches, drained bool
	storage          [32 << 10]byte
}

type emptyError struct{}

func (emptyError) Error() string   { return "socket is empty" }
func (emptyError) Timeout() bool   { return true }
func (emptyError) Temporary() bool { return true }

var errSocketEmpty net.Error = emptyError{}

func (s *socket) Read(b []byte) (int, error) {
	for len(s.ahead) == 0 {
		if s.batches && s.drained {
			s.drained = false
			return 0, errSocketEmpty
		}
		n, errno := epoll.Recv(s.fd, s.storage[:])
		s.drained = n < len(s.storage)
		switch {
		case errno == syscall.EAGAIN && s.block:
			if err := epoll.Block(s.fd, epoll.In, patience); err != nil {
				return 0, err
			}
			continue
		case errno == syscall.EAGAIN:
			return 0, errSocketEmpty
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		}
		s.ahead = s.storage[:n]
	}
	n := copy(b, s.ahead)
	s.ahead = s.ahead[n:]
	return n, nil
}

func (s *socket) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		n, errno := epoll.Send(s.fd, b[written:])
		if errno == syscall.EAGAIN {
			if err := epoll.Block(s.fd, epoll.Out, patience); err != nil {
				return written, err
			}
			continue
		}
		if errno != 0 {
			return written, errno
		}
		written += n
	}
	return written, nil
}

// The rest of net.Conn; crypto/tls calls none of it here.
func (s *socket) Close() error                     { return syscall.Close(s.fd) }
func (s *socket) LocalAddr() net.Addr              { return net.TCPAddrFromAddrPort(netip.AddrPort{}) }
func (s *socket) RemoteAddr() net.Addr             { return net.TCPAddrFromAddrPort(netip.AddrPort{}) }
func (s *socket) SetDeadline(time.Time) error      { return nil }
func (s *socket) SetReadDeadline(time.Time) error  { return nil }
func (s *socket) SetWriteDeadline(time.Time) error { return nil }
