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
	poll [1]unix.PollFd // here, so that the call allocates nothing
	ok   bool
}

func (p *probe) init(socket *net.TCPConn) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	p.raw = raw
	p.look = func(fd uintptr) {
		p.poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}
		n, err := unix.Poll(p.poll[:], 0)
		p.ok = n == 0 && err == nil || err == unix.EINTR
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
