package client

import (
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/exchange"
)

// Raw implements tunnel.Socket.
func (d *duplex) Raw() syscall.RawConn {
	if d.c.set.plainIO || d.c.nc != net.Conn(d.c.tcp) {
		return nil
	}
	return d.c.raw
}

// readRecords reads from TLS outside of the loop, and holds no buffer while it waits. What TLS writes meanwhile must be
// sent by a sender.
func (c *Conn) readRecords(b exchange.Buffer) (int, error) {
	u, l := &c.loop.upload, &c.loop
	if u.ofTunnel == nil {
		u.ofTunnel = func(fd uintptr) bool {
			l.inside, l.fd = true, fd
			for again := true; again; again = u.errno == unix.EAGAIN && l.short {
				l.drained, l.short = false, false
				u.n, u.errno = c.readStep(u.into.Take())
			}
			l.inside = false
			if u.errno == unix.EAGAIN {
				u.into.Give()
				return false
			}
			return true
		}
	}
	u.into = b
	err := c.raw.Read(u.ofTunnel)
	u.into = nil
	switch {
	case err != nil:
		return 0, err
	case u.errno != 0:
		return 0, u.errno
	case u.n == 0:
		return 0, io.EOF
	}
	return u.n, nil
}
