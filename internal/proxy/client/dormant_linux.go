package client

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/epoll"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/socket"
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
	newest          int64         // the latest end of an idle time that ordered has had, by the coarse clock
	closed          bool          // none becomes dormant any more
	notBefore       atomic.Int64  // none becomes dormant until then, by the coarse clock
	taken           atomic.Uint64 // how many have become dormant
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

// goDormant makes the connection, which is parked and claimed, dormant. False is that the system lacks what it takes, so that it would fail for others, too.
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
	c.shard.remove(c) // not Set.remove: the connection still counts
	s.wakeEmpty()
	return armed
}

// detach duplicates the descriptor of the connection, and closes the one that the runtime's poller watches.
func (c *Conn) detach(fd *int32) error {
	var failed error
	err := c.raw.Control(func(own uintptr) {
		var other int
		if other, failed = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0); failed != nil {
			return
		}
		*fd = int32(other)
		c.set.idlePoller.Load().unwatch(int(own)) // an entry of epoll lives as long as any descriptor of the socket
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

// take adds a connection, or ends it after cut. False is that the system cannot watch it, so that it is woken at once.
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
		d.disordered = d.disordered || d.until < l.newest-orderedWithin // so it is after a time in which none could become dormant
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

// happened handles an event, which may be that of an earlier connection with the same descriptor.
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

// goOn calls with for a connection, which is claimed. A panic ends that connection alone.
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

// followEvent does what the client has asked for: it answers, or ends the connection. An event that concerned another one changes nothing.
func (l *dormants) followEvent(s *Set, d *dormant) {
	switch d.look() {
	case atEnd:
		l.end(s, d)
	case asked:
		l.wake(s, d)
	case quiet:
		if !l.restAgain(s, d) {
			l.wake(s, d)
		}
	}
}

// restAgain gives a claim up; false is that the connection cannot be watched again.
func (l *dormants) restAgain(s *Set, d *dormant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.claimed = l.closed || l.arm(s, d, unix.EPOLL_CTL_MOD) != nil
	return !d.claimed
}

// What a client has done.
const (
	quiet = iota // nothing
	asked        // it has sent something
	atEnd        // it has ended or reset the connection
)

// look reports what the client has done, and reads nothing.
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

// wake makes a Conn of a connection, which is claimed, or ends it after cut.
func (l *dormants) wake(s *Set, d *dormant) {
	c := newConn(s, d.socket, socket.New(int(d.fd), d.peer), snapshot.HTTP, d.timeouts)
	c.setPeer(d.peer)
	c.key, c.until, c.served, c.disordered = d.key, d.until, d.served, true
	if !l.replace(s, d, c) {
		l.end(s, d) // which closes the descriptor; c, that nobody else knows of, has it too
	}
}

// replace moves a connection to the shard of its Conn; false after cut.
func (l *dormants) replace(s *Set, d *dormant, c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.watch != nil { // else it would remain there; where arm has failed there is no entry
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

// sweep ends those whose idle time is over.
func (l *dormants) sweep(s *Set, t sweepTimes) { l.endUnlessAsked(s, l.due(s, t)) }

// due claims and returns connections whose idle time is over.
func (l *dormants) due(s *Set, t sweepTimes) []*dormant {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := l.claim(nil, &l.ordered, math.MaxInt, func(d *dormant) (end, more bool) {
		end = d.until <= t.idleEnd
		return end, end
	})
	return l.claim(ended, &l.others, math.MaxInt, func(d *dormant) (end, more bool) { return s.idleEnded(d.until, d.timeouts, t.now), true })
}

// each is goOn for many connections, one after the other, on a goroutine of its own.
func (l *dormants) each(s *Set, all []*dormant, with func(*Set, *dormant)) {
	if len(all) > 0 {
		go func() {
			for _, d := range all {
				l.goOn(s, d, with)
			}
		}()
	}
}

// claim claims those connections of a list that want accepts, and appends them to to, until that has most elements or want no more; mu is held.
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

// endUnlessAsked ends connections, which are claimed, except for those to which a request has come.
func (l *dormants) endUnlessAsked(s *Set, due []*dormant) {
	l.each(s, due, func(s *Set, d *dormant) {
		if d.look() == asked {
			s.readmit(&d.counted)
			l.wake(s, d)
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

// shut claims all connections. From then on none becomes dormant, and none is woken.
func (l *dormants) shut() []*dormant {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	var all []*dormant
	for _, of := range [...]*dormantList{&l.ordered, &l.others} { // whoever has claimed one already will end it
		all = l.claim(all, of, math.MaxInt, func(*dormant) (bool, bool) { return true, true })
	}
	return all
}

// emptyWith reports whether there is no connection here, and none by others. None moves between the two meanwhile, since that takes the lock.
func (l *dormants) emptyWith(others func() bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ordered.first == nil && l.others.first == nil && others()
}

// close ends the goroutine that watches. There are no connections, and the lock of the Set is not held.
func (l *dormants) close() {
	l.mu.Lock()
	watch := l.watch
	l.watch, l.closed = nil, true
	l.mu.Unlock()
	if watch != nil {
		watch.Close() // which may wait for that lock
	}
}
