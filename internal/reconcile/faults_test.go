package reconcile

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestPortMessage checks what is told of a port that cannot be bound, as the system's error comes from package net.
func TestPortMessage(t *testing.T) {
	bind := func(errno syscall.Errno) error {
		return &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", errno)}
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{bind(syscall.EADDRINUSE), "port 80 is taken by another process"},
		{bind(syscall.EACCES), "port 80 may not be opened by this user (ports below 1024 need CAP_NET_BIND_SERVICE)"},
		{errors.New("too many open files"), "too many open files"},
	} {
		if got := portMessage(80, c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
