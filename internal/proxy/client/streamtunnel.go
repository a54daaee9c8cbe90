package client

import (
	"crypto/rand"
	"encoding/base64"
	"sync"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
)

var (
	methodGet        = []byte("GET")
	webSocket        = []byte("websocket")
	webSocketKeyName = []byte("Sec-WebSocket-Key")
)

// streamTunnel is what a stream has beside what all have when it is to become a tunnel.
type streamTunnel struct {
	place counted
	key   [24]byte // the value of Sec-WebSocket-Key: 16 random bytes in base64 (RFC 6455 section 4.1)
}

// beginTunnel has what follows the head be the tunnel's, and no body.
func (d *stream) beginTunnel() {
	x := d.ex
	x.Whole, x.Streamed, x.Framing, x.Length = nil, false, http1.NoBody, -1
	x.ExpectContinue, x.TETrailers = false, false
	d.side.Switcher = d
}

// extend makes of an extended CONNECT (RFC 8441) the request of HTTP/1.1 that it stands for. For a WebSocket that has a key of our own, since a client
// of HTTP/2 has none, or one that means nothing.
func (d *stream) extend() {
	x := d.ex
	x.Extended, x.Upgrade = true, d.s.Head.Protocol
	d.head.Upgrade = x.Upgrade
	if !message.EqualFoldBytes(x.Upgrade, webSocket) {
		return
	}
	var random [16]byte
	rand.Read(random[:]) //nolint:errcheck // it never fails
	base64.StdEncoding.Encode(d.own.key[:], random[:])
	x.Upgrade, d.head.Upgrade = webSocket, webSocket
	x.Header.Set(webSocketKeyName, d.own.key[:])
}

// takePlace counts what may become a tunnel as a connection of its client: it may stay as long, and has a connection to a backend of its own. False is that
// there are too many.
func (d *stream) takePlace() bool {
	s, k := d.c.set, d.c.key
	limit, ok := s.admit(k, false)
	if !ok {
		s.refuse(limit, d.c.side.Peer.Addr())
		return false
	}
	if d.own == nil {
		d.own = &streamTunnel{}
	}
	d.own.place.key = k
	d.own.place.counts.Store(countsOpen)
	return true
}

// leavePlace undoes takePlace, and does nothing where that has not been called, or has refused.
func (d *stream) leavePlace() {
	if d.own != nil {
		d.c.set.leave(&d.own.place)
	}
}

// Switch is exchange.Switcher's.
func (d *stream) Switch(resp *message.Response, _ []byte) error {
	if err := d.limit.begin(); err != nil {
		return err
	}
	err := d.s.WriteHead(resp.Status, &resp.Header, -1, false)
	if err == nil {
		err = d.s.Flush()
	}
	return d.limit.end(err)
}

// Duplex is exchange.Switcher's.
func (d *stream) Duplex() tunnel.Duplex {
	d.s.SetReadDeadline(never)
	d.s.SetWriteTimeout(d.c.timeouts.TunnelWrite)
	d.tunnel().begin()
	d.c.tunnels.add(d)
	return streamDuplex{d}
}

// Moved is exchange.Switcher's.
func (d *stream) Moved(to tunnel.Side, writing bool) { d.tunnel().moved(to, writing) }

// tunnel is the stream as a tunnel, if it is one.
func (d *stream) tunnel() tunnelWaits { return tunnelWaits{d.c.set, &d.toClient, &d.toBackend} }

// streamDuplex is a stream as the end of a tunnel: END_STREAM stands for the FIN of TCP, RST_STREAM for RST (RFC 8441 section 5).
type streamDuplex struct{ d *stream }

// ReadInto implements tunnel.Duplex.
func (e streamDuplex) ReadInto(b tunnel.Buffer) (int, error) {
	if err := e.d.s.Wait(); err != nil {
		return 0, err
	}
	return e.d.s.Read(b.Take())
}

// WasReset implements tunnel.Duplex: a read tells of RST_STREAM, whatever was written.
func (e streamDuplex) WasReset() bool { return false }

// Write implements tunnel.Duplex.
func (e streamDuplex) Write(b []byte) (int, error) {
	if err := e.d.s.Write(b, false); err != nil {
		return 0, err
	}
	return len(b), nil
}

// CloseWrite implements tunnel.Duplex.
func (e streamDuplex) CloseWrite() error { return e.d.s.Write(nil, true) }

// Interrupt implements tunnel.Duplex. It may be called while the connection's lock is held, see gone.
func (e streamDuplex) Interrupt() { e.d.s.Interrupt() }

// streamTunnels are the streams of a connection that are tunnels. The zero value has none.
type streamTunnels struct {
	mu   sync.Mutex
	open map[*stream]struct{} // nil before the first
}

func (t *streamTunnels) add(d *stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[*stream]struct{})
	}
	t.open[d] = struct{}{}
}

// remove reports whether the stream was a tunnel. Nobody interrupts it any more when it returns.
func (t *streamTunnels) remove(d *stream) (was bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, was = t.open[d]
	delete(t.open, d)
	d.toClient.set(waitNothing, 0)
	d.toBackend.set(waitNothing, 0)
	return was
}

// each calls f for all tunnels; f must not block, nor call anything of t.
func (t *streamTunnels) each(f func(*stream)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for d := range t.open {
		f(d)
	}
}

// expire ends tunnels through which nothing moves.
func (t *streamTunnels) expire(now int64) {
	t.each(func(d *stream) {
		if d.tunnel().expired(now) {
			d.watch.Expire()
		}
	})
}

// end evicts and ends a tunnel, and reports whether that is open and does not end already.
func (t *streamTunnels) end(d *stream) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := t.open[d]; !open || d.own.place.counts.Load() != countsOpen {
		return false
	}
	d.c.set.evict(&d.own.place)
	d.watch.Cut(observe.ReasonOverloaded)
	return true
}
