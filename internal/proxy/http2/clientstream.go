package http2

import (
	"os"
	"sync"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/encode"
	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// ClientStream is a request to a backend and its response. One goroutine may write while another
// reads; each of both halves is for one goroutine at a time. Calls return the errors
// os.ErrDeadlineExceeded after the deadline, *ResetError, *MalformedError, *ConnError where the backend has
// broken the rules of the connection, and ErrClosed where the connection is gone. What has come
// completely of a response can be read nevertheless.
type ClientStream struct {
	s      Stream
	client *Client
	// toHead and toConnect tell that the method is HEAD, or CONNECT.
	toHead, toConnect bool
	suspends          bool // as in ClientRequest

	// From here on guarded by the connection's mu.

	headed, delivered bool        // the final head has come, and was handed out
	length            int64       // Content-Length of it
	interims          *interims   // nil before the first interim head
	awhile, long      bool        // WaitAwhile is under way, and is to end
	waitsSince        int64       // by watch.now, since when that is
	suspension        *suspension // nil while a goroutine runs
}

// interims are interim heads of a response, which few have.
type interims struct {
	current     head.Section   // was handed out last; the reading goroutine's
	list        []head.Section // list[first:last] wait to be handed out
	first, last int
}

var clientStreams = sync.Pool{New: func() any {
	s := &ClientStream{}
	s.s.of = s
	s.s.readable = newSignal()
	s.s.writable = newSignal()
	return s
}}

// takeStream is a stream that is not opened yet.
func takeStream(cl *Client) *ClientStream {
	s := clientStreams.Get().(*ClientStream)
	s.client, s.length = cl, -1
	s.s.c = cl.c
	s.s.entry.Begin(&s.s)
	return s
}

// recycle keeps the memory of a stream that nobody knows any more.
func (s *ClientStream) recycle() {
	const most = 64 << 10 // of memory that interim heads have made grow
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

// ReadHead waits for the next response head and fills in r, Reason apart: first for every interim
// one, then for the final one. What r points to is valid until the next call, or Notify or Close after the final one. ended reports that
// there is neither body nor trailers.
func (s *ClientStream) ReadHead(r *message.Response) (ended bool, err error) {
	c := s.s.c
	c.mu.Lock()
	defer c.unlock()
	for {
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
		if !s.s.readable.wait(&c.mu, s.s.readDeadline) {
			return false, os.ErrDeadlineExceeded
		}
	}
}

// Answered reports whether a response head has arrived that ReadHead has not returned, and never will where the stream has failed since.
func (s *ClientStream) Answered() bool {
	s.s.c.mu.Lock()
	defer s.s.c.unlock()
	return s.headed || s.interims != nil && s.interims.first < s.interims.last
}

// next returns the next of those that wait. It is valid until the call after that.
func (p *interims) next() *head.Section {
	p.current, p.list[p.first] = p.list[p.first], p.current
	if p.first++; p.first == p.last {
		p.first, p.last = 0, 0
	}
	return &p.current
}

// fillIn copies, since filters change what they get.
func fillIn(r *message.Response, x *head.Section) {
	r.Reset()
	r.Status = x.Status()
	for i := range x.Fields.Len() {
		r.Header.Append(*x.Fields.At(i))
	}
}

// ContentLength is that of the final head, -1 without one. For HEAD and 304 it is what another
// method or status would have had.
func (s *ClientStream) ContentLength() int64 {
	s.s.c.mu.Lock()
	defer s.s.c.unlock()
	return s.length
}

// Read reads the response body, after the final head. io.EOF is its regular end, and only seen if all of
// it came. The backend may send more as far as what it sent was read.
func (s *ClientStream) Read(p []byte) (int, error) { return s.s.Read(p) }

// Wait waits until Read has something without waiting. Its error is that of Read.
func (s *ClientStream) Wait() error { return s.s.Wait() }

// Buffered is how many bytes Read has without waiting.
func (s *ClientStream) Buffered() int {
	s.s.c.mu.Lock()
	defer s.s.c.unlock()
	return s.s.body.len()
}

// Ended reports that Read would return io.EOF at once, so that the end can be passed on with the last bytes.
func (s *ClientStream) Ended() bool {
	s.s.c.mu.Lock()
	defer s.s.c.unlock()
	return s.s.err == nil && s.s.remoteEnded && s.s.body.len() == 0
}

// Err is why the stream has broken off, nil while it has not.
func (s *ClientStream) Err() error { return s.s.Err() }

// Trailers are the response's trailer fields, complete after Read returned io.EOF, and valid until Close.
func (s *ClientStream) Trailers() *message.Fields { return &s.s.trailer.Fields }

// Write sends a part of the request body, which may be empty; with last the last one. It returns when
// p is not used any more. A backend that has answered completely may want no more: *ResetError with NoError.
func (s *ClientStream) Write(p []byte, last bool) error { return s.write(p, nil, last) }

// WriteTrailers ends the request with trailer fields, which may be nil. f may be changed when it returns.
func (s *ClientStream) WriteTrailers(f *message.Fields) error { return s.write(nil, f, true) }

func (s *ClientStream) write(p []byte, trailers *message.Fields, last bool) error {
	c := s.s.c
	c.mu.Lock()
	defer c.unlock()
	if err := s.s.flushed(); err != nil { // of what Open has left
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

// GiveUpBody reports whether ClientRequest.Body is not used any more. What the backend will not take, as it has reset the stream
// behind a complete response, is given up. It is only for streams that were opened with all of the body.
func (s *ClientStream) GiveUpBody() bool {
	s.s.c.mu.Lock()
	defer s.s.c.unlock()
	if s.s.unwritable() != nil {
		s.s.entry.Leave()
		s.s.data, s.s.pending = nil, false
	}
	return len(s.s.data) == 0
}

// SetDeadline is until when calls wait, those under way too; zero is for ever. It may be called from any goroutine
// before Close.
func (s *ClientStream) SetDeadline(t time.Time) {
	s.s.SetReadDeadline(t)
	s.s.writable.send()
}

// Reset gives the stream up with RST_STREAM, unless it has ended. Calls under way return. It may be
// called from any goroutine before Close.
func (s *ClientStream) Reset(code Code) { s.s.Reset(code) }

// Close gives the stream's memory back, after Reset(Cancel) where it has not ended. No other call may be
// under way, or come later.
func (s *ClientStream) Close() {
	c, freed := s.s.c, s.client.o.Freed
	c.closeStream(&s.s)
	s.recycle()
	if freed != nil {
		freed()
	}
}

// closeStream takes leave of a stream of ours.
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
