package client

import (
	"bytes"
	"net"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
)

// duplex is a connection as the end of a tunnel.
type duplex struct {
	net.Conn // written to
	c        *Conn
	early    []byte // bytes already read, at most as many as a Buffer holds, see tunnel.Socket
}

// newDuplex makes the connection the end of a tunnel, and returns its read buffer to the pool. It must not be called
// within a step.
func newDuplex(c *Conn) *duplex {
	c.tunnel().begin()
	d := &duplex{c.writingApart(), c, bytes.Clone(c.in[c.r:c.w])}
	c.giveInput()
	return d
}

// tunnelWaits are the wait states of both directions of a tunnel: for bytes for a side, or for that side to take them.
type tunnelWaits struct {
	set                 *Set
	toClient, toBackend *waitState
}

// tunnel returns the wait states of the connection as a tunnel. They are meaningful only if it is one.
func (c *Conn) tunnel() tunnelWaits { return tunnelWaits{c.set, &c.wait, &c.bodyWait} }

func (t tunnelWaits) begin() {
	t.moved(tunnel.Client, false)
	t.moved(tunnel.Backend, false)
}

// moved records that bytes have moved towards a side of the tunnel, and whether they are being written to it.
func (t tunnelWaits) moved(to tunnel.Side, writing bool) {
	wait, state, limit := t.toClient, waitTunnel, t.set.timeouts.Tunnel
	if to == tunnel.Backend {
		wait = t.toBackend
	}
	if writing {
		state, limit = waitTunnelWrite, t.set.timeouts.TunnelWrite
	}
	wait.set(state, t.set.engine.Now()+limit.Milliseconds())
}

// expired reports whether the tunnel is to end: one side does not take what it is sent, or nothing comes from either
// side.
func (t tunnelWaits) expired(now int64) bool {
	idle := true
	for _, w := range [...]*waitState{t.toClient, t.toBackend} {
		waits, at, _ := w.get()
		late := now >= at
		if late && waits == waitTunnelWrite {
			return true
		}
		idle = idle && late && waits == waitTunnel
	}
	return idle
}

// used returns when bytes last moved through the tunnel, by the coarse clock. It returns false if there is no tunnel.
func (t tunnelWaits) used() (ms int64, tunnel bool) {
	for _, w := range [...]*waitState{t.toClient, t.toBackend} {
		switch waits, at, _ := w.get(); waits {
		case waitTunnel:
			ms = max(ms, at-t.set.timeouts.Tunnel.Milliseconds())
		case waitTunnelWrite:
			ms = max(ms, at-t.set.timeouts.TunnelWrite.Milliseconds())
		default:
			return 0, false
		}
	}
	return ms, true
}

// suspendDue reports whether nothing has moved for long enough to suspend the tunnel.
func (t tunnelWaits) suspendDue(now int64) bool {
	ms, ok := t.used()
	return ok && now >= ms+suspendAfter.Milliseconds() && t.held() == 0
}

// stuck returns since when a side of the tunnel has not taken what it was sent, by the coarse clock. It returns false
// if both sides have taken everything.
func (t tunnelWaits) stuck() (ms int64, stuck bool) {
	for _, w := range [...]*waitState{t.toClient, t.toBackend} {
		if waits, at, _ := w.get(); waits == waitTunnelWrite {
			if since := at - t.set.timeouts.TunnelWrite.Milliseconds(); !stuck || since < ms {
				ms, stuck = since, true
			}
		}
	}
	return ms, stuck
}

// held returns an upper bound of the bytes that the tunnel holds: a buffer for each side that has not taken what it was
// sent.
func (t tunnelWaits) held() (bytes int) {
	for _, w := range [...]*waitState{t.toClient, t.toBackend} {
		if waits, _, _ := w.get(); waits == waitTunnelWrite {
			bytes += buffer.Size
		}
	}
	return bytes
}

// ReadInto implements tunnel.Duplex.
func (d *duplex) ReadInto(b tunnel.Buffer) (int, error) {
	c := d.c
	if len(d.early) > 0 {
		n := copy(b.Take(), d.early)
		d.early = d.early[n:]
		return n, nil
	}
	d.early = nil
	return c.readAny(b)
}

