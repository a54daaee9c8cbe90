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

// Stream is one request of a client and its response. One goroutine may read while another one writes; each direction
// must be used by only one goroutine at a time.
type Stream struct {
	Head Head

	c  *Conn
	id uint32
	of *ClientStream // set in the client role

	header, trailer head.Section

	interrupted uint32    // interruptedReads, interruptedWrites or both; accessed atomically
	suspended   Suspended // the rest of the handler; nil while it runs. Belongs to the handler's goroutine.

	// The fields below are guarded by c.mu.

	// remoteEnded and localEnded mean that END_STREAM has arrived, or is being sent.
	remoteEnded, localEnded bool
	connected               bool // for a CONNECT: only DATA follows
	// err is why the stream has ended; nil if it has not.
	err    error
	byPeer bool // it was reset by the peer
	// stopped is why nothing more is written although the stream has not ended.
	stopped error
	gone    func(cause error)

	body         bodyQueue
	length       int64 // of the body by its head, -1 if unknown
	received     int64 // bytes of DATA received
	passed       int64 // how many of them the reader had taken when it last waited for more
	recvWindow   int   // what the peer may still send
	window       int   // the value of recvWindow when nothing is held
	consumed     int   // bytes read but not yet returned by WINDOW_UPDATE
	readDeadline time.Time
	readable     signal

	// head, data and tail are sent in this order. head and tail are frames. They belong to the writing goroutine while
	// pending is false.
	head, tail []byte
	data       []byte
	headEnds   bool  // head has END_STREAM
	end        bool  // the last frame of data has END_STREAM
	headSet    bool  // the final head was passed to WriteHead
	pending    bool  // the above waits for the connection's writer
	unsent     bool  // opened by this side, and head has not been taken
	headEnd    int64 // where head ends in the bytes that the connection has put into batches
	answered   bool  // the final head was sent
	sendWindow int
	dataSent   int64 // bytes of DATA sent
	// writeTimeout is how long a call that writes may take.
	writeTimeout time.Duration
	writable     signal
	waiting      bool // a goroutine waits for writable
	lead         bool // the waiting goroutine is to become the connection's writer

	entry writesched.Entry[Stream]
}

var streams sync.Pool

// newStream returns a stream whose header section begins.
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

// recycle returns the memory of a stream that is not used any more to the pool.
func (s *Stream) recycle() {
	if s.clear() {
		streams.Put(s)
	}
}

// clear resets the stream, and reports whether its memory is worth keeping.
func (s *Stream) clear() bool {
	const most = 64 << 10 // largest memory kept after a large stream has made it grow
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

// SwapFields moves the fields of Head to f, and keeps the memory of f for later requests.
func (s *Stream) SwapFields(f *message.Fields) {
	f.Reset()
	*f, s.header.Fields = s.Head.Fields, *f
	s.Head.Fields = message.Fields{}
}

// ID returns the stream's number.
func (s *Stream) ID() uint32 { return s.id }

// Read reads the request body. It returns io.EOF at the regular end, only if all of the body arrived. Other errors are
// os.ErrDeadlineExceeded, *ResetError and ErrClosed.
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

// Wait waits until Read can return without waiting, so that no buffer need be held meanwhile. Its error is that of
// Read.
func (s *Stream) Wait() error {
	s.c.mu.Lock()
	defer s.c.unlock()
	return s.await()
}

// await waits until a part of the body is available. c.mu must be held.
func (s *Stream) await() error {
	for late := false; ; {
		switch {
		case s.err != nil:
			return s.err
		case s.isInterrupted(interruptedReads):
			return os.ErrDeadlineExceeded
		case s.body.len() > 0:
			return nil
		case s.remoteEnded:
			return io.EOF
		case s.of != nil && s.of.long:
			return ErrSuspend
		}
		if s.readDeadline != longAgo { // otherwise Read does not wait
			s.passed = s.received
		}
		if late {
			return os.ErrDeadlineExceeded
		}
		deadline := s.readDeadline
		// What it waits for may have come before the deadline although the goroutine runs after it.
		late = !s.readable.wait(&s.c.mu, deadline) && s.readDeadline.Equal(deadline)
	}
}

// Buffered returns how many bytes Read can return without waiting, and whether they are the last of the body.
func (s *Stream) Buffered() (n int, last bool) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.body.len(), s.remoteEnded && s.err == nil
}

