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

// Preface is the beginning of a client's connection (RFC 9113 section 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Conn is one connection: in the server role if created by New, in the client role within a Client.
type Conn struct {
	nc     net.Conn
	o      Options
	handle func(*Stream) // only in the server role
	client *Client       // nil in the server role
	// tableSizeSent means that the peer was informed by a table size update that header blocks use no dynamic table.
	tableSizeSent atomic.Bool
	handlers      sync.WaitGroup
	asides        sync.WaitGroup // goroutines of writeAside
	aside         func()

	in readBuffer // belongs to the reader; without memory before Serve and while the connection is parked

	mu sync.Mutex
	// The fields below are guarded by mu.

	input
	watch
	enduring
	decoder *hpack.Decoder // nil before the first header block

	streams     map[uint32]*Stream // streams in use by handlers or callers of Client.Open
	open        int                // how many of streams are open by the protocol
	suspendable int                // how many of streams were opened with ClientRequest.Suspends and are not suspended
	widened     int                // by how much the windows of streams exceed their initial size

	workers    workerPool
	queue      *writesched.Scheduler[Stream] // nil before Serve and while the connection is parked
	out        []byte                        // control frames to be written first
	writing    bool                          // a goroutine is the writer, or was selected to be
	direct     func([]byte) (int, error)     // see writeDirect; nil if there are no direct writes
	idle       sync.Cond                     // signalled when writing has become false
	writeLimit time.Time
	writeBegan int64 // when the write in progress began, in Unix milliseconds; 0 if there is none
	// gathered is written next. It is a slice of gathering; both are nil while it is empty. Streams append to it while
	// another goroutine is the writer, and need not wait for that.
	gathered  []byte
	gathering *[batchSize]byte
	filled    int64 // bytes put into batches
	wrote     int64 // how many of them nc has taken
	unwritten unwritten
	broken    bool                // a write has failed
	starving  map[uint32]starving // state of EndStarved
	ended     bool                // all streams have ended
	endedIdle bool                // ended by EndIfIdle
	cause     error               // why over is set, if a write has failed
}

// queues contains empty schedulers, for connections that are not parked.
var queues = sync.Pool{New: func() any { return &writesched.Scheduler[Stream]{} }}

// New creates a connection over nc, on which nothing happens before Serve. handle is called for each request on a
// goroutine of its own. When it returns, a response that it has not ended is reset with INTERNAL_ERROR and the rest of
// the request is refused. The stream must not be used afterwards.
func New(nc net.Conn, o Options, handle func(*Stream)) *Conn {
	c := newServer(nc, o, handle)
	c.out = appendPreface(nil, &c.o, false)
	return c
}

func newServer(nc net.Conn, o Options, handle func(*Stream)) *Conn {
	c := newConn(nc, o)
	c.handle = handle
	c.workers.do = c.carryOut
	return c
}

func newConn(nc net.Conn, o Options) *Conn {
	c := &Conn{nc: nc, o: o.withDefaults()}
	c.aside = c.writeAside
	c.idle.L = &c.mu
	c.start, c.tableSize = time.Now(), headerTable
	c.controls = newFloodLimiter(controlBurst, controlRate)
	c.resets = newFloodLimiter(resetBurst*costReset, resetRate*costReset)
	c.initialWindow, c.sendWindow = frame.DefaultWindow, frame.DefaultWindow
	c.recvWindow = max(c.o.ConnWindow, frame.DefaultWindow)
	return c
}

// Serve runs the connection to its end, when all handlers have returned and nc is closed. prior is what was already
// read from nc, beginning with the Preface. The error is nil if the connection was idle or drained, or if the client
// closed it while no stream was open; a *ConnError if one was sent to the client; ErrParked; or a network error.
func (c *Conn) Serve(prior []byte) error {
	err := c.serve(prior)
	if err != ErrParked {
		c.handlers.Wait()
	}
	return err
}

