package http2

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
	"github.com/moongate-dev/moongate/internal/proxy/http2/writesched"
)

// Preface is what a client's connection begins with (RFC 9113 section 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Conn is one connection: in the server's role by New, in the client's inside a Client.
type Conn struct {
	nc     net.Conn
	o      Options
	handle func(*Stream) // the server's role only
	client *Client       // nil in the server's role
	start  time.Time
	// sizeSaid: the client knows that our heads use no dynamic table.
	sizeSaid atomic.Bool
	handlers sync.WaitGroup
	asides   sync.WaitGroup // goroutines of writeAside
	aside    func()

	in readBuffer // the reader's alone; without memory before Serve and while the connection rests

	mu sync.Mutex
	// From here on guarded by mu.

	input
	watch
	decoder *hpack.Decoder // nil before the first header block

	streams     map[uint32]*Stream // that somebody uses, handlers or callers of Client.Open
	open        int                // of them, those that are open by the protocol
	suspendable int                // of streams, those that were opened with ClientRequest.Suspends and are not suspended
	lastID      uint32             // the highest that the client has used, be it the peer or us
	closed      closedStreams

	controls, resets floodLimiter

	recvWindow int // what the peer may still send
	widened    int // by how much windows of streams are larger than those that streams begin with
	consumed   int // what was dealt with and not yet told by WINDOW_UPDATE
	// initialWindow is what new streams may send.
	initialWindow, sendWindow int

	workers    workerPool
	queue      writesched.Scheduler[Stream]
	out        []byte                    // control frames to be written before anything else
	writing    bool                      // a goroutine is the writer, or was told to be
	direct     func([]byte) (int, error) // see writeDirect; nil where it cannot be
	idle       sync.Cond                 // writing has become false
	writeLimit time.Time
	writeBegan int64 // when the write began that is under way, in Unix milliseconds; 0 where none is
	// gathered goes out with the next write, and begins in gathering; both are nil where there is nothing
	// yet. Streams add to it while another goroutine is the writer, and need not wait for that.
	gathered  []byte
	gathering *[batchSize]byte
	filled    int64 // bytes that were put into batches
	wrote     int64 // and of them, those that nc has taken
	rest      rest
	broken    bool                // a write has failed
	starving  map[uint32]starving // what EndStarved has seen
	over      bool                // all streams are gone
	hasty     bool                // ended by EndIfIdle
	cause     error               // why, if it was a write
}

// New makes a connection of nc, on which nothing happens before Serve. handle is run on a
// goroutine of its own for each request. When it returns, a response that it has not
// ended is reset with INTERNAL_ERROR, and what is left of the request is refused; the
// stream must not be used any more.
func New(nc net.Conn, o Options, handle func(*Stream)) *Conn {
	c := newConn(nc, o)
	c.handle = handle
	c.workers.do = c.carryOut
	c.out = appendPreface(nil, &c.o, false)
	return c
}

func newConn(nc net.Conn, o Options) *Conn {
	c := &Conn{nc: nc, o: o.withDefaults(), start: time.Now(), streams: map[uint32]*Stream{}}
	c.aside = c.writeAside
	c.idle.L = &c.mu
	c.controls = newFloodLimiter(controlBurst, controlRate)
	c.resets = newFloodLimiter(resetBurst*costReset, resetRate*costReset)
	c.initialWindow, c.sendWindow = frame.DefaultWindow, frame.DefaultWindow
	c.recvWindow = max(c.o.ConnWindow, frame.DefaultWindow)
	return c
}

// Serve runs the connection to its end, when all handlers have returned and nc is closed.
// prior is what was read from nc already, beginning with the Preface. The error is nil
// where the connection was idle or drained or the client closed it while no stream was
// open, a *ConnError for what was told to the client, or else one of the network; or it is ErrRests.
func (c *Conn) Serve(prior []byte) error {
	err := c.serve(prior)
	if err != ErrRests {
		c.handlers.Wait()
	}
	return err
}

func (c *Conn) serve(prior []byte) error {
	err := c.readSafely(prior)
	if err == ErrRests {
		return err
	}
	var told *ConnError
	sayGoAway := err == nil || errors.As(err, &told)
	if err == errEnd {
		err = nil
	}
	polite := c.tearDown(told, sayGoAway)
	if polite && c.client == nil {
		c.linger()
	}
	c.nc.Close()
	c.asides.Wait()
	return err
}

