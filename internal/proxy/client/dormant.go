package client

import (
	"net"
	"net/netip"

	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// An HTTP/1 connection without TLS that has been parked for a while becomes dormant: its Conn and its entry in the
// runtime's poller are released, and only a duplicate of its descriptor and a small record remain. When the client
// sends something, a new Conn is created from them.
//
// A connection is always in dormants or in a shard: it enters one before it leaves the other. To handle the next event
// (bytes arrive, the idle time ends, a cut), a goroutine first claims the record, which only one can, and then wakes or
// ends the connection without holding the lock. The record stays in its list until that is done.
// A connection with a request, or part of one, must not become dormant, and a dormant connection must not be ended once
// a request has arrived.

// releasedBytes is approximately what a connection releases by becoming dormant: a Conn (896 bytes), and what package
// os and the runtime keep for its descriptor.
const releasedBytes = 1300

// Released returns how many bytes connections have released since the start by becoming dormant.
func (s *Set) Released() uint64 { return releasedBytes * s.dormants.taken.Load() }

// dormant is the record that remains of a dormant connection.
type dormant struct {
	counted
	link[dormant]
	socket     *snapshot.Socket
	timeouts   *Timeouts
	peer       netip.AddrPort
	until      int64 // see Conn.until
	fd         int32
	served     bool // see Conn.served
	claimed    bool // a goroutine is about to wake or end it; guarded by the lock of dormants
	disordered bool // see Conn.disordered
}

// isPlain reports whether a parked connection can become dormant.
func (c *Conn) isPlain() bool {
	return c.nc == net.Conn(c.tcp) && c.http2.Load() == nil
}
