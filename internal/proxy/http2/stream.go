package http2

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
	"github.com/moongate-dev/moongate/internal/proxy/http2/writesched"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// Head is a request head.
type Head = head.Head

// Stream is one request of a client and its response. One goroutine may read while another writes; each of
// both halves is for one goroutine at a time.
type Stream struct {
	Head Head

	c  *Conn
	id uint32
	of *ClientStream // in the client's role

	header, trailer head.Section

	interrupted uint32    // 1 after Interrupt; atomic
	suspended   Suspended // the rest of the handler; nil while that runs. The handler's goroutine's

	// From here on guarded by c.mu.

	// remoteEnded and localEnded tell that END_STREAM came, or is on its way out.
	remoteEnded, localEnded bool
	connected               bool // of a CONNECT, on which only DATA follows
	// err reports that the stream is gone, and why.
	err    error
	byPeer bool // it was reset by the peer
	// stopped is why nothing more is written, though the stream is not gone.
	stopped error
	gone    func(cause error)

	body         bodyQueue
	length       int64 // of the body by its head, -1 where that is not known
	received     int64 // bytes of DATA
	passed       int64 // of those, what the reader had taken when it last waited for more
	recvWindow   int   // what the peer may still send
	window       int   // what recvWindow is while nothing is held
	consumed     int   // what was read and not yet told by WINDOW_UPDATE
	readDeadline time.Time
	readable     signal

	// head, data and tail go out in this order. head and tail are frames; they are the
	// writing goroutine's while pending is false.
	head, tail []byte
	data       []byte
	headEnds   bool  // head has END_STREAM
	end        bool  // the last of data has
	headSaid   bool  // the final head was taken
	pending    bool  // the above is for the connection's writer to take
	unsent     bool  // opened by us, and head was not taken
	headEnd    int64 // where that ends in all that the connection has put into batches
	answered   bool  // the final head was said
	sendWindow int
	dataSent   int64 // bytes of DATA
	// writeTimeout is how long a call may take that writes.
	writeTimeout time.Duration
	writable     signal
	waiting      bool // a goroutine waits for writable
	lead         bool // this goroutine is to become the connection's writer

	entry writesched.Entry[Stream]
}

var streams sync.Pool

// newStream is a stream whose header section begins.
func (c *Conn) newStream(id uint32) *Stream {
	s, ok := streams.Get().(*Stream)
	if !ok {
		s = &Stream{}
		s.readable = newSignal()
		s.writable = newSignal()
	}
	s.c, s.id, s.writeTimeout = c, id, c.o.Timeouts.Write
	s.entry.Begin(s)
	s.header.Reset(head.RequestHeader)
	s.trailer.Reset(head.Trailer)
	return s
}

// recycle keeps the memory of a stream that nobody knows any more.
func (s *Stream) recycle() {
	if s.clear() {
		streams.Put(s)
	}
}

// clear makes the stream as good as new, and reports whether its memory is worth keeping.
func (s *Stream) clear() bool {
	const most = 64 << 10 // of memory that one large stream has made grow
	if s.header.Cap()+s.trailer.Cap()+cap(s.head)+cap(s.tail) > most {
		return false
	}
	s.header.Reset(head.RequestHeader)
	s.trailer.Reset(head.Trailer)
	*s = Stream{of: s.of, header: s.header, trailer: s.trailer, head: s.head[:0], tail: s.tail[:0],
		readable: s.readable, writable: s.writable}
	s.readable.clear()
	s.writable.clear()
	return true
}

// SwapFields moves the fields of Head to f, whose memory later requests use.
func (s *Stream) SwapFields(f *message.Fields) {
	f.Reset()
	*f, s.header.Fields = s.Head.Fields, *f
	s.Head.Fields = message.Fields{}
}

// ID is the stream's number.
func (s *Stream) ID() uint32 { return s.id }

// Read reads the request body; io.EOF is its regular end, and only seen if all of it came. Other
// errors: os.ErrDeadlineExceeded, *ResetError, ErrClosed.
func (s *Stream) Read(p []byte) (int, error) {
	s.c.mu.Lock()
	defer s.c.unlock()
	if err := s.await(); err != nil {
		return 0, err
	}
	n := s.body.read(p)
	s.credit(n)
	s.c.pushAside()
	return n, nil
}

// Wait waits until Read has something without waiting, so that no memory need be held meanwhile. Its error is that of Read.
func (s *Stream) Wait() error {
	s.c.mu.Lock()
	defer s.c.unlock()
	return s.await()
}

