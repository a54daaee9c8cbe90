package tunnel

import (
	"io"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/epoll"
	"github.com/moongate-dev/moongate/internal/proxy/splice"
)

// Loop moves the bytes of tunnels between two sockets in the clear, all on one goroutine: a tunnel has none of its own, nor a timer. Its descriptors are
// watched by an epoll set alone, and not by the runtime's poller.
//
// Whoever calls a method of a Pair must hold the lock, by Locked or in a method of Handler.
type Loop struct {
	options LoopOptions
	// idle and untaken are those of options in milliseconds.
	idle, untaken int64

	mu     sync.Mutex
	set    *epoll.Set // nil before the first pair
	failed error      // of making it, or that the loop is closed
	slots  []slot
	free   []int32
	last   uint32  // the generation of the socket that was added last
	at     *Pair   // which is being worked on
	again  []*Pair // which had more to do than others should wait for
	input  []byte  // what is read to; nothing stays in it

	// Pairs by their state. Those of active and resting are in the order in which bytes moved last.
	hello, dialling, active, resting, stuck pairs
}

// slot is what an event names a pair by. The generations of its sockets, that of the client's and that of the backend's, tell whether these are still those which
// the event is of.
type slot struct {
	pair        *Pair
	generations [2]uint32
}

const (
	// loopInput is how much is read at once.
	loopInput = buffer.Size
	// turns is how many reads of a direction follow each other before other pairs have their turn.
	turns = 4
	// keepSlots is for how many pairs the memory is kept when all have gone.
	keepSlots = 1024
)

// NewLoop makes a Loop. Close must be called in the end.
func NewLoop(o LoopOptions) *Loop {
	return &Loop{options: o, idle: o.Idle.Milliseconds(), untaken: o.Untaken.Milliseconds()}
}

// Close ends the goroutine. There must be no pair any more, nor come another.
func (l *Loop) Close() {
	l.mu.Lock()
	set := l.set
	l.set, l.failed = nil, os.ErrClosed
	l.mu.Unlock()
	if set != nil {
		set.Close()
	}
}

// Locked calls f with the loop locked.
func (l *Loop) Locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// TryLocked is Locked, or does nothing and returns false where somebody else holds the lock.
func (l *Loop) TryLocked(f func()) bool {
	if !l.mu.TryLock() {
		return false
	}
	defer l.mu.Unlock()
	f()
	return true
}

// Each calls f for all pairs. f must end none.
func (l *Loop) Each(f func(*Pair)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.slots {
		if s.pair != nil {
			f(s.pair)
		}
	}
}

// EndAll fails all pairs, with an error that is no end's.
func (l *Loop) EndAll(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.slots {
		if s.pair != nil {
			s.pair.fail(Neither, err)
		}
	}
}

// Sweep ends pairs that have waited too long, by the coarse clock. It is called a few times a second.
func (l *Loop) Sweep(now int64, gone func(*Pair) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.recovered()
	for p := l.hello.first; p != nil && p.until <= now; p = l.hello.first {
		p.fail(Client, os.ErrDeadlineExceeded)
	}
	for p := l.dialling.first; p != nil; {
		next := p.after
		err := gone(p)
		if err == nil && p.until <= now {
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			l.at = p
			p.dialFailed(err)
		}
		p = next
	}
	rest := min(restAfter.Milliseconds(), l.idle)
	for p := l.active.first; p != nil && p.moved+rest <= now; p = l.active.first {
		l.active.remove(p)
		l.resting.add(p)
		p.keepAlive()
	}
	for p := l.resting.first; p != nil && p.moved+l.idle <= now; p = l.resting.first {
		p.fail(Neither, os.ErrDeadlineExceeded)
	}
	for p := l.stuck.first; p != nil; {
		next := p.after
		if since, stuck := p.Stuck(); stuck && since+l.untaken <= now {
			p.fail(Neither, os.ErrDeadlineExceeded)
		}
		p = next
	}
}

// pairs is a list, doubly linked by the fields of Pair.
type pairs struct{ first, last *Pair }

func (l *pairs) add(p *Pair) {
	p.list, p.before, p.after = l, l.last, nil
	if l.last != nil {
		l.last.after = p
	} else {
		l.first = p
	}
	l.last = p
}

func (l *pairs) remove(p *Pair) {
	if p.before != nil {
		p.before.after = p.after
	} else {
		l.first = p.after
	}
	if p.after != nil {
		p.after.before = p.before
	} else {
		l.last = p.before
	}
	p.list, p.before, p.after = nil, nil, nil
}

