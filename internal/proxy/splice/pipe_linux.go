package splice

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Pipe holds bytes on their way. It belongs to one goroutine at a time.
type Pipe struct {
	fds     [2]int // to read from, to write to
	held    int
	cleanup runtime.Cleanup
}

var (
	pipes sync.Pool
	// refused: the system does not splice, see Fill.
	refused atomic.Bool
)

// Take lends an empty pipe until Give; nil where there is none to be had: then bytes are copied.
func Take() *Pipe {
	if refused.Load() {
		return nil
	}
	if p, ok := pipes.Get().(*Pipe); ok {
		return p
	}
	p := &Pipe{}
	if unix.Pipe2(p.fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return nil
	}
	// The pool forgets pipes that nobody has wanted for a while.
	p.cleanup = runtime.AddCleanup(p, closeBoth, p.fds)
	return p
}

func closeBoth(fds [2]int) {
	unix.Close(fds[0])
	unix.Close(fds[1])
}

// Give takes it back. One that still holds bytes is closed.
func Give(p *Pipe) {
	if p.held == 0 {
		pipes.Put(p)
		return
	}
	p.cleanup.Stop()
	closeBoth(p.fds)
}

// Held is how many bytes are in the pipe.
func (p *Pipe) Held() int { return p.held }

// Fill moves up to limit bytes, Most at most, from a socket into the pipe, which must be empty. It does not wait: EAGAIN is that
// nothing has come; 0 without an error is the end of the stream. Any other error may be that the
// system does not splice, and no later Take gives a pipe; nothing was moved then.
func (p *Pipe) Fill(socket uintptr, limit int64) (int, syscall.Errno) {
	n, errno := move(socket, uintptr(p.fds[1]), int(min(limit, Most)))
	switch errno {
	case 0:
		p.held += n
	case unix.EINVAL, unix.ENOSYS, unix.EPERM:
		refused.Store(true)
	}
	return n, errno
}

// Drain moves what the pipe holds to a socket, as far as that takes it without waiting; EAGAIN is that
// it took nothing.
func (p *Pipe) Drain(socket uintptr) syscall.Errno {
	n, errno := move(uintptr(p.fds[0]), socket, p.held)
	switch {
	case errno != 0:
		return errno
	case n == 0:
		return unix.EIO // never seen; asking again would not end
	}
	p.held -= n
	return 0
}

// move is splice(2). The call is raw: neither side blocks.
func move(from, to uintptr, n int) (int, syscall.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, from, 0, to, 0, uintptr(n), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}
