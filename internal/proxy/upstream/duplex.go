package upstream

import (
	"net"
	"syscall"

	peer "github.com/moongate-dev/moongate/internal/proxy/listen"
)

// This file is what a connection offers as the end of a tunnel. It is not released after that.

// ReadIdle is ReadInto for connections that may be silent for long: it holds no memory while it waits, over TLS neither.
func (c *Conn) ReadIdle(b Buffer) (int, error) {
	if c.secure == nil || c.probe.rawConn() == nil {
		return c.ReadInto(b)
	}
	for { // what comes may be part of a record, or one without data
		n, err := c.secure.readNow(b.Take())
		if n > 0 || err != errNothingYet {
			return n, err
		}
		b.Give()
		if err := c.probe.await(); err != nil {
			return 0, err
		}
	}
}

// CloseWrite tells the endpoint that nothing more comes. Over TLS that takes bytes, for which it waits until there is room: crypto/tls would give up after
// 5 s.
func (c *Conn) CloseWrite() error {
	if raw := c.probe.rawConn(); c.secure != nil && raw != nil {
		if err := peer.AwaitWritable(raw); err != nil {
			return err
		}
	}
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// Reset is Close by which the endpoint sees that what it was sent is not complete.
func (c *Conn) Reset() {
	socket, ok := c.Conn.(*net.TCPConn)
	if c.secure != nil {
		socket, ok = c.secure.wire.TCPConn, true
	}
	if ok {
		socket.SetLinger(0) //nolint:errcheck // a broken socket is reset already
		socket.Close()
	}
	c.Close()
}

// Raw is the socket, where what the connection carries can be read from it; else nil.
func (c *Conn) Raw() syscall.RawConn {
	if c.plain {
		return nil
	}
	return c.probe.rawConn()
}
