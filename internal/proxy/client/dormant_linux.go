package client

import (
	"errors"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/epoll"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/socket"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// dormants holds and watches the dormant connections of a Set. Its lock is taken after that of the Set and before those
// of shards.
type dormants struct {
	mu    sync.Mutex
	watch *epoll.Set // nil before the first dormant connection
	byFD  []*dormant
	// ordered is sorted by when the connections became dormant, which is approximately when their idle times end.
	// others holds the disordered connections and those with timeouts of their own, large those for which isLarge is true.
	ordered, others, large dormantList
	newest                 int64         // the latest end of an idle time that ordered has held, by the coarse clock
	closed                 bool          // no connection becomes dormant any more
	notBefore              atomic.Int64  // no connection becomes dormant before this time, by the coarse clock
	released               atomic.Uint64 // number of bytes that connections have released by becoming dormant
	// destinations has Conn.destination of the connections for which it is set. Few are, so it is not in their records.
	destinations map[*dormant]*netip.AddrPort
}

type dormantList = list[dormant, *dormant]

// orderedWithin is the precision of the order of ordered, in milliseconds.
const orderedWithin = 250

// listOf returns the list to which the connection belongs.
func (l *dormants) listOf(s *Set, d *dormant) *dormantList {
	switch {
	case d.isLarge():
		return &l.large
	case d.timeouts != &s.timeouts || d.disordered:
		return &l.others
	}
	return &l.ordered
}

func (l *dormants) lists() []*dormantList { return []*dormantList{&l.large, &l.ordered, &l.others} }

// goDormant makes the connection, which must be parked and claimed, dormant. It returns false if the system lacks
// resources, so that it would fail for other connections too.
func (c *Conn) goDormant() bool {
	defer c.recovered()
	c.unpark()
	s := c.set
	d := &dormant{socket: c.side.Socket, timeouts: c.timeouts, peer: c.side.Peer, until: c.until, served: c.served, disordered: c.disordered}
	if h := c.http2.Load(); h != nil {
		if d.http2 = h.GoDormant(); d.http2 == nil { // it was woken to end
			go c.goOn()
			return true
		}
	}
	if err := c.detach(&d.fd); err != nil {
		c.wakeHTTP2(d.http2)
		c.parkDisordered()
		return !upstream.IsExhausted(err) // another error means that the connection was cut
	}
	d.key = c.key
	d.state.Store(c.state.Load())
	armed := s.dormants.take(s, d, c.destination)
	c.shard.remove(c) // not Set.remove, because the connection still counts
	s.wakeEmpty()
	return armed
}

// detach duplicates the descriptor of the connection and closes the one that the runtime's poller watches.
func (c *Conn) detach(fd *int32) error {
	var failed error
	err := c.raw.Control(func(own uintptr) {
		var other int
		if other, failed = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0); failed != nil {
			return
		}
		*fd = int32(other)
		c.set.idlePoller.Load().unwatch(int(own)) // an entry of epoll lives as long as any descriptor of the socket is open
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

// take adds a connection, or ends it after cut. It returns false if the system cannot watch the connection, which is
// woken at once then. destination is that of the Conn.
func (l *dormants) take(s *Set, d *dormant, destination *netip.AddrPort) bool {
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
		d.disordered = d.disordered || d.until < l.newest-orderedWithin // true after a time in which no connection could become dormant
		l.newest = max(l.newest, d.until)
	}
	l.byFD[d.fd] = d
	if destination != nil {
		if l.destinations == nil {
			l.destinations = make(map[*dormant]*netip.AddrPort)
		}
		l.destinations[d] = destination
	}
	l.listOf(s, d).add(d)
	if l.arm(s, d, unix.EPOLL_CTL_ADD) != nil {
		d.claimed = true
		go l.goOn(s, d, l.wake)
		return false
	}
	l.released.Add(releasedBytes)
	if d.http2 != nil {
		l.released.Add(releasedHTTP2)
	}
	return true
}

// arm requests the next event of a connection. mu must be held.
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

// happened handles an event. The event may be about an earlier connection with the same descriptor.
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

// goOn calls with for a claimed connection. If with panics, only that connection is ended.
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

// has reports whether l still holds the connection.
func (l *dormants) has(d *dormant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byFD[d.fd] == d
}

// followEvent handles the claimed connection according to what the client has done: it wakes the connection, ends it,
// or, if the event was about another connection, releases the claim.
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

// restAgain releases a claim. It returns false if the connection cannot be watched again.
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

// look reports what the client has done, without consuming data.
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

// wake creates a Conn for a claimed connection, or ends the connection after cut.
func (l *dormants) wake(s *Set, d *dormant) {
	c := newConn(s, d.socket, socket.New(int(d.fd), d.peer), snapshot.HTTP, d.timeouts)
	c.setPeer(d.peer)
	c.key, c.until, c.served, c.disordered = d.key, d.until, d.served, true
	c.wakeHTTP2(d.http2)
	if !l.replace(s, d, c) {
		l.end(s, d) // end closes the descriptor, which c has too; nothing else knows c
	}
}

// replace moves a connection to the shard of its Conn. It returns false after cut.
func (l *dormants) replace(s *Set, d *dormant, c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.watch != nil { // otherwise the entry would remain; there is none if arm has failed
		_ = unix.EpollCtl(l.watch.FD, unix.EPOLL_CTL_DEL, int(d.fd), nil)
	}
	c.destination = l.destinations[d]
	l.remove(s, d)
	c.state.Store(d.state.Load())
	s.begin(c, c.goOn)
	return true
}

// remove removes a connection. mu must be held.
func (l *dormants) remove(s *Set, d *dormant) {
	l.byFD[d.fd] = nil
	delete(l.destinations, d)
	l.listOf(s, d).remove(d)
}

// end ends a claimed connection.
func (l *dormants) end(s *Set, d *dormant) {
	l.removeClosed(s, d)
	s.engine.ClientGone(d.peer)
	s.wakeEmpty()
}

func (l *dormants) removeClosed(s *Set, d *dormant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(s, d)
	d.close(s)
}

// close ends a connection that is not, or no longer, in a list.
func (d *dormant) close(s *Set) {
	unix.Close(int(d.fd))
	d.socket.Stats.ConnectionClosed()
	s.leave(&d.counted)
	d.socket.Open.Add(-1)
}

// sweep ends the connections whose idle time is over.
func (l *dormants) sweep(s *Set, t sweepTimes) { l.endUnlessAsked(s, l.due(s, t)) }

// maxWoken is how many connections by HTTP/2 are woken in one sweep to end: until they have, each takes several times the memory
// of a dormant one, and the idle times of all may end together, as when the gateway drains.
const maxWoken = 1024

// due claims and returns the connections whose idle time is over.
func (l *dormants) due(s *Set, t sweepTimes) []*dormant {
	l.mu.Lock()
	defer l.mu.Unlock()
	woken := 0
	mayEnd := func(d *dormant) bool {
		if d.http2 != nil {
			woken++
		}
		return d.http2 == nil || woken <= maxWoken
	}
	ended := l.claim(nil, &l.ordered, math.MaxInt, func(d *dormant) (end, more bool) {
		more = d.until <= t.idleEnd
		return more && mayEnd(d), more
	})
	for _, of := range [...]*dormantList{&l.others, &l.large} {
		ended = l.claim(ended, of, math.MaxInt, func(d *dormant) (end, more bool) {
			return s.idleEnded(d.until, d.timeouts, t.now) && mayEnd(d), true
		})
	}
	return ended
}

// each calls goOn for many connections, one after the other, on one new goroutine.
func (l *dormants) each(s *Set, all []*dormant, with func(*Set, *dormant)) {
	if len(all) > 0 {
		go func() {
			for _, d := range all {
				l.goOn(s, d, with)
			}
		}()
	}
}

// claim claims the connections of a list that want accepts and appends them to to, until to has most elements or want
// returns more == false. mu must be held.
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

// endUnlessAsked ends claimed connections, but wakes those from which a request has arrived.
func (l *dormants) endUnlessAsked(s *Set, due []*dormant) {
	l.each(s, due, func(s *Set, d *dormant) {
		switch found := d.look(); {
		case found == asked:
			s.readmit(&d.counted)
			l.wake(s, d)
		case found == quiet && d.http2 != nil:
			l.wake(s, d) // it ends by itself, see Conn.goOnHTTP2
		default:
			l.end(s, d)
		}
	})
}

// endsNow reports whether the connection ends if it is to make room. One whose client is still receiving the end of a response
// does not, see Conn.leastIdle.
func (d *dormant) endsNow(now int64) bool {
	if d.http2 == nil || now-d.until+d.timeouts.Idle.Milliseconds() >= d.timeouts.WriteIdle.Milliseconds() {
		return true
	}
	unsent, err := unix.IoctlGetInt(int(d.fd), unix.SIOCOUTQ)
	return unsent == 0 || err != nil
}

// endSome ends up to most connections that want accepts, which should call endsNow, the longest idle first, stops counting them,
// and returns their number. want must not block.
func (l *dormants) endSome(s *Set, most int, want func(*dormant) bool) int {
	return l.endSomeOf(s, most, want, l.lists()...)
}

// endLarge is like endSome, for connections for which isLarge is true.
func (l *dormants) endLarge(s *Set, most int, want func(*dormant) bool) int {
	return l.endSomeOf(s, most, want, &l.large)
}

func (l *dormants) endSomeOf(s *Set, most int, want func(*dormant) bool, lists ...*dormantList) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due []*dormant
	for _, of := range lists {
		due = l.claim(due, of, most, func(d *dormant) (bool, bool) { return want(d), true })
	}
	for _, d := range due {
		s.evict(&d.counted)
	}
	l.endUnlessAsked(s, due)
	return len(due)
}

// cut ends all connections, including any that are about to become dormant.
func (l *dormants) cut(s *Set) {
	l.each(s, l.shut(), l.end)
}

// shut claims all connections. Afterwards none becomes dormant and none is woken.
func (l *dormants) shut() []*dormant {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	var all []*dormant
	for _, of := range l.lists() { // the goroutine that has already claimed a connection will end it
		all = l.claim(all, of, math.MaxInt, func(*dormant) (bool, bool) { return true, true })
	}
	return all
}

// emptyWith reports whether l is empty and others returns true. No connection moves between the two meanwhile, since
// that requires the lock.
func (l *dormants) emptyWith(others func() bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.lists() {
		if of.first != nil {
			return false
		}
	}
	return others()
}

// close ends the goroutine that watches. There must be no connections, and the lock of the Set must not be held.
func (l *dormants) close() {
	l.mu.Lock()
	watch := l.watch
	l.watch, l.closed = nil, true
	l.mu.Unlock()
	if watch != nil {
		watch.Close() // may wait for that lock
	}
}