// report is told of events. again is that there is more to do.
func (l *Loop) report(events []unix.EpollEvent) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	more := l.again
	l.again = nil
	for i := range events {
		l.event(&events[i])
	}
	for _, p := range more {
		l.resume(p)
	}
	return len(l.again) > 0
}

// recovered is deferred where a panic must end the pair at hand only.
func (l *Loop) recovered() {
	p := l.at
	l.at = nil
	if v := recover(); v != nil {
		l.options.Panicked(v)
		if p != nil {
			p.fail(Neither, errPanicked)
		}
	}
}

func (l *Loop) event(e *unix.EpollEvent) {
	if int(e.Fd) >= len(l.slots) {
		return
	}
	s := &l.slots[e.Fd]
	side := e.Pad & 1
	if s.pair == nil || s.generations[side] != uint32(e.Pad)>>1 {
		return
	}
	defer l.recovered()
	l.at = s.pair
	if side == 0 {
		s.pair.event(&s.pair.client, e.Events)
	} else {
		s.pair.event(&s.pair.backend, e.Events)
	}
}

// resume goes on with a pair that had more to do.
func (l *Loop) resume(p *Pair) {
	p.queued = false
	if p.state != pairJoined {
		return
	}
	defer l.recovered()
	l.at = p
	p.move(&p.toBackend)
	p.move(&p.toClient)
}

// pairState is how far a Pair has come.
type pairState uint8

const (
	pairAdded    pairState = iota // nothing is done with it
	pairAwaiting                  // what the client says first is looked at as it comes
	pairDialling                  // a connection to the backend is being made
	pairJoined                    // bytes are moved
	pairEnded
)

// Pair is two sockets of a Loop that are to be joined, or were.
type Pair struct {
	loop            *Loop
	handler         Handler
	client, backend socketEnd
	// toBackend and toClient are both directions.
	toBackend, toClient flow
	state               pairState
	queued              bool // in loop.again
	keptAlive           bool
	slot                int32
	until               int64 // the end of the present wait, by the coarse clock
	moved               int64 // when bytes have moved last, by the coarse clock
	list                *pairs
	before, after       *Pair
}

// socketEnd is one of the sockets of a Pair.
type socketEnd struct {
	fd       int32 // -1 where there is none
	side     Side
	readable bool // a read may find something
	// toEnd: reads go on until one finds nothing, since the end of the stream, or urgent data, may follow what a read has brought. Else one that does not
	// fill its memory has taken all, and the poller tells of what comes next.
	toEnd    bool
	closing  bool // it sends no more, of which not all may have been read
	ended    bool // it has sent its last, and that was read
	writable bool // the poller tells when it takes more
}

// flow is one direction of a Pair. It holds memory or a pipe only while its sink does not take what it is sent.
type flow struct {
	held  *buffer.Buffer
	at, n int // held[at:n] is to be sent
	pipe  *splice.Pipe
	since int64 // since when the sink has not taken what is held, by the coarse clock
	sent  int64
	much  bool // the last read has brought so much that splicing is cheaper
}

// Add takes over a client's socket, which must not block, and returns the error with which that was not possible; the socket remains the caller's then.
func (l *Loop) Add(p *Pair, h Handler, fd int) error {
	if err := l.start(); err != nil {
		return err
	}
	*p = Pair{loop: l, handler: h, client: socketEnd{fd: int32(fd), side: Client}, backend: socketEnd{fd: -1, side: Backend}}
	if n := len(l.free); n > 0 {
		p.slot = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		p.slot = int32(len(l.slots))
		l.slots = append(l.slots, slot{})
	}
	g := l.newGeneration()
	l.slots[p.slot] = slot{p, [2]uint32{g, g}}
	if err := p.control(unix.EPOLL_CTL_ADD, &p.client, ofInput); err != nil {
		l.forget(p)
		return err
	}
	return nil
}

// start makes the set where there is none.
func (l *Loop) start() error {
	if l.set == nil && l.failed == nil {
		l.set, l.failed = epoll.OpenBatch(l.report)
		l.input = make([]byte, loopInput)
	}
	return l.failed
}

// newGeneration returns one that no socket has.
func (l *Loop) newGeneration() uint32 {
	l.last = (l.last + 1) & (1<<31 - 1)
	return l.last
}

// forget gives up the slot of a pair.
func (l *Loop) forget(p *Pair) {
	l.slots[p.slot].pair = nil
	if l.free = append(l.free, p.slot); len(l.free) == len(l.slots) && len(l.slots) > keepSlots {
		l.slots, l.free = nil, nil
	}
}

