package tunnel

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/epoll"
)

// suspends tells that HangUps can watch tunnels that are suspended.
const suspends = true

// HangUps tells tunnels that a peer has sent its last or has broken off, for which the runtime's poller has no event of its own: it tells
// that there is something to read, once for data and the end behind it. It also watches the sockets of tunnels that are suspended. All tunnels of a proxy
// share one, an epoll set with one goroutine. The zero value is ready, and makes that set with the first tunnel.
type HangUps struct {
	mu      sync.Mutex
	set     *epoll.Set // nil before the first entry, and where there can be none
	failed  error      // why there is none
	last    uint64
	watched map[uint64]entry // by their numbers, which are not used again
}

// entry is a direction whose source is watched.
type entry struct {
	t *Tunnel
	d *direction
}

const (
	// Data does not wake who waits for EPOLLRDHUP only, and for EPOLLHUP and EPOLLERR, which are always waited for.
	ofHangUps = unix.EPOLLRDHUP | unix.EPOLLET
	// ofAll is once for whatever comes first.
	ofAll = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT
)

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
func (h *HangUps) watch(t *Tunnel, d *direction) error {
	if d.id != 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.open(); err != nil {
		return err
	}
	h.last++
	if err := h.control(unix.EPOLL_CTL_ADD, socketOf(d.from), h.last, ofHangUps); err != nil {
		return err
	}
	d.id = h.last
	h.watched[d.id] = entry{t, d}
	return nil
}

// await has t go on when anything comes from either side; false is that they cannot be watched. The mu of t is held.
func (h *HangUps) await(t *Tunnel) bool {
	for _, d := range [...]*direction{&t.toBackend, &t.toClient} {
		if h.watch(t, d) != nil || h.control(unix.EPOLL_CTL_MOD, socketOf(d.from), d.id, ofAll) != nil {
			return false
		}
	}
	return true
}

// stopAwaiting undoes await, for a tunnel that goes on.
func (t *Tunnel) stopAwaiting() {
	for _, d := range [...]*direction{&t.toBackend, &t.toClient} {
		if d.id == 0 {
			continue
		}
		// Where it fails the socket is closed, and the next read tells of that.
		_ = t.HangUps.control(unix.EPOLL_CTL_MOD, socketOf(d.from), d.id, ofHangUps)
	}
}

// control makes or changes the entry of a socket. The set does not change while a tunnel is under way.
func (h *HangUps) control(op int, socket syscall.RawConn, id uint64, events uint32) (failed error) {
	err := socket.Control(func(fd uintptr) {
		event := unix.EpollEvent{Events: events, Fd: int32(id), Pad: int32(id >> 32)}
		failed = unix.EpollCtl(h.set.FD, op, int(fd), &event)
	})
	return errors.Join(err, failed)
}

// forget undoes watch.
func (h *HangUps) forget(d *direction) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watched, d.id)
}

// open makes the set where there is none; mu is held.
func (h *HangUps) open() error {
	if h.set == nil && h.failed == nil {
		h.watched = map[uint64]entry{}
		h.set, h.failed = epoll.Open(func(e *unix.EpollEvent) { h.tell(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32) })
	}
	return h.failed
}

// tell wakes the tunnel of an entry where it is suspended, or else the direction, if it still has one.
func (h *HangUps) tell(id uint64) {
	h.mu.Lock()
	e, ok := h.watched[id]
	h.mu.Unlock()
	if ok && !e.t.resume() {
		e.d.hungUp()
	}
}
