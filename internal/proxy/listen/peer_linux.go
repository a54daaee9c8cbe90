package listen

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerGone tells without blocking whether the peer has closed or half-closed the
// connection, whatever it sent before; data that waits to be read does not hide it.
func PeerGone(rc syscall.RawConn) bool {
	return poll(rc, unix.POLLRDHUP)&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}

// PeerReset tells without blocking whether the peer has reset the connection. One that has sent its last may still read.
func PeerReset(rc syscall.RawConn) bool {
	return poll(rc, 0)&(unix.POLLHUP|unix.POLLERR) != 0
}

// Readable tells without blocking whether a read would return data (or the end of the stream).
func Readable(rc syscall.RawConn) bool {
	return poll(rc, unix.POLLIN)&unix.POLLIN != 0
}

// Unsent reports whether the peer has yet to acknowledge bytes that were written.
func Unsent(rc syscall.RawConn) bool {
	n := 0
	rc.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n > 0
}

func poll(rc syscall.RawConn, events int16) (got int16) {
	err := rc.Control(func(fd uintptr) {
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
		if n, err := unix.Poll(fds[:], 0); err == nil && n > 0 {
			got = fds[0].Revents
		}
	})
	if err != nil {
		return unix.POLLHUP // closed by us
	}
	return got
}