const (
	ofInput  = unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLET
	ofOutput = ofInput | unix.EPOLLOUT
)

func (p *Pair) control(op int, s *socketEnd, events uint32) error {
	e := p.eventOf(s, events)
	return watch(p.loop.set.FD, op, s.fd, &e)
}

// eventOf is how the poller tells of events of a socket.
func (p *Pair) eventOf(s *socketEnd, events uint32) unix.EpollEvent {
	side := int32(0)
	if s == &p.backend {
		side = 1
	}
	return unix.EpollEvent{Events: events, Fd: p.slot, Pad: int32(p.loop.slots[p.slot].generations[side]<<1) | side}
}

// enter puts the pair into a list, and takes it out of the one that it is in.
func (p *Pair) enter(list *pairs) {
	if p.list != nil {
		p.list.remove(p)
	}
	list.add(p)
}

// Handler is who is told of the pair.
func (p *Pair) Handler() Handler { return p.handler }

// AwaitHello has the handler told of what the client sends first, which stays unread, until a moment of the coarse clock.
func (p *Pair) AwaitHello(until int64) {
	p.state, p.until = pairAwaiting, until
	p.enter(&p.loop.hello)
}

// Dial begins to make the connection to the backend, which must be there at a moment of the coarse clock. Handler.Dialled follows, unless the error tells
// that there will be none.
func (p *Pair) Dial(to netip.AddrPort, until int64) error {
	p.state, p.until = pairDialling, until
	p.enter(&p.loop.dialling)
	fd, err := connect(to)
	if err != nil {
		return err
	}
	p.backend.fd, p.backend.writable = fd, true
	// What is known already of the socket of an earlier dial is not about this one.
	p.loop.slots[p.slot].generations[1] = p.loop.newGeneration()
	if err := p.control(unix.EPOLL_CTL_ADD, &p.backend, ofOutput); err != nil {
		p.closeBackend(false)
		return err
	}
	return nil
}

// BackendAddr is the address by which the backend's socket is known to the backend.
func (p *Pair) BackendAddr() netip.AddrPort { return localAddr(p.backend.fd) }

// ClientAddr is the address by which the client knows its end.
func (p *Pair) ClientAddr() netip.AddrPort { return localAddr(p.client.fd) }

func (p *Pair) dialFailed(err error) {
	p.closeBackend(false)
	p.handler.Dialled(err)
}

// dialled begins to move bytes, unless the handler does not want that.
func (p *Pair) dialled() {
	if p.handler.Dialled(nil); p.state != pairDialling {
		return
	}
	p.state, p.moved = pairJoined, p.loop.options.Now()
	p.enter(&p.loop.active)
	p.move(&p.toBackend)
	p.move(&p.toClient)
}

// GiveUp takes the client's socket out of the loop, for the caller, as if it had never been in it.
func (p *Pair) GiveUp() (fd int) {
	// Its description may stay open by another descriptor.
	_ = watch(p.loop.set.FD, unix.EPOLL_CTL_DEL, p.client.fd, nil)
	fd = int(p.client.fd)
	p.client.fd = -1
	p.closeBackend(true)
	p.leave()
	return fd
}

// leave follows what the pair has done.
func (p *Pair) leave() {
	p.state = pairEnded
	if p.list != nil {
		p.list.remove(p)
	}
	p.loop.forget(p)
}

// Fail ends the pair; both ends see that what they were sent is not complete. It does nothing where it has ended already.
func (p *Pair) Fail(side Side, err error) { p.fail(side, err) }

func (p *Pair) fail(side Side, err error) { p.end(End{Failed: side, Err: err}) }

func (p *Pair) end(e End) {
	if p.state == pairEnded {
		return
	}
	p.toBackend.drop()
	p.toClient.drop()
	if e.Err != nil && p.client.fd >= 0 {
		resetOnClose(p.client.fd)
	}
	if p.client.fd >= 0 {
		closeSocket(p.client.fd)
	}
	p.client.fd = -1
	p.closeBackend(e.Err != nil)
	p.leave()
	e.ToBackend, e.ToClient = p.toBackend.sent, p.toClient.sent
	p.handler.Ended(e)
}

func (p *Pair) closeBackend(reset bool) {
	if p.backend.fd < 0 {
		return
	}
	if reset {
		resetOnClose(p.backend.fd)
	}
	closeSocket(p.backend.fd)
	p.backend = socketEnd{fd: -1, side: Backend}
}

// keepAlive has the system ask the backend from now on, when it is silent, whether it is still there. The client's socket has that from the one which has
// accepted it.
func (p *Pair) keepAlive() {
	if p.keptAlive {
		return
	}
	p.keptAlive = true
	fd := p.backend.fd
	// Without these a vanished backend is noticed later, nothing else.
	setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 30)
	setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10)
	setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 6)
	setOption(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
}

