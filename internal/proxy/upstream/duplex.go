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

// KeepAlive has the system ask the endpoint from now on, when it is silent, whether it is still there. A connection for a tunnel is made without that, since
// it takes four system calls.
func (c *Conn) KeepAlive() {
	if c.keptAlive.Swap(true) {
		return
	}
	if socket := c.socket(); socket != nil {
		socket.SetKeepAliveConfig(keepAlive) //nolint:errcheck // without it a vanished endpoint is noticed later, nothing else
	}
}

// socket is what the connection's bytes are sent by; nil where it is not TCP.
func (c *Conn) socket() *net.TCPConn {
	if c.secure != nil {
		return c.secure.wire.TCPConn
	}
	socket, _ := c.Conn.(*net.TCPConn)
	return socket
}

// Reset is Close by which the endpoint sees that what it was sent is not complete.
func (c *Conn) Reset() {
	if socket := c.socket(); socket != nil {
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
