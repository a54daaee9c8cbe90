package listen

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/socket"
)

// listener is a listening socket. It is not a net.TCPListener, which registers each accepted connection with the
// runtime's poller. A process that takes the socket over, or had it before, shares its O_NONBLOCK flag, and without
// that flag an accept would block a processor. So file.Fd, which clears the flag, must not be called.
type listener struct {
	file *os.File
	conn syscall.RawConn
}

// listenerOf creates a listener from one of package net, which it closes in any case.
func listenerOf(ln *net.TCPListener) (*listener, error) {
	defer ln.Close()
	file, err := ln.File()
	if err != nil {
		return nil, err
	}
	conn, err := file.SyscallConn()
	if err = errors.Join(err, file.SetDeadline(time.Time{})); err != nil { // the poller does not watch it
		file.Close()
		return nil, err
	}
	return &listener{file, conn}, nil
}

func (l *listener) SyscallConn() (syscall.RawConn, error) { return l.conn, nil }

func (l *listener) setDeadline(t time.Time) error { return l.file.SetDeadline(t) }

func (l *listener) close() { l.file.Close() }

// accepted is the state of one goroutine's accepts.
type accepted struct {
	fd    int
	errno syscall.Errno
	from  unix.RawSockaddrAny
	step  func(fd uintptr) bool // bound once
}

func newAccepted() *accepted {
	a := &accepted{}
	a.step = a.accept
	return a
}

// accept accepts a waiting connection. It returns false if there is none. The socket does not block, so the call is
// raw.
func (a *accepted) accept(fd uintptr) bool {
	for {
		size := uint32(unsafe.Sizeof(a.from))
		n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, fd, uintptr(unsafe.Pointer(&a.from)), uintptr(unsafe.Pointer(&size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		if errno == unix.EINTR || errno == unix.ECONNABORTED { // ECONNABORTED: the client has already given up
			continue
		}
		a.fd, a.errno = int(n), errno
		return errno != unix.EAGAIN
	}
}

// acceptOne waits for a connection and passes it on. more is called when the first one is passed on as Raw; it may be
// nil.
func (s *Socket) acceptOne(a *accepted, handle func(*socket.Conn), more func()) error {
	if err := s.ln.conn.Read(a.step); err != nil {
		return err
	}
	if a.errno != 0 {
		return os.NewSyscallError("accept4", a.errno)
	}
	c := Raw{FD: a.fd, Peer: socket.AddrPort(&a.from)}
	if s.raw.wanted == nil || !s.raw.wanted() {
		handle(c.Conn())
		return nil
	}
	if more != nil {
		s.raw.more.Do(more)
	}
	s.raw.handle(c)
	return nil
}

// Conn turns c into what Serve passes on otherwise.
func (c Raw) Conn() *socket.Conn { return socket.New(c.FD, c.Peer) }

// Refuse closes the connection so that the kernel keeps no state for it.
func (c Raw) Refuse() {
	_ = unix.SetsockoptLinger(c.FD, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // a broken socket is already reset
	unix.Close(c.FD)
}
