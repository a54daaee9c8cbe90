//go:build linux

// Package epoll is the thinnest possible event loop over non-blocking TCP
// and UDP sockets. It exists so that the load generator and the origin cost less CPU
// than the proxies between them: one wait per batch, one receive and one send
// per message, no allocation. It must never import anything but the standard
// library, and it knows nothing of HTTP.
package epoll

import (
	"fmt"
	"net/netip"
	"syscall"
	"time"
	"unsafe"
)

// Events of a Poller are edge-triggered: whoever gets one reads until a receive
// comes back with EAGAIN, or short where the event is not Ended. Write readiness is registered from the start,
// which costs nothing while no send was cut short.
const interest = syscall.EPOLLIN | syscall.EPOLLOUT | syscall.EPOLLRDHUP | 1<<31 // EPOLLET

// Poller waits for many sockets. It is for one goroutine.
type Poller struct {
	fd     int
	events [256]syscall.EpollEvent
}

// NewPoller makes an empty poller.
func NewPoller() (*Poller, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	return &Poller{fd: fd}, nil
}

// Add registers fd; its events carry id. Closing fd removes it.
func (p *Poller) Add(fd, id int) error {
	ev := syscall.EpollEvent{Events: interest, Fd: int32(id)}
	return syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_ADD, fd, &ev)
}

// Wait returns what is ready after at most timeout milliseconds (-1: no limit).
// The slice is valid until the next Wait.
func (p *Poller) Wait(timeout int) ([]syscall.EpollEvent, error) {
	n, err := syscall.EpollWait(p.fd, p.events[:], timeout)
	if err == syscall.EINTR {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("epoll_wait: %w", err)
	}
	return p.events[:n], nil
}

// WaitRaw is Wait without a limit and without the knowledge of Go's scheduler, for a process of one goroutine.
func (p *Poller) WaitRaw() ([]syscall.EpollEvent, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), ^uintptr(0), 0, 0)
	switch errno {
	case 0:
		return p.events[:n], nil
	case syscall.EINTR:
		return nil, nil
	}
	return nil, fmt.Errorf("epoll_pwait: %w", errno)
}

// WaitFor is Wait with a finer limit, which the kernel may exceed by its slack for timers, 50 us as a rule.
func (p *Poller) WaitFor(limit time.Duration) ([]syscall.EpollEvent, error) {
	timeout := syscall.NsecToTimespec(int64(limit))
	n, _, errno := syscall.Syscall6(sysEpollPwait2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), uintptr(unsafe.Pointer(&timeout)), 0, 0)
	switch errno {
	case 0:
		return p.events[:n], nil
	case syscall.EINTR:
		return nil, nil
	}
	return nil, fmt.Errorf("epoll_pwait2: %w", errno)
}

// sysEpollPwait2 is the number of the system call, which is the same everywhere.
const sysEpollPwait2 = 441

// Close frees the poller's own descriptor.
func (p *Poller) Close() error { return syscall.Close(p.fd) }

// Readable tells whether a receive is due: data, the peer's end, or an error.
func Readable(ev *syscall.EpollEvent) bool {
	return ev.Events&(syscall.EPOLLIN|syscall.EPOLLRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0
}

// Ended tells whether the peer's end is part of the event: then a short receive is
// not the last one, for no other event will follow.
func Ended(ev *syscall.EpollEvent) bool {
	return ev.Events&(syscall.EPOLLRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0
}

// Recv reads without blocking; 0 without an error is the peer's end.
//
// Recv, Discard and Send are raw: on MSG_DONTWAIT they never block, so the
// scheduler need not hear of them.
func Recv(fd int, b []byte) (int, syscall.Errno) {
	return transfer(syscall.SYS_RECVFROM, fd, b, syscall.MSG_DONTWAIT)
}

// Discard drops up to n received bytes inside the kernel, without copying them.
func Discard(fd, n int) (int, syscall.Errno) {
	r, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd), 0, uintptr(n),
		syscall.MSG_DONTWAIT|syscall.MSG_TRUNC, 0, 0)
	return int(r), errno
}

// Send writes without blocking and without SIGPIPE; it may write a part.
func Send(fd int, b []byte) (int, syscall.Errno) {
	return transfer(syscall.SYS_SENDTO, fd, b, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
}

func transfer(call uintptr, fd int, b []byte, flags uintptr) (int, syscall.Errno) {
	r, _, errno := syscall.RawSyscall6(call, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
	return int(r), errno
}

// In and Out are the directions that Block waits for.
const (
	In  int16 = 1 // POLLIN
	Out int16 = 4 // POLLOUT
)

// Block waits until one socket is ready, outside any Poller; an error after limit.
func Block(fd int, direction int16, limit time.Duration) error {
	set := struct {
		fd              int32
		events, revents int16
	}{int32(fd), direction, 0}
	timeout := syscall.NsecToTimespec(int64(limit))
	n, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&set)), 1,
		uintptr(unsafe.Pointer(&timeout)), 0, 0, 0)
	switch {
	case errno == syscall.EINTR:
		return nil
	case errno != 0:
		return fmt.Errorf("ppoll: %w", errno)
	case n == 0:
		return fmt.Errorf("socket not ready for %v", limit)
	}
	return nil
}

// Dial opens a TCP connection to an IPv4 address. The connect blocks, which on
// loopback is no wait: the kernel finishes the handshake inside the call.
func Dial(to netip.AddrPort) (int, error) { return dial(syscall.SOCK_STREAM, to) }

func dial(socketType int, to netip.AddrPort) (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, socketType|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err := syscall.Connect(fd, sockaddr(to)); err != nil {
		syscall.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", to, err)
	}
	return fd, nil
}

// Listen opens a listening socket on 127.0.0.1 and returns it with its address.
func Listen() (int, netip.AddrPort, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, netip.AddrPort{}, fmt.Errorf("socket: %w", err)
	}
	local, err := bind(fd)
	if err != nil {
		syscall.Close(fd)
		return -1, local, err
	}
	if err := syscall.Listen(fd, 4096); err != nil {
		syscall.Close(fd)
		return -1, local, fmt.Errorf("listen: %w", err)
	}
	return fd, local, nil
}

// Accept takes one waiting connection; ok is false when there is none.
func Accept(listener int) (fd int, ok bool) {
	fd, _, err := syscall.Accept4(listener, syscall.SOCK_CLOEXEC)
	return fd, err == nil
}

// NoDelay switches Nagle's algorithm off.
func NoDelay(fd int) error {
	return syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
}

// SendBuffer asks for room for n bytes, so that a whole response fits into one Send.
func SendBuffer(fd, n int) error {
	return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, n)
}

func sockaddr(a netip.AddrPort) *syscall.SockaddrInet4 {
	return &syscall.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}
