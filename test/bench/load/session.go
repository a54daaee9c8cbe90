//go:build linux

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/test/bench/epoll"
	"github.com/moongate-dev/moongate/test/bench/frame"
)

// session is what HTTP/2 adds to a connection: a fixed number of streams, each with one request, or one message
// of its call, in flight. The requests that take the place of those which one event has completed leave in one
// write, as they do from other clients.
type session struct {
	c       *conn
	l       *loop
	in      [2 * (frame.MaxSize + frame.HeaderLen)]byte
	n       int    // bytes of in; they begin with a frame
	out     []byte // frames that are not sent
	streams []stream
	last    uint32    // the latest stream's number
	blocked []*stream // what they send waits for the peer's windows
	heads   heads
	window  int // what the peer still takes of DATA on the connection
	initial int // what it takes on a new stream
	// received are bytes of DATA on the connection that were not given back to the peer's window. Those of
	// a stream are given back too: a call may be long.
	received int
	open     int // streams whose first answer is still to come, with loop.once
}

// stream is a place for one request after the other, or for one call and its messages.
type stream struct {
	id       uint32
	sent     time.Time
	headed   bool
	got      int // bytes of the body, or of the message that is under way
	window   int // what the peer still takes of DATA
	received int
}

// begin opens a session with a request on each stream.
func (c *conn) begin(l *loop) error {
	s := newSession(c, l)
	c.session = s
	if c.socket != nil {
		c.socket.Batches = true
	}
	s.out = append(s.out, frame.Preface...)
	s.out = frame.AppendSettings(s.out, [2]uint32{frame.SettingEnablePush, 0}, [2]uint32{frame.SettingInitialWindow, frame.BigWindow})
	s.out = frame.AppendWindowUpdate(s.out, 0, frame.BigWindow-frame.DefaultWindow)
	now := time.Now()
	for i := range s.streams {
		s.start(&s.streams[i], now)
	}
	return s.flush()
}

func newSession(c *conn, l *loop) *session {
	return &session{
		c: c, l: l, streams: make([]stream, l.spec.Streams), open: l.spec.Streams, heads: heads{spec: l.spec},
		window: frame.DefaultWindow, initial: frame.DefaultWindow,
	}
}

// start puts a request into out, unless its body has to wait.
func (s *session) start(st *stream, now time.Time) {
	*st = stream{sent: now}
	s.send(st)
}

// send puts a request, or the next message of a call, into out, unless it has to wait.
func (s *session) send(st *stream) {
	body := s.l.request.body
	if s.window < len(body) || st.id != 0 && st.window < len(body) {
		s.blocked = append(s.blocked, st)
		return
	}
	last := s.l.spec.Exchange != Streaming
	if st.id == 0 {
		if st.id = 1; s.last > 0 {
			st.id = s.last + 2
		}
		s.last, st.window = st.id, s.initial
		s.out = s.l.request.appendHead(s.out, st.id, last && len(body) == 0)
	}
	s.out = s.l.request.appendBody(s.out, st.id, last)
	s.window -= len(body)
	st.window -= len(body)
}

// flush sends out as far as the socket takes it.
func (s *session) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	s.c.rest = s.out
	err := s.c.flush()
	s.out = s.out[:copy(s.out, s.c.rest)]
	s.c.rest = nil
	return err
}

// serve moves the connection on after an event.
func (s *session) serve(ev *syscall.EpollEvent) error {
	if s.c.socket != nil {
		s.c.socket.Drained = false
	}
	for ended := epoll.Ended(ev); epoll.Readable(ev); {
		room := s.in[s.n:]
		n, err := s.c.recv(room)
		if err == errAgain {
			if !ended {
				break
			}
			ended = false // the end has no event of its own, so look once more
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return errors.New("connection closed with streams open")
		}
		s.n += n
		if err := s.consume(); err != nil {
			return err
		}
		if n < len(room) && s.c.tls == nil && !ended {
			break
		}
	}
	return s.flush()
}

// consume takes in all frames that are there as a whole.
func (s *session) consume() error {
	b := s.in[:s.n]
	for {
		f, rest, ok, err := frame.Next(b)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := s.take(&f); err != nil {
			return err
		}
		b = rest
	}
	s.n = copy(s.in[:], b)
	return nil
}

// take carries out what a frame says. What a proxy has no reason to send to this client is an error.
func (s *session) take(f *frame.Frame) error {
	switch f.Type {
	case frame.Data, frame.Headers:
		return s.response(f)
	case frame.Settings:
		return s.settings(f)
	case frame.Ping:
		if !f.Has(frame.Ack) {
			s.out = frame.Append(s.out, frame.Ping, frame.Ack, 0, f.Payload)
		}
	case frame.WindowUpdate:
		s.widen(f)
	case frame.Reset, frame.GoAway:
		return fmt.Errorf("the peer ends stream %d or the connection: frame type %d, %x", f.Stream, f.Type, f.Payload)
	case frame.PushPromise, frame.Continuation:
		return fmt.Errorf("unexpected frame of type %d", f.Type)
	}
	return nil
}

