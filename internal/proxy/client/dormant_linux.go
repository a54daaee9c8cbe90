package client

import (
	"math"
	"net"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/epoll"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// dormants holds the dormant connections of a Set, and watches them. Its lock comes before those of shards.
type dormants struct {
	mu    sync.Mutex
	watch *epoll.Set // nil before the first
	byFD  []*dormant
	// ordered is in the order in which the connections became dormant, which is about that in which their idle times end; own holds those with timeouts of
	// their own, in no order.
	ordered, own dormantList
	stalled      []*dormant   // the sweeper shall wake them; some may have ended
	closed       bool         // none becomes dormant any more
	notBefore    atomic.Int64 // none does until then, by the coarse clock
	taken        atomic.Uint64
}

type dormantList = list[dormant, *dormant]

// listOf is the list that the connection belongs to.
func (l *dormants) listOf(s *Set, d *dormant) *dormantList {
	if d.timeouts != &s.timeouts {
		return &l.own
	}
	return &l.ordered
}

// goDormant has the connection, which was parked and is claimed, become dormant.
func (c *Conn) goDormant() {
	defer c.recovered()
	c.unpark()
	s := c.set
	d := &dormant{socket: c.side.Socket, timeouts: c.timeouts, peer: c.side.Peer, until: c.until, served: c.served}
	if err := c.detach(&d.fd); err != nil { // it was cut, or there are no descriptors
		s.dormants.notBefore.Store(s.engine.Now() + dormantAfter.Milliseconds())
		c.disordered = true
		if !c.retire() {
			go c.goOn()
		}
		return
	}
	d.key = c.key
	d.counts.Store(c.counts.Load())
	s.dormants.take(s, d)
	c.shard.remove(c)
	s.wakeEmpty()
}

// detach gives the connection another descriptor, of which nobody knows, and closes the one it has.
func (c *Conn) detach(fd *int32) error {
	var failed error
	err := c.raw.Control(func(own uintptr) {
		var other int
		if other, failed = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0); failed == nil {
			*fd = int32(other)
			c.set.idlePoller.Load().unwatch(int(own)) // the kernel would keep the entry for the other one
		}
	})
	if err == nil {
		err = failed
	}
	if err == nil {
		c.tcp.Close()
	}
	return err
}

// take holds a connection from now on, or ends it where it takes none any more.
func (l *dormants) take(s *Set, d *dormant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		d.close(s)
		return
	}
	if more := int(d.fd) + 1 - len(l.byFD); more > 0 {
		l.byFD = append(l.byFD, make([]*dormant, more)...)
	}
	l.byFD[d.fd] = d
	l.listOf(s, d).add(d)
	l.taken.Add(1)
	if l.arm(s, d) != nil { // the system has no room
		l.wake(s, d)
	}
}

// arm has the next event of a connection reported; mu is held.
func (l *dormants) arm(s *Set, d *dormant) (err error) {
	if l.watch == nil {
		if l.watch, err = epoll.Open(func(e *unix.EpollEvent) { l.happened(s, e) }); err != nil {
			l.watch = nil
			return err
		}
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: d.fd}
	return unix.EpollCtl(l.watch.FD, unix.EPOLL_CTL_ADD, int(d.fd), &event)
}

// happened goes on with a connection whose client has sent something, or closed it. The event may be of an earlier one with the same descriptor, which does no harm.
func (l *dormants) happened(s *Set, e *unix.EpollEvent) {
	defer s.recovered()
	if l.wakeOrEnd(s, e) {
		s.wakeEmpty()
	}
}

// wakeOrEnd reports whether it has ended the connection.
func (l *dormants) wakeOrEnd(s *Set, e *unix.EpollEvent) (ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watch == nil || int(e.Fd) >= len(l.byFD) || l.byFD[e.Fd] == nil {
		return false
	}
	d := l.byFD[e.Fd]
	if e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 && d.atEnd() {
		l.remove(s, d)
		d.close(s)
		return true
	}
	_ = unix.EpollCtl(l.watch.FD, unix.EPOLL_CTL_DEL, int(d.fd), nil) // else the kernel would keep it for the other descriptor
	l.wake(s, d)
	return false
}

