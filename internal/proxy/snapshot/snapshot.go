// Package snapshot is the configuration in force as a request sees it: which listeners share a
// socket, which table of rules each has, and what a rule does. It exists so that the engine which
// puts configuration in force and the exchange that obeys it share plain, immutable data and
// nothing else.
//
// It must never import the engine, nor anything that knows of connections from clients.
package snapshot

import (
	stdtls "crypto/tls"
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

// Socket is a bound port. Its TLS configuration asks the snapshot of the moment.
type Socket struct {
	*listen.Socket
	TLS   *stdtls.Config // where its listeners are HTTPS or TLS
	Stats *observe.SocketStats
	// Open is how many connections to it there are.
	Open atomic.Int64
}

// Snapshot is everything a request is routed by. It is immutable; the engine publishes the
// next one with a single atomic store, so a request sees one generation.
type Snapshot struct {
	Generation uint64
	Sockets    []*Port // by listen.Socket.ID; nil where no listener uses the socket any more
}

// Mode is the protocol of a listener, or of a port, by which its connections are accepted; with UDP it has none. Listeners of the modes with TLS may share a
// port, whose mode is the greatest of theirs: what it takes to find out for which of them a connection is.
type Mode uint8

// The modes.
const (
	HTTP Mode = iota
	TCP
	UDP
	HTTPS
	TLS            // terminated; what is inside is for a layer-4 route
	TLSPassthrough // for a layer-4 route as it comes
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

// ModeOf returns the mode that listeners with the protocol need of their port; false is that there is none.
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

// Scheme is what the access log has of connections or requests.
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
	// Owner tells a socket from an earlier one with the same ID, whose connections live on.
	Owner       *Socket
	Mode        Mode
	Number      uint16
	Connections Connections
	Listeners   *match.Hosts[*Listener]
}

// Listener is one listener in one generation.
type Listener struct {
	Config *config.Listener
	Mode   Mode
	Table  *match.Table[*Rule]
	L4     *match.Hosts[*L4Route] // by server name, which is none with TCP and UDP; modes of layer-4 routes only
	TLS    *tls.Listener          // HTTPS and TLS only; nil without a certificate
	// Clients is what is demanded of the certificates of clients; HTTPS only, nil where they are not asked for any.
	Clients *tls.Clients
	Stats   *observe.ListenerStats
	// Trusted are the addresses of proxies that are believed what they say of their clients.
	Trusted Networks
	// Identity is what is shown to backends, nil for nothing.
	Identity *upstream.Identity
	// Filters are run on all requests before a route is looked for, and last on responses; Failure, where it is not nil, is what requests are answered with instead.
	Filters Filters
	Failure *Failure
	// Redis is what global rate limits of its requests count in; nil for none.
	Redis *ratelimit.Redis
	// Tracer records its requests; nil where none is.
	Tracer *tracing.Tracer
	// Sessions are the keys of its Gateway's persistent sessions; nil where there are none, and no session persists.
	Sessions *session.Keys
}

// Port returns the listeners of a socket, nil where none is configured any more.
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

// Tracers are those of all listeners.
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

// Identities are those of all listeners.
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
