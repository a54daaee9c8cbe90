//go:build linux

package origin

import (
	"syscall"

	"github.com/moongate-dev/moongate/test/bench/epoll"
)

// datagrams is a UDP socket whose datagrams go back to their senders.
type datagrams struct {
	fd   int
	buf  [64 << 10]byte
	from epoll.Peer
}

// UDP sends the datagrams of a bound socket back.
func (s *Server) UDP(fd int) error {
	s.handle(fd, &datagrams{fd: fd})
	return s.poller.Add(fd, fd)
}

// serve answers until nothing is there. The socket is not connected, so that it has no errors of senders that are gone.
func (d *datagrams) serve(*syscall.EpollEvent) bool {
	for {
		n, errno := epoll.RecvFrom(d.fd, d.buf[:], &d.from)
		if errno != 0 {
			return errno == syscall.EAGAIN
		}
		epoll.SendTo(d.fd, d.buf[:n], &d.from) // what does not fit is lost, as UDP may, and missed by who has sent it
	}
}
