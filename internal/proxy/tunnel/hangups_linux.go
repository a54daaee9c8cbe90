package tunnel

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/epoll"
)

// HangUps tells tunnels that a peer has sent its last or has broken off, for which the runtime's poller has no event of its own: it tells
// that there is something to read, once for data and the end behind it. All tunnels of a proxy share one, an epoll set with one
// goroutine. The zero value is ready, and makes that set with the first tunnel.
type HangUps struct {
	mu      sync.Mutex
	set     *epoll.Set // nil before the first entry, and where there can be none
	failed  error      // why there is none
	last    uint64
	watched map[uint64]*direction // by the number of their entry, which is not used again
}

// Close ends the goroutine. No tunnel may be under way, nor begin.
func (h *HangUps) Close() {
	h.mu.Lock()
	set := h.set
	h.set, h.failed = nil, os.ErrClosed
	h.mu.Unlock()
	if set != nil {
		set.Close()
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
		failed = unix.EpollCtl(h.set.FD, unix.EPOLL_CTL_ADD, int(fd), &event)
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
	if h.set == nil && h.failed == nil {
		h.watched = map[uint64]*direction{}
		h.set, h.failed = epoll.Open(func(e *unix.EpollEvent) { h.tell(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32) })
	}
	return h.failed
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
