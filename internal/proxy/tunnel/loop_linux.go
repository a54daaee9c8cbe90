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

// Loop moves the bytes of tunnels between two sockets without TLS, all on one goroutine: a tunnel has neither a
// goroutine nor a timer of its own. Its descriptors are watched by an epoll set only, not by the runtime's poller.
//
// A method of a Pair must be called with the Loop locked, in Locked or in a method of Handler.
type Loop struct {
	options LoopOptions
	// idle and untaken are Idle and Untaken of options in milliseconds.
	idle, untaken int64

	mu     sync.Mutex
	set    *epoll.Set // nil before the first pair
	failed error      // why the set could not be created, or os.ErrClosed after Close
	slots  []slot
	free   []int32
	last   uint32  // generation of the socket that was added last
	at     *Pair   // the pair that is being handled
	again  []*Pair // pairs with more data, for which other pairs should not wait
	input  []byte  // read buffer; it holds nothing between reads

	// The pairs by state. active and resting are sorted by when bytes last moved.
	hello, dialling, active, resting, stuck pairs
}

// slot identifies a pair in events. generations are those of the client's and of the backend's socket: an event is only
// valid if it has the current generation of its socket.
type slot struct {
	pair        *Pair
	generations [2]uint32
}

const (
	// loopInput is the size of one read in bytes.
	loopInput = buffer.Size
	// turns is how many reads of a direction follow each other before other pairs are handled.
	turns = 4
	// keepSlots is the largest number of slots that are kept when there is no pair.
	keepSlots = 1024
)

// NewLoop creates a Loop. Close must be called in the end.
func NewLoop(o LoopOptions) *Loop {
	return &Loop{options: o, idle: o.Idle.Milliseconds(), untaken: o.Untaken.Milliseconds()}
}

// Close ends the goroutine. There must be no pairs, and none may be added afterwards.
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

// TryLocked is like Locked, but if the lock is held it does nothing and returns false.
func (l *Loop) TryLocked(f func()) bool {
	if !l.mu.TryLock() {
		return false
	}
	defer l.mu.Unlock()
	f()
	return true
}

// Each calls f for all pairs. f must not end any.
func (l *Loop) Each(f func(*Pair)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.slots {
		if s.pair != nil {
			f(s.pair)
		}
	}
}

// EndAll fails all pairs with err, which counts as the error of neither end.
func (l *Loop) EndAll(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.slots {
		if s.pair != nil {
			s.pair.fail(Neither, err)
		}
	}
}

// Sweep ends pairs that have waited too long, by the coarse clock. It is called a few times a second. gone returns an
// error for a pair whose endpoint no longer exists.
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
	rest := min(keepAliveAfter.Milliseconds(), l.idle)
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

// pairs is a doubly linked list of Pairs.
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

// report handles events. again means that there is more to do, so that it must be called again soon.
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

// recovered is deferred where a panic must only end the current pair.
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

// resume continues with a pair that had more data.
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

// pairState is the state of a Pair.
type pairState uint8

const (
	pairAdded    pairState = iota // nothing is done yet
	pairAwaiting                  // the client's first bytes are examined as they arrive
	pairDialling                  // a connection to the backend is being made
	pairJoined                    // bytes are being moved
	pairEnded
)

// Pair is two sockets of a Loop that are joined, or are to be joined.
type Pair struct {
	loop            *Loop
	handler         Handler
	client, backend socketEnd
	// toBackend and toClient are the two directions.
	toBackend, toClient flow
	state               pairState
	queued              bool // in loop.again
	keptAlive           bool
	slot                int32
	until               int64 // end of the current wait, by the coarse clock
	moved               int64 // when bytes last moved, by the coarse clock
	list                *pairs
	before, after       *Pair
}

// socketEnd is one of the sockets of a Pair.
type socketEnd struct {
	fd       int32 // -1 if there is none
	side     Side
	readable bool // a read may return something
	// toEnd means that reads continue until one returns EAGAIN, since the end of the stream or urgent data may follow.
	// Otherwise a read that does not fill the buffer has taken everything, and the poller reports what arrives next.
	toEnd    bool
	closing  bool // the peer sends no more, but not everything may have been read
	ended    bool // the end of the stream was read
	writable bool // the poller reports when the socket takes more
}

