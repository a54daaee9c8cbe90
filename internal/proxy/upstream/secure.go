package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/socket"
)

// secure is the additional state of a TLS connection.
type secure struct {
	tls  *tls.Conn
	wire wire
	look [1]byte
	// trip sends requests and waits for their responses; nil if that is done through net.Conn, see writeReadPlain.
	trip *secureTrip
}

// wire is the connection below TLS: the socket or, when nothing may wait, only what has already arrived there and what
// it takes at once.
type wire struct {
	*net.TCPConn
	conn    *Conn
	looking bool
	// idle means that quiet is running, and untaken that the socket did not take what TLS wrote meanwhile.
	idle, untaken bool
	// ended means that the socket's stream has ended. TLS returns io.EOF for that too, between two records, and not
	// only for a close_notify, after which it reads no more.
	ended bool
}

func (w *wire) Read(b []byte) (int, error) {
	var n int
	var err error
	if w.looking {
		n, err = w.conn.readNow(b)
	} else {
		n, err = w.TCPConn.Read(b)
	}
	w.ended = w.ended || err == io.EOF
	return n, err
}

// Write waits for the peer only on behalf of a request, which has its own deadline. TLS also writes by itself: the
// answer to a KeyUpdate (RFC 8446 section 4.6.3), which the peer need not take, an alert, and close_notify.
func (w *wire) Write(b []byte) (int, error) {
	closed := w.conn.closed.Load() // first, because the connection may be closed while another goroutine uses it
	if !closed && !w.idle {
		return w.TCPConn.Write(b)
	}
	n := w.conn.writeNow(b)
	if n == len(b) {
		return n, nil
	}
	if !closed {
		w.untaken = true
	}
	return n, os.ErrDeadlineExceeded
}

// quiet reports, without ever waiting, whether no data has arrived. It processes and answers what concerns only TLS,
// such as a session ticket (RFC 8446 section 4.6.1).
func (s *secure) quiet() bool {
	w := &s.wire
	w.idle, w.untaken = true, false
	n, err := s.readNow(s.look[:])
	w.idle = false
	return n == 0 && !w.untaken && errors.Is(err, socket.ErrNothingYet)
}

// close ends the connection without waiting for the peer or for other goroutines that use it. It sends close_notify if
// there is room for it.
func (s *secure) close() error {
	s.wire.SetWriteDeadline(longAgo) //nolint:errcheck // on a broken socket nothing waits
	return s.tls.Close()
}

// longAgo is a deadline that interrupts a blocked write.
var longAgo = time.Unix(1, 0)

// readNow reads what has already arrived. It returns socket.ErrNothingYet if no data has.
func (s *secure) readNow(into []byte) (int, error) {
	s.wire.looking = true
	n, err := s.tls.Read(into)
	s.wire.looking = false
	return n, err
}

// handshake performs the TLS handshake on c until limit or until ctx ends.
func (c *Conn) handshake(ctx context.Context, socket *net.TCPConn, config *tls.Config, limit time.Time) error {
	s := &secure{}
	s.wire = wire{TCPConn: socket, conn: c}
	s.tls = tls.Client(&s.wire, config)
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	if err := s.tls.HandshakeContext(ctx); err != nil {
		return err
	}
	if !c.plain {
		s.trip = newSecureTrip(c, s)
	}
	c.Conn, c.secure, c.plain = s.tls, s, true
	return nil
}

// speaksHTTP2 reports whether the backend chose HTTP/2 by ALPN.
func (c *Conn) speaksHTTP2() bool {
	return c.secure != nil && c.secure.tls.ConnectionState().NegotiatedProtocol == protocolHTTP2
}
