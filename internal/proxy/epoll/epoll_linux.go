package epoll

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

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
	return OpenBatch(func(events []unix.EpollEvent) bool {
		for i := range events {
			report(&events[i])
		}
		return false
	})
}

// OpenBatch is Open of a Set that reports all events at hand together. Where report returns true it is called again at once, maybe without an event.
func OpenBatch(report func([]unix.EpollEvent) (again bool)) (*Set, error) {
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

func (s *Set) run(raw syscall.RawConn, report func([]unix.EpollEvent) bool) {
	defer close(s.done)
	events := make([]unix.EpollEvent, 128)
	_ = raw.Read(func(uintptr) bool { // the error is that the set is closed
		for first := true; ; first = false {
			n := s.poll(events, first)
			if again := report(events[:n]); !again && n < len(events) {
				return false
			}
			runtime.Gosched()
		}
	})
}

// poll returns how many events there are, without waiting. The first call behind a wait does not tell the scheduler that it is a system call, since to wake
// its monitor thread costs more. Others do: that thread is needed where there is always something to do.
func (s *Set) poll(events []unix.EpollEvent, first bool) int {
	for {
		var n uintptr
		var errno syscall.Errno
		if first {
			n, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(s.FD), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		} else {
			n, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(s.FD), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		}
		switch errno {
		case 0:
			return int(n)
		case unix.EINTR:
			continue
		}
		return 0
	}
}
