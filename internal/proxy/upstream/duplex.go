package upstream

import (
	"net"
	"syscall"

	peer "github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/socket"
)

// This file makes a connection the end of a tunnel. It must not be released afterwards.

// ReadIdle is like ReadInto, for connections that may be silent for a long time: it holds no buffer while it waits,
// with or without TLS.
func (c *Conn) ReadIdle(b Buffer) (int, error) {
	if c.secure == nil || c.probe.rawConn() == nil {
		return c.ReadInto(b)
	}
	for { // what arrives may be part of a record, or a record without data
		n, err := c.secure.readNow(b.Take())
		if n > 0 || err != socket.ErrNothingYet {
			return n, err
		}
		b.Give()
		if err := c.probe.await(); err != nil {
			return 0, err
		}
	}
}

// CloseWrite ends the stream to the endpoint. With TLS this sends bytes, so it waits until there is room: crypto/tls
// would give up after 5 s.
func (c *Conn) CloseWrite() error {
	if raw := c.probe.rawConn(); c.secure != nil && raw != nil {
		if err := peer.AwaitWritable(raw); err != nil {
			return err
		}
	}
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// KeepAlive enables TCP keep-alive from now on. A connection for a tunnel begins without it, since enabling it takes
// four system calls.
func (c *Conn) KeepAlive() {
	if c.keptAlive.Swap(true) {
		return
	}
	if socket := c.socket(); socket != nil {
		socket.SetKeepAliveConfig(keepAlive) //nolint:errcheck // without it, only the loss of the endpoint is detected later
	}
}

// socket returns the socket of the connection; nil if it is not TCP.
func (c *Conn) socket() *net.TCPConn {
	if c.secure != nil {
		return c.secure.wire.TCPConn
	}
	socket, _ := c.Conn.(*net.TCPConn)
	return socket
}

// Reset closes the connection so that the endpoint sees that what it was sent is not complete.
func (c *Conn) Reset() {
	if socket := c.socket(); socket != nil {
		socket.SetLinger(0) //nolint:errcheck // a broken socket is already reset
		socket.Close()
	}
	c.Close()
}

// Raw returns the socket if the connection's data can be read from it directly; otherwise nil.
func (c *Conn) Raw() syscall.RawConn {
	if c.plain {
		return nil
	}
	return c.probe.rawConn()
}
