package tunnel

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/epoll"
)

// suspends reports that HangUps can watch suspended tunnels on this system.
const suspends = true

// HangUps notifies tunnels that a peer has ended or reset its stream. The runtime's poller has no event for that: it
// only reports that there is something to read, once for data and the end after it. HangUps also watches the sockets of
// suspended tunnels. All tunnels of a proxy share one: an epoll set with one goroutine. The zero value is ready for
// use, and creates the set with the first tunnel.
type HangUps struct {
	mu      sync.Mutex
	set     *epoll.Set // nil before the first entry, and if creating it has failed
	failed  error      // why creating it has failed
	last    uint64
	watched map[uint64]entry // by their ids, which are not reused
}

// entry is a direction whose source is watched.
type entry struct {
	t *Tunnel
	d *direction
}

const (
	// Data does not trigger EPOLLRDHUP, nor EPOLLHUP and EPOLLERR, which are always reported.
	ofHangUps = unix.EPOLLRDHUP | unix.EPOLLET
	// ofAll reports the first event of any kind, once.
	ofAll = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT
)

// Close ends the goroutine. No tunnel may be running or begin afterwards.
func (h *HangUps) Close() {
	h.mu.Lock()
	set := h.set
	h.set, h.failed = nil, os.ErrClosed
	h.mu.Unlock()
	if set != nil {
		set.Close()
	}
}

// watch notifies d of a hang-up of its source until forget. The kernel removes the entry when the socket is closed.
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

// await makes t continue when anything arrives from either side. It returns false if they cannot be watched. The mu of
// t must be held.
func (h *HangUps) await(t *Tunnel) bool {
	for _, d := range [...]*direction{&t.toBackend, &t.toClient} {
		if h.watch(t, d) != nil || h.control(unix.EPOLL_CTL_MOD, socketOf(d.from), d.id, ofAll) != nil {
			return false
		}
	}
	return true
}

// stopAwaiting undoes await for a tunnel that continues.
func (t *Tunnel) stopAwaiting() {
	for _, d := range [...]*direction{&t.toBackend, &t.toClient} {
		if d.id == 0 {
			continue
		}
		// It fails if the socket is closed, which the next read reports.
		_ = t.HangUps.control(unix.EPOLL_CTL_MOD, socketOf(d.from), d.id, ofHangUps)
	}
}

// control adds or changes the entry of a socket. The set does not change while a tunnel is running.
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

// open creates the set if there is none. mu must be held.
func (h *HangUps) open() error {
	if h.set == nil && h.failed == nil {
		h.watched = map[uint64]entry{}
		h.set, h.failed = epoll.Open(func(e *unix.EpollEvent) { h.notify(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32) })
	}
	return h.failed
}

// notify wakes the tunnel of an entry if it is suspended, and otherwise the direction, if the entry still exists.
func (h *HangUps) notify(id uint64) {
	h.mu.Lock()
	e, ok := h.watched[id]
	h.mu.Unlock()
	if ok && !e.t.resume() {
		e.d.hungUp()
	}
}
