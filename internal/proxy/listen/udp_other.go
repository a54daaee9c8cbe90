//go:build !linux

package listen

import (
	"errors"
	"net"
)

// OpenUDP is not supported: the destination address of a datagram is obtained in another way on each system.
func OpenUDP(Addr, Predecessor) (*net.UDPConn, Turn, error) {
	return nil, Turn{}, errors.New("listeners of protocol UDP need Linux")
}
