// Package snapshot is the configuration in force as a request sees it: which listeners share a socket, which table of
// rules each has, and what a rule does. It exists so that the engine, which puts configuration in force, and the
// exchange, which applies it, only share plain, immutable data.
//
// It must never import the engine, nor anything that knows connections from clients.
package snapshot

import (
	stdtls "crypto/tls"
	"net/netip"
	"sync/atomic"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit"
	"github.com/moongate-dev/moongate/internal/proxy/session"
	"github.com/moongate-dev/moongate/internal/proxy/tls"
	"github.com/moongate-dev/moongate/internal/proxy/tracing"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Socket is a bound port. Its TLS configuration looks up the current snapshot.
type Socket struct {
	*listen.Socket
	TLS   *stdtls.Config // set if its listeners are HTTPS or TLS
	Stats *observe.SocketStats
	// Open is the number of connections to it.
	Open atomic.Int64
}

// Snapshot is everything by which a request is routed. It is immutable; the engine publishes the next one with a single
// atomic store, so a request sees one generation.
type Snapshot struct {
	Generation uint64
	Sockets    []*Port // by listen.Socket.ID; nil if no listener uses the socket any more
	// Successors are, for each closed socket that may still have connections, the sockets that accept connections to its
	// port or a part of its addresses now, those for a single address first.
	Successors map[*Socket][]*Socket
}

// Mode is the protocol of a listener or of a port, by which its connections are accepted; UDP has no connections.
// Listeners with modes that use TLS may share a port. The port then has the greatest of their modes: the one that needs
// most to find out which listener a connection is for.
type Mode uint8

// The modes.
const (
	HTTP Mode = iota
	TCP
	UDP
	HTTPS
	TLS            // terminated; the content is for a layer-4 route
	TLSPassthrough // passed through to a layer-4 route
)

// modes are the modes by the protocol of a listener.
var modes = map[config.Protocol]Mode{
	config.Protocol_PROTOCOL_HTTP:            HTTP,
	config.Protocol_PROTOCOL_HTTPS:           HTTPS,
	config.Protocol_PROTOCOL_TCP:             TCP,
	config.Protocol_PROTOCOL_UDP:             UDP,
	config.Protocol_PROTOCOL_TLS:             TLS,
	config.Protocol_PROTOCOL_TLS_PASSTHROUGH: TLSPassthrough,
}

// ModeOf returns the mode of listeners with the protocol. It returns false if there is none.
func ModeOf(p config.Protocol) (Mode, bool) {
	m, ok := modes[p]
	return m, ok
}

// TLS reports whether connections begin with a TLS handshake.
func (m Mode) TLS() bool { return m >= HTTPS }

// L4 reports whether connections are for layer-4 routes.
func (m Mode) L4() bool { return m == TCP || m == TLS || m == TLSPassthrough }

// Shares reports whether connections, or listeners, of both modes may be on one port.
func (m Mode) Shares(o Mode) bool { return m == o || m.TLS() && o.TLS() }

// Scheme returns the scheme of connections or requests in the access log.
func (m Mode) Scheme() string {
	switch m {
	case HTTPS:
		return "https"
	case TCP:
		return "tcp"
	case TLS, TLSPassthrough:
		return "tls"
	}
	return "http"
}

// Port holds the listeners that share a socket.
type Port struct {
	// Owner distinguishes a socket from an earlier one with the same ID that still has connections.
	Owner       *Socket
	Mode        Mode
	Number      uint16
	Connections Connections
	Listeners   *match.Hosts[*Listener]
	// Earlier are closed sockets whose connections may be for this port; see Snapshot.Successors.
	Earlier []*Socket
}

// Open returns the number of connections to the port.
func (p *Port) Open() (n int64) {
	for _, s := range p.Earlier {
		n += s.Open.Load()
	}
	return n + p.Owner.Open.Load()
}

// Listener is one listener in one generation.
type Listener struct {
	Config *config.Listener
	Mode   Mode
	Table  *match.Table[*Rule]
	L4     *match.Hosts[*L4Route] // by server name, which is empty with TCP and UDP; only for modes of layer-4 routes
	TLS    *tls.Listener          // only for HTTPS and TLS; nil without a certificate
	// Clients is the validation of client certificates; only for HTTPS, nil if none are requested.
	Clients *tls.Clients
	Stats   *observe.ListenerStats
	// Trusted are the addresses of proxies whose information about their clients is trusted.
	Trusted Networks
	// Identity is the client certificate for backends, nil if there is none.
	Identity *upstream.Identity
	// Filters run on all requests before a route is chosen, and last on responses. If Failure is not nil, it is the
	// answer to all requests.
	Filters Filters
	Failure *Failure
	// Redis holds the counters of global rate limits; nil if there is none.
	Redis *ratelimit.Redis
	// Tracer records its requests; nil if there is none.
	Tracer *tracing.Tracer
	// Sessions are the keys of its Gateway for session persistence; nil if there are none, so that no session persists.
	Sessions *session.Keys
}

// PortOf returns the listeners of the socket that has accepted a connection to local, or, if the socket is closed, those
// that a new connection to local would reach. It returns nil if there are none.
func (s *Snapshot) PortOf(accepted *Socket, local func() netip.AddrPort) *Port {
	if p := s.Port(accepted); p != nil || len(s.Successors[accepted]) == 0 {
		return p
	}
	to := local().Addr()
	for _, other := range s.Successors[accepted] {
		if other.Addr.Covers(to) {
			return s.Port(other)
		}
	}
	return nil
}

// Port returns the listeners of a socket, nil if none is configured any more.
func (s *Snapshot) Port(of *Socket) *Port {
	if of.ID >= len(s.Sockets) {
		return nil
	}
	p := s.Sockets[of.ID]
	if p == nil || p.Owner != of {
		return nil
	}
	return p
}

// Tracers returns the tracers of all listeners.
func (s *Snapshot) Tracers() map[*tracing.Tracer]bool {
	all := map[*tracing.Tracer]bool{}
	for _, p := range s.Sockets {
		if p == nil {
			continue
		}
		for _, l := range p.Listeners.All() {
			if l.Tracer != nil {
				all[l.Tracer] = true
			}
		}
	}
	return all
}

// Identities returns the identities of all listeners.
func (s *Snapshot) Identities() map[*upstream.Identity]bool {
	all := map[*upstream.Identity]bool{}
	for _, p := range s.Sockets {
		if p == nil {
			continue
		}
		for _, l := range p.Listeners.All() {
			if l.Identity != nil {
				all[l.Identity] = true
			}
		}
	}
	return all
}
