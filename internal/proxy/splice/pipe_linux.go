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
	most    int64 // how much it is filled with at once
	large   bool
	close   func(fds [2]int) // both ends, and counts it as gone
	cleanup runtime.Cleanup
}

var (
	pipes, largePipes sync.Pool
	large, open       atomic.Int64 // how many large ones there are, and how many of both
	limit             atomic.Int64 // how many of both there may be
	// refused: the system does not splice, see Fill.
	refused atomic.Bool
)

// takeSmall is Take of a pipe that takes smallPipe.
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

// Limit sets how many pipes there may be, of all sizes, where that is less than MostPipes: a peer that does not read keeps one for as long as it is waited
// for, and each has two descriptors.
func Limit(pipes int) { limit.Store(int64(min(pipes, MostPipes))) }

// newPipe makes a pipe; nil where there is none to be had.
func newPipe(most int64, end func(fds [2]int)) *Pipe {
	var fds [2]int
	if open.Add(1) > limit.Load() || unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		open.Add(-1)
		return nil
	}
	p := &Pipe{fds: fds, most: most, close: end}
	// The pools forget pipes that nobody has wanted for a while.
	p.cleanup = runtime.AddCleanup(p, end, p.fds)
	return p
}

// mostLargePipes is how many large pipes there are at a time. Their pages are a quarter of those that a user without privileges may have in pipes by default
// (pipe-user-pages-soft in proc_sys_fs(5)): beyond these the kernel makes pipes that take 8 KiB at once, for us and for the user's other programs.
const mostLargePipes = 64

// Take lends an empty pipe until Give; nil where there is none to be had: then bytes are copied. It takes Most, as long as there are few in use, else
// smallPipe.
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
		p.most = smallPipe // as the system's administrator wants it
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

// Give takes it back. One that still holds bytes is closed.
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

// Held is how many bytes are in the pipe.
func (p *Pipe) Held() int { return p.held }

// Fill moves up to limit bytes, and no more than the pipe takes, from a socket into the pipe, which must be empty. It does not wait: EAGAIN is that
// nothing has come; 0 without an error is the end of the stream. Any other error may be that the
// system does not splice, and no later Take gives a pipe; nothing was moved then.
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
