package listen

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func inheritKeepAlive(_, _ string, rc syscall.RawConn) error {
	return rc.Control(func(fd uintptr) {
		// Without these a vanished client is noticed later, nothing else: errors are of no use.
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAlivePeriod.Seconds()))
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4)
	})
}
