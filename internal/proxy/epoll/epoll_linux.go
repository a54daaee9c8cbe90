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
	FD   int // its descriptor, for adding entries
	file *os.File
	done chan struct{} // closed when run has ended
}

// Open creates a Set and its goroutine, which calls report for each event. report must not block.
func Open(report func(*unix.EpollEvent)) (*Set, error) {
	return OpenBatch(func(events []unix.EpollEvent) bool {
		for i := range events {
			report(&events[i])
		}
		return false
	})
}

// OpenBatch is like Open, but passes all available events to report together. If report returns true, it is called
// again at once, perhaps without events.
func OpenBatch(report func([]unix.EpollEvent) (again bool)) (*Set, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // makes os.NewFile register it with the poller
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

// Close ends the goroutine and waits for that.
func (s *Set) Close() {
	s.file.Close()
	<-s.done
}

func (s *Set) run(raw syscall.RawConn, report func([]unix.EpollEvent) bool) {
	defer close(s.done)
	events := make([]unix.EpollEvent, 128)
	_ = raw.Read(func(uintptr) bool { // fails when the set is closed
		for first := true; ; first = false {
			n := s.poll(events, first)
			if again := report(events[:n]); !again && n < len(events) {
				return false
			}
			runtime.Gosched()
		}
	})
}

// poll returns how many events there are, without waiting. The first call after a wait bypasses the scheduler, because
// waking its monitor thread costs more. Others do not: that thread is needed if there is always something to do.
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
