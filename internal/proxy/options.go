// Package proxy is the data plane: it takes generations of configuration, puts each in force as a whole, binds sockets,
// and starts and ends what serves on them. Connections are handled by package client, requests by package exchange: see
// docs/life-of-a-request.md.
//
// It must import neither translate nor source nor anything of Kubernetes: what it needs is in package config.
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

// Options configures a Proxy. The zero value is ready for production.
type Options struct {
	// Bind are the addresses to which listeners without addresses are bound; empty means every address of the machine,
	// IPv4 and IPv6.
	Bind []netip.Addr
	// AccessLog and Metrics may be nil: then nothing is logged or counted.
	AccessLog *observe.AccessLog
	Metrics   *observe.Metrics
	Logger    *slog.Logger // nil discards the log
	// KeepRequestIDs makes a client's X-Request-Id be passed on and logged if it is plain: up to 128 visible ASCII
	// characters, no comma. Otherwise each request gets a new id.
	KeepRequestIDs bool
	// Limits bounds request and response heads; MaxHead is at most 64 KiB.
	Limits   http1.Limits
	Timeouts Timeouts
	// PlainIO makes all connections be read and written through net.Conn, as on systems other than Linux. It is for
	// diagnosis and costs a little more.
	PlainIO  bool
	Upstream upstream.Options
	// MaxConnections bounds the connections of clients, MaxConnectionsPerClient those of one client address (for IPv6
	// the first 64 bits). A tunnel over HTTP/2 counts as one. 0 means DefaultMaxConnections, and a quarter of
	// MaxConnections; a negative value means no limit.
	MaxConnections, MaxConnectionsPerClient int
	// MaxSessions bounds the sessions of UDP. 0 means datagram.DefaultMaxSessions, but at most a quarter of the
	// descriptors that the process may have, and three quarters of the local ports.
	MaxSessions int
	// MemoryLimit is how many bytes the process may use; near it, load is shed. 0 means no limit.
	MemoryLimit int64
	// Zone is the zone of the proxy (topology.kubernetes.io/zone of its node); "" means unknown. See SetZone.
	Zone string
	// DNSServers are queried for the addresses of external hostnames, in their order; none means those of
	// /etc/resolv.conf.
	DNSServers []netip.AddrPort

	// Predecessor is a process whose sockets are taken over; nil means none.
	Predecessor listen.Predecessor

	memoryUsed  func() uint64 // for tests; nil means the runtime's
	minTTL      time.Duration // for tests; 0 means the default of resolve.Options.MinTTL
	sessionIdle time.Duration // for tests; 0 means datagram.DefaultIdle
	sessionOnce time.Duration // for tests; 0 means datagram.DefaultOnce
}

const (
	defaultDescriptors = 16384   // if the system reports none
	mostDescriptors    = 4 << 20 // if the system has no limit
)

// datagramOptions returns the options of UDP sessions. Each session has a descriptor.
func (o *Options) datagramOptions(e *exchange.Engine) datagram.Options {
	d := datagram.Options{MaxSessions: o.MaxSessions, Clock: &e.Clock, Scarce: &e.Overloaded, Observer: e.Observer, Idle: o.sessionIdle, DrainIdle: o.sessionIdle,
		Once: o.sessionOnce, Predecessor: o.Predecessor}
	if d.MaxSessions == 0 {
		d.MaxSessions = max(min(datagram.DefaultMaxSessions, DefaultMaxConnections()/2, datagram.LocalPorts()*3/4), 1)
	}
	return d
}

// DefaultMaxConnections returns half of the descriptors that the process may have.
func DefaultMaxConnections() int { return max(descriptorLimit()/2, 1) }

// backendConnections returns the limit of connections to backends: the descriptors that the connections of clients
// leave, except for a few for sockets, files and pipes, and at least a quarter of all.
func backendConnections(clients int) int {
	n := descriptorLimit()
	if clients < 0 {
		return n - n/4
	}
	return max(n-clients-fewDescriptors(), n/4, 1)
}

// fewDescriptors returns how many descriptors are reserved for sockets, files and pipes.
func fewDescriptors() int { return max(descriptorLimit()/32, 64) }

// mostPipes returns the limit of the pipes of tunnels, which use half of these descriptors. Each has two.
func mostPipes() int { return fewDescriptors() / 4 }

// connectionLimits returns the limits of the options, with their defaults. Half of all descriptors are left for
// connections to endpoints and the rest, and one client may have a quarter of the connections: no less, because it may
// be a load balancer with thousands of clients.
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

// Timeouts bounds how long a client may make the proxy wait.
type Timeouts = client.Timeouts
