package listen

import (
	"encoding/binary"
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

// tcpClose is the state of a socket that was reset, or whose peer and we have both ended (TCP_CLOSE).
const tcpClose = 7

// WasReset reports, of a socket that was read to its end, whether a reset has ended the stream that the peer sends, and not before that a FIN. The
// kernel gives that error once, to whatever asks for it first, be it a write or a splice: reads then end as if the peer had ended the stream in order.
func WasReset(rc syscall.RawConn) (yes bool) {
	err := rc.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		yes = err == nil && info.State == tcpClose && !finished(int(fd))
	})
	return err == nil && yes
}

// finished reports whether a FIN has come on a socket that was read to the end. The state does not tell: a reset that follows makes it
// TCP_CLOSE, as one alone does. But the kernel says with TCP_INQ that there is one more byte to be read where a FIN came, and none
// where it did not; before Linux 5.1 it says none in either case.
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

// Readable tells without blocking whether a read would return data (or the end of the stream).
func Readable(rc syscall.RawConn) bool {
	return poll(rc, unix.POLLIN)&unix.POLLIN != 0
}

// AwaitWritable waits until a socket takes more, by its write deadline. It fails where the socket was closed, and not where its peer has left.
func AwaitWritable(rc syscall.RawConn) error {
	return rc.Write(func(fd uintptr) bool {
		events, err := pollNow(fd, unix.POLLOUT)
		return events != 0 || err != nil
	})
}

// Unsent is how many bytes that were written the peer has yet to acknowledge.
func Unsent(rc syscall.RawConn) (n int) {
	rc.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}

func poll(rc syscall.RawConn, events int16) (got int16) {
	err := rc.Control(func(fd uintptr) {
		got, _ = pollNow(fd, events)
	})
	if err != nil {
		return unix.POLLHUP // closed by us
	}
	return got
}

// pollNow returns which of the events hold for a descriptor, without blocking. A signal, as the runtime sends them to preempt goroutines, ends even a poll that
// does not wait before it has looked; that must not be taken for an answer.
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
