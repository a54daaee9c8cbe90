package client

import (
	"errors"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// Connections of layer-4 routes that only need their bytes moved between two sockets have no Conn, if the system allows
// it: they are driven by loops (see tunnel.Loop), one for each core. All others are Conns: those with TLS on either
// side, with a PROXY header, with a backend that has a BackendTrafficPolicy, or that must wait for their turn to be
// dialled.

// L4InLoops reports whether connections accepted now on a port are to be passed to ServeL4.
func (s *Set) L4InLoops(port *snapshot.Port) bool {
	return rawIO && !s.plainIO && port != nil && (port.Mode == snapshot.TCP || port.Mode == snapshot.TLSPassthrough) && !port.Connections.ProxyProtocol
}

// cutError ends a connection for a reason of the gateway.
type cutError struct{ reason observe.Reason }

func (e cutError) Error() string { return e.reason.String() }

// cutReason returns the reason for which the gateway has ended a connection, and false if the gateway has not ended it.
func cutReason(err error) (observe.Reason, bool) {
	var cut cutError
	ok := errors.As(err, &cut)
	return cut.reason, ok
}
