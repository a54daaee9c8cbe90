package upstream

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is a connection to an endpoint. From Idle or Connect until Release or Close it belongs to one exchange. For
// net.Buffers use the embedded Conn, which is the socket itself, so that they become one writev.
type Conn struct {
	net.Conn
	// Reused means that the connection has served a request before, so that the peer may have closed it without an
	// error.
	Reused bool

	endpoint  *Endpoint
	probe     probe
	roundTrip roundTrip
	released  int64 // the Set's clock at the last Release, in Unix nanoseconds
	deadlines atomic.Bool
	closed    atomic.Bool
	keptAlive atomic.Bool
	served    int64     // number of requests that were released
	made      time.Time // when the connection was made
	plain     bool      // see Options.PlainIO
	secure    *secure   // nil without TLS

	before, after *Conn // in the Set's list of open connections
}

// Buffer is memory for what a backend sends. It is taken when there is something to read, and given back for a wait, so
// that waiting requests hold none.
type Buffer interface {
	Take() []byte // memory to read into; the same until Give
	Give()
}

// ErrStale means that a reused connection was closed by the peer, or has unexpected bytes to read. Nothing was sent on
// it.
var ErrStale = errors.New("upstream: the idle connection is not usable any more")

// Endpoint returns the endpoint of the connection.
func (c *Conn) Endpoint() *Endpoint { return c.endpoint }

// Alive reports, without waiting, whether an idle connection can still be used. It returns false if the peer has closed
// it or sent unexpected bytes. The peer may still close it afterwards. It is only for connections between two requests.
func (c *Conn) Alive() bool {
	switch {
	case c.closed.Load():
		return false
	case c.secure == nil:
		return c.probe.alive()
	}
	return c.secure.quiet() && (readsNow || c.probe.alive())
}

// WasReset reports, for a connection on which a read returned io.EOF, whether the peer has reset the connection, if the
// system reports that. The kernel returns the error only once, to a write if one is in progress; reads then end as if
// the peer had ended the stream normally. A reset after the end of the stream, because the peer needs no more of the
// request, does not count.
func (c *Conn) WasReset() bool { return (c.secure == nil || c.secure.wire.ended) && c.probe.reset() }

// BrokeOff reports, for a connection on which a read returned io.EOF, that this does not end a response which is
// delimited by the end of the connection. That is so if WasReset is true, and with TLS also without close_notify, since
// anyone on the path can send a FIN, and the kernel sends one for a backend that was killed (RFC 9112 section 9.8).
func (c *Conn) BrokeOff() bool {
	if c.secure != nil {
		return c.secure.wire.ended
	}
	return c.probe.reset()
}

// Release makes the connection available to other requests and clears its deadlines. Nothing of the last response may
// be left to read. If the endpoint was removed or has enough idle connections, Release closes the connection instead.
// The caller must not use it afterwards.
func (c *Conn) Release() {
	if c.deadlines.Load() {
		c.deadlines.Store(false)
		c.Conn.SetDeadline(time.Time{}) //nolint:errcheck // a broken socket fails at its next use
	}
	c.released = c.endpoint.backend.set.clock.Load()
	c.served++
	if c.worn() {
		c.Close()
		return
	}
	c.giveBack()
}

// giveBack is like Release, for a connection that was not used since the last Release.
func (c *Conn) giveBack() {
	if !c.closed.Load() && c.endpoint.use().dials.hand(c) {
		return
	}
	e := c.endpoint // c may belong to another request once it is kept
	if c.closed.Load() || !e.mayKeep() || !e.keep(c) {
		c.Close()
		return
	}
	e.serveWaiting()
}

// Close closes the connection without waiting for the peer. It may be called more than once, and while another
// goroutine reads or writes, which then fails: this is how an exchange is cancelled.
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

// SetDeadline implements net.Conn. Release undoes it.
func (c *Conn) SetDeadline(t time.Time) error {
	c.deadlines.Store(true)
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn. Release undoes it.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.deadlines.Store(true)
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn. Release undoes it.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.deadlines.Store(true)
	return c.Conn.SetWriteDeadline(t)
}

// connList holds all open connections, so that Set.Close finds those in use. It is updated when a connection is made
// and closed, not for each request.
type connList struct {
	mu     sync.Mutex
	first  *Conn
	closed bool
}

// add returns false if the list is closed.
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
