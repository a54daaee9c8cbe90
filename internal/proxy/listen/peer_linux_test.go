package listen

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestPollDespiteSignals: a signal, which ends even a poll that does not wait, makes neither a full socket writable nor a readable one silent.
func TestPollDespiteSignals(t *testing.T) {
	peer, c := testkit.TCPPair(t)
	peer.Write([]byte("a"))
	for n := 1; n > 0; {
		c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, _ = c.Write(make([]byte, 1<<20))
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for pid := os.Getpid(); ; {
			select {
			case <-stop:
				return
			default:
				unix.Kill(pid, unix.SIGURG) // as the runtime does to preempt a goroutine
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	for i := range 20_000 {
		if !Readable(raw) {
			t.Fatalf("poll %d: not readable", i)
		}
		var events int16
		raw.Control(func(fd uintptr) { events, err = pollNow(fd, unix.POLLOUT) })
		if events != 0 || err != nil {
			t.Fatalf("poll %d: full, and has events %#x, %v", i, events, err)
		}
	}
	c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if err := AwaitWritable(raw); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a full socket counts as writable: %v", err)
	}
}
