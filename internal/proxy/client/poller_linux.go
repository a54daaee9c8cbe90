package client

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// poller watches parked connections. A goroutine that waits costs its stack, which is more than all the
// rest of an idle connection; here one goroutine waits for all, and each connection is an entry in an
// epoll set, which the runtime's poller watches like any descriptor.
//
// An entry tells of one event and is armed again when its connection is parked again. The kernel
// drops it when the descriptor is closed. An event may come late, and then wakes another connection
// that is parked with the same descriptor, or nobody: neither does harm.
type poller struct {
	file *os.File // the epoll set
	fd   int      // its descriptor
	wake func(*Conn)
	done chan struct{} // closed when run has ended

	mu   sync.Mutex
	byFD []*Conn // parked ones, by descriptor
}

// openPoller makes a poller and its goroutine; close ends both. wake is told of parked connections that
// the client has written to or closed; it must not block.
func openPoller(wake func(*Conn)) (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // shows os.NewFile that the poller is to watch it
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	l := &poller{file: os.NewFile(uintptr(fd), "epoll"), fd: fd, wake: wake, done: make(chan struct{})}
	raw, err := l.file.SyscallConn()
	if err != nil {
		l.file.Close()
		return nil, err
	}
	go l.run(raw)
	return l, nil
}

// close is for a poller that holds nothing any more.
func (l *poller) close() {
	l.file.Close()
	<-l.done
}

func (l *poller) run(raw syscall.RawConn) {
	defer close(l.done)
	events := make([]unix.EpollEvent, 128)
	_ = raw.Read(func(uintptr) bool { // the error is that the poller is closed
		for {
			n, err := unix.EpollWait(l.fd, events, 0)
			if err == unix.EINTR {
				continue
			}
			for i := range max(n, 0) {
				if c := l.at(events[i].Fd); c != nil {
					l.wake(c)
				}
			}
			if n < len(events) {
				return false
			}
		}
	})
}

func (l *poller) at(fd int32) *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(fd) >= len(l.byFD) {
		return nil
	}
	return l.byFD[fd]
}

// admit enters a connection, which is not watched yet.
func (l *poller) admit(c *Conn) error {
	return c.raw.Control(func(fd uintptr) {
		c.fd = int(fd)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.enter(c, c.fd)
	})
}

// enter notes whose descriptor fd is; mu is held.
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
	if l.byFD[c.fd] == c { // not after it was closed, and another has its descriptor
		l.byFD[c.fd] = nil
	}
}

// watch arms the entry of the connection behind raw; anew tells that there was one before. From then on the
// connection belongs to whoever claims it, maybe before watch has returned.
func (l *poller) watch(raw syscall.RawConn, anew bool) error {
	op := unix.EPOLL_CTL_ADD
	if anew {
		op = unix.EPOLL_CTL_MOD
	}
	var failed error
	err := raw.Control(func(fd uintptr) { // within which the descriptor cannot become another's
		event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(fd)}
		failed = unix.EpollCtl(l.fd, op, int(fd), &event)
	})
	if err != nil {
		return err
	}
	return failed
}

// watchHangUp has l report once that the client of c hangs up, or has done so, until unwatchHangUp; it costs nothing while the
// client stays. It may be called at any time, also when c has been closed, from which on it does nothing.
func (l *poller) watchHangUp(c *Conn) {
	_ = c.raw.Control(func(fd uintptr) { // within which the descriptor stays open: the error is that it was closed
		l.mu.Lock()
		c.hangUpFD = int(fd)
		l.enter(c, c.hangUpFD)
		l.mu.Unlock()
		// Data does not wake who waits for EPOLLRDHUP only. Where the system has no room for another
		// entry, the client's leaving is noticed when the response is written.
		event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(fd)}
		_ = unix.EpollCtl(l.fd, unix.EPOLL_CTL_ADD, int(fd), &event)
	})
}

// unwatchHangUp undoes watchHangUp for a connection that was closed.
func (l *poller) unwatchHangUp(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.hangUpFD < len(l.byFD) && l.byFD[c.hangUpFD] == c {
		l.byFD[c.hangUpFD] = nil
	}
}
