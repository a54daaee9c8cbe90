package client

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/tls"
)

// writeWire writes one piece for TLS to w. TLS also writes by itself during a read: the answer to a KeyUpdate (RFC 8446
// section 4.6.3), or an alert. The client need not take that, and the read's own timeout does not end it. Other writers
// have timeouts of their own, which are no later than this one.
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
			err = os.ErrDeadlineExceeded // the next write would fail with it too
		}
	}
	return n, err
}

// acceptTLS runs a connection to a port whose TLS listeners all terminate TLS.
func (c *Conn) acceptTLS() {
	if !c.handshake(c.handshakeEnd()) {
		c.end()
		return
	}
	c.afterHandshake()
}

// afterHandshake runs a connection by the mode of the listener that the server name selected. The port may also have
// HTTPS listeners.
func (c *Conn) afterHandshake() {
	if l := c.listener(); l != nil && l.Mode == snapshot.HTTPS {
		c.side.Mode = snapshot.HTTPS
		c.serveHTTPS()
		return
	}
	c.side.Mode = snapshot.TLS
	c.join("TLS")
}

// acceptPassthrough runs a connection to a port with a listener that passes TLS through. The server name in the
// ClientHello shows whether the connection is for that listener. If not, the handshake begins with the bytes read, and
// its result counts.
func (c *Conn) acceptPassthrough() {
	by := c.handshakeEnd()
	name, err := c.peekServerName(by)
	switch {
	case errors.Is(err, tls.ErrNotHello): // crypto/tls finds that too, and sends an alert
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

// listener returns the listener in the current configuration that has the server name, or nil.
func (c *Conn) listener() *snapshot.Listener {
	return c.set.listener(c.side.Socket, c.local, c.side.ServerName)
}

func (s *Set) listener(socket *snapshot.Socket, local func() netip.AddrPort, serverName []byte) *snapshot.Listener {
	p := s.engine.Snapshot.Load().PortOf(socket, local)
	if p == nil {
		return nil
	}
	l, _ := p.Listeners.Find(serverName)
	return l
}

// peekServerName waits for the ClientHello until by, a time of the coarse clock, and returns the server name in it.
// What it has read remains unread.
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

// replay is a wire that first returns bytes that were already read.
type replay struct {
	*wire
	early []byte
}

// Read implements net.Conn.
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