// widen takes in what the peer takes more of.
func (s *session) widen(f *frame.Frame) {
	if len(f.Payload) != 4 {
		return
	}
	n := int(binary.BigEndian.Uint32(f.Payload))
	if f.Stream == 0 {
		s.window += n
	} else if st := s.find(f.Stream); st != nil { // else it is of a stream that has ended
		st.window += n
	}
	s.unblock()
}

// response takes in a frame of a response.
func (s *session) response(f *frame.Frame) error {
	if f.Has(frame.Padded) || f.Type == frame.Headers && f.Flags&(frame.Priority|frame.EndHeaders) != frame.EndHeaders {
		return fmt.Errorf("frame type %d with flags %#x", f.Type, f.Flags)
	}
	st := s.find(f.Stream)
	if st == nil {
		return fmt.Errorf("frame type %d on stream %d, which is not open", f.Type, f.Stream)
	}
	if f.Type == frame.Headers {
		return s.head(st, f)
	}
	if !st.headed {
		return fmt.Errorf("DATA before HEADERS on stream %d", f.Stream)
	}
	st.got += len(f.Payload)
	s.giveBack(st, len(f.Payload))
	switch size, end := s.l.spec.BodySize, f.Has(frame.EndStream); {
	case s.l.spec.Exchange.call() && end:
		return fmt.Errorf("stream %d of a call ends without trailers", f.Stream)
	case st.got > size || end && st.got != size:
		return fmt.Errorf("body of %d bytes, want %d", st.got, size)
	case end || s.l.spec.Exchange.lasting() && st.got == size:
		s.completed(st)
	}
	return nil
}

// head takes in HEADERS: the head of a response, or the trailers of a call.
func (s *session) head(st *stream, f *frame.Frame) error {
	if !st.headed {
		if f.Has(frame.EndStream) {
			return fmt.Errorf("the answer on stream %d has no body", f.Stream)
		}
		st.headed = true
		return s.heads.check(f.Payload, responseHead)
	}
	if s.l.spec.Exchange != Unary || !f.Has(frame.EndStream) || st.got != s.l.spec.BodySize {
		return fmt.Errorf("HEADERS on stream %d after %d bytes", f.Stream, st.got)
	}
	if err := s.heads.check(f.Payload, trailers); err != nil {
		return err
	}
	s.completed(st)
	return nil
}

// completed counts an answer and sends what follows it.
func (s *session) completed(st *stream) {
	s.l.requests++
	now := time.Now()
	s.l.latency.Add(now.Sub(st.sent))
	if s.l.once {
		if s.open--; s.open == 0 {
			s.l.open--
		}
		return
	}
	if !s.l.spec.Exchange.lasting() {
		s.start(st, now)
		return
	}
	st.sent, st.got = now, 0
	s.send(st)
}

// giveBack lets the peer send again what it has sent, long before it must wait.
func (s *session) giveBack(st *stream, n int) {
	if s.received += n; s.received > frame.BigWindow/2 {
		s.out = frame.AppendWindowUpdate(s.out, 0, s.received)
		s.received = 0
	}
	if st.received += n; st.received > frame.BigWindow/2 {
		s.out = frame.AppendWindowUpdate(s.out, st.id, st.received)
		st.received = 0
	}
}

func (s *session) find(id uint32) *stream {
	for i := range s.streams {
		if s.streams[i].id == id {
			return &s.streams[i]
		}
	}
	return nil
}

// settings refuses what this client does not adapt to, and acknowledges the rest.
func (s *session) settings(f *frame.Frame) (err error) {
	if f.Has(frame.Ack) {
		return nil
	}
	frame.EachSetting(f.Payload, func(id uint16, value int) {
		switch {
		case id == frame.SettingTableSize && value < frame.TableSize,
			id == frame.SettingMaxStreams && value < len(s.streams),
			id == frame.SettingInitialWindow && value < len(s.l.request.body):
			err = fmt.Errorf("the peer sets %d to %d, which is too little for this load", id, value)
		case id == frame.SettingInitialWindow:
			for i := range s.streams {
				s.streams[i].window += value - s.initial
			}
			s.initial = value
		}
	})
	s.out = frame.Append(s.out, frame.Settings, frame.Ack, 0, nil)
	s.unblock()
	return err
}

// unblock sends what the windows have room for now.
func (s *session) unblock() {
	waiting := s.blocked
	s.blocked = s.blocked[:0] // what has to wait on is put back to where it was, or before
	for _, st := range waiting {
		s.send(st)
	}
}

// silent makes sure that nothing came but what keeps a connection alive.
func (s *session) silent() error {
	before := s.l.requests
	if err := s.serve(&syscall.EpollEvent{Events: syscall.EPOLLIN}); err != nil {
		return err
	}
	for i := range s.streams {
		if st := &s.streams[i]; st.got != s.l.spec.BodySize || s.l.requests != before {
			return fmt.Errorf("stream %d is not silent", st.id)
		}
	}
	return nil
}
