//go:build !race

package tunnel

import (
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMessagesDoNotAllocate: a message costs no memory that is not given back.
func TestMessagesDoNotAllocate(t *testing.T) {
	client, backend, _, end := joined(t, true)
	quiet(t, client, backend)
	message, got := []byte("message"), make([]byte, len("message"))
	if n := testing.AllocsPerRun(200, func() {
		client.Write(message)
		io.ReadFull(backend, got)
		backend.Write(message)
		io.ReadFull(client, got)
	}); n > 0 {
		t.Errorf("%v allocations for a message and its answer", n)
	}
	client.Close()
	backend.Close()
	<-end
}

// TestLoopMessagesDoNotAllocate is the same for a pair of a Loop.
func TestLoopMessagesDoNotAllocate(t *testing.T) {
	l := inLoop(t)
	client, backend := l.join()
	message, got := []byte("message"), make([]byte, len("message"))
	if n := testing.AllocsPerRun(200, func() {
		client.Write(message)
		io.ReadFull(backend, got)
		backend.Write(message)
		io.ReadFull(client, got)
	}); n > 0 {
		t.Errorf("%v allocations for a message and its answer", n)
	}
	client.Close()
	backend.Close()
	l.ended()
}

// TestLoopPairsDoNotAllocate: a connection costs its Pair and nothing else.
func TestLoopPairsDoNotAllocate(t *testing.T) {
	first := inLoop(t) // the loop makes its set with the first
	first.join()
	ends := make(chan End, 1)
	h := &discard{ends}
	var pair Pair
	if n := testing.AllocsPerRun(100, func() {
		sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		first.loop.Locked(func() {
			if err = first.loop.Add(&pair, h, sockets[0]); err == nil {
				pair.Fail(Neither, io.EOF)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(sockets[1])
		<-ends
	}); n > 0 {
		t.Errorf("%v allocations for a pair", n)
	}
}

// discard is a Handler that awaits the end alone.
type discard struct{ ends chan End }

func (d *discard) Hello([]byte)  {}
func (d *discard) Dialled(error) {}
func (d *discard) Ended(e End)   { d.ends <- e }
