package listen

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerGone reports, without blocking, whether the peer has closed or half-closed the connection, even if data waits to
// be read.
func PeerGone(rc syscall.RawConn) bool {
	return poll(rc, unix.POLLRDHUP)&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}

// PeerReset reports, without blocking, whether the peer has reset the connection. A peer that has only ended its stream
// may still read.
func PeerReset(rc syscall.RawConn) bool {
	return poll(rc, 0)&(unix.POLLHUP|unix.POLLERR) != 0
}

// tcpClose is the state of a socket that was reset, or that both sides have closed (TCP_CLOSE).
const tcpClose = 7

// WasReset reports, for a socket that was read to its end, whether the peer has ended its stream by a reset without a
// FIN before. The kernel returns that error only once, to the first call, which may be a write or a splice: reads then
// end as if the peer had ended the stream normally.
func WasReset(rc syscall.RawConn) (yes bool) {
	err := rc.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		yes = err == nil && info.State == tcpClose && !finished(int(fd))
	})
	return err == nil && yes
}

// finished reports whether a FIN has arrived on a socket that was read to the end. The state does not show it: it is
// TCP_CLOSE after a reset, with or without a FIN before. But with TCP_INQ the kernel reports one more byte to read
// after a FIN, and none otherwise; before Linux 5.1 it reports none in either case.
func finished(fd int) bool {
	if unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_INQ, 1) != nil {
		return false
	}
	var into [1]byte
	var control [64]byte
	n, size, _, _, err := unix.Recvmsg(fd, into[:], control[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if n != 0 || err != nil {
		return false
	}
	messages, err := unix.ParseSocketControlMessage(control[:size])
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_TCP && m.Header.Type == unix.TCP_CM_INQ && len(m.Data) >= 4 {
			return err == nil && binary.NativeEndian.Uint32(m.Data) > 0
		}
	}
	return false
}

// Readable reports, without blocking, whether a read would return data or the end of the stream.
func Readable(rc syscall.RawConn) bool {
	return poll(rc, unix.POLLIN)&unix.POLLIN != 0
}

// AwaitWritable waits until a socket takes more, at most until its write deadline. It fails if the socket was closed,
// but not if its peer has left.
func AwaitWritable(rc syscall.RawConn) error {
	return rc.Write(func(fd uintptr) bool {
		events, err := pollNow(fd, unix.POLLOUT)
		return events != 0 || err != nil
	})
}

// Unsent returns how many written bytes the peer has not acknowledged yet.
func Unsent(rc syscall.RawConn) (n int) {
	rc.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}

func poll(rc syscall.RawConn, events int16) (got int16) {
	err := rc.Control(func(fd uintptr) {
		got, _ = pollNow(fd, events)
	})
	if err != nil {
		return unix.POLLHUP // closed by this process
	}
	return got
}

// pollNow returns which of the events hold for a descriptor, without blocking. A signal, such as those by which the
// runtime preempts goroutines, ends even a poll without timeout before it has checked; that must not be taken for a
// result.
func pollNow(fd uintptr, events int16) (got int16, err error) {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		switch _, err := unix.Poll(fds[:], 0); err {
		case nil:
			return fds[0].Revents, nil
		case unix.EINTR:
		default:
			return 0, err
		}
	}
}
