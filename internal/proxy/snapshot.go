package proxy

import (
	stdtls "crypto/tls"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/match"
)

// snapshot is everything a request is routed by. It is immutable; Apply publishes the
// next one with a single atomic store, so a request sees one generation.
type snapshot struct {
	generation uint64
	sockets    []*socketConfig // by listen.Socket.ID; nil where no listener uses the socket any more
}

// socketConfig holds the listeners that share a socket.
type socketConfig struct {
	// owner tells a socket from an earlier one with the same ID, whose connections live on.
	owner     *socket
	https     bool
	port      uint16
	listeners *match.Hosts[*listener]
}

// listener is one listener in one generation.
type listener struct {
	config *config.Listener
	table  *match.Table[*rule]
	tls    *stdtls.Config // HTTPS only; nil without a certificate
	stats  *observe.ListenerStats
}

// socket returns the configuration of a socket, nil where nothing is configured any more.
func (s *snapshot) socket(of *socket) *socketConfig {
	if of.ID >= len(s.sockets) {
		return nil
	}
	sc := s.sockets[of.ID]
	if sc == nil || sc.owner != of {
		return nil
	}
	return sc
}
