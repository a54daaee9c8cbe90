package upstream

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/splice"
)

// firstOfLarge is how much is read of a response of which the most is to be spliced: its head, in most cases.
const firstOfLarge = 4 << 10

// ErrNoSplice says that nothing was moved and nothing ever will be: read instead.
var ErrNoSplice = errors.New("upstream: the system does not splice")

// splicing is the state of Splice.
type splicing struct {
	step  func(fd uintptr) bool
	look  func(fd uintptr)
	pipe  *splice.Pipe
	limit int64
	n     int
	errno syscall.Errno
}

func (s *splicing) init() {
	s.look = func(fd uintptr) { s.n, s.errno = s.pipe.Fill(fd, s.limit) }
	s.step = func(fd uintptr) bool {
		s.look(fd)
		return s.errno != unix.EAGAIN
	}
}

// Splices tells whether what the backend sends can be moved into a pipe.
func (c *Conn) Splices() bool { return !c.plain }

// Splice waits for more of a response and moves up to limit bytes of it into the pipe, which is empty.
func (c *Conn) Splice(p *splice.Pipe, limit int64) (int, error) {
	s := c.spliced(p, limit)
	err := c.probe.raw.Read(s.step)
	s.pipe = nil
	switch {
	case err != nil:
		return 0, err
	case s.errno == unix.EINVAL, s.errno == unix.ENOSYS, s.errno == unix.EPERM:
		return 0, ErrNoSplice
	case s.errno != 0:
		return 0, s.errno
	case s.n == 0:
		return 0, io.EOF
	}
	return s.n, nil
}

// SpliceMore is Splice of what has come already, without waiting; 0 where nothing has.
func (c *Conn) SpliceMore(p *splice.Pipe, limit int64) int {
	s := c.spliced(p, limit)
	err := c.probe.raw.Control(s.look)
	s.pipe = nil
	if err != nil || s.errno != 0 {
		return 0 // an error comes again with the next call
	}
	return s.n
}

func (c *Conn) spliced(p *splice.Pipe, limit int64) *splicing {
	s := c.splicing
	if s == nil {
		s = &splicing{}
		s.init()
		c.splicing = s
	}
	s.pipe, s.limit, s.n, s.errno = p, limit, 0, 0
	return s
}
