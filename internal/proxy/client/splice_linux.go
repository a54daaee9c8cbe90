package client

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/splice"
)

// splice moves to the client what the pipe holds.
func (c *Conn) splice(p *splice.Pipe) error {
	if l := &c.loop; l.inside {
		if errno := p.Drain(l.fd); errno != 0 && errno != unix.EAGAIN {
			return errno
		}
		if p.Held() == 0 {
			return nil
		}
	}
	var errno syscall.Errno
	err := c.raw.Write(func(fd uintptr) bool {
		for errno = 0; errno == 0 && p.Held() > 0; { // up to EAGAIN, or the poller would not tell of more room
			errno = p.Drain(fd)
		}
		return errno != unix.EAGAIN
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}
