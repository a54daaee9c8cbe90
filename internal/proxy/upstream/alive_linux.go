package upstream

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// probe looks at a socket without reading from it. It uses RawConn.Control,
// which unlike RawConn.Read does not wait for a reader; its closure is made once
// per connection, so that a look allocates nothing.
type probe struct {
	raw  syscall.RawConn
	look func(fd uintptr)
	buf  [1]byte
	ok   bool
}

func (p *probe) init(socket *net.TCPConn) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	p.raw = raw
	p.look = func(fd uintptr) {
		_, _, err := unix.Recvfrom(int(fd), p.buf[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		p.ok = err == unix.EAGAIN || err == unix.EINTR
	}
}

func (p *probe) alive() bool {
	if p.raw == nil {
		return false
	}
	p.ok = false
	err := p.raw.Control(p.look)
	return err == nil && p.ok
}
