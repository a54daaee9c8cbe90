//go:build linux

package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/test/bench/epoll"
)

// conn is one client connection and its request in flight.
type conn struct {
	id      int
	fd      int
	tls     *tls.Conn // nil on plain connections, and so is socket
	socket  *epoll.Socket
	session *session // nil in HTTP/1.1, and what follows is of no use in HTTP/2

	sent  time.Time
	rest  []byte // of the request, where the socket took only a part
	got   int    // bytes of the response so far
	total int    // bytes of the whole response; 0 until the head is complete
	done  bool   // the only response of this connection is complete
	// upgraded: a WebSocket is open, and what is in flight is a message.
	upgraded bool
	datagram []byte // the last one, with its number
	first    uint32 // the number of the first that are on their way
	awaited  uint32 // which of them have no answer yet, a bit each
	buf      [4 << 10]byte
}

// errAgain: nothing to read now.
var errAgain = errors.New("nothing to read")

// discarded takes what recv on TLS connections drops; its content is never read.
var discarded [32 << 10]byte

// dial opens the connection, with TLS up to the end of the handshake.
func (c *conn) dial(l *loop) error {
	c.fd, c.tls, c.socket, c.session, c.upgraded = -1, nil, nil, nil, false
	if l.spec.Exchange == Datagrams {
		fd, err := epoll.DialDatagram(l.spec.Address)
		if err != nil {
			return err
		}
		c.fd = fd
		return l.poller.Add(fd, c.id)
	}
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
	c.socket = &epoll.Socket{FD: c.fd, Block: true}
	config := tlsConfig(spec.ServerName)
	if spec.Streams > 0 {
		config.NextProtos = []string{"h2"} // whoever does not speak it refuses the handshake
	}
	c.tls = tls.Client(c.socket, config)
	if err := c.tls.HandshakeContext(context.Background()); err != nil {
		return err
	}
	c.socket.Block = false
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

// startMessage sends a message of a WebSocket, of whose answer the size is all that is known before.
func (c *conn) startMessage(spec *Spec, now time.Time) error {
	c.sent, c.got, c.total, c.rest = now, 0, spec.BodySize, spec.Message
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
	if err == epoll.ErrSocketEmpty {
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
