// Package proxy is the data plane: it takes generations of configuration, puts each in force as a
// whole, binds sockets, and starts and ends what serves on them. What a connection does is
// in package client, what a request goes through in package exchange: see
// docs/life-of-a-request.md.
//
// It must import neither translate nor source nor anything of Kubernetes: what it needs to
// know is in package config.
package proxy

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/client"
	"github.com/moongate-dev/moongate/internal/proxy/datagram"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Options configures a Proxy; the zero value is ready for production.
type Options struct {
	// Bind is where listeners without addresses are bound; empty means every
	// address of the machine, IPv4 and IPv6.
	Bind []netip.Addr
	// AccessLog and Metrics may be nil: nothing is logged or counted then.
	AccessLog *observe.AccessLog
	Metrics   *observe.Metrics
	Logger    *slog.Logger // nil discards
	// KeepRequestIDs makes X-Request-Id of clients be passed on and logged where it is plain: up to 128 visible ASCII characters, no comma. Else each request
	// gets one of ours.
	KeepRequestIDs bool
	// Limits bounds request and response heads; MaxHead is at most 64 KiB.
	Limits   http1.Limits
	Timeouts Timeouts
	// PlainIO makes all connections be read and written by way of net.Conn, as they are on systems
	// other than Linux: for diagnosis, it costs a little more.
	PlainIO  bool
	Upstream upstream.Options
	// MaxConnections bounds the connections of clients, MaxConnectionsPerClient those of one client address (of IPv6 the
	// first 64 bits). A tunnel over HTTP/2 counts as one. 0 is DefaultMaxConnections, and a quarter of MaxConnections; negative is no limit.
	MaxConnections, MaxConnectionsPerClient int
	// MaxSessions bounds the sessions of UDP. 0 is datagram.DefaultMaxSessions, but no more than a quarter of the descriptors that the process may have, and three
	// quarters of the local ports.
	MaxSessions int
	// MemoryLimit is how many bytes the process may use; near it load is shed. 0 is no limit.
	MemoryLimit int64
	// Zone is which zone the proxy is in (topology.kubernetes.io/zone of its node); "" is that it is not known. See SetZone.
	Zone string
	// DNSServers are asked for the addresses of external hostnames, in their order; none are those of /etc/resolv.conf.
	DNSServers []netip.AddrPort

	// Predecessor is a process whose sockets are taken over; nil is none.
	Predecessor listen.Predecessor

	memoryUsed  func() uint64 // for tests; nil asks the runtime
	minTTL      time.Duration // for tests; 0 is resolve.Options.MinTTL's
	sessionIdle time.Duration // for tests; 0 is datagram.DefaultIdle
	sessionOnce time.Duration // for tests; 0 is datagram.DefaultOnce
}

const (
	defaultDescriptors = 16384   // where the system does not say
	mostDescriptors    = 4 << 20 // where it says that there is no limit
)

// datagramOptions are those of sessions. Each has a descriptor.
func (o *Options) datagramOptions(e *exchange.Engine) datagram.Options {
	d := datagram.Options{MaxSessions: o.MaxSessions, Clock: &e.Clock, Scarce: &e.Overloaded, Observer: e.Observer, Idle: o.sessionIdle, DrainIdle: o.sessionIdle,
		Once: o.sessionOnce, Predecessor: o.Predecessor}
	if d.MaxSessions == 0 {
		d.MaxSessions = max(min(datagram.DefaultMaxSessions, DefaultMaxConnections()/2, datagram.LocalPorts()*3/4), 1)
	}
	return d
}

// DefaultMaxConnections is half of the descriptors that the process may have.
func DefaultMaxConnections() int { return max(descriptorLimit()/2, 1) }

// backendConnections bounds the connections to backends: what so many connections of clients leave of the descriptors, but for a few that sockets, files and
// pipes need, and at least a quarter of them.
func backendConnections(clients int) int {
	n := descriptorLimit()
	if clients < 0 {
		return n - n/4
	}
	return max(n-clients-fewDescriptors(), n/4, 1)
}

// fewDescriptors is how many are left for sockets, files and pipes.
func fewDescriptors() int { return max(descriptorLimit()/32, 64) }

// mostPipes bounds the pipes of tunnels to half of those. Each has two.
func mostPipes() int { return fewDescriptors() / 4 }

// connectionLimits are those of the options, with their defaults. Half of all descriptors are left for connections to
// endpoints and the rest, and one client has a quarter of the connections: no less, because it may be a load balancer that hides thousands.
func (o *Options) connectionLimits() client.ConnectionLimits {
	l := client.ConnectionLimits{Total: o.MaxConnections, PerClient: o.MaxConnectionsPerClient}
	if l.Total == 0 {
		l.Total = DefaultMaxConnections()
	}
	if l.PerClient == 0 {
		l.PerClient = max(l.Total/4, 1)
		if l.Total < 0 {
			l.PerClient = -1
		}
	}
	return l
}

// Timeouts bounds how long a client may keep the proxy waiting.
type Timeouts = client.Timeouts
