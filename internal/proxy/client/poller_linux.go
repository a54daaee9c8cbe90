package client

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/epoll"
)

// poller watches parked connections. A waiting goroutine costs its stack, which is more than the rest of an idle
// connection. So one goroutine waits for all, and each connection is an entry in an epoll set.
//
// An entry reports one event and is armed again when its connection is parked again. The kernel removes it when the
// descriptor is closed. An event may arrive late. Then it may wake another connection that is parked with the same
// descriptor, which does no harm.
type poller struct {
	set *epoll.Set

	mu   sync.Mutex
	byFD []*Conn // parked connections, by descriptor
}

// openPoller creates a poller and its goroutine; close ends both. wake is called with each parked connection that the
// client has written to or closed. It must not block.
func openPoller(wake func(*Conn)) (*poller, error) {
	l := &poller{}
	set, err := epoll.Open(func(e *unix.EpollEvent) {
		if c := l.at(e.Fd); c != nil {
			wake(c)
		}
	})
	if err != nil {
		return nil, err
	}
	l.set = set
	return l, nil
}

// close ends a poller that no longer holds connections.
func (l *poller) close() { l.set.Close() }

func (l *poller) at(fd int32) *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(fd) >= len(l.byFD) {
		return nil
	}
	return l.byFD[fd]
}

// admit adds a connection that is not watched yet.
func (l *poller) admit(c *Conn) error {
	return c.raw.Control(func(fd uintptr) {
		c.fd = int(fd)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.enter(c, c.fd)
	})
}

// enter records that fd is the descriptor of c. mu must be held.
func (l *poller) enter(c *Conn, fd int) {
	if more := fd + 1 - len(l.byFD); more > 0 {
		l.byFD = append(l.byFD, make([]*Conn, more)...)
	}
	l.byFD[fd] = c
}

// forget undoes admit.
func (l *poller) forget(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byFD[c.fd] == c { // not if c was closed and another connection has its descriptor
		l.byFD[c.fd] = nil
	}
}

// watch arms the entry of the connection behind raw. anew means that an entry exists already. From then on the
// connection belongs to the goroutine that claims it, perhaps even before watch returns.
func (l *poller) watch(raw syscall.RawConn, anew bool) error {
	op := unix.EPOLL_CTL_ADD
	if anew {
		op = unix.EPOLL_CTL_MOD
	}
	var failed error
	err := raw.Control(func(fd uintptr) { // within Control the descriptor cannot be reused
		event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(fd)}
		failed = unix.EpollCtl(l.set.FD, op, int(fd), &event)
	})
	if err != nil {
		return err
	}
	return failed
}

// unwatch removes the entry of a descriptor, if there is one. Closing the descriptor would not remove it while another
// one is open for the same socket.
func (l *poller) unwatch(fd int) {
	_ = unix.EpollCtl(l.set.FD, unix.EPOLL_CTL_DEL, fd, nil) // fails only if there is no entry
}

// watchHangUp makes l report once that the client of c hangs up, or has done so, until unwatchHangUp. It costs nothing
// while the client stays. It may be called at any time; after c was closed it does nothing.
func (l *poller) watchHangUp(c *Conn) {
	_ = c.raw.Control(func(fd uintptr) { // within Control the descriptor stays open; fails if c was closed
		l.mu.Lock()
		ended := c.hangUpFD < 0
		if !ended {
			c.hangUpFD = int(fd)
			l.enter(c, c.hangUpFD)
		}
		l.mu.Unlock()
		if ended {
			return
		}
		// Data does not trigger EPOLLRDHUP. If the system has no room for another entry, the client's leaving is
		// noticed when the response is written.
		event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(fd)}
		_ = unix.EpollCtl(l.set.FD, unix.EPOLL_CTL_ADD, int(fd), &event)
	})
}

// unwatchHangUp undoes watchHangUp for a connection that was closed, even if watchHangUp is still running.
func (l *poller) unwatchHangUp(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fd := c.hangUpFD; fd >= 0 && fd < len(l.byFD) && l.byFD[fd] == c {
		l.byFD[fd] = nil
	}
	c.hangUpFD = -1
}
