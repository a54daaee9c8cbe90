package client

import (
	"net"
	"net/netip"

	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// A connection without TLS that has been parked for a while becomes dormant: its Conn and its entry in the runtime's
// poller are released, and only a duplicate of its descriptor and a small record remain, which includes the protocol
// state of HTTP/2. When the client sends something, a new Conn is created from them; of HTTP/2 also when the connection
// is to be ended, because then it sends GOAWAY.
//
// A connection is always in dormants or in a shard: it enters one before it leaves the other. To handle the next event
// (bytes arrive, the idle time ends, a cut), a goroutine first claims the record, which only one can, and then wakes or
// ends the connection without holding the lock. The record stays in its list until that is done.
// A connection with a request, or part of one, must not become dormant, and a dormant connection must not be ended once
// a request has arrived.

// releasedBytes is approximately what a connection releases by becoming dormant: a Conn (896 bytes), and what package
// os and the runtime keep for its descriptor. One of HTTP/2 also releases releasedHTTP2: an http2.Conn, and its decoder
// of header blocks.
const releasedBytes, releasedHTTP2 = 1300, 2000

// Released returns how many bytes connections have released since the start by becoming dormant.
func (s *Set) Released() uint64 { return s.dormants.released.Load() }

// dormant is the record that remains of a dormant connection.
type dormant struct {
	counted
	link[dormant]
	socket     *snapshot.Socket
	timeouts   *Timeouts
	http2      *http2.Dormant // nil for HTTP/1
	peer       netip.AddrPort
	until      int64 // see Conn.until
	fd         int32
	served     bool // see Conn.served
	claimed    bool // a goroutine is about to wake or end it; guarded by the lock of dormants
	disordered bool // see Conn.disordered
}

// largeDormant is how many bytes a dormant connection by HTTP/2 must hold besides its record to be ended as early as others when
// memory is scarce. Most hold less; a client can make one hold 6 KiB.
const largeDormant = 1 << 10

func (d *dormant) isLarge() bool { return d.http2 != nil && d.http2.Held() >= largeDormant }

// canBeDormant reports whether a parked connection can become dormant.
func (c *Conn) canBeDormant() bool { return c.nc == net.Conn(c.tcp) && !c.staysParked }
