package client

import (
	"errors"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/epoll"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// dormants holds the dormant connections of a Set, and watches them. Its lock comes between that of the Set and those of shards.
type dormants struct {
	mu    sync.Mutex
	watch *epoll.Set // nil before the first
	byFD  []*dormant
	// ordered is in the order in which the connections became dormant, which is about that in which their idle times end; others holds those with timeouts of
	// their own, and those that are disordered.
	ordered, others dormantList
	newest          int64        // the latest end of an idle time that ordered has had, by the coarse clock
	stalled         []*dormant   // they are claimed, and could not be woken
	closed          bool         // none becomes dormant any more
	notBefore       atomic.Int64 // none does until then, by the coarse clock
	taken           atomic.Uint64
}

type dormantList = list[dormant, *dormant]

// orderedWithin is how exact the order of ordered is, in milliseconds.
const orderedWithin = 250

// listOf is the list that the connection belongs to.
func (l *dormants) listOf(s *Set, d *dormant) *dormantList {
	if d.timeouts != &s.timeouts || d.disordered {
		return &l.others
	}
	return &l.ordered
}

// goDormant has the connection, which was parked and is claimed, become dormant. False is that this was in vain, and so it would be for others.
func (c *Conn) goDormant() bool {
	defer c.recovered()
	c.unpark()
	s := c.set
	d := &dormant{socket: c.side.Socket, timeouts: c.timeouts, peer: c.side.Peer, until: c.until, served: c.served, disordered: c.disordered}
	if err := c.detach(&d.fd); err != nil {
		c.retireAgain()
		return !upstream.IsExhausted(err) // else it was cut
	}
	d.key = c.key
	d.counts.Store(c.counts.Load())
	armed := s.dormants.take(s, d)
	c.shard.remove(c) // it is nobody's any more
	s.wakeEmpty()
	return armed
}

// detach gives the connection another descriptor, of which nobody knows, and closes the one it has.
func (c *Conn) detach(fd *int32) error {
	var failed error
	err := c.raw.Control(func(own uintptr) {
		var other int
		if other, failed = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0); failed != nil {
			return
		}
		*fd = int32(other)
		c.set.idlePoller.Load().unwatch(int(own)) // the kernel would keep the entries for the other one
		if l := c.set.hangUps.Load(); l != nil && c.hangUpWatched.Load() {
			l.unwatch(int(own))
			l.unwatchHangUp(c)
		}
	})
	if err = errors.Join(err, failed); err == nil {
		c.tcp.Close()
	}
	return err
}

// take holds a connection from now on, or ends it where it takes none any more. False is that the system has no room for it, so that it goes on at once.
func (l *dormants) take(s *Set, d *dormant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		d.close(s)
		return true
	}
	if more := int(d.fd) + 1 - len(l.byFD); more > 0 {
		l.byFD = append(l.byFD, make([]*dormant, more)...)
	}
	if d.timeouts == &s.timeouts {
		d.disordered = d.disordered || d.until < l.newest-orderedWithin // as where none could become dormant for a while
		l.newest = max(l.newest, d.until)
	}
	l.byFD[d.fd] = d
	l.listOf(s, d).add(d)
	if l.arm(s, d, unix.EPOLL_CTL_ADD) != nil {
		d.claimed = true
		go l.goOn(s, d, l.wake)
		return false
	}
	l.taken.Add(1)
	return true
}

// arm has the next event of a connection reported; mu is held.
func (l *dormants) arm(s *Set, d *dormant, op int) (err error) {
	if l.watch == nil {
		if l.watch, err = epoll.Open(func(e *unix.EpollEvent) { l.happened(s, e.Fd) }); err != nil {
			l.watch = nil
			return err
		}
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: d.fd}
	return unix.EpollCtl(l.watch.FD, op, int(d.fd), &event)
}

// happened goes on with a connection of which there is an event. It may be one of an earlier connection with the same descriptor.
func (l *dormants) happened(s *Set, fd int32) {
	defer s.recovered()
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(fd) < len(l.byFD) && l.byFD[fd] != nil && !l.byFD[fd].claimed {
		d := l.byFD[fd]
		d.claimed = true
		go l.goOn(s, d, l.followEvent)
	}
}