// await waits until there is something of the body; c.mu is held.
func (s *Stream) await() error {
	for {
		switch {
		case s.err != nil:
			return s.err
		case s.isInterrupted():
			return os.ErrDeadlineExceeded
		case s.body.len() > 0:
			return nil
		case s.remoteEnded:
			return io.EOF
		case s.of != nil && s.of.long:
			return ErrSuspend
		}
		if s.readDeadline != longAgo { // else it only looks
			s.passed = s.received
		}
		if !s.readable.wait(&s.c.mu, s.readDeadline) {
			return os.ErrDeadlineExceeded
		}
	}
}

// Buffered is how many bytes Read has without waiting, and whether they are the last of the body.
func (s *Stream) Buffered() (n int, last bool) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.body.len(), s.remoteEnded && s.err == nil
}

// Withheld reports whether the client can send no more of the body because memory is scarce.
func (s *Stream) Withheld() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.recvWindow <= 0 && s.consumed >= s.window/4
}

// credit gives bytes of the body back to the stream's window, when that is enough to be worth a frame.
func (s *Stream) credit(n int) {
	s.consumed += n
	if scarce := s.c.o.Scarce; scarce != nil && scarce.Load() {
		return
	}
	if s.remoteEnded || s.consumed < s.window/4 {
		return
	}
	more := s.consumed + s.widen()
	s.c.out = frame.AppendWindowUpdate(s.c.out, s.id, more)
	s.recvWindow += more
	s.consumed = 0
}

// widen gives a stream whose body is read its whole window, as long as there is room for that, and returns by how much it
// grows.
func (s *Stream) widen() (more int) {
	more = s.c.o.StreamWindow - s.window
	if more <= 0 || !s.c.mayWiden(more) {
		return 0
	}
	s.window += more
	return more
}

// mayWiden takes room for windows to grow by n bytes, if there is so much. mu is held.
func (c *Conn) mayWiden(n int) bool {
	if w := c.o.widening; w != nil {
		return w.take(n)
	}
	if c.widened+n > maxWidened {
		return false
	}
	c.widened += n
	return true
}

// narrow gives back what the window of a stream has grown by. mu is held.
func (c *Conn) narrow(s *Stream) {
	grown := s.window - c.firstWindow()
	if w := c.o.widening; w != nil {
		w.give(grown)
	} else {
		c.widened -= grown
	}
}

// Trailers are the request's trailer fields, complete after Read returned io.EOF.
func (s *Stream) Trailers() *message.Fields { return &s.trailer.Fields }

// SetReadDeadline is until when Read waits, for the present call too; zero is for ever.
func (s *Stream) SetReadDeadline(t time.Time) {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.readDeadline = t
	s.wakeReader()
}

// SetWriteTimeout sets how long each later call may take that writes, in place of Timeouts.Write. What the connection does not take is still
// bounded by the latter.
func (s *Stream) SetWriteTimeout(d time.Duration) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.writeTimeout = d
}

// Interrupt makes calls fail with os.ErrDeadlineExceeded that read or wait to write, those under way and later ones. It takes no lock, so that the
// function given to OnGone may call it, and it must not be called any more when the handler returns.
func (s *Stream) Interrupt() {
	atomic.StoreUint32(&s.interrupted, 1)
	s.readable.send()
	s.writable.send()
}

func (s *Stream) isInterrupted() bool { return atomic.LoadUint32(&s.interrupted) != 0 }

// Reset ends the stream in both directions with RST_STREAM, unless it has ended. It may be called from any
// goroutine until the handler returns, and never waits for the client.
func (s *Stream) Reset(code Code) {
	c := s.c
	c.mu.Lock()
	defer c.unlock()
	c.resetStream(s, code)
	c.pushAside()
}

// OnGone has f called once, with the cause, when the stream is reset, by the client or by us, or the connection ends; at
// once if that has happened. f must not block nor call anything of this package. It is not called any
// more when OnGone(nil) has returned, or the handler.
func (s *Stream) OnGone(f func(cause error)) {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.gone = f
	if s.err != nil {
		s.tellGone()
	}
}

func (s *Stream) tellGone() {
	f := s.gone
	if f == nil {
		return
	}
	s.gone = nil
	defer func() {
		if v := recover(); v != nil { // it must not keep the news from other streams
			s.c.report(v)
		}
	}()
	f(s.err)
}

// Err is why the stream is gone, nil while it is not.
func (s *Stream) Err() error {
	s.c.mu.Lock()
	defer s.c.unlock()
	return s.err
}
