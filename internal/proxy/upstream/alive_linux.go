package upstream

import (
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	peer "github.com/moongate-dev/moongate/internal/proxy/listen"
)

// probe checks a socket without reading from it. It uses RawConn.Control, which unlike RawConn.Read does not wait for a
// reader. Its closure is created once per connection, so that a check allocates nothing.
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

// rawConn returns the socket for raw calls, nil if there are none.
func (p *probe) rawConn() syscall.RawConn { return p.raw }

func (p *probe) alive() bool {
	if p.raw == nil {
		return false
	}
	p.ok = false
	err := p.raw.Control(p.look)
	return err == nil && p.ok
}

// await waits until data, the end of the stream or an error has arrived.
func (p *probe) await() error {
	if p.ready == nil {
		p.ready = func(fd uintptr) bool { return !quiet(fd, &p.buf) }
	}
	return p.raw.Read(p.ready)
}

// reset reports whether the peer has ended its stream by a reset without a FIN before. All of the stream must have been
// read.
func (p *probe) reset() bool { return p.raw != nil && peer.WasReset(p.raw) }

// lostAfter is the number of retransmissions without an acknowledgement after which a connection counts as lost. With
// the least timeout of Linux, 200 ms, that takes 0.6 s.
const lostAfter = 2

// lost reports whether data in flight was retransmitted lostAfter times or more. It uses no state of the other methods,
// since it is called concurrently with them.
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

// quiet reports whether nothing has arrived on a socket, not even the end of the stream. The call is raw because it
// cannot block and is made for most requests: informing the scheduler would double its cost. unix.Recvfrom allocates.
func quiet(fd uintptr, buf *[1]byte) bool {
	_, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(buf)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
	return errno == unix.EAGAIN || errno == unix.EINTR
}

// quietPlain is like quiet, with a system call that the scheduler knows of, see Options.PlainIO.
func quietPlain(fd uintptr) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
	n, err := unix.Poll(fds[:], 0)
	for err == unix.EINTR { // interrupted by a signal
		n, err = unix.Poll(fds[:], 0)
	}
	return n == 0 && err == nil
}
