package reconcile

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestFaultOfPort checks what is told of a port that cannot be bound, as the system's error comes from package net.
func TestFaultOfPort(t *testing.T) {
	bind := func(errno syscall.Errno) error {
		return &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", errno)}
	}
	for _, c := range []struct {
		err  error
		want portFault
	}{
		{bind(syscall.EADDRINUSE), portFault{"port 80 is taken by another process", ""}},
		{bind(syscall.EACCES), portFault{"port 80 may not be opened by this user (ports below 1024 need CAP_NET_BIND_SERVICE)", "grant that capability, or use a port of at least 1024"}},
		{bind(syscall.EADDRNOTAVAIL), portFault{"an address of --bind is not an address of this host: listen tcp: bind: cannot assign requested address", "correct --bind, or add the address to an interface"}},
		{bind(syscall.EMFILE), portFault{"no descriptor is free for the port: listen tcp: bind: too many open files", "raise the limit of open files of the process"}},
		{errors.New("no such device"), portFault{"no such device", ""}},
	} {
		if got := faultOfPort(80, c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
