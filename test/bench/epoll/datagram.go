//go:build linux

package epoll

import (
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"
)

// DialDatagram makes a UDP socket that sends to and receives from one IPv4 address.
func DialDatagram(to netip.AddrPort) (int, error) { return dial(syscall.SOCK_DGRAM, to) }

// ListenDatagram opens a UDP socket on 127.0.0.1 and returns it with its address.
func ListenDatagram() (int, netip.AddrPort, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, netip.AddrPort{}, fmt.Errorf("socket: %w", err)
	}
	// What all clients have on their way must fit: with the default a burst would be lost here and not in a proxy. It takes CAP_NET_ADMIN.
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 4<<20)
	local, err := bind(fd)
	if err != nil {
		syscall.Close(fd)
		return -1, local, err
	}
	return fd, local, nil
}

// bind binds to a port of 127.0.0.1 that the kernel chooses.
func bind(fd int) (netip.AddrPort, error) {
	local := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	if err := syscall.Bind(fd, sockaddr(local)); err != nil {
		return local, fmt.Errorf("bind to %s: %w", local, err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return local, fmt.Errorf("getsockname: %w", err)
	}
	bound := name.(*syscall.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(bound.Addr), uint16(bound.Port)), nil
}

// Peer is the address of a datagram's sender.
type Peer syscall.RawSockaddrInet4

// RecvFrom reads one datagram without blocking, and where it comes from.
func RecvFrom(fd int, b []byte, from *Peer) (int, syscall.Errno) {
	size := uint32(unsafe.Sizeof(*from))
	r, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		syscall.MSG_DONTWAIT, uintptr(unsafe.Pointer(from)), uintptr(unsafe.Pointer(&size)))
	return int(r), errno
}

// SendTo sends one datagram without blocking.
func SendTo(fd int, b []byte, to *Peer) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		syscall.MSG_DONTWAIT, uintptr(unsafe.Pointer(to)), unsafe.Sizeof(*to))
	return errno
}
