package listen

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/socket"
)

// rawAccepter accepts by a descriptor of its own, since that of a net.TCPListener is not lent.
type rawAccepter struct {
	file *os.File // nil where there is none to be had
	conn syscall.RawConn
}

// openRaw reports whether connections can be accepted as Raw.
func (s *Socket) openRaw() bool {
	s.raw.once.Do(func() {
		file, err := s.ln.File()
		if err != nil {
			return // the socket is closed, or there are no descriptors
		}
		conn, err := file.SyscallConn()
		if err != nil || file.SetDeadline(time.Time{}) != nil { // the poller does not watch it
			file.Close()
			return
		}
		s.raw.accept = rawAccepter{file, conn}
	})
	return s.raw.accept.file != nil
}

// accepted is what one goroutine's accepts use, one after the other.
type accepted struct {
	fd    int
	errno syscall.Errno
	from  unix.RawSockaddrAny
	step  func(fd uintptr) bool // made once
}

func newAccepted() *accepted {
	a := &accepted{}
	a.step = a.accept
	return a
}

// accept accepts what waits; false is that nothing does. The socket does not block, so the call is raw.
func (a *accepted) accept(fd uintptr) bool {
	for {
		size := uint32(unsafe.Sizeof(a.from))
		n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, fd, uintptr(unsafe.Pointer(&a.from)), uintptr(unsafe.Pointer(&size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		a.fd, a.errno = int(n), errno
		return errno != unix.EAGAIN
	}
}

func (s *Socket) acceptRaw(a *accepted) (Raw, error) {
	if err := s.raw.accept.conn.Read(a.step); err != nil {
		return Raw{}, err
	}
	if a.errno != 0 {
		return Raw{}, os.NewSyscallError("accept4", a.errno)
	}
	return Raw{FD: a.fd, Peer: socket.AddrPort(&a.from)}, nil
}

// Conn makes of it what Serve hands on otherwise.
func (c Raw) Conn() *socket.Conn { return socket.New(c.FD, c.Peer) }

// Refuse closes the connection so that the kernel keeps nothing of it.
func (c Raw) Refuse() {
	_ = unix.SetsockoptLinger(c.FD, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // a broken socket is reset already
	unix.Close(c.FD)
}

func (s *Socket) rawDeadline(t time.Time) error {
	if !s.rawOpened() {
		return nil
	}
	return s.raw.accept.file.SetDeadline(t)
}

// rawOpened reports whether openRaw has made the descriptor; if not, it makes none any more.
func (s *Socket) rawOpened() bool {
	s.raw.once.Do(func() {})
	return s.raw.accept.file != nil
}

// closeRaw ends accepts that wait, and those to come.
func (s *Socket) closeRaw() {
	if s.rawOpened() {
		s.raw.accept.file.Close()
	}
}
