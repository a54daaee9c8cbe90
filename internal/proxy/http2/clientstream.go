package http2

import (
	"os"
	"sync"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/encode"
	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// ClientStream is a request to a backend and its response. One goroutine may write while another one reads; each
// direction must be used by only one goroutine at a time. Calls return os.ErrDeadlineExceeded after the deadline,
// *ResetError, *MalformedError, *ConnError if the backend has violated the protocol of the connection, and ErrClosed if
// the connection is gone. A response that has arrived completely can still be read.
type ClientStream struct {
	s      Stream
	client *Client
	// toHead and toConnect mean that the method is HEAD or CONNECT.
	toHead, toConnect bool
	suspends          bool // see ClientRequest.Suspends

	// The fields below are guarded by the connection's mu.

	headed, delivered bool        // the final head has arrived; ReadHead has returned it
	length            int64       // Content-Length of the final head
	interims          *interims   // nil before the first interim head
	awhile, long      bool        // WaitAwhile is running; it is to return
	waitsSince        int64       // when it began, by watch.now
	suspension        *suspension // nil while a goroutine runs
}

// interims holds the interim heads of a response, which few responses have.
type interims struct {
	current     head.Section   // returned last by ReadHead; belongs to the reading goroutine
	list        []head.Section // list[first:last] wait for ReadHead
	first, last int
}

var clientStreams = sync.Pool{New: func() any {
	s := &ClientStream{}
	s.s.of = s
	s.s.readable = newSignal()
	s.s.writable = newSignal()
	return s
}}

// takeStream returns a stream that is not opened yet.
func takeStream(cl *Client) *ClientStream {
	s := clientStreams.Get().(*ClientStream)
	s.client, s.length = cl, -1
	s.s.c = cl.c
	s.s.entry.Begin(&s.s)
	return s
}

// recycle returns the memory of a stream that is not used any more to the pool.
func (s *ClientStream) recycle() {
	const most = 64 << 10 // largest memory kept after interim heads have made it grow
	if !s.s.clear() {
		return
	}
	if p := s.interims; p != nil {
		size := p.current.Cap()
		for i := range p.list {
			size += p.list[i].Cap()
		}
		if p.first, p.last = 0, 0; size > most {
			s.interims = nil
		}
	}
	*s = ClientStream{s: s.s, interims: s.interims}
	clientStreams.Put(s)
}

// ReadHead waits for the next response head and fills in r, except Reason: first for every interim head, then for the
// final one. The bytes in r are valid until the next call, or after the final head until Notify or Close. ended reports
// that there is neither a body nor trailers.
func (s *ClientStream) ReadHead(r *message.Response) (ended bool, err error) {
	c := s.s.c
	c.mu.Lock()
	defer c.unlock()
	for late := false; ; {
		switch {
		case s.s.err != nil:
			return false, s.s.err
		case s.interims != nil && s.interims.first < s.interims.last:
			fillIn(r, s.interims.next())
			return false, nil
		case s.headed && s.delivered:
			return false, errOrder
		case s.headed:
			s.delivered = true
			fillIn(r, &s.s.header)
			return s.s.remoteEnded && s.s.body.len() == 0 && s.s.trailer.Fields.Len() == 0, nil
		}
		if late {
			return false, os.ErrDeadlineExceeded
		}
		deadline := s.s.readDeadline
		late = !s.s.readable.wait(&c.mu, deadline) && s.s.readDeadline.Equal(deadline) // as in Stream.await
	}
}

// Answered reports whether a response head has arrived that ReadHead has not returned, and will not return if the
// stream has failed since.
func (s *ClientStream) Answered() bool {
	s.s.c.mu.Lock()
	defer s.s.c.unlock()
	return s.headed || s.interims != nil && s.interims.first < s.interims.last
}

// next returns the next waiting head. It is valid until the call after the next.
func (p *interims) next() *head.Section {
	p.current, p.list[p.first] = p.list[p.first], p.current
	if p.first++; p.first == p.last {
		p.first, p.last = 0, 0
	}
	return &p.current
}

// fillIn copies the fields, since filters change them.
func fillIn(r *message.Response, x *head.Section) {
	r.Reset()
	r.Status = x.Status()
	for i := range x.Fields.Len() {
		r.Header.Append(*x.Fields.At(i))
	}
}

// ContentLength returns the Content-Length of the final head, -1 if it has none. For HEAD and 304 it is what another
// method or status would have had.
func (s *ClientStream) ContentLength() int64 {
	s.s.c.mu.Lock()
	defer s.s.c.unlock()
	return s.length
}

// Read reads the response body, after the final head. It returns io.EOF at the regular end, only if all of the body
// arrived. Reading allows the backend to send more.
func (s *ClientStream) Read(p []byte) (int, error) { return s.s.Read(p) }

// Wait waits until Read can return without waiting. Its error is that of Read.
func (s *ClientStream) Wait() error { return s.s.Wait() }

// Buffered returns how many bytes Read can return without waiting.
func (s *ClientStream) Buffered() int {
	s.s.c.mu.Lock()
	defer s.s.c.unlock()
	return s.s.body.len()
}

// Ended reports whether Read would return io.EOF at once, so that the end can be passed on with the last bytes.
func (s *ClientStream) Ended() bool {
	s.s.c.mu.Lock()
	defer s.s.c.unlock()
	return s.s.err == nil && s.s.remoteEnded && s.s.body.len() == 0
}

// Err returns why the stream has broken off, nil if it has not.
func (s *ClientStream) Err() error { return s.s.Err() }

// Trailers returns the response's trailer fields. They are complete after Read has returned io.EOF, and valid until
// Close.
func (s *ClientStream) Trailers() *message.Fields { return &s.s.trailer.Fields }

// Write sends a part of the request body, which may be empty. last means that it is the last one. When it returns, p is
// not used any more. If the backend has answered completely and wants no more, it returns *ResetError with NoError.
func (s *ClientStream) Write(p []byte, last bool) error { return s.write(p, nil, last) }

// WriteTrailers ends the request with trailer fields, which may be nil. f may be changed after it returns.
func (s *ClientStream) WriteTrailers(f *message.Fields) error { return s.write(nil, f, true) }

func (s *ClientStream) write(p []byte, trailers *message.Fields, last bool) error {
	c := s.s.c
	c.mu.Lock()
	defer c.unlock()
	if err := s.s.flushed(); err != nil { // what Open has left over
		return err
	}
	if err := s.s.unwritable(); err != nil {
		return err
	}
	if s.s.headEnds || s.s.end {
		return errOrder
	}
	if len(p) == 0 && !last {
		return nil
	}
	if trailers != nil && trailers.Len() > 0 {
		s.s.tail = encode.AppendSection(s.s.tail, s.s.id, 0, trailers, -1, true, false)
	}
	s.s.data, s.s.end, s.s.pending = p, last, true
	c.queue.Add(&s.s.entry, s.s.short())
	c.pushAside()
	return s.s.flushed()
}

// GiveUpBody reports whether ClientRequest.Body is not used any more. If the backend has reset the stream after a
// complete response, the rest of the body is discarded. It is only for streams that were opened with the whole body.
func (s *ClientStream) GiveUpBody() bool {
	s.s.c.mu.Lock()
	defer s.s.c.unlock()
	if s.s.unwritable() != nil {
		s.s.entry.Leave()
		s.s.data, s.s.pending = nil, false
	}
	return len(s.s.data) == 0
}

// SetDeadline sets until when current and later calls wait; the zero time means forever. It may be called from any
// goroutine before Close.
func (s *ClientStream) SetDeadline(t time.Time) {
	s.s.SetReadDeadline(t)
	s.s.writable.send()
}

// Reset resets the stream with RST_STREAM, unless it has ended. Calls in progress return. It may be called from any
// goroutine before Close.
func (s *ClientStream) Reset(code Code) { s.s.Reset(code) }

// Close returns the stream's memory, after Reset(Cancel) if the stream has not ended. No other call may be in progress
// or follow.
func (s *ClientStream) Close() {
	c, freed := s.s.c, s.client.o.Freed
	c.closeStream(&s.s)
	s.recycle()
	if freed != nil {
		freed()
	}
}

// closeStream removes a stream that this side has opened.
func (c *Conn) closeStream(s *Stream) {
	c.mu.Lock()
	defer c.unlock()
	c.retire(s, Cancel, Cancel)
	if len(c.streams) == 0 && c.client.o.Keepalive.Idle > 0 {
		c.client.idleAt = c.clock()
	}
	if c.draining == drainRefuse && len(c.streams) == 0 {
		c.wakeReader()
	}
	c.pushAside()
}
