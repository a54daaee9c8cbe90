package splice

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Pipe holds bytes in transit. It belongs to one goroutine at a time.
type Pipe struct {
	fds     [2]int // read end and write end
	held    int
	most    int64 // capacity in bytes
	large   bool
	close   func(fds [2]int) // closes both ends, and stops counting the pipe
	cleanup runtime.Cleanup
}

var (
	pipes, largePipes sync.Pool
	large, open       atomic.Int64 // number of large pipes, and of all pipes
	limit             atomic.Int64 // largest number of all pipes
	// refused means that the system does not support splicing, see Fill.
	refused atomic.Bool
)

// takeSmall is Take for a pipe of smallPipe bytes.
func takeSmall() *Pipe {
	if refused.Load() {
		return nil
	}
	if p, ok := pipes.Get().(*Pipe); ok {
		return p
	}
	return newPipe(smallPipe, closePipe)
}

func init() { Limit(MostPipes) }

// Limit sets the largest number of pipes of all sizes, at most MostPipes. A peer that does not read keeps one as long
// as the proxy waits for it, and each has two descriptors.
func Limit(pipes int) { limit.Store(int64(min(pipes, MostPipes))) }

// newPipe creates a pipe. It returns nil if that is not possible.
func newPipe(most int64, end func(fds [2]int)) *Pipe {
	var fds [2]int
	if open.Add(1) > limit.Load() || unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		open.Add(-1)
		return nil
	}
	p := &Pipe{fds: fds, most: most, close: end}
	// The pools drop pipes that have not been used for a while.
	p.cleanup = runtime.AddCleanup(p, end, p.fds)
	return p
}

// mostLargePipes is the largest number of large pipes. Their pages are a quarter of those that an unprivileged user may
// have in pipes by default (pipe-user-pages-soft in proc_sys_fs(5)): beyond these the kernel creates pipes of only 8
// KiB, for the gateway and for the user's other programs.
const mostLargePipes = 64

// Take returns an empty pipe, which must be returned with Give. It returns nil if there is none: then bytes must be
// copied. The pipe holds Most bytes as long as few are in use, otherwise smallPipe bytes.
func Take() *Pipe {
	if refused.Load() {
		return nil
	}
	if p, ok := largePipes.Get().(*Pipe); ok {
		return p
	}
	var p *Pipe
	if large.Add(1) <= mostLargePipes {
		p = newPipe(Most, closeLarge)
	}
	if p == nil {
		large.Add(-1)
		return takeSmall()
	}
	p.large = true
	if _, err := unix.FcntlInt(uintptr(p.fds[1]), unix.F_SETPIPE_SZ, Most); err != nil {
		p.most = smallPipe // the administrator has configured a lower limit
	}
	return p
}

func closeLarge(fds [2]int) {
	closePipe(fds)
	large.Add(-1)
}

func closePipe(fds [2]int) {
	unix.Close(fds[0])
	unix.Close(fds[1])
	open.Add(-1)
}

// Give returns a pipe. One that still holds bytes is closed.
func Give(p *Pipe) {
	switch {
	case p.held > 0:
		p.cleanup.Stop()
		p.close(p.fds)
	case p.large:
		largePipes.Put(p)
	default:
		pipes.Put(p)
	}
}

// Held returns how many bytes are in the pipe.
func (p *Pipe) Held() int { return p.held }

// Fill moves up to limit bytes, but no more than the pipe holds, from a socket into the pipe, which must be empty. It
// does not wait: EAGAIN means that nothing has arrived; 0 without an error is the end of the stream. After some other
// errors the system does not support splicing, and Take returns nil from then on; nothing was moved then.
func (p *Pipe) Fill(socket uintptr, limit int64) (int, syscall.Errno) {
	n, errno := move(socket, uintptr(p.fds[1]), int(min(limit, p.most)))
	switch errno {
	case 0:
		p.held += n
	case unix.EINVAL, unix.ENOSYS, unix.EPERM:
		refused.Store(true)
	}
	return n, errno
}

// Drain moves the contents of the pipe to a socket, as far as the socket takes them without waiting. EAGAIN means that
// it took nothing.
func (p *Pipe) Drain(socket uintptr) syscall.Errno {
	n, errno := move(uintptr(p.fds[0]), socket, p.held)
	switch {
	case errno != 0:
		return errno
	case n == 0:
		return unix.EIO // never observed; trying again would not end
	}
	p.held -= n
	return 0
}

// move is splice(2). The call is raw, because neither side blocks.
func move(from, to uintptr, n int) (int, syscall.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, from, 0, to, 0, uintptr(n), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}
