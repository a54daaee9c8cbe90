//go:build linux

package origin

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"syscall"

	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/test/bench/epoll"
	"github.com/moongate-dev/moongate/test/bench/frame"
)

// What a call's first message begins with, behind its prefix of five bytes.
const (
	// Unary is answered by a message of the same size and trailers, when the request has ended.
	Unary = 'u'
	// Watch is answered by a message of the same size, when the request has ended. The call does not end.
	Watch = 'w'
	// Echo has every byte back at once. The call does not end.
	Echo = 'e'
)

// messagePrefix is the size of what stands before each message: a flag and its length.
const messagePrefix = 5

// session is one connection of HTTP/2 from a proxy. Header blocks that come in are not read: what a call
// wants stands in its message.
type session struct {
	fd       int
	in       [4 * (frame.MaxSize + frame.HeaderLen)]byte
	n        int // bytes of in; behind the preface they begin with a frame
	greeted  bool
	out      []byte // frames that the socket did not take yet
	streams  []*stream
	free     []*stream
	window   int // what the proxy still takes of DATA on the connection
	initial  int // what it takes on a new stream
	received int // bytes of DATA that were not given back to the proxy's window
	block    bytes.Buffer
	encoder  *hpack.Encoder
}

// stream is one call.
type stream struct {
	id       uint32
	mode     byte // Unary, Watch, Echo; 0 before the first message
	headed   bool
	size     int // bytes of the request
	window   int
	received int
	unsent   []byte // what waits for the window
	ended    bool   // trailers follow unsent
}

func newSession(fd int) *session {
	s := &session{fd: fd, window: frame.DefaultWindow, initial: frame.DefaultWindow}
	s.encoder = hpack.NewEncoder(&s.block)
	s.out = frame.AppendSettings(s.out, [2]uint32{frame.SettingInitialWindow, frame.BigWindow})
	s.out = frame.AppendWindowUpdate(s.out, 0, frame.BigWindow-frame.DefaultWindow)
	return s
}

func (s *session) serve(ev *syscall.EpollEvent) bool {
	for epoll.Readable(ev) {
		room := s.in[s.n:]
		n, errno := epoll.Recv(s.fd, room)
		if errno == syscall.EAGAIN {
			break
		}
		if errno != 0 || n == 0 {
			return false
		}
		s.n += n
		if s.consume() != nil {
			return false
		}
		if n < len(room) && !epoll.Ended(ev) {
			break
		}
	}
	return s.flush()
}

