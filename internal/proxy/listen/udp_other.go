//go:build !linux

package listen

import (
	"errors"
	"net"
)

// OpenUDP cannot be done here: which address a datagram has come to is asked for in another way on each system.
func OpenUDP(Addr, Predecessor) (*net.UDPConn, Turn, error) {
	return nil, Turn{}, errors.New("listeners of protocol UDP need Linux")
}
