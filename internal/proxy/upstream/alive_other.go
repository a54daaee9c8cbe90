//go:build !linux

package upstream

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// probe looks at a socket without reading from it.
type probe struct{ raw syscall.RawConn }

func (p *probe) init(socket *net.TCPConn, _ bool) {
	if raw, err := socket.SyscallConn(); err == nil {
		p.raw = raw
	}
}

// alive reports whether nothing has arrived on the socket, not even the end of the stream.
func (p *probe) alive() (quiet bool) {
	if p.raw == nil {
		return false
	}
	err := p.raw.Control(func(fd uintptr) {
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds[:], 0)
		for err == unix.EINTR { // interrupted by a signal
			n, err = unix.Poll(fds[:], 0)
		}
		quiet = n == 0 && err == nil
	})
	return err == nil && quiet
}

func (*probe) reset() bool { return false }

// await is never called.
func (*probe) await() error { return nil }

// rawConn returns the socket for raw calls, nil if there are none.
func (*probe) rawConn() syscall.RawConn { return nil }

func (*probe) lost() bool { return false }