// consume takes in all frames that are there as a whole.
func (s *session) consume() error {
	b := s.in[:s.n]
	if !s.greeted {
		if len(b) < len(frame.Preface) {
			return nil
		}
		if string(b[:len(frame.Preface)]) != frame.Preface {
			return fmt.Errorf("no HTTP/2: %q", b[:len(frame.Preface)])
		}
		b, s.greeted = b[len(frame.Preface):], true
	}
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

// take carries out what a frame says.
func (s *session) take(f *frame.Frame) error {
	switch f.Type {
	case frame.Headers:
		if s.find(f.Stream) == nil {
			s.open(f.Stream)
		}
	case frame.Data:
		return s.data(f)
	case frame.Settings:
		s.settings(f)
	case frame.Ping:
		if !f.Has(frame.Ack) {
			s.out = frame.Append(s.out, frame.Ping, frame.Ack, 0, f.Payload)
		}
	case frame.WindowUpdate:
		s.widen(f.Stream, int(binary.BigEndian.Uint32(f.Payload)))
	case frame.Reset:
		s.close(f.Stream)
	case frame.GoAway, frame.Continuation, frame.PushPromise:
		return fmt.Errorf("frame of type %d", f.Type)
	}
	return nil
}

func (s *session) open(id uint32) {
	st := &stream{}
	if n := len(s.free); n > 0 {
		st, s.free = s.free[n-1], s.free[:n-1]
	}
	*st = stream{id: id, window: s.initial, unsent: st.unsent[:0]}
	s.streams = append(s.streams, st)
}

func (s *session) find(id uint32) *stream {
	for _, st := range s.streams {
		if st.id == id {
			return st
		}
	}
	return nil
}

func (s *session) close(id uint32) {
	for i, st := range s.streams {
		if st.id == id {
			last := len(s.streams) - 1
			s.streams[i], s.streams = s.streams[last], s.streams[:last]
			s.free = append(s.free, st)
			return
		}
	}
}

// data takes in a part of a call's messages.
func (s *session) data(f *frame.Frame) error {
	st := s.find(f.Stream)
	if st == nil || f.Has(frame.Padded) {
		return fmt.Errorf("DATA on stream %d", f.Stream)
	}
	s.giveBack(st, len(f.Payload))
	if st.mode == 0 && len(f.Payload) > 0 {
		if len(f.Payload) <= messagePrefix {
			return fmt.Errorf("the first message begins with %d bytes", len(f.Payload))
		}
		st.mode = f.Payload[messagePrefix]
	}
	st.size += len(f.Payload)
	switch end := f.Has(frame.EndStream); {
	case st.mode == Echo && !end:
		s.answer(st, f.Payload)
	case (st.mode == Unary || st.mode == Watch) && end:
		st.ended = st.mode == Unary
		s.answer(st, answerBytes[:min(st.size, len(answerBytes))])
	case st.mode == Echo || end || st.mode != Unary && st.mode != Watch:
		return fmt.Errorf("call of kind %q, end %v", st.mode, end)
	}
	return nil
}

var answerBytes = filler(SmallBody)

// giveBack lets the proxy send again what it has sent, long before it must wait.
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

// answer sends bytes, as far as the windows go, behind a head and before trailers where they are due.
func (s *session) answer(st *stream, b []byte) {
	if !st.headed {
		st.headed = true
		s.out = s.appendHeaders(s.out, st.id, frame.EndHeaders, ":status", "200", "content-type", "application/grpc")
	}
	if len(st.unsent) > 0 {
		st.unsent = append(st.unsent, b...)
		s.advance(st)
		return
	}
	b = b[s.send(st, b):]
	if st.unsent = append(st.unsent, b...); len(b) == 0 {
		s.finish(st)
	}
}

// advance sends what was waiting for the windows.
func (s *session) advance(st *stream) {
	st.unsent = st.unsent[:copy(st.unsent, st.unsent[s.send(st, st.unsent):])]
	if len(st.unsent) == 0 {
		s.finish(st)
	}
}

// send puts as much of b into out as the windows let through.
func (s *session) send(st *stream, b []byte) int {
	sent := 0
	for {
		n := min(len(b)-sent, frame.MaxSize, s.window, st.window)
		if n <= 0 {
			return sent
		}
		s.out = frame.Append(s.out, frame.Data, 0, st.id, b[sent:sent+n])
		s.window -= n
		st.window -= n
		sent += n
	}
}

// finish ends a call whose last byte is sent.
func (s *session) finish(st *stream) {
	if st.ended {
		s.out = s.appendHeaders(s.out, st.id, frame.EndHeaders|frame.EndStream, "grpc-status", "0", "grpc-message", "")
		s.close(st.id)
	}
}

func (s *session) appendHeaders(out []byte, id uint32, flags byte, fields ...string) []byte {
	s.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		s.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // into memory: it cannot fail
	}
	return frame.Append(out, frame.Headers, flags, id, s.block.Bytes())
}

// widen takes in what the proxy takes more of, on a stream or on the connection.
func (s *session) widen(id uint32, n int) {
	if id == 0 {
		s.window += n
	} else if st := s.find(id); st != nil {
		st.window += n
	}
	s.unblock()
}

// unblock sends what the windows have room for now.
func (s *session) unblock() {
	for i := len(s.streams) - 1; i >= 0; i-- { // backwards, for a call that ends is replaced by the last
		if st := s.streams[i]; len(st.unsent) > 0 {
			s.advance(st)
		}
	}
}

func (s *session) settings(f *frame.Frame) {
	if f.Has(frame.Ack) {
		return
	}
	frame.EachSetting(f.Payload, func(id uint16, value int) {
		switch id {
		case frame.SettingTableSize:
			s.encoder.SetMaxDynamicTableSizeLimit(uint32(value))
		case frame.SettingInitialWindow:
			for _, st := range s.streams {
				st.window += value - s.initial
			}
			s.initial = value
		}
	})
	s.out = frame.Append(s.out, frame.Settings, frame.Ack, 0, nil)
	s.unblock()
}

// flush sends out; false on a broken connection.
func (s *session) flush() bool {
	rest := s.out
	for len(rest) > 0 {
		n, errno := epoll.Send(s.fd, rest)
		if errno == syscall.EAGAIN {
			break
		}
		if errno != 0 {
			return false
		}
		rest = rest[n:]
	}
	s.out = s.out[:copy(s.out, rest)]
	return true
}
