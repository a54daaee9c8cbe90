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
	net.Conn // what is written to
	c        *Conn
	early    []byte // what was read already, as much as a Buffer takes at most, see tunnel.Socket
}

// newDuplex makes the connection the end of a tunnel, which gives back what it has read to. It must not be called within a step.
func newDuplex(c *Conn) *duplex {
	c.tunnel().begin()
	d := &duplex{c.writingApart(), c, bytes.Clone(c.in[c.r:c.w])}
	c.giveInput()
	return d
}

// tunnelWaits is what both directions of a tunnel wait for: bytes for a side, or that side to take them.
type tunnelWaits struct {
	set                 *Set
	toClient, toBackend *waitState
}

// tunnel is the connection as a tunnel, if it is one.
func (c *Conn) tunnel() tunnelWaits { return tunnelWaits{c.set, &c.wait, &c.bodyWait} }

func (t tunnelWaits) begin() {
	t.moved(tunnel.Client, false)
	t.moved(tunnel.Backend, false)
}

// moved notes that bytes have moved towards an end of the tunnel, and whether they are being written to it.
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

// expired reports whether the tunnel is to end: one of both ends does not take what it is sent, or nothing comes from either.
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

// used returns when bytes have last moved through the tunnel, by the coarse clock; false where it is none.
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

// rests reports whether nothing has moved for so long that the tunnel should be suspended.
func (t tunnelWaits) rests(now int64) bool {
	ms, ok := t.used()
	return ok && now >= ms+suspendAfter.Milliseconds() && t.held() == 0
}

// stuck returns since when a side of the tunnel has been sent what it has not taken yet, by the coarse clock; false where none has.
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

// held is how many bytes the tunnel holds, or may hold: a buffer for each side that has not taken yet what it was sent.
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

// readToEnd reports, of a connection whose stream has ended, whether its socket was read to the end, and not to a close_notify alone.
func (c *Conn) readToEnd() bool { return c.nc == net.Conn(c.tcp) || c.wireEnded() }

// readAny reads from a connection in the clear or over TLS.
func (c *Conn) readAny(b tunnel.Buffer) (int, error) {
	switch {
	case c.nc == net.Conn(c.tcp):
		return c.readPlain(b)
	case c.set.plainIO:
		return c.nc.Read(b.Take())
	}
	return c.readRecords(b)
}

// readPlain reads from a connection in the clear.
func (c *Conn) readPlain(b tunnel.Buffer) (int, error) {
	if c.set.plainIO {
		return c.tcp.Read(b.Take())
	}
	return c.readSocket(b)
}

// CloseWrite implements tunnel.Duplex. Over TLS that takes bytes, for which it waits until there is room: crypto/tls would give up after 5 s.
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

// acceptTCP runs a connection to a listener of protocol TCP.
func (c *Conn) acceptTCP() { c.join("TCP") }

// join runs a connection of a layer-4 route to its end; the protocol is what the access log has.
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
		c.tcp.ResetOnClose() // no end of the stream that was not the backend's
	}
	c.end()
}

// unlessSuspended returns the outcome of an exchange, unless its tunnel is suspended: away is that the connection belongs to whoever is woken.
func (c *Conn) unlessSuspended(o exchange.Outcome) (_ exchange.Outcome, away bool) {
	for o.Suspended {
		c.rests.Store(true)
		if c.h1.ex.Await(c.wakeTunnel) {
			return o, true
		}
		o = c.h1.ex.Resume() // it ends, or cannot be watched and shall not be suspended again
	}
	return o, false
}

func (c *Conn) wakeTunnel() { go c.resumeTunnel() }

// resumeTunnel goes on with a connection whose tunnel was suspended.
func (c *Conn) resumeTunnel() {
	defer c.recovered()
	c.rests.Store(false)
	o := c.h1.ex.Resume()
	if c.side.Mode.L4() {
		c.joined(o)
	} else if _, away := c.ran(o); !away {
		c.finish(false)
	}
}

// Switch is exchange.Switcher's.
func (s http1Side) Switch(resp *message.Response, protocol []byte) error {
	st := s.c.h1
	st.framing, st.keep = http1.UntilClose, false // what breaks off is reset
	st.out = http1.AppendResponseHead(st.out[:0], resp, http1.NoBody, -1, http1.Hop{Upgrade: protocol})
	return s.c.write(st.out, false)
}

// Duplex is exchange.Switcher's.
func (s http1Side) Duplex() tunnel.Duplex { return newDuplex(s.c) }

// Moved is exchange.Switcher's.
func (s http1Side) Moved(to tunnel.Side, writing bool) { s.c.tunnel().moved(to, writing) }