// Used returns when bytes have last moved, by the coarse clock; false where no connection to a backend is there.
func (p *Pair) Used() (ms int64, joined bool) { return p.moved, p.state == pairJoined }

// Awaits returns until when the client's hello is awaited, by the coarse clock; false where it is not.
func (p *Pair) Awaits() (until int64, awaits bool) { return p.until, p.state == pairAwaiting }

// Stuck returns since when an end has not taken what it was sent, by the coarse clock; false where both have.
func (p *Pair) Stuck() (ms int64, stuck bool) {
	for _, d := range [...]*flow{&p.toBackend, &p.toClient} {
		if d.holds() && (!stuck || d.since < ms) {
			ms, stuck = d.since, true
		}
	}
	return ms, stuck
}

// Held is how many bytes the pair holds, or may hold.
func (p *Pair) Held() (bytes int) {
	for _, d := range [...]*flow{&p.toBackend, &p.toClient} {
		if d.holds() {
			bytes += buffer.Size
		}
	}
	return bytes
}

// event takes up what the poller tells of a socket.
func (p *Pair) event(s *socketEnd, events uint32) {
	if events&(unix.EPOLLIN|unix.EPOLLPRI|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		s.readable = true
		s.closing = s.closing || events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
		s.toEnd = s.toEnd || s.closing || events&unix.EPOLLPRI != 0
	}
	broken := events&(unix.EPOLLERR|unix.EPOLLHUP) != 0
	switch p.state {
	case pairAwaiting:
		if broken {
			p.fail(Client, socketError(s))
		} else {
			p.peek()
		}
	case pairDialling:
		switch {
		case s == &p.client && broken:
			p.fail(Client, socketError(s))
		case s == &p.client:
		case broken:
			p.dialFailed(socketError(s))
		case events&unix.EPOLLOUT != 0:
			p.dialled()
		}
	case pairJoined:
		if s.ended && events&unix.EPOLLERR != 0 { // nothing is read there any more that would tell
			p.fail(s.side, socketError(s))
			return
		}
		in, out := &p.toBackend, &p.toClient // from s, and to it
		if s == &p.backend {
			in, out = out, in
		}
		p.move(in)
		if p.state == pairJoined && events&unix.EPOLLOUT != 0 && out.holds() {
			p.move(out)
		}
	}
}

// socketError takes the error of a socket that has one, or was reset.
func socketError(s *socketEnd) error {
	if v, err := unix.GetsockoptInt(int(s.fd), unix.SOL_SOCKET, unix.SO_ERROR); err == nil && v != 0 {
		return syscall.Errno(v)
	}
	return syscall.ECONNRESET
}

// peek shows the handler what the client has sent, and leaves it there.
func (p *Pair) peek() {
	n, errno := receive(p.client.fd, p.loop.input, unix.MSG_PEEK)
	switch {
	case errno == unix.EAGAIN:
	case errno != 0:
		p.fail(Client, errno)
	case n == 0:
		p.fail(Client, io.EOF)
	default:
		last := p.client.closing // a client that has sent its last sends no more of its hello
		if p.handler.Hello(p.loop.input[:n]); last && p.state == pairAwaiting {
			p.fail(Client, io.ErrUnexpectedEOF)
		}
	}
}

// ends returns the source and the sink of a direction.
func (p *Pair) ends(d *flow) (from, to *socketEnd) {
	if d == &p.toBackend {
		return &p.client, &p.backend
	}
	return &p.backend, &p.client
}

// move moves what has come in a direction, as far as its sink takes it.
func (p *Pair) move(d *flow) {
	if p.state != pairJoined {
		return
	}
	from, to := p.ends(d)
	for turn := 0; ; turn++ {
		switch {
		case d.holds() && !p.flush(d, to), from.ended, !from.readable:
			return
		case turn == turns:
			if !p.queued {
				p.queued = true
				p.loop.again = append(p.loop.again, p)
			}
			return
		}
		if !p.take(d, from, to) {
			return
		}
	}
}

// take reads once, and sends that on. False is that the pair has ended.
func (p *Pair) take(d *flow, from, to *socketEnd) bool {
	if d.much {
		if done, ok := p.splice(d, from, to); done {
			return ok
		}
	}
	b := p.loop.input
	n, errno := receive(from.fd, b, 0)
	switch {
	case errno == unix.EAGAIN:
		from.readable, d.much = false, false
		return true
	case errno != 0:
		p.fail(from.side, errno)
		return false
	case n == 0:
		return p.finish(from, to)
	}
	if n < len(b) && !from.toEnd {
		from.readable = false
	}
	d.much = n >= splice.Worth
	p.touch()
	return p.send(d, to, b[:n])
}