// atEnd reports whether there is nothing to be read any more, now and later.
func (d *dormant) atEnd() bool {
	var b [1]byte
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(d.fd), uintptr(unsafe.Pointer(&b)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
	return errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR || errno == 0 && n == 0
}

// wake makes a Conn of the connection again, or has the sweeper try that again; mu is held.
func (l *dormants) wake(s *Set, d *dormant) {
	tcp, err := d.reopen()
	if err != nil { // there are no descriptors
		l.stalled = append(l.stalled, d)
		return
	}
	l.remove(s, d)
	unix.Close(int(d.fd))
	c := newConn(s, d.socket, tcp, snapshot.HTTP, d.timeouts)
	c.setPeer(d.peer)
	c.key, c.until, c.served = d.key, d.until, d.served
	c.counts.Store(d.counts.Load())
	s.begin(c, (*Conn).goOn)
}

// reopen returns the connection as package net has it, with a descriptor of its own.
func (d *dormant) reopen() (*net.TCPConn, error) {
	fd, err := unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return listen.Raw{FD: fd, Peer: d.peer}.TCP()
}

// remove takes a connection out; mu is held.
func (l *dormants) remove(s *Set, d *dormant) {
	l.byFD[d.fd] = nil
	l.listOf(s, d).remove(d)
}

// close ends a connection that was taken out, or never in.
func (d *dormant) close(s *Set) {
	unix.Close(int(d.fd))
	d.socket.Stats.ConnectionClosed()
	s.leave(&d.counted)
	d.socket.Open.Add(-1)
}

// sweep ends those whose idle time is over, and goes on with those that could not be woken.
func (l *dormants) sweep(s *Set, t sweepTimes) {
	l.endFrom(s, &l.ordered, math.MaxInt, func(d *dormant) (end, more bool) {
		end = d.until <= t.idleEnd
		return end, end
	})
	l.endFrom(s, &l.own, math.MaxInt, func(d *dormant) (end, more bool) {
		return s.idleEnded(d.until, d.timeouts, t.now), true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	stalled := l.stalled
	l.stalled = nil
	for _, d := range stalled {
		if l.byFD[d.fd] == d {
			l.wake(s, d)
		}
	}
}

// cut ends all connections, and those that would become dormant from now on.
func (l *dormants) cut(s *Set) {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end(s, math.MaxInt, func(*dormant) bool { return true })
}

// end ends up to most connections that want accepts, those first that have idled for longest, and returns how many. want must not block.
func (l *dormants) end(s *Set, most int, want func(*dormant) bool) (ended int) {
	for _, of := range [...]*dormantList{&l.ordered, &l.own} {
		ended += l.endFrom(s, of, most-ended, func(d *dormant) (bool, bool) { return want(d), true })
	}
	return ended
}

// endFrom ends connections of a list as want says, until that wants no more.
func (l *dormants) endFrom(s *Set, of *dormantList, most int, want func(*dormant) (end, more bool)) (ended int) {
	l.mu.Lock()
	for d, more := of.first, true; d != nil && more && ended < most; {
		next, end := d.after, false
		if end, more = want(d); end {
			l.remove(s, d)
			d.close(s)
			ended++
		}
		d = next
	}
	l.mu.Unlock()
	if ended > 0 {
		s.wakeEmpty()
	}
	return ended
}

// emptyWith reports whether there is no connection here, nor where others looks, between which none moves meanwhile.
func (l *dormants) emptyWith(others func() bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ordered.first == nil && l.own.first == nil && others()
}

// close ends the goroutine that watches, when there is no connection any more.
func (l *dormants) close() {
	l.mu.Lock()
	watch := l.watch
	l.watch, l.closed = nil, true
	l.mu.Unlock()
	if watch != nil {
		watch.Close() // which may wait for that lock
	}
}
