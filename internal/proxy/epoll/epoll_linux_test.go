package epoll

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReportsMoreThanOneWait: all events come, also when there are more than one call of epoll_wait takes.
func TestReportsMoreThanOneWait(t *testing.T) {
	const pipes = 300
	reported := make(chan int32, pipes)
	s, err := Open(func(e *unix.EpollEvent) { reported <- e.Fd })
	if err != nil {
		t.Fatal(err)
	}
	var writers []*os.File
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(i)}
		if err := unix.EpollCtl(s.FD, unix.EPOLL_CTL_ADD, int(r.Fd()), &event); err != nil {
			t.Fatal(err)
		}
		writers = append(writers, w)
	}
	for _, w := range writers {
		w.Write([]byte{1})
	}
	seen := map[int32]bool{}
	for range pipes {
		seen[<-reported] = true
	}
	if len(seen) != pipes {
		t.Errorf("%d of %d were reported", len(seen), pipes)
	}
	s.Close() // waits for the goroutine
}
