package reconcile

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestAddressThatCame: an address is tried again that was not on the host when it was bound, whatever the host has by now.
func TestAddressThatCame(t *testing.T) {
	f := newFaults(slog.New(slog.DiscardHandler))
	l := &config.Listener{Gateway: "n/gw", Port: 80, Addresses: []string{"127.0.0.1"}}
	unbound := &proxy.BindError{Addr: listen.Addr{IP: netip.MustParseAddr("127.0.0.1"), Port: 80}, Err: os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)}
	served := func(string) *config.Listener { return l }
	tr := translate.New(translate.Options{})
	if !f.report(tr, served, map[string]*proxy.ListenerError{"n/gw/l": {Unbound: []*proxy.BindError{unbound}}}) || !f.any() {
		t.Error("there is nothing to try again")
	}
	if len(f.listeners) > 0 {
		t.Errorf("faults of listeners: %v", f.listeners)
	}
}

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
