package client

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/tls"
)

// writeWire writes for TLS, by way of w, one piece at a time. TLS writes by itself too, in a read: an answer to a KeyUpdate (RFC 8446 section 4.6.3), or an alert.
// A client need not take that, and what bounds the read does not end it. Others who write have bounds of their own, which are no later than this one.
func (c *Conn) writeWire(w io.Writer, b []byte) (int, error) {
	state, limit := waitWrite, c.timeouts.WriteIdle
	if _, tunnel := c.tunnel().used(); tunnel {
		state, limit = waitTunnelWrite, c.timeouts.TunnelWrite
	}
	c.wireWait.set(state, c.set.engine.Now()+limit.Milliseconds())
	n, err := w.Write(b)
	if !c.leave(&c.wireWait) {
		c.wireWait.set(waitNothing, 0)
		if err == nil {
			err = os.ErrDeadlineExceeded // and so would be the next
		}
	}
	return n, err
}

// acceptTLS runs a connection to a port with listeners of protocol TLS, all of which terminate it.
func (c *Conn) acceptTLS() {
	if !c.handshake(c.handshakeEnd()) {
		c.end()
		return
	}
	c.afterHandshake()
}

// afterHandshake runs a connection as the listener has it that the server name has chosen, maybe beside others of HTTPS.
func (c *Conn) afterHandshake() {
	if l := c.listener(); l != nil && l.Mode == snapshot.HTTPS {
		c.side.Mode = snapshot.HTTPS
		c.serveHTTPS()
		return
	}
	c.side.Mode = snapshot.TLS
	c.join("TLS")
}

// acceptPassthrough runs a connection to a port with a listener that does not terminate TLS. The server name that the connection begins with tells whether
// it is for that listener; if not, the handshake begins with what was read, and what it finds counts.
func (c *Conn) acceptPassthrough() {
	by := c.handshakeEnd()
	name, err := c.peekServerName(by)
	switch {
	case errors.Is(err, tls.ErrNotHello): // which crypto/tls finds too, and tells the client
	case err != nil:
		c.handshakeFailed(observe.ReasonTLSHandshakeFailed, "", err)
		c.end()
		return
	default:
		c.side.ServerName = lowerASCII(bytes.Clone(name))
		if l := c.listener(); l == nil || l.Mode == snapshot.TLSPassthrough {
			c.join("TLS")
			return
		}
	}
	if !c.handshake(by) {
		c.end()
		return
	}
	c.afterHandshake()
}

// listener is the one of now that has the server name, nil for none.
func (c *Conn) listener() *snapshot.Listener { return c.set.listener(c.side.Socket, c.side.ServerName) }

func (s *Set) listener(socket *snapshot.Socket, serverName []byte) *snapshot.Listener {
	p := s.engine.Snapshot.Load().Port(socket)
	if p == nil {
		return nil
	}
	l, _ := p.Listeners.Find(serverName)
	return l
}

// peekServerName waits until the ClientHello is there or by has come, by the coarse clock, and returns the server name in it. What it has read remains
// unread.
func (c *Conn) peekServerName(by int64) (name []byte, err error) {
	c.wait.set(waitHandshake, by)
	name, err = c.readHello()
	if !c.leave(&c.wait) {
		return nil, errHandshakeTimeout
	}
	return name, err
}

func (c *Conn) readHello() ([]byte, error) {
	var hello tls.Hello
	for {
		if c.w > 0 {
			done, err := hello.Complete(c.in[:c.w])
			if err != nil {
				return nil, err
			}
			if done {
				return hello.ServerName(c.in[:c.w])
			}
		}
		c.makeRoom()
		n, err := c.tcp.Read(c.in[c.w:min(len(c.in), tls.MaxHello)])
		c.w += n
		if n == 0 && err != nil {
			if err == io.EOF && c.w > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// replay is a wire from which comes first what was read already.
type replay struct {
	*wire
	early []byte
}

// Read is net.Conn's.
func (r *replay) Read(b []byte) (int, error) {
	if len(r.early) == 0 {
		return r.wire.Read(b)
	}
	n := copy(b, r.early)
	if r.early = r.early[n:]; len(r.early) == 0 {
		r.early = nil
	}
	r.c.fed(b[:n])
	return n, nil
}