func (c *Conn) serve(prior []byte) error {
	err := c.readSafely(prior)
	if err == ErrParked {
		return err
	}
	var connErr *ConnError
	sayGoAway := err == nil || errors.As(err, &connErr)
	if err == errEnd {
		err = nil
	}
	graceful := c.tearDown(connErr, sayGoAway)
	if graceful && c.client == nil {
		c.linger()
	}
	c.nc.Close()
	c.asides.Wait()
	return err
}

// tearDown ends all streams and, if sayGoAway is set, sends GOAWAY. It reports whether the peer should be given time to
// close.
func (c *Conn) tearDown(connErr *ConnError, sayGoAway bool) (graceful bool) {
	c.mu.Lock()
	defer c.unlock()
	c.in.shrink()
	cause := ErrClosed
	if connErr != nil {
		cause = connErr
		c.out = frame.AppendGoAway(c.out, c.lastPeer(), connErr.Code, connErr.Why)
	} else if sayGoAway && (c.draining != drainRefuse || c.client != nil) {
		c.out = frame.AppendGoAway(c.out, c.lastPeer(), NoError, "")
	}
	c.endAllStreams(cause)
	c.workers.stop(c.workers.n)
	c.nc.SetWriteDeadline(time.Now().Add(c.o.Timeouts.Linger))
	if sayGoAway {
		c.push()
	}
	for c.writing {
		c.idle.Wait()
	}
	return sayGoAway && !c.broken && !c.endedIdle
}

// lastPeer returns the last stream for GOAWAY: the last one of the peer that was or might be processed. It never rises
// from one GOAWAY to the next (RFC 9113 section 6.8).
func (c *Conn) lastPeer() uint32 {
	switch {
	case c.client != nil:
		return 0
	case c.draining == drainRefuse:
		return c.refusedAbove
	}
	return c.lastID
}

// ignored reports whether the client has opened the stream after the second GOAWAY, whether or not it had received
// that. The frames of such streams are dropped, except for what the connection's flow control and header table need
// (RFC 9113 section 6.8).
func (c *Conn) ignored(id uint32) bool {
	return c.client == nil && c.draining == drainRefuse && id > c.refusedAbove && id%2 == 1
}

// LingerBytes is the least number of bytes that are read and discarded when a connection ends. More are read until the
// client has acknowledged the last response, but for no longer than Timeouts.Linger.
const LingerBytes = 1 << 20

// linger discards what the client still sends: closing with unread bytes would reset the connection, and GOAWAY and
// responses could be lost.
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

// Drain ends the connection without affecting requests (RFC 9113 section 6.8). It announces that no more streams are
// wanted; after the client has had time to receive that, it refuses new ones, and ends when the open ones have ended.
// It returns at once. It may be called from any goroutine, and repeatedly.
func (c *Conn) Drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining != drainNot || c.ended {
		return
	}
	c.draining, c.drainAt = drainAnnounced, c.clock()
	c.out = frame.AppendGoAway(c.out, frame.MaxStreamID, NoError, "")
	c.out = frame.AppendPing(c.out, 0, pingOfDrain)
	c.pushAside()
	c.wakeReader()
}

// Idle reports whether the connection has had no stream for at least that long, and whether it was used before: then
// the end of a response may still be in transit.
func (c *Conn) Idle(least time.Duration) (idle, used bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idles(least), c.lastID != 0
}

// idles reports whether the connection is not ending and has had no stream for at least that long. mu must be held.
func (c *Conn) idles(least time.Duration) bool {
	return !c.ended && !c.endedIdle && len(c.streams) == 0 && !(c.block.open && c.block.kind == blockHeader) && c.clock()-c.idleAt >= least.Milliseconds()
}

// EndIfIdle ends the connection, without waiting for the client, if it has had no stream for at least that long, and
// reports whether it does. It returns at once and may be called from any goroutine.
func (c *Conn) EndIfIdle(least time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.idles(least) {
		return false
	}
	c.endedIdle = true
	if c.draining != drainRefuse {
		c.refuseMore()
	}
	c.wakeReader()
	return true
}

