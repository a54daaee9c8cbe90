package client

import (
	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/splice"
)

// splice moves to the client what the pipe holds.
func (c *Conn) splice(p *splice.Pipe) error {
	l := &c.loop
	if l.inside {
		if errno := p.Drain(l.fd); errno != 0 && errno != unix.EAGAIN {
			return errno
		}
		if p.Held() == 0 {
			return nil
		}
	}
	if l.spliced == nil {
		l.spliced = &splice.Writer{}
		l.spliced.Init(c.raw)
	}
	return l.spliced.Drain(p)
}