// goOn has a function go on with a connection, which is claimed, or end it. A panic ends it, and nothing else.
func (l *dormants) goOn(s *Set, d *dormant, with func(*Set, *dormant)) {
	defer func() {
		if v := recover(); v != nil {
			s.engine.Observer.Panicked("connection", v)
			if l.has(d) {
				l.end(s, d)
			}
		}
	}()
	with(s, d)
}

// has reports whether a connection is still here.
func (l *dormants) has(d *dormant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byFD[d.fd] == d
}

// followEvent goes on with a connection as the client wants it.
func (l *dormants) followEvent(s *Set, d *dormant) {
	switch d.look() {
	case atEnd:
		l.end(s, d)
	case asked:
		l.answer(s, d)
	case quiet:
		if !l.restAgain(s, d) {
			l.wake(s, d)
		}
	}
}

// answer wakes a connection to which a request has come. It has the time for that which it has for the request's head, should there be no descriptors.
func (l *dormants) answer(s *Set, d *dormant) {
	d.until = max(d.until, s.engine.Now()+d.timeouts.Head.Milliseconds())
	l.wake(s, d)
}

// restAgain undoes a claim; false is that it cannot.
func (l *dormants) restAgain(s *Set, d *dormant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.claimed = l.closed || l.arm(s, d, unix.EPOLL_CTL_MOD) != nil
	return !d.claimed
}

// What there is of a client.
const (
	quiet = iota
	asked // bytes
	atEnd // the end, or a reset
)

// look looks what there is to be read.
func (d *dormant) look() int {
	var b [1]byte
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(d.fd), uintptr(unsafe.Pointer(&b)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return quiet
	case errno != 0 || n == 0:
		return atEnd
	}
	return asked
}

// wake makes a Conn of a connection again, which is claimed, or has the sweeper try that again.
func (l *dormants) wake(s *Set, d *dormant) {
	tcp, err := d.reopen()
	if upstream.IsExhausted(err) && s.exhausted() {
		tcp, err = d.reopen()
	}
	if err == nil && !l.become(s, d, tcp) {
		tcp.Close()
		err = net.ErrClosed
	}
	if err != nil && !l.stall(d) {
		l.end(s, d)
	}
}

// stall leaves a connection, which is claimed, to the sweeper; false is that all are to end.
func (l *dormants) stall(d *dormant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.stalled = append(l.stalled, d)
	}
	return !l.closed
}

// reopen returns the connection as package net has it, with a descriptor of its own.
func (d *dormant) reopen() (*net.TCPConn, error) {
	fd, err := unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return listen.Raw{FD: fd, Peer: d.peer}.TCP()
}

// become has a Conn take the place of a connection; false is that all are to end.
func (l *dormants) become(s *Set, d *dormant, tcp *net.TCPConn) bool {
	c := newConn(s, d.socket, tcp, snapshot.HTTP, d.timeouts)
	c.setPeer(d.peer)
	c.key, c.until, c.served, c.disordered = d.key, d.until, d.served, true
	if !l.replace(s, d, c) {
		return false
	}
	unix.Close(int(d.fd))
	return true
}

// replace is become for a Conn, but for the descriptor.
func (l *dormants) replace(s *Set, d *dormant, c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.watch != nil { // the kernel would keep the entry for the other descriptor, if there is one
		_ = unix.EpollCtl(l.watch.FD, unix.EPOLL_CTL_DEL, int(d.fd), nil)
	}
	l.remove(s, d)
	c.counts.Store(d.counts.Load())
	s.begin(c, (*Conn).goOn)
	return true
}

// remove takes a connection out; mu is held.
func (l *dormants) remove(s *Set, d *dormant) {
	l.byFD[d.fd] = nil
	l.listOf(s, d).remove(d)
}

