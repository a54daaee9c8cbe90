package epoll

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Set is an epoll set, which the runtime's poller watches like any descriptor.
type Set struct {
	FD   int // its descriptor, to make entries with
	file *os.File
	done chan struct{} // closed when run has ended
}

// Open makes a Set and its goroutine, which calls report for each event; report must not block.
func Open(report func(*unix.EpollEvent)) (*Set, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // shows os.NewFile that the poller is to watch it
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	s := &Set{FD: fd, file: os.NewFile(uintptr(fd), "epoll"), done: make(chan struct{})}
	raw, err := s.file.SyscallConn()
	if err != nil {
		s.file.Close()
		return nil, err
	}
	go s.run(raw, report)
	return s, nil
}

// Close ends the goroutine, and waits for its end.
func (s *Set) Close() {
	s.file.Close()
	<-s.done
}

func (s *Set) run(raw syscall.RawConn, report func(*unix.EpollEvent)) {
	defer close(s.done)
	events := make([]unix.EpollEvent, 128)
	_ = raw.Read(func(uintptr) bool { // the error is that the set is closed
		for {
			n, err := unix.EpollWait(s.FD, events, 0)
			if err == unix.EINTR {
				continue
			}
			for i := range max(n, 0) {
				report(&events[i])
			}
			if n < len(events) {
				return false
			}
		}
	})
}
