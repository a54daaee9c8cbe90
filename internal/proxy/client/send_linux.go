package client

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/socket"
)

// sender writes to a socket by send, which passes less of the kernel than write does. It is for one
// goroutine at a time.
type sender struct {
	raw   syscall.RawConn
	step  func(fd uintptr) bool // made once
	b     []byte
	n     int
	errno syscall.Errno
}

func newSender(raw syscall.RawConn) *sender {
	s := &sender{raw: raw}
	s.step = s.send
	return s
}

// Write writes all of b, unless the write deadline of the connection comes first.
func (s *sender) Write(b []byte) (int, error) {
	s.b, s.n, s.errno = b, 0, 0
	err := s.raw.Write(s.step)
	s.b = nil
	if err == nil && s.errno != 0 {
		err = os.NewSyscallError("sendto", s.errno)
	}
	return s.n, err
}

// send is raw, since the socket does not block; false waits until it takes more.
func (s *sender) send(fd uintptr) bool {
	for s.n < len(s.b) {
		n, errno := socket.Send(fd, s.b[s.n:])
		switch errno {
		case 0:
			s.n += n
		case unix.EAGAIN:
			return false
		default:
			s.errno = errno
			return true
		}
	}
	return true
}

// clearSender is a connection in the clear that is written to by a sender.
type clearSender struct {
	*socket.Conn
	out *sender
}

// Write is net.Conn's.
func (c clearSender) Write(b []byte) (int, error) { return c.out.Write(b) }

// sending has what is written to the connection from now on leave by a sender, and returns the connection
// to be used. It is for HTTP/2, which writes outside of raw steps.
func (c *Conn) sending() net.Conn {
	switch {
	case c.set.plainIO:
		return c.nc
	case c.nc == net.Conn(c.tcp):
		return clearSender{c.tcp, newSender(c.raw)}
	}
	c.loop.out = newSender(c.raw)
	return c.nc
}
