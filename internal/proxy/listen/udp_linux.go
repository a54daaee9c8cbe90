package listen

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// receiveBuffer is for the datagrams that come while others are being sent; the system may give less.
const receiveBuffer = 4 << 20

// OpenUDP binds addr for datagrams. Where it is every address, the socket tells of each datagram which one it has come to. The error is the system's.
func OpenUDP(addr Addr) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: func(network, _ string, rc syscall.RawConn) error {
		return rc.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer) // a bound, of no use to fail for
		})
	}}
	c, err := lc.ListenPacket(context.Background(), "udp", addr.String())
	if err != nil {
		return nil, err
	}
	conn := c.(*net.UDPConn)
	if !addr.IP.IsValid() || addr.IP.IsUnspecified() {
		if err := tellLocal(conn); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

func tellLocal(conn *net.UDPConn) error {
	rc, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	level, option := unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	if conn.LocalAddr().(*net.UDPAddr).IP.To4() != nil {
		level, option = unix.IPPROTO_IP, unix.IP_PKTINFO
	}
	var failed error
	if err := rc.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, 1) }); err != nil {
		return err
	}
	return failed
}