// Resume credits the streams' windows with what was withheld while Options.Scarce was true. It returns at once and may
// be called from any goroutine.
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

// Held returns an upper bound of the bytes of request bodies that the connection holds. For a body whose response has
// begun, which is not sent again, these are the bytes read since its reader last waited for more, and none once it has
// ended.
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

// WritingSince returns when the write that the client has not taken yet began, in Unix milliseconds; 0 if nothing is
// being written.
func (c *Conn) WritingSince() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeBegan
}

// Close ends the connection at once. It may be called from any goroutine.
func (c *Conn) Close() { c.nc.Close() }

// clock returns the milliseconds since the connection was created.
func (c *Conn) clock() int64 { return time.Since(c.start).Milliseconds() }

// endAllStreams ends all streams.
func (c *Conn) endAllStreams(cause error) {
	if c.ended {
		return
	}
	c.ended, c.cause = true, cause
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

// drop discards the data of an ended stream, and wakes the goroutines that wait for the stream.
func (c *Conn) drop(s *Stream) {
	s.entry.Leave()
	if !(s.remoteEnded && s.localEnded) {
		c.open--
	}
	s.body.clear()
	s.wakeReader()
	s.writable.send()
	s.notifyGone()
}

// firstWindow returns the initial window for what the peer sends on a stream.
func (c *Conn) firstWindow() int { return firstWindow(&c.o, c.client != nil) }

// resetStream sends RST_STREAM for an open stream.
func (c *Conn) resetStream(s *Stream, code Code) { c.resetStreamFor(s, code, &ResetError{Code: code}) }

// resetStreamFor is like resetStream, with the error that calls on the stream return.
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

// endLocal records that END_STREAM is being sent.
func (c *Conn) endLocal(s *Stream) {
	s.localEnded = true
	if s.remoteEnded {
		c.open--
	}
}

// endRemote records that END_STREAM has arrived.
func (c *Conn) endRemote(s *Stream) {
	s.remoteEnded = true
	if s.localEnded {
		c.open--
	}
	s.wakeReader()
}

// carryOut runs the stream's handler. It reports whether its worker is to wait for another stream.
func (c *Conn) carryOut(s *Stream, w *worker) (stays bool) {
	suspended := false
	defer func() {
		if !suspended {
			c.handlers.Done()
		}
	}()
	defer func() {
		if v := recover(); v != nil { // handlers recover their own panics, so this one is the package's
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

// endStream removes a stream whose handler has returned.
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
	if stays = !c.ended; stays {
		c.workers.put(w)
	}
	return stays
}

// retire removes a stream that is not used any more. If it has not ended, it is reset, with the code unsent if this
// side has not ended, otherwise with unread.
func (c *Conn) retire(s *Stream, unsent, unread Code) {
	how := closedByEnd
	switch {
	case s.byPeer:
		how = closedByPeer
	case s.err != nil:
		how = closedLocally
	case !s.localEnded:
		how = closedLocally
		c.resetStream(s, unsent)
	case !s.remoteEnded:
		how = closedLocally
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

// find returns the stream if it is open, and otherwise how it was closed.
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
		return nil, closedLocally
	}
	if id > c.lastID || c.client != nil && id%2 == 0 {
		return nil, neverOpened
	}
	if c.ignored(id) {
		return nil, closedLocally
	}
	return nil, c.closed.reason(id)
}

// credit returns bytes of bodies to the connection's window as soon as they arrive. Otherwise streams that are not read
// would use it up and stall all others.
func (c *Conn) credit(n int) {
	if c.consumed += n; c.consumed >= c.o.ConnWindow/4 && !c.ended {
		c.out = frame.AppendWindowUpdate(c.out, 0, c.consumed)
		c.recvWindow += c.consumed
		c.consumed = 0
	}
}
