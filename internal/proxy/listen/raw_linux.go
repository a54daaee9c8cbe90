package listen

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
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

func (s *Socket) acceptRaw() (c Raw, err error) {
	var errno syscall.Errno
	var from unix.RawSockaddrAny
	failed := s.raw.accept.conn.Read(func(fd uintptr) bool {
		for {
			size := uint32(unsafe.Sizeof(from))
			n, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, fd, uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
			if e == unix.EINTR {
				continue
			}
			c.FD, errno = int(n), e
			return e != unix.EAGAIN
		}
	})
	switch {
	case failed != nil:
		return Raw{}, failed
	case errno != 0:
		return Raw{}, os.NewSyscallError("accept4", errno)
	}
	c.Peer = addrPortOf(&from)
	return c, nil
}

// addrPortOf returns an address as connections are known by: without a zone, and an IPv4 address as such.
func addrPortOf(a *unix.RawSockaddrAny) netip.AddrPort {
	switch a.Addr.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(a))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), port(&in.Port))
	case unix.AF_INET6:
		in := (*unix.RawSockaddrInet6)(unsafe.Pointer(a))
		return netip.AddrPortFrom(netip.AddrFrom16(in.Addr).Unmap(), port(&in.Port))
	}
	return netip.AddrPort{}
}

func port(p *uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(p))
	return uint16(b[0])<<8 | uint16(b[1])
}

// Local is the address of the connection's own end.
func (c Raw) Local() netip.AddrPort {
	var a unix.RawSockaddrAny
	size := uint32(unsafe.Sizeof(a))
	if _, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(c.FD), uintptr(unsafe.Pointer(&a)), uintptr(unsafe.Pointer(&size))); errno != 0 {
		return netip.AddrPort{}
	}
	return addrPortOf(&a)
}

// Refuse closes the connection so that the kernel keeps nothing of it.
func (c Raw) Refuse() {
	_ = unix.SetsockoptLinger(c.FD, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // a broken socket is reset already
	unix.Close(c.FD)
}

// TCP makes of it what Serve hands on otherwise. The descriptor is another one then; where that fails the connection is closed.
func (c Raw) TCP() (*net.TCPConn, error) {
	file := os.NewFile(uintptr(c.FD), "tcp")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	tcp := conn.(*net.TCPConn)
	err = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepAlivePeriod, Interval: keepAliveInterval, Count: keepAliveCount})
	if err != nil {
		tcp.Close()
		return nil, err
	}
	return tcp, nil
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