// end ends a connection, which is claimed.
func (l *dormants) end(s *Set, d *dormant) {
	l.removeClosed(s, d)
	s.wakeEmpty()
}

func (l *dormants) removeClosed(s *Set, d *dormant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(s, d)
	d.close(s)
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
	stalled, due := l.due(s, t)
	l.each(s, stalled, l.retry)
	l.endUnlessAsked(s, due)
}

// due claims connections whose idle time is over, and returns them beside those that could not be woken.
func (l *dormants) due(s *Set, t sweepTimes) (stalled, ended []*dormant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stalled, l.stalled = l.stalled, nil
	ended = l.claim(nil, &l.ordered, math.MaxInt, func(d *dormant) (end, more bool) {
		end = d.until <= t.idleEnd
		return end, end
	})
	ended = l.claim(ended, &l.others, math.MaxInt, func(d *dormant) (end, more bool) { return s.idleEnded(d.until, d.timeouts, t.now), true })
	return stalled, ended
}

// each has a function go on with connections, which are claimed, one after the other. It does not wait for that: there may be many.
func (l *dormants) each(s *Set, all []*dormant, with func(*Set, *dormant)) {
	if len(all) > 0 {
		go func() {
			for _, d := range all {
				l.goOn(s, d, with)
			}
		}()
	}
}

// retry goes on with a connection that could not be woken before, until its time is over.
func (l *dormants) retry(s *Set, d *dormant) {
	now, there := s.engine.Now(), d.look()
	if there == atEnd || now >= d.until || there == quiet && s.idleEnded(d.until, d.timeouts, now) {
		l.end(s, d)
	} else {
		l.wake(s, d)
	}
}

// claim claims those connections of a list that want accepts, up to so many, until it wants no more, and appends them to those; mu is held.
func (l *dormants) claim(to []*dormant, of *dormantList, most int, want func(*dormant) (claim, more bool)) []*dormant {
	for d, more := of.first, true; d != nil && more && len(to) < most; d = d.after {
		if d.claimed {
			continue
		}
		if d.claimed, more = want(d); d.claimed {
			to = append(to, d)
		}
	}
	return to
}

// endUnlessAsked ends connections, which are claimed, but for those to which a request has come.
func (l *dormants) endUnlessAsked(s *Set, due []*dormant) {
	l.each(s, due, func(s *Set, d *dormant) {
		if d.look() == asked {
			s.readmit(&d.counted)
			l.answer(s, d)
		} else {
			l.end(s, d)
		}
	})
}

// endSome evicts and ends up to most connections that want accepts, those first that have idled for longest, and returns how many. want must not block.
func (l *dormants) endSome(s *Set, most int, want func(*dormant) bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due []*dormant
	for _, of := range [...]*dormantList{&l.ordered, &l.others} {
		due = l.claim(due, of, most, func(d *dormant) (bool, bool) { return want(d), true })
	}
	for _, d := range due {
		s.evict(&d.counted)
	}
	l.endUnlessAsked(s, due)
	return len(due)
}

// cut ends all connections, and those that would become dormant from now on.
func (l *dormants) cut(s *Set) {
	l.each(s, l.shut(), l.end)
}

// shut has no connection become dormant any more, nor one be woken, and claims all.
func (l *dormants) shut() []*dormant {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	all := l.stalled
	l.stalled = nil
	for _, of := range [...]*dormantList{&l.ordered, &l.others} { // who has claimed one already ends it
		all = l.claim(all, of, math.MaxInt, func(*dormant) (bool, bool) { return true, true })
	}
	return all
}

// emptyWith reports whether there is no connection here, nor where others looks, between which none moves meanwhile.
func (l *dormants) emptyWith(others func() bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ordered.first == nil && l.others.first == nil && others()
}

// close ends the goroutine that watches, when there is no connection any more. The lock of the Set is not held.
func (l *dormants) close() {
	l.mu.Lock()
	watch := l.watch
	l.watch, l.closed = nil, true
	l.mu.Unlock()
	if watch != nil {
		watch.Close() // which may wait for that lock
	}
}
