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

// streamTunnel is what a stream needs in addition if it may become a tunnel.
type streamTunnel struct {
	place counted
	key   [24]byte // value of Sec-WebSocket-Key: 16 random bytes in base64 (RFC 6455 section 4.1)
}

// beginTunnel makes what follows the head belong to the tunnel: the request has no body.
func (d *stream) beginTunnel() {
	x := d.ex
	x.Whole, x.Streamed, x.Framing, x.Length = nil, false, http1.NoBody, -1
	x.ExpectContinue, x.TETrailers = false, false
	d.side.Switcher = d
}

// extend turns an extended CONNECT (RFC 8441) into the HTTP/1.1 request that it stands for. A WebSocket gets a new
// Sec-WebSocket-Key, since an HTTP/2 client sends none, or a meaningless one.
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

// takePlace counts a stream that may become a tunnel as a connection of its client: it may last as long, and has its
// own connection to a backend. It returns false if there are too many.
func (d *stream) takePlace() bool {
	s, k := d.c.set, d.c.key
	limit, ok := s.countConnection(k, false)
	if !ok {
		s.refuse(limit, d.c.side.Peer.Addr())
		return false
	}
	if d.own == nil {
		d.own = &streamTunnel{}
	}
	d.own.place.key = k
	d.own.place.state.Store(countedOpen)
	return true
}

// leavePlace undoes takePlace. It does nothing if takePlace was not called or returned false.
func (d *stream) leavePlace() {
	if d.own != nil {
		d.c.set.leave(&d.own.place)
	}
}

// Switch implements exchange.Switcher.
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

// Duplex implements exchange.Switcher.
func (d *stream) Duplex() tunnel.Duplex {
	d.s.SetReadDeadline(never)
	d.s.SetWriteTimeout(d.c.timeouts.TunnelWrite)
	d.tunnel().begin()
	d.c.tunnels.add(d)
	return streamDuplex{d}
}

// Moved implements exchange.Switcher.
func (d *stream) Moved(to tunnel.Side, writing bool) { d.tunnel().moved(to, writing) }

// tunnel returns the wait states of the stream as a tunnel. They are meaningful only if it is one.
func (d *stream) tunnel() tunnelWaits { return tunnelWaits{d.c.set, &d.toClient, &d.toBackend} }

// streamDuplex is a stream as the end of a tunnel: END_STREAM corresponds to the FIN of TCP, RST_STREAM to RST (RFC
// 8441 section 5).
type streamDuplex struct{ d *stream }

// ReadInto implements tunnel.Duplex.
func (e streamDuplex) ReadInto(b tunnel.Buffer) (int, error) {
	if err := e.d.s.Wait(); err != nil {
		return 0, err
	}
	return e.d.s.Read(b.Take())
}

// WasReset implements tunnel.Duplex. A read reports RST_STREAM, whatever was written.
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

// Interrupt implements tunnel.Duplex. It may be called with the connection's lock held, see gone.
func (e streamDuplex) Interrupt() { e.d.s.Interrupt() }

// streamTunnels are the streams of a connection that are tunnels. The zero value has none.
type streamTunnels struct {
	mu   sync.Mutex
	open map[*stream]struct{} // nil before the first tunnel
}

func (t *streamTunnels) add(d *stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[*stream]struct{})
	}
	t.open[d] = struct{}{}
}

// remove removes the stream and reports whether it was a tunnel. After it returns, the stream is not interrupted any
// more.
func (t *streamTunnels) remove(d *stream) (was bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, was = t.open[d]
	delete(t.open, d)
	d.toClient.set(waitNothing, 0)
	d.toBackend.set(waitNothing, 0)
	return was
}

// each calls f for all tunnels. f must not block, and must not call methods of t.
func (t *streamTunnels) each(f func(*stream)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for d := range t.open {
		f(d)
	}
}

// expire ends tunnels that have moved nothing for too long.
func (t *streamTunnels) expire(now int64) {
	t.each(func(d *stream) {
		if d.tunnel().expired(now) {
			d.watch.Expire()
		}
	})
}

// end ends a tunnel and stops counting it. It reports whether the tunnel was open and not ending already.
func (t *streamTunnels) end(d *stream) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := t.open[d]; !open || d.own.place.state.Load() != countedOpen {
		return false
	}
	d.c.set.evict(&d.own.place)
	d.watch.Cut(observe.ReasonOverloaded)
	return true
}