// WasReset implements tunnel.Duplex.
func (d *duplex) WasReset() bool { return d.c.readToEnd() && listen.WasReset(d.c.raw) }

// readToEnd reports whether the socket of a connection whose stream has ended was read to the end, not only to a
// close_notify.
func (c *Conn) readToEnd() bool { return c.nc == net.Conn(c.tcp) || c.wireEnded() }

// readAny reads from a connection with or without TLS.
func (c *Conn) readAny(b tunnel.Buffer) (int, error) {
	switch {
	case c.nc == net.Conn(c.tcp):
		return c.readPlain(b)
	case c.set.plainIO:
		return c.nc.Read(b.Take())
	}
	return c.readRecords(b)
}

// readPlain reads from a connection without TLS.
func (c *Conn) readPlain(b tunnel.Buffer) (int, error) {
	if c.set.plainIO {
		return c.tcp.Read(b.Take())
	}
	return c.readSocket(b)
}

// CloseWrite implements tunnel.Duplex. With TLS this sends bytes, so it waits until there is room: crypto/tls would
// give up after 5 s.
func (d *duplex) CloseWrite() error {
	if d.c.nc != net.Conn(d.c.tcp) {
		if err := listen.AwaitWritable(d.c.raw); err != nil {
			return err
		}
	}
	return d.c.nc.(interface{ CloseWrite() error }).CloseWrite()
}

// Interrupt implements tunnel.Duplex.
func (d *duplex) Interrupt() { d.c.tcp.SetDeadline(longAgo) }

// acceptTCP runs a connection to a TCP listener.
func (c *Conn) acceptTCP() { c.join("TCP") }

// join runs a connection of a layer-4 route to its end. protocol is for the access log.
func (c *Conn) join(protocol string) {
	c.side.Protocol = protocol
	c.joined(c.http1State().ex.Join(c.tcp.Peer(), c.tcp.Local()))
}

// joined ends the connection of a layer-4 route, unless its tunnel is suspended.
func (c *Conn) joined(o exchange.Outcome) {
	o, away := c.unlessSuspended(o)
	if away {
		return
	}
	if !o.Complete {
		c.tcp.ResetOnClose() // a reset, because the backend did not end the stream
	}
	c.end()
}

// unlessSuspended returns the outcome of an exchange, or away if its tunnel is suspended: then the goroutine that is
// woken owns the connection.
func (c *Conn) unlessSuspended(o exchange.Outcome) (_ exchange.Outcome, away bool) {
	for o.Suspended {
		c.suspendSettled.Store(true)
		if c.h1.ex.Await(c.wakeTunnel) {
			return o, true
		}
		o = c.h1.ex.Resume() // it has ended, or cannot be watched and is not suspended again
	}
	return o, false
}

func (c *Conn) wakeTunnel() { go c.resumeTunnel() }

// resumeTunnel continues with a connection whose tunnel was suspended.
func (c *Conn) resumeTunnel() {
	defer c.recovered()
	c.suspendSettled.Store(false)
	o := c.h1.ex.Resume()
	if c.side.Mode.L4() {
		c.joined(o)
	} else if _, away := c.ran(o); !away {
		c.finish(false)
	}
}

// Switch implements exchange.Switcher.
func (s http1Side) Switch(resp *message.Response, protocol []byte) error {
	st := s.c.h1
	st.framing, st.keep = http1.UntilClose, false // a tunnel that breaks off is reset
	st.out = http1.AppendResponseHead(st.out[:0], resp, http1.NoBody, -1, http1.Hop{Upgrade: protocol})
	return s.c.write(st.out, false)
}

// Duplex implements exchange.Switcher.
func (s http1Side) Duplex() tunnel.Duplex { return newDuplex(s.c) }

// Moved implements exchange.Switcher.
func (s http1Side) Moved(to tunnel.Side, writing bool) { s.c.tunnel().moved(to, writing) }
