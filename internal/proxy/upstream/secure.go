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

// wire is what TLS reads from: the socket, and while quiet looks only what has come there already.
type wire struct {
	*net.TCPConn
	conn    *Conn
	looking bool
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

// nothingYet is temporary, so that TLS keeps what it has of a record and can be asked again.
type nothingYet struct{ error }

func (nothingYet) Timeout() bool   { return true }
func (nothingYet) Temporary() bool { return true }

var errNothingYet net.Error = nothingYet{os.ErrDeadlineExceeded}

// quiet tells whether nothing came for whoever uses the connection. What concerns TLS alone, such as a
// session ticket (RFC 8446 section 4.6.1), is taken in.
func (s *secure) quiet() bool {
	n, err := s.readNow(s.look[:])
	return n == 0 && errors.Is(err, errNothingYet)
}

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
