package tunnel

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These are system calls on non-blocking sockets that bypass the scheduler: its work for a call that may block, and its
// monitor thread, which the first such call after an idle period wakes, cost more than most of the calls.

// receive reads without waiting. With MSG_PEEK in flags, the data is not consumed.
func receive(fd int32, b []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|flags, 0, 0)
		switch errno {
		case unix.EINTR:
			continue
		case 0:
			return int(n), 0
		}
		return 0, errno
	}
}

// transmit writes what the socket takes without waiting. EAGAIN means that it has not taken all.
func transmit(fd int32, b []byte) (sent int, errno syscall.Errno) {
	for sent < len(b) {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[sent])), uintptr(len(b)-sent), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
			sent += int(n)
		case unix.EINTR:
		default:
			return sent, errno
		}
	}
	return sent, 0
}

// watch adds, changes or removes an entry of an epoll set.
func watch(set, op int, fd int32, e *unix.EpollEvent) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(set), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(e)), 0, 0)
	return orNil(errno)
}

func closeSocket(fd int32) { unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// closeWrite ends the stream to the peer.
func closeWrite(fd int32) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
	return orNil(errno)
}

func setOption(fd int32, level, name, value int) {
	v := int32(value)
	unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name), uintptr(unsafe.Pointer(&v)), unsafe.Sizeof(v), 0)
}

// resetOnClose makes closing the socket reset the connection, so that the peer sees that what it was sent is not
// complete.
func resetOnClose(fd int32) {
	linger := unix.Linger{Onoff: 1}
	// It fails for a broken socket, which is already reset.
	unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER, uintptr(unsafe.Pointer(&linger)), unsafe.Sizeof(linger), 0)
}

// connect begins a connection.
func connect(to netip.AddrPort) (fd int32, err error) {
	var address unix.RawSockaddrAny
	size := uintptr(0)
	if ip := to.Addr().Unmap(); ip.Is4() {
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(&address))
		in.Family, in.Addr, size = unix.AF_INET, ip.As4(), unix.SizeofSockaddrInet4
	} else {
		in := (*unix.RawSockaddrInet6)(unsafe.Pointer(&address))
		in.Family, in.Addr, size = unix.AF_INET6, ip.As16(), unix.SizeofSockaddrInet6
	}
	binary.BigEndian.PutUint16(port(&address), to.Port())
	n, _, errno := unix.RawSyscall(unix.SYS_SOCKET, uintptr(address.Addr.Family), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errno != 0 {
		return -1, errno
	}
	fd = int32(n)
	setOption(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // so that small writes of one end reach the other at once
	switch _, _, errno = unix.RawSyscall(unix.SYS_CONNECT, n, uintptr(unsafe.Pointer(&address)), size); errno {
	case 0, unix.EINPROGRESS, unix.EINTR:
		return fd, nil
	}
	closeSocket(fd)
	return -1, errno
}

// port returns the port of an address, which has the same offset for IPv4 and IPv6.
func port(a *unix.RawSockaddrAny) []byte {
	return (*[2]byte)(unsafe.Pointer(&(*unix.RawSockaddrInet4)(unsafe.Pointer(a)).Port))[:]
}

// localAddr returns the local address of a socket, or the zero value if it is no longer known.
func localAddr(fd int32) netip.AddrPort {
	var a unix.RawSockaddrAny
	size := uint32(unsafe.Sizeof(a))
	if _, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&a)), uintptr(unsafe.Pointer(&size))); errno != 0 {
		return netip.AddrPort{}
	}
	n := binary.BigEndian.Uint16(port(&a))
	switch a.Addr.Family {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&a)).Addr), n)
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16((*unix.RawSockaddrInet6)(unsafe.Pointer(&a)).Addr).Unmap(), n)
	}
	return netip.AddrPort{}
}

func orNil(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}
