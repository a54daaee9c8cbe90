package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// secure is what a connection over TLS has besides.
type secure struct {
	tls  *tls.Conn
	wire wire
	look [1]byte
	// trip is how a request is sent and its response waited for; nil where it is by way of net.Conn, see writeReadPlain.
	trip *secureTrip
}

// wire is what TLS reads from and writes to: the socket, and where nobody may wait only what has come there already, and what it takes at once.
type wire struct {
	*net.TCPConn
	conn    *Conn
	looking bool
	// idle tells that quiet looks, and untaken that the socket did not take what TLS had to say then.
	idle, untaken bool
	// ended tells that the socket's stream has ended. TLS gives io.EOF for that too, between two records, and not only for a
	// close_notify, behind which it reads no more.
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

// Write waits for the peer only on behalf of a request, which has its own bounds. TLS writes by itself too: an answer to a KeyUpdate (RFC 8446 section 4.6.3), which
// the peer need not take, an alert, and what ends the connection.
func (w *wire) Write(b []byte) (int, error) {
	closed := w.conn.closed.Load() // first: who closes the connection may do so while another uses it
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

// nothingYet is temporary, so that TLS keeps what it has of a record and can be asked again.
type nothingYet struct{ error }

func (nothingYet) Timeout() bool   { return true }
func (nothingYet) Temporary() bool { return true }

var errNothingYet net.Error = nothingYet{os.ErrDeadlineExceeded}

// quiet tells, without ever waiting, whether nothing came for whoever uses the connection. What concerns TLS alone, such as a
// session ticket (RFC 8446 section 4.6.1), is taken in and answered.
func (s *secure) quiet() bool {
	w := &s.wire
	w.idle, w.untaken = true, false
	n, err := s.readNow(s.look[:])
	w.idle = false
	return n == 0 && !w.untaken && errors.Is(err, errNothingYet)
}

// close ends the connection without waiting for the peer, or for others who do. Its end is said where there is room for that.
func (s *secure) close() error {
	s.wire.SetWriteDeadline(longAgo) //nolint:errcheck // a broken socket has nobody wait
	return s.tls.Close()
}

// longAgo as a deadline interrupts a write that waits.
var longAgo = time.Unix(1, 0)

// readNow reads what has come already; errNothingYet is that no data has.
func (s *secure) readNow(into []byte) (int, error) {
	s.wire.looking = true
	n, err := s.tls.Read(into)
	s.wire.looking = false
	return n, err
}

// handshake makes c a connection over TLS; limit bounds it, and ctx ends it.
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

// speaksHTTP2 tells what the backend chose by ALPN.
func (c *Conn) speaksHTTP2() bool {
	return c.secure != nil && c.secure.tls.ConnectionState().NegotiatedProtocol == protocolHTTP2
}
