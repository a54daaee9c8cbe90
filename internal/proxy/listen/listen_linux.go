package listen

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// inheritOptions sets the options that connections inherit from the listening socket.
func inheritOptions(_, _ string, rc syscall.RawConn) error {
	return rc.Control(func(fd uintptr) {
		// Small writes of one end must reach the other at once, as package net sets it for accepted connections.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		// Without these, only the loss of a client is detected later, so errors are ignored.
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAlivePeriod.Seconds()))
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAliveInterval.Seconds()))
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount)
	})
}

// ignoreAttempts makes the kernel drop segments that ask for a new connection. Segments of connections that were begun
// pass, so that these can be accepted.
func ignoreAttempts(ln *listener) error {
	const flags, syn, ack = 13, 0x02, 0x10 // byte of the TCP header, and bits in it
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return control(ln, func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	})
}

// waiting reports whether there is a connection to accept.
func waiting(ln *listener) bool {
	var events int16
	err := control(ln, func(fd int) (err error) {
		events, err = pollNow(uintptr(fd), unix.POLLIN)
		return err
	})
	return err == nil && events&unix.POLLIN != 0
}

func control(ln *listener, f func(fd int) error) error {
	rc, err := ln.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = rc.Control(func(fd uintptr) { failed = f(int(fd)) })
	if err != nil {
		return err
	}
	return failed
}
