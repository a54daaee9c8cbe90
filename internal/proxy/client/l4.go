package client

import (
	"errors"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// Connections of layer-4 routes that need nothing but to have their bytes moved between two sockets have no Conn, where the system allows that: they are
// driven by loops (see tunnel.Loop), one for each core. The others, which have TLS on either side, begin with a PROXY header, go to a backend
// with a BackendTrafficPolicy or must wait for their turn to be dialled, are Conns.

// L4InLoops reports whether connections that come to a port now are to be handed to ServeL4.
func (s *Set) L4InLoops(port *snapshot.Port) bool {
	return rawIO && !s.plainIO && port != nil && (port.Mode == snapshot.TCP || port.Mode == snapshot.TLSPassthrough) && !port.Connections.ProxyProtocol
}

// cutError ends a connection for a reason of the gateway's.
type cutError struct{ reason observe.Reason }

func (e cutError) Error() string { return e.reason.String() }

// cutReason is why the gateway has ended a connection, if it has.
func cutReason(err error) (observe.Reason, bool) {
	var cut cutError
	ok := errors.As(err, &cut)
	return cut.reason, ok
}