// Answered reports whether a final response has begun.
func (s *Stream) Answered() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.headSet
}

// Withheld reports whether the client can send no more of the body because memory is scarce.
func (s *Stream) Withheld() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.recvWindow <= 0 && s.consumed >= s.window/4
}

// credit returns bytes of the body to the stream's window, when there are enough to be worth a frame.
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

// widen gives a stream whose body is read its whole window, if the bound allows it, and returns by how much it grows.
func (s *Stream) widen() (more int) {
	more = s.c.o.StreamWindow - s.window
	if more <= 0 || !s.c.mayWiden(more) {
		return 0
	}
	s.window += more
	return more
}

// mayWiden takes n bytes for the growth of windows if the bound allows it, and reports whether it does. mu must be
// held.
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

// narrow gives back the growth of a stream's window. mu must be held.
func (c *Conn) narrow(s *Stream) {
	grown := s.window - c.firstWindow()
	if w := c.o.widening; w != nil {
		w.give(grown)
	} else {
		c.widened -= grown
	}
}

// Trailers returns the request's trailer fields. They are complete after Read has returned io.EOF.
func (s *Stream) Trailers() *message.Fields { return &s.trailer.Fields }

// SetReadDeadline sets until when current and later calls of Read wait; the zero time means forever.
func (s *Stream) SetReadDeadline(t time.Time) {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.readDeadline = t
	s.wakeReader()
}

// ReadBy is like SetReadDeadline, for the goroutine that reads, which need not be woken.
func (s *Stream) ReadBy(t time.Time) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.readDeadline = t
}

// SetWriteTimeout sets how long each later call that writes may take, in place of Timeouts.Write, which still bounds
// writes to the connection.
func (s *Stream) SetWriteTimeout(d time.Duration) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.writeTimeout = d
}

const (
	interruptedReads = 1 << iota
	interruptedWrites
)

// Interrupt makes current and later calls that read or wait to write fail with os.ErrDeadlineExceeded. It takes no
// lock, so the function passed to OnGone may call it. It must not be called after the handler has returned.
func (s *Stream) Interrupt() {
	atomic.OrUint32(&s.interrupted, interruptedReads|interruptedWrites)
	s.readable.send()
	s.writable.send()
}

// InterruptReads is like Interrupt, but calls that write are not affected.
func (s *Stream) InterruptReads() {
	atomic.OrUint32(&s.interrupted, interruptedReads)
	s.readable.send()
}

func (s *Stream) isInterrupted(what uint32) bool { return atomic.LoadUint32(&s.interrupted)&what != 0 }

// Reset ends the stream in both directions with RST_STREAM, unless it has ended. It may be called from any goroutine
// until the handler returns, and never waits for the client.
func (s *Stream) Reset(code Code) {
	c := s.c
	c.mu.Lock()
	defer c.unlock()
	c.resetStream(s, code)
	c.pushAside()
}

// OnGone arranges that f is called once, with the cause, when the stream is reset by either side or the connection
// ends; at once if that has already happened. f must not block nor call anything of this package but Interrupt and
// InterruptReads. It is not called any more after OnGone(nil) or the handler has returned.
func (s *Stream) OnGone(f func(cause error)) {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.gone = f
	if s.err != nil {
		s.notifyGone()
	}
}

func (s *Stream) notifyGone() {
	f := s.gone
	if f == nil {
		return
	}
	s.gone = nil
	defer func() {
		if v := recover(); v != nil { // the other streams must still be notified
			s.c.report(v)
		}
	}()
	f(s.err)
}

// Err returns why the stream has ended, nil if it has not.
func (s *Stream) Err() error {
	s.c.mu.Lock()
	defer s.c.unlock()
	return s.err
}