// splice moves what has come without copying it. done is false where nothing was moved, and a read tells why.
func (p *Pair) splice(d *flow, from, to *socketEnd) (done, ok bool) {
	pipe := splice.Take()
	if pipe == nil {
		return false, true
	}
	n, errno := pipe.Fill(uintptr(from.fd), splice.Most)
	switch {
	case errno == unix.EAGAIN && !from.toEnd:
		splice.Give(pipe)
		from.readable, d.much = false, false
		return true, true
	case errno == unix.EAGAIN: // or there is urgent data, which a read steps over
		splice.Give(pipe)
		d.much = false
		return false, true
	case errno == unix.EINVAL, errno == unix.ENOSYS, errno == unix.EPERM, errno == 0 && n == 0:
		splice.Give(pipe)
		d.much = false
		return false, true
	case errno != 0:
		splice.Give(pipe)
		p.fail(from.side, errno)
		return true, false
	}
	d.much = n >= splice.Worth
	d.pipe, d.since = pipe, p.loop.options.Now()
	p.touch()
	p.flush(d, to)
	return true, p.state == pairJoined
}

// finish passes on that a source has sent its last, and ends the pair where the other one has, too. False is that it has ended. Neither direction holds anything
// from its finish on, since nothing is read before the sink has taken what is held, nor after the last.
func (p *Pair) finish(from, to *socketEnd) bool {
	from.ended = true
	if to.ended {
		p.end(End{}) // the close tells the sink as well
		return false
	}
	if err := closeWrite(to.fd); err != nil {
		p.fail(to.side, err)
		return false
	}
	p.touch()
	return true
}

// touch notes that bytes have moved.
func (p *Pair) touch() {
	now := p.loop.options.Now()
	if l := p.list; l == &p.loop.resting || l == &p.loop.active && p.moved != now {
		p.enter(&p.loop.active)
	}
	p.moved = now
}

// send sends what was read; what the sink does not take is held. False is that the pair has ended.
func (p *Pair) send(d *flow, to *socketEnd, b []byte) bool {
	n, errno := transmit(to.fd, b)
	d.sent += int64(n)
	if errno != 0 && errno != unix.EAGAIN {
		p.fail(to.side, errno)
		return false
	}
	if n == len(b) {
		return true
	}
	d.held = buffer.Take()
	d.at, d.n = 0, copy(d.held.Bytes(), b[n:])
	d.since = p.loop.options.Now()
	return p.block(to)
}

// holds reports whether there is something that the sink has not taken.
func (d *flow) holds() bool { return d.held != nil || d.pipe != nil }

// drop gives up what the sink has not taken.
func (d *flow) drop() {
	if d.held != nil {
		buffer.Give(d.held)
	}
	if d.pipe != nil {
		splice.Give(d.pipe)
	}
	d.held, d.pipe = nil, nil
}

// block has the poller tell when a sink takes more. False is that the pair has ended.
func (p *Pair) block(to *socketEnd) bool {
	if p.list != &p.loop.stuck {
		p.enter(&p.loop.stuck)
	}
	if to.writable {
		return true
	}
	// Where there is room by now the poller tells so at once.
	if err := p.control(unix.EPOLL_CTL_MOD, to, ofOutput); err != nil {
		p.fail(Neither, err)
		return false
	}
	to.writable = true
	return true
}

// flush sends what is held, and reports whether the sink has taken it all.
func (p *Pair) flush(d *flow, to *socketEnd) bool {
	errno := syscall.Errno(0)
	if d.pipe != nil {
		for before := d.pipe.Held(); errno == 0 && before > 0; before = d.pipe.Held() {
			errno = d.pipe.Drain(uintptr(to.fd))
			d.sent += int64(before - d.pipe.Held())
		}
	} else {
		n := 0
		n, errno = transmit(to.fd, d.held.Bytes()[d.at:d.n])
		d.at += n
		d.sent += int64(n)
	}
	switch {
	case errno == unix.EAGAIN:
		p.block(to)
		return false
	case errno != 0:
		p.fail(to.side, errno)
		return false
	}
	d.drop()
	if p.list == &p.loop.stuck && !p.toClient.holds() && !p.toBackend.holds() {
		p.enter(&p.loop.active)
	}
	p.moved = p.loop.options.Now()
	return true
}
