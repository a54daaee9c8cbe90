package listen

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// receiveBuffer is the size of the kernel's buffer for datagrams that arrive while others are sent; the system may use
// less.
const receiveBuffer = 4 << 20

// OpenUDP binds addr for datagrams, or takes the socket over from a process that has it open: nothing must be received
// before the Turn that it returns. from may be nil. If addr is every address, the socket reports for each datagram at
// which one it has arrived. The error is the system's.
func OpenUDP(addr Addr, from Predecessor) (*net.UDPConn, Turn, error) {
	var turn Turn
	if from != nil {
		turn = TurnAfter(from)
		if conn := inheritUDP(addr, from); conn != nil {
			return conn, turn, nil
		}
	}
	conn, err := bindUDP(addr)
	return conn, turn, err
}

// inheritUDP returns the socket of another process, with its options; nil if it has none that can be used.
func inheritUDP(addr Addr, from Predecessor) *net.UDPConn {
	file := from.Socket("udp", addr.String())
	if file == nil {
		return nil
	}
	defer file.Close()
	c, err := net.FilePacketConn(file)
	if err != nil {
		return nil // binding the address returns the error
	}
	conn, ok := c.(*net.UDPConn)
	if !ok {
		c.Close()
		return nil
	}
	return conn
}

func bindUDP(addr Addr) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: func(network, _ string, rc syscall.RawConn) error {
		return rc.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer) // only an optimization, so errors are ignored
		})
	}}
	c, err := lc.ListenPacket(context.Background(), addr.network("udp"), addr.String())
	if err != nil {
		return nil, err
	}
	conn := c.(*net.UDPConn)
	if !addr.IP.IsValid() || addr.IP.IsUnspecified() {
		if err := enablePacketInfo(conn); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

// enablePacketInfo makes the kernel report the local address of each datagram.
func enablePacketInfo(conn *net.UDPConn) error {
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
