package datagram

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/moongate-dev/moongate/internal/observe"
)

func TestPortsIn(t *testing.T) {
	for text, want := range map[string]int{"32768\t60999\n": 28232, "1024 65535": 64512, "": 28232, "60999 32768": 28232, "x": 28232, "5000 5000": 1} {
		if got := portsIn(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestExhausted: what the system lacks is told apart from an endpoint that is not there.
func TestExhausted(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{syscall.EAGAIN: true, syscall.EMFILE: true, syscall.ENOBUFS: true, syscall.ENETUNREACH: false, syscall.EACCES: false} {
		err := fmt.Errorf("session: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)})
		if got := exhausted(err); got != want {
			t.Errorf("%v: %v, want %v", errno, got, want)
		}
	}
}

// TestScarce: after the system had nothing left no session is begun for a moment, and that is no fault of the endpoint.
func TestScarce(t *testing.T) {
	var clock atomic.Int64
	clock.Store(1000)
	set := NewSet(Options{Clock: &clock})
	set.scarceUntil.Store(1000 + scarcePause.Milliseconds())
	if got := set.admit("l"); got != observe.ReasonOverloaded || set.Sessions() != 0 {
		t.Errorf("%v, %d sessions", got, set.Sessions())
	}
	clock.Add(scarcePause.Milliseconds())
	if got := set.admit("l"); got != observe.ReasonOK || set.Sessions() != 1 {
		t.Errorf("%v, %d sessions", got, set.Sessions())
	}
}
