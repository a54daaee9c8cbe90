package upstream

import (
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	peer "github.com/moongate-dev/moongate/internal/proxy/listen"
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

// reset reports whether the stream that the peer sends was ended by a reset, and not before that by a FIN; all of it has been read.
func (p *probe) reset() bool { return p.raw != nil && peer.WasReset(p.raw) }

// lostAfter is after how many retransmissions that nothing has answered a connection counts as lost: with the least timeout of Linux, 200 ms, 0.6 s.
const lostAfter = 2

// lost reports whether data is on the way that was retransmitted lostAfter times or more. It makes no use of what the other methods need, since it is called beside them.
func (p *probe) lost() (is bool) {
	if p.raw == nil {
		return false
	}
	err := p.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		is = err == nil && info.Unacked > 0 && info.Retransmits >= lostAfter
	})
	return err == nil && is
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
	for err == unix.EINTR { // by a signal, before it has looked
		n, err = unix.Poll(fds[:], 0)
	}
	return n == 0 && err == nil
}
