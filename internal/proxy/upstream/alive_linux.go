package upstream

import (
	"encoding/binary"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// probe looks at a socket without reading from it. It uses RawConn.Control,
// which unlike RawConn.Read does not wait for a reader; its closure is made once
// per connection, so that a look allocates nothing.
type probe struct {
	raw  syscall.RawConn
	look func(fd uintptr)
	// ready is nil before the first await.
	ready func(fd uintptr) bool
	buf   [1]byte
	ok    bool
}

func (p *probe) init(socket *net.TCPConn, plain bool) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	p.raw = raw
	p.look = func(fd uintptr) {
		p.ok = quiet(fd, &p.buf)
	}
	if plain {
		p.look = func(fd uintptr) { p.ok = quietPlain(fd) }
	}
}

// rawConn is the socket for raw calls, nil where there are none.
func (p *probe) rawConn() syscall.RawConn { return p.raw }

func (p *probe) alive() bool {
	if p.raw == nil {
		return false
	}
	p.ok = false
	err := p.raw.Control(p.look)
	return err == nil && p.ok
}

// await waits until something has come, be it the end of the stream or an error.
func (p *probe) await() error {
	if p.ready == nil {
		p.ready = func(fd uintptr) bool { return !quiet(fd, &p.buf) }
	}
	return p.raw.Read(p.ready)
}

// tcpClose is the state of a socket that was reset, or whose peer and we have both ended (TCP_CLOSE).
const tcpClose = 7

// reset reports whether the stream that the peer sends was ended by a reset, and not before that by a FIN; all of it has been read.
func (p *probe) reset() (yes bool) {
	if p.raw == nil {
		return false
	}
	err := p.raw.Control(func(fd uintptr) {
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

// quiet tells whether nothing came on a socket, not even its end. The call is raw because it
// cannot block and is made for most requests: telling the scheduler would cost as much
// again. unix.Recvfrom allocates.
func quiet(fd uintptr, buf *[1]byte) bool {
	_, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(buf)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
	return errno == unix.EAGAIN || errno == unix.EINTR
}

// quietPlain is quiet by a system call that the scheduler knows of, see Options.PlainIO.
func quietPlain(fd uintptr) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
	n, err := unix.Poll(fds[:], 0)
	return n == 0 && (err == nil || err == unix.EINTR)
}