// flow is one direction of a Pair. It holds a buffer or a pipe only while its sink does not take what it is sent.
type flow struct {
	held  *buffer.Buffer
	at, n int // held[at:n] is to be sent
	pipe  *splice.Pipe
	since int64 // since when the sink has not taken what is held, by the coarse clock
	sent  int64
	much  bool // the last read returned so much that splicing is cheaper
}

// Add takes over a client's socket, which must be non-blocking. If it returns an error, the socket still belongs to the
// caller.
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

// start creates the set if there is none.
func (l *Loop) start() error {
	if l.set == nil && l.failed == nil {
		l.set, l.failed = epoll.OpenBatch(l.report)
		l.input = make([]byte, loopInput)
	}
	return l.failed
}

// newGeneration returns a generation that no socket has.
func (l *Loop) newGeneration() uint32 {
	l.last = (l.last + 1) & (1<<31 - 1)
	return l.last
}

// forget releases the slot of a pair.
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

// eventOf returns the event by which the poller identifies a socket.
func (p *Pair) eventOf(s *socketEnd, events uint32) unix.EpollEvent {
	side := int32(0)
	if s == &p.backend {
		side = 1
	}
	return unix.EpollEvent{Events: events, Fd: p.slot, Pad: int32(p.loop.slots[p.slot].generations[side]<<1) | side}
}

// enter moves the pair to a list.
func (p *Pair) enter(list *pairs) {
	if p.list != nil {
		p.list.remove(p)
	}
	list.add(p)
}

// Handler returns the handler of the pair.
func (p *Pair) Handler() Handler { return p.handler }

// AwaitHello makes Handler.Hello be called with what the client sends first, which stays unread, until a time of the
// coarse clock.
func (p *Pair) AwaitHello(until int64) {
	p.state, p.until = pairAwaiting, until
	p.enter(&p.loop.hello)
}

// Dial begins the connection to the backend, which must be made by a time of the coarse clock. Handler.Dialled is
// called afterwards, unless Dial returns an error.
func (p *Pair) Dial(to netip.AddrPort, until int64) error {
	p.state, p.until = pairDialling, until
	p.enter(&p.loop.dialling)
	fd, err := connect(to)
	if err != nil {
		return err
	}
	p.backend.fd, p.backend.writable = fd, true
	// Pending events of the socket of an earlier dial must not apply to this one.
	p.loop.slots[p.slot].generations[1] = p.loop.newGeneration()
	if err := p.control(unix.EPOLL_CTL_ADD, &p.backend, ofOutput); err != nil {
		p.closeBackend(false)
		return err
	}
	return nil
}

// BackendAddr returns the local address of the socket to the backend.
func (p *Pair) BackendAddr() netip.AddrPort { return localAddr(p.backend.fd) }

// ClientAddr returns the local address of the client's socket.
func (p *Pair) ClientAddr() netip.AddrPort { return localAddr(p.client.fd) }

func (p *Pair) dialFailed(err error) {
	p.closeBackend(false)
	p.handler.Dialled(err)
}

// dialled begins to move bytes, unless the handler has ended the pair.
func (p *Pair) dialled() {
	if p.handler.Dialled(nil); p.state != pairDialling {
		return
	}
	p.state, p.moved = pairJoined, p.loop.options.Now()
	p.enter(&p.loop.active)
	p.move(&p.toBackend)
	p.move(&p.toClient)
}

// GiveUp removes the client's socket from the loop and returns it to the caller, as if it had never been in the loop.
func (p *Pair) GiveUp() (fd int) {
	// The file description may stay open through another descriptor.
	_ = watch(p.loop.set.FD, unix.EPOLL_CTL_DEL, p.client.fd, nil)
	fd = int(p.client.fd)
	p.client.fd = -1
	p.closeBackend(true)
	p.leave()
	return fd
}

// leave removes the pair, which has ended, from the loop.
func (p *Pair) leave() {
	p.state = pairEnded
	if p.list != nil {
		p.list.remove(p)
	}
	p.loop.forget(p)
}

// Fail ends the pair with a reset, so that both ends see that what they were sent is not complete. It does nothing if
// the pair has ended already.
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

// keepAlive enables TCP keep-alive for the backend's socket. The client's socket has inherited it from the listening
// socket.
func (p *Pair) keepAlive() {
	if p.keptAlive {
		return
	}
	p.keptAlive = true
	fd := p.backend.fd
	// Without these, only the loss of the backend is detected later.
	setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 30)
	setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10)
	setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 6)
	setOption(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
}

