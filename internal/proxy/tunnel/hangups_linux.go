package tunnel

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// HangUps tells tunnels that a peer has sent its last or has broken off, for which the runtime's poller has no event of its own: it tells
// that there is something to read, once for data and the end behind it. All tunnels of a proxy share one, an epoll set with one
// goroutine. The zero value is ready, and makes that set with the first tunnel.
type HangUps struct {
	mu      sync.Mutex
	file    *os.File // the epoll set; nil before the first entry, and where there can be none
	fd      int      // its descriptor
	failed  error    // why there is none
	done    chan struct{}
	last    uint64
	watched map[uint64]*direction // by the number of their entry, which is not used again
}

// Close ends the goroutine. No tunnel may be under way, nor begin.
func (h *HangUps) Close() {
	h.mu.Lock()
	file, done := h.file, h.done
	h.file, h.failed = nil, os.ErrClosed
	h.mu.Unlock()
	if file != nil {
		file.Close()
		<-done
	}
}

// watch has d be told of a hang-up of its source until forget; the kernel drops the entry when the socket is closed.
func (h *HangUps) watch(d *direction, source syscall.RawConn) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.open(); err != nil {
		return err
	}
	h.last++
	id := h.last
	var failed error
	err := source.Control(func(fd uintptr) {
		// Data does not wake who waits for EPOLLRDHUP only, and for EPOLLHUP and EPOLLERR, which are always waited for.
		event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(id), Pad: int32(id >> 32)}
		failed = unix.EpollCtl(h.fd, unix.EPOLL_CTL_ADD, int(fd), &event)
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	d.relay.id = id
	h.watched[id] = d
	return nil
}

// forget undoes watch.
func (h *HangUps) forget(d *direction) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watched, d.relay.id)
}

// open makes the set where there is none; mu is held.
func (h *HangUps) open() error {
	if h.file != nil || h.failed != nil {
		return h.failed
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		h.failed = err
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // shows os.NewFile that the poller is to watch it
		unix.Close(fd)
		h.failed = err
		return err
	}
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		h.failed = err
		return err
	}
	h.file, h.fd, h.done, h.watched = file, fd, make(chan struct{}), map[uint64]*direction{}
	go h.run(raw, fd)
	return nil
}

func (h *HangUps) run(raw syscall.RawConn, fd int) {
	defer close(h.done)
	events := make([]unix.EpollEvent, 128)
	_ = raw.Read(func(uintptr) bool { // the error is that the set is closed
		for {
			n, err := unix.EpollWait(fd, events, 0)
			if err == unix.EINTR {
				continue
			}
			for _, e := range events[:max(n, 0)] {
				h.tell(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32)
			}
			if n < len(events) {
				return false
			}
		}
	})
}

// tell wakes the direction of an entry, if it still has one.
func (h *HangUps) tell(id uint64) {
	h.mu.Lock()
	d := h.watched[id]
	h.mu.Unlock()
	if d != nil {
		d.wake()
	}
}
