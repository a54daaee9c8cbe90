package client

import (
	"net"
	"net/netip"

	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// An HTTP/1 connection without TLS that has been parked for a while becomes dormant: its Conn and what the runtime's poller keeps are given up, and a duplicate of its
// descriptor and a small record remain. When the client sends something, a new Conn is made of them.
//
// A connection is always in dormants or in a shard: it enters one before it leaves the other. Whoever handles what happens next (bytes arrive, the idle time ends, a cut)
// claims the record first, which only one can, and then wakes or ends the connection without holding the lock; the record stays in its list until that is done.
// A connection with a request, or with part of one, must not become dormant, and a dormant one must not be ended once a request has arrived.

// releasedBytes is about what a connection releases by becoming dormant: a Conn (896 bytes), and what package os and the runtime keep for its descriptor.
const releasedBytes = 1300

// Released is how many bytes connections have released since the start by becoming dormant.
func (s *Set) Released() uint64 { return releasedBytes * s.dormants.taken.Load() }

// dormant is what is kept of a dormant connection.
type dormant struct {
	counted
	link[dormant]
	socket     *snapshot.Socket
	timeouts   *Timeouts
	peer       netip.AddrPort
	until      int64 // as Conn's
	fd         int32
	served     bool // as Conn's
	claimed    bool // somebody is about to wake or end it; guarded by the lock of dormants
	disordered bool // as Conn's
}

// isPlain reports whether a parked connection can become dormant.
func (c *Conn) isPlain() bool {
	return c.nc == net.Conn(c.tcp) && c.http2.Load() == nil
}