// tearDown ends all streams and, with sayGoAway, sends GOAWAY. It reports whether the peer should be given time to close.
func (c *Conn) tearDown(told *ConnError, sayGoAway bool) (polite bool) {
	c.mu.Lock()
	defer c.unlock()
	c.in.shrink()
	cause := ErrClosed
	if told != nil {
		cause = told
		c.out = frame.AppendGoAway(c.out, c.lastPeer(), told.Code, told.Why)
	} else if sayGoAway && (c.draining != drainRefuse || c.client != nil) {
		c.out = frame.AppendGoAway(c.out, c.lastPeer(), NoError, "")
	}
	c.die(cause)
	c.workers.stop(c.workers.n)
	c.nc.SetWriteDeadline(time.Now().Add(c.o.Timeouts.Linger))
	if sayGoAway {
		c.push()
	}
	for c.writing {
		c.idle.Wait()
	}
	return sayGoAway && !c.broken && !c.hasty
}

// lastPeer is what GOAWAY gives as the last stream of the peer that was or might be carried out. It never rises from one
// GOAWAY to the next (RFC 9113 section 6.8).
func (c *Conn) lastPeer() uint32 {
	switch {
	case c.client != nil:
		return 0
	case c.draining == drainRefuse:
		return c.refusedAbove
	}
	return c.lastID
}

// ignored reports whether the client has opened the stream after the second GOAWAY, whether or not it knew of it.
// Its frames are dropped, but for what the connection's flow control and header table need (RFC 9113 section 6.8).
func (c *Conn) ignored(id uint32) bool {
	return c.client == nil && c.draining == drainRefuse && id > c.refusedAbove && id%2 == 1
}

// LingerBytes is how much of what a client still sends is read at least when its connection ends. More is read until the client has acknowledged the last response, but for
// no longer than Timeouts.Linger.
const LingerBytes = 1 << 20

// linger throws away what the client still sends: closing with unread bytes would reset the
// connection and could take GOAWAY and responses with it.
func (c *Conn) linger() {
	type closeWriter interface{ CloseWrite() error }
	if w, ok := c.nc.(closeWriter); !ok || w.CloseWrite() != nil {
		return
	}
	c.nc.SetReadDeadline(time.Now().Add(c.o.Timeouts.Linger))
	for left := LingerBytes; left > 0 || c.o.Unacknowledged != nil && c.o.Unacknowledged() > 0; {
		n, err := c.nc.Read(c.in.small)
		if err != nil {
			return
		}
		left -= n
	}
}

// Drain ends the connection without harm to requests (RFC 9113 section 6.8): it announces that
// no more streams are wanted, then, when the client has had time to learn
// that, refuses new ones, and ends when those that are open have. It returns at once, may be
// called from any goroutine, and again.
func (c *Conn) Drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining != drainNot || c.over {
		return
	}
	c.draining, c.drainAt = drainAnnounced, c.clock()
	c.out = frame.AppendGoAway(c.out, frame.MaxStreamID, NoError, "")
	c.out = frame.AppendPing(c.out, 0, pingOfDrain)
	c.pushAside()
	c.wakeReader()
}

// Idle reports whether the connection has had no stream for so long at least, and whether it was used before: then the end of a response
// may still be on its way.
func (c *Conn) Idle(least time.Duration) (idle, used bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idles(least), c.lastID != 0
}

// idles reports whether the connection goes on and has had no stream for so long at least. mu is held.
func (c *Conn) idles(least time.Duration) bool {
	return !c.over && !c.hasty && len(c.streams) == 0 && !(c.block.open && c.block.kind == blockHeader) && c.clock()-c.idleAt >= least.Milliseconds()
}

// EndIfIdle ends the connection, without waiting for the client, if it has had no stream for so long at least, and reports whether it
// does. It returns at once and may be called from any goroutine.
func (c *Conn) EndIfIdle(least time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.idles(least) {
		return false
	}
	c.hasty = true
	if c.draining != drainRefuse {
		c.refuseMore()
	}
	c.wakeReader()
	return true
}

// Resume gives the streams' windows back what was withheld while Options.Scarce was true. It returns at once and may be called from any
// goroutine.
func (c *Conn) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		if s.err == nil {
			s.credit(0)
		}
	}
	c.pushAside()
}

// kept is how many bytes of a request body that were read may still be held, to be sent again.
const kept = 64 << 10

// Held is how many bytes of request bodies the connection holds, or may hold: of a body of which the response has begun, which is not sent
// again, what its reader has taken since it last waited for more, and nothing once it has ended.
func (c *Conn) Held() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		waiting := s.body.len()
		read := s.received - int64(waiting)
		switch {
		case !s.answered:
		case s.remoteEnded && waiting == 0 || s.err != nil:
			read = 0
		default:
			read -= s.passed
		}
		n += waiting + int(min(read, kept))
	}
	return n
}

// WritingSince is since when the client has not taken what one write to its socket carries, in Unix milliseconds; 0 where nothing is written.
func (c *Conn) WritingSince() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeBegan
}

// Close ends the connection at once. It may be called from any goroutine.
func (c *Conn) Close() { c.nc.Close() }

