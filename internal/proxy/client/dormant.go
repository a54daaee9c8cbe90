package client

import (
	"net"
	"net/netip"

	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// A connection of HTTP/1 without TLS that has been parked for a while becomes dormant: its Conn, and what package net has of it, are given up, and a record and
// another descriptor of the same socket remain. When something comes, a Conn is made of them again, with two dozen system calls.
//
// A connection is here or in a shard, never in neither: it leaves one place after it has come to the other. What comes next (bytes, the end of its idle time, a cut) claims it,
// which only one can, and goes on with it, or ends it, outside of the lock; it stays in its list meanwhile. One that has a request, or a part of one, must never come here, and
// one to which a request has come is not ended.

// gives is what a connection gives up for it, in bytes: a Conn (896), and its descriptor, addresses and records in package net.
const gives = 1300

// Released is how many bytes connections have given up since the start by becoming dormant.
func (s *Set) Released() uint64 { return gives * s.dormants.taken.Load() }

// dormant is a connection that is nothing but a descriptor.
type dormant struct {
	counted
	link[dormant]
	socket   *snapshot.Socket
	timeouts *Timeouts
	peer     netip.AddrPort
	until    int64 // as Conn's
	fd       int32
	served   bool // as Conn's
	// claimed: somebody goes on with it, or ends it; guarded by the lock of dormants.
	claimed    bool
	disordered bool // as Conn's
}

// isPlain reports whether a parked connection can become dormant.
func (c *Conn) isPlain() bool {
	return c.nc == net.Conn(c.tcp) && c.http2.Load() == nil
}
