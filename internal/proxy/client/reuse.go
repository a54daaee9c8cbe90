package client

import (
	"net"
	"sync"
)

// A Conn is most of what a connection allocates, and a client that opens one for each request would have the collector busy with them,
// and the processor wait for memory that is not in its caches. So a Conn is used again for another connection, but only after a short
// and simple life, in which nothing but its own goroutine and its shard can have come to know it.

// conns holds Conns that have no connection.
var conns sync.Pool

// unusedConn returns a Conn without a connection, which is zero but for its methods.
func unusedConn() *Conn {
	if c, ok := conns.Get().(*Conn); ok {
		return c
	}
	c := new(Conn)
	c.methods = c.bind()
	return c
}

// reuse gives up the Conn of a connection that has ended. Nothing may use it afterwards.
func (c *Conn) reuse() {
	if c.isReusable() {
		*c = Conn{methods: c.methods}
		conns.Put(c)
	}
}

// isReusable reports whether nothing can refer to the Conn of a connection that has ended. A request within nextHead may have had a
// goroutine that sends its body, but has waited for the end of it.
func (c *Conn) isReusable() bool {
	if c.set.lent.Load() > 0 { // checked first: whatever borrowed it may set referred until it gives it back
		return false
	}
	return !c.referred.Load() && c.nc == net.Conn(c.tcp) && c.http2.Load() == nil
}

// noteReferred must be called before anything besides the connection's own goroutine and its shard can refer to the Conn, unless it is
// lent to that.
func (c *Conn) noteReferred() {
	if !c.referred.Load() {
		c.referred.Store(true)
	}
}

// lend keeps all Conns in the Set from being reused until the returned function is called. It must be called before a Conn is taken
// from a shard in order to use it without the lock of that shard.
//
// reuse runs when the connection is out of its shard. So either the connection was taken before, and reuse sees that it is lent, or it
// can no longer be found.
func (s *Set) lend() (done func()) {
	s.lent.Add(1)
	return func() { s.lent.Add(-1) }
}
