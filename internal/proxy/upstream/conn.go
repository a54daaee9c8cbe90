package upstream

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is a connection to an endpoint. From Idle or Connect until Release or Close
// it belongs to one exchange. For net.Buffers use the embedded Conn, which is
// the socket itself, so that they become one writev.
type Conn struct {
	net.Conn
	// Reused says that the connection served a request before, so that it may turn
	// out closed by the peer without anything being wrong.
	Reused bool

	endpoint  *Endpoint
	probe     probe
	roundTrip roundTrip
	released  int64 // the Set's clock at Release, Unix nanoseconds
	deadlines atomic.Bool
	closed    atomic.Bool
	keptAlive atomic.Bool
	served    int64     // requests, as far as they were released
	made      time.Time // when the connection was
	plain     bool      // see Options.PlainIO
	secure    *secure   // nil in cleartext

	before, after *Conn // in the Set's list of open connections
}

// Buffer is memory for what a backend sends. It is taken when something is there to read and
// given back for a wait, so that waiting requests hold none.
type Buffer interface {
	Take() []byte // where to read to; the same until Give
	Give()
}

// ErrStale says that a reused connection was closed by the peer, or holds bytes that nobody asked
// for. Nothing was sent on it.
var ErrStale = errors.New("upstream: the idle connection is not usable any more")

// Endpoint is where the connection leads.
func (c *Conn) Endpoint() *Endpoint { return c.endpoint }

// Alive looks, without waiting, whether an idle connection can still be used. It
// is false where the peer closed it or sent bytes that nobody asked for. True is
// no promise: the close may be under way. For connections between two requests only.
func (c *Conn) Alive() bool {
	switch {
	case c.closed.Load():
		return false
	case c.secure == nil:
		return c.probe.alive()
	}
	return c.secure.quiet() && (readsNow || c.probe.alive())
}

// WasReset reports, of a connection that gave io.EOF, whether the peer has broken the stream off by a reset, as far as the system
// tells. The kernel gives that error once, to a write where one is under way: reads then end as if the peer had ended the
// stream in order. A reset that follows the end of the stream, because the peer wants nothing of the request any more, is none.
func (c *Conn) WasReset() bool { return (c.secure == nil || c.secure.wire.ended) && c.probe.reset() }

// BrokeOff reports, of a connection that gave io.EOF, whether that does not end a response which only the end of the connection ends. That is WasReset; over
// TLS also an end without close_notify, since anybody on the way can send a FIN, and the kernel sends one for a backend that was killed (RFC 9112 section 9.8).
func (c *Conn) BrokeOff() bool {
	if c.secure != nil {
		return c.secure.wire.ended
	}
	return c.probe.reset()
}

// Release makes the connection available to others. Nothing of the last response may be
// left to read on it; its deadlines are cleared. It is closed instead where the endpoint
// is gone or has enough idle connections. The caller must not use it afterwards.
func (c *Conn) Release() {
	if c.deadlines.Load() {
		c.deadlines.Store(false)
		c.Conn.SetDeadline(time.Time{}) //nolint:errcheck // a broken socket shows at its next use
	}
	c.released = c.endpoint.backend.set.clock.Load()
	c.served++
	if c.worn() {
		c.Close()
		return
	}
	c.giveBack()
}

// giveBack is Release of a connection that was not used since the last one.
func (c *Conn) giveBack() {
	if !c.closed.Load() && c.endpoint.dials.hand(c) {
		return
	}
	e := c.endpoint // c may be another's once it is kept
	if c.closed.Load() || !e.mayKeep() || !e.keep(c) {
		c.Close()
		return
	}
	e.serveWaiting()
}

// Close closes the connection, without waiting for the peer. It may be called more than once, and while another goroutine
// reads or writes, which then fails: that is how an exchange is cancelled.
func (c *Conn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	c.endpoint.closed()
	c.endpoint.backend.set.open.remove(c)
	defer c.endpoint.backend.serveBlocked()
	if c.secure != nil {
		return c.secure.close()
	}
	return c.Conn.Close()
}

// SetDeadline is net.Conn's; Release undoes it.
func (c *Conn) SetDeadline(t time.Time) error {
	c.deadlines.Store(true)
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline is net.Conn's; Release undoes it.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.deadlines.Store(true)
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline is net.Conn's; Release undoes it.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.deadlines.Store(true)
	return c.Conn.SetWriteDeadline(t)
}

// connList holds all open connections, so that Set.Close finds those in use. It
// is touched when a connection is made and closed, not per request.
type connList struct {
	mu     sync.Mutex
	first  *Conn
	closed bool
}

// add returns false where the list takes no more.
func (l *connList) add(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	c.after = l.first
	if l.first != nil {
		l.first.before = c
	}
	l.first = c
	return true
}

func (l *connList) remove(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.before != nil {
		c.before.after = c.after
	} else if l.first == c {
		l.first = c.after
	}
	if c.after != nil {
		c.after.before = c.before
	}
	c.before, c.after = nil, nil
}

func (l *connList) shut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *connList) closeAll() {
	l.mu.Lock()
	l.closed = true
	var all []*Conn
	for c := l.first; c != nil; c = c.after {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}