// Used returns when bytes last moved, by the coarse clock. It returns false if there is no connection to a backend.
func (p *Pair) Used() (ms int64, joined bool) { return p.moved, p.state == pairJoined }

// Awaits returns until when the client's hello is awaited, by the coarse clock. It returns false if it is not awaited.
func (p *Pair) Awaits() (until int64, awaits bool) { return p.until, p.state == pairAwaiting }

// Stuck returns since when an end has not taken what it was sent, by the coarse clock. It returns false if both ends
// have taken everything.
func (p *Pair) Stuck() (ms int64, stuck bool) {
	for _, d := range [...]*flow{&p.toBackend, &p.toClient} {
		if d.holds() && (!stuck || d.since < ms) {
			ms, stuck = d.since, true
		}
	}
	return ms, stuck
}

// Held returns an upper bound of the bytes that the pair holds.
func (p *Pair) Held() (bytes int) {
	for _, d := range [...]*flow{&p.toBackend, &p.toClient} {
		if d.holds() {
			bytes += buffer.Size
		}
	}
	return bytes
}

// event handles the poller's events of a socket.
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
		if s.ended && events&unix.EPOLLERR != 0 { // nothing is read there any more that would return the error
			p.fail(s.side, socketError(s))
			return
		}
		in, out := &p.toBackend, &p.toClient // from s, and to s
		if s == &p.backend {
			in, out = out, in
		}
		p.move(in)
		if p.state == pairJoined && events&unix.EPOLLOUT != 0 && out.holds() {
			p.move(out)
		}
	}
}

// socketError returns and clears the error of a socket that has one, or was reset.
func socketError(s *socketEnd) error {
	if v, err := unix.GetsockoptInt(int(s.fd), unix.SOL_SOCKET, unix.SO_ERROR); err == nil && v != 0 {
		return syscall.Errno(v)
	}
	return syscall.ECONNRESET
}

// peek passes what the client has sent to the handler without consuming it.
func (p *Pair) peek() {
	n, errno := receive(p.client.fd, p.loop.input, unix.MSG_PEEK)
	switch {
	case errno == unix.EAGAIN:
	case errno != 0:
		p.fail(Client, errno)
	case n == 0:
		p.fail(Client, io.EOF)
	default:
		last := p.client.closing // a client that has ended its stream sends no more of its hello
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

// move moves what has arrived in a direction, as far as its sink takes it.
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

// take reads once and sends the data on. It returns false if the pair has ended.
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

// splice moves what has arrived without copying it. done is false if nothing was moved, and a read must find out why.
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
	case errno == unix.EAGAIN: // or there is urgent data, which a read skips
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

// finish passes on the end of a source's stream, and ends the pair if the other side has ended too. It returns false if
// the pair has ended. Afterwards neither direction holds data for that sink, since nothing is read before the sink has
// taken what is held, nor after the end.
func (p *Pair) finish(from, to *socketEnd) bool {
	from.ended = true
	if to.ended {
		p.end(End{}) // closing the socket also ends the stream to the sink
		return false
	}
	if err := closeWrite(to.fd); err != nil {
		p.fail(to.side, err)
		return false
	}
	p.touch()
	return true
}

// touch records that bytes have moved.
func (p *Pair) touch() {
	now := p.loop.options.Now()
	if l := p.list; l == &p.loop.resting || l == &p.loop.active && p.moved != now {
		p.enter(&p.loop.active)
	}
	p.moved = now
}

// send sends what was read, and holds what the sink does not take. It returns false if the pair has ended.
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

// holds reports whether there is data that the sink has not taken.
func (d *flow) holds() bool { return d.held != nil || d.pipe != nil }

// drop discards what the sink has not taken.
func (d *flow) drop() {
	if d.held != nil {
		buffer.Give(d.held)
	}
	if d.pipe != nil {
		splice.Give(d.pipe)
	}
	d.held, d.pipe = nil, nil
}

// block makes the poller report when a sink takes more. It returns false if the pair has ended.
func (p *Pair) block(to *socketEnd) bool {
	if p.list != &p.loop.stuck {
		p.enter(&p.loop.stuck)
	}
	if to.writable {
		return true
	}
	// If there is room by now, the poller reports it at once.
	if err := p.control(unix.EPOLL_CTL_MOD, to, ofOutput); err != nil {
		p.fail(Neither, err)
		return false
	}
	to.writable = true
	return true
}

// flush sends what is held, and reports whether the sink has taken all of it.
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
