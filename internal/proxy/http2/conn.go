package http2

import (
	"net"
)

// Conn is one connection.
type Conn struct {
	nc     net.Conn
	o      Options
	handle func(*Stream)
}

// Preface is what a client's connection begins with (RFC 9113 section 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// New makes a connection of nc, on which nothing happens before Serve. handle is run on a
// goroutine of its own for each request. When it returns, a response that it has not
// ended is reset with INTERNAL_ERROR, and what is left of the request is refused; the
// stream must not be used any more.
func New(nc net.Conn, o Options, handle func(*Stream)) *Conn {
	return &Conn{nc: nc, o: o.withDefaults(), handle: handle}
}

// Serve runs the connection to its end, when all handlers have returned and nc is closed.
// prior is what was read from nc already, beginning with the Preface. The error is nil
// where the connection was idle or drained or the client closed it while no stream was
// open, a *ConnError for what was told to the client, or else one of the network.
func (c *Conn) Serve(prior []byte) error { panic("not yet") }

// Drain ends the connection without harm to requests (RFC 9113 section 6.8): it announces that
// no more streams are wanted, then, when the client has had time to learn
// that, refuses new ones, and ends when those that are open have. It returns at once, may be
// called from any goroutine, and again.
func (c *Conn) Drain() {}

// Close ends the connection at once. It may be called from any goroutine.
func (c *Conn) Close() {}