// clock is milliseconds since the connection began.
func (c *Conn) clock() int64 { return time.Since(c.start).Milliseconds() }

// die ends all streams.
func (c *Conn) die(cause error) {
	if c.over {
		return
	}
	c.over, c.cause = true, cause
	for _, s := range c.streams {
		switch {
		case s.err != nil:
		case s.of != nil:
			c.fail(s, cause)
		default:
			s.err = ErrClosed
			c.drop(s)
		}
	}
}

// drop lets go of what a stream that is gone has waiting, and tells those who wait for it.
func (c *Conn) drop(s *Stream) {
	s.entry.Leave()
	if !(s.remoteEnded && s.localEnded) {
		c.open--
	}
	s.body.clear()
	s.wakeReader()
	s.writable.send()
	s.tellGone()
}

// firstWindow is the window that the peer's part of a stream begins with.
func (c *Conn) firstWindow() int { return firstWindow(&c.o, c.client != nil) }

// resetStream sends RST_STREAM for a stream that is open.
func (c *Conn) resetStream(s *Stream, code Code) { c.resetStreamFor(s, code, &ResetError{Code: code}) }

// resetStreamFor is resetStream, and cause is why the stream is gone.
func (c *Conn) resetStreamFor(s *Stream, code Code, cause error) {
	if s.err != nil || s.remoteEnded && s.localEnded {
		return
	}
	if !s.unsent {
		c.out = frame.AppendReset(c.out, s.id, code)
	}
	s.err = cause
	c.drop(s)
}

// endLocal notes that END_STREAM is on its way.
func (c *Conn) endLocal(s *Stream) {
	s.localEnded = true
	if s.remoteEnded {
		c.open--
	}
}

// endRemote notes that END_STREAM has come.
func (c *Conn) endRemote(s *Stream) {
	s.remoteEnded = true
	if s.localEnded {
		c.open--
	}
	s.wakeReader()
}

// carryOut runs the stream's handler, and reports whether its worker is to wait for another.
func (c *Conn) carryOut(s *Stream, w *worker) (stays bool) {
	suspended := false
	defer func() {
		if !suspended {
			c.handlers.Done()
		}
	}()
	defer func() {
		if v := recover(); v != nil { // a handler has no panics of its own
			c.report(v)
			c.nc.Close()
		}
	}()
	s.run()
	for s.suspended != nil {
		if s.awaitResume() {
			suspended = true
			return false
		}
		s.run()
	}
	stays = c.endStream(s, w)
	s.recycle()
	return stays
}

// endStream takes leave of a stream whose handler has returned.
func (c *Conn) endStream(s *Stream, w *worker) (stays bool) {
	c.mu.Lock()
	defer c.unlock()
	s.gone = nil
	c.retire(s, InternalError, NoError)
	if len(c.streams) == 0 {
		c.idleAt = c.clock()
		if c.draining == drainRefuse {
			c.wakeReader()
		}
	}
	c.push()
	if stays = !c.over; stays {
		c.workers.put(w)
	}
	return stays
}

// retire takes leave of a stream that is not used any more. One that has not ended is reset, with the
// code unsent where our side has not ended, else with unread.
func (c *Conn) retire(s *Stream, unsent, unread Code) {
	how := closedByEnd
	switch {
	case s.byPeer:
		how = closedByPeer
	case s.err != nil:
		how = closedByUs
	case !s.localEnded:
		how = closedByUs
		c.resetStream(s, unsent)
	case !s.remoteEnded:
		how = closedByUs
		c.resetStream(s, unread)
	default:
		c.resets.earn(1)
	}
	s.entry.Leave()
	s.body.clear()
	c.narrow(s)
	if s.of != nil && s.of.suspends {
		c.suspendable--
	}
	c.closed.add(s.id, how)
	delete(c.streams, s.id)
}

// find is the stream that is open, or else how it was closed.
func (c *Conn) find(id uint32) (*Stream, closeReason) {
	if s := c.streams[id]; s != nil {
		switch {
		case s.err == nil && !(s.remoteEnded && s.localEnded):
			return s, notClosed
		case s.err == nil:
			return nil, closedByEnd
		case s.byPeer:
			return nil, closedByPeer
		}
		return nil, closedByUs
	}
	if id > c.lastID || c.client != nil && id%2 == 0 {
		return nil, neverOpened
	}
	if c.ignored(id) {
		return nil, closedByUs
	}
	return nil, c.closed.reason(id)
}

// credit gives bytes of bodies back to the connection's window, when they have come: else streams that stall would
// use it up, and all others would stall with them.
func (c *Conn) credit(n int) {
	if c.consumed += n; c.consumed >= c.o.ConnWindow/4 && !c.over {
		c.out = frame.AppendWindowUpdate(c.out, 0, c.consumed)
		c.recvWindow += c.consumed
		c.consumed = 0
	}
}
