//go:build linux

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/test/bench/epoll"
)

// session is what HTTP/2 adds to a connection: a fixed number of streams, each with one request in
// flight. The requests that take the place of those which one event has completed leave in one write, as they do
// from other clients.
type session struct {
	c       *conn
	l       *loop
	in      [2 * (maxFrame + frameHeaderLen)]byte
	n       int    // bytes of in; they begin with a frame
	out     []byte // frames that are not sent
	streams []stream
	last    uint32 // the latest stream's number
	blocked []*stream
	heads   heads
	// window is what the peer still takes of DATA on the connection. A stream's own never matters: a body
	// that is larger ends the run.
	window   int
	received int // bytes of DATA that were not given back to the peer's window
}

// stream is a place for one request after the other.
type stream struct {
	id     uint32
	sent   time.Time
	headed bool
	got    int
}

// begin opens a session with a request on each stream.
func (c *conn) begin(l *loop) error {
	s := &session{c: c, l: l, streams: make([]stream, l.spec.Streams), window: defaultWindow}
	c.session = s
	if c.socket != nil {
		c.socket.batches = true
	}
	s.out = appendGreeting(nil)
	now := time.Now()
	for i := range s.streams {
		s.start(&s.streams[i], now)
	}
	return s.flush()
}

// start puts a request into out, unless its body has to wait.
func (s *session) start(st *stream, now time.Time) {
	*st = stream{sent: now}
	if s.window < len(s.l.request.body) {
		s.blocked = append(s.blocked, st)
		return
	}
	s.window -= len(s.l.request.body)
	if s.last == 0 {
		s.last = 1
	} else {
		s.last += 2
	}
	st.id = s.last
	s.out = s.l.request.appendTo(s.out, st.id)
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
		s.c.socket.drained = false
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
	for len(b) >= frameHeaderLen {
		size := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if size > maxFrame {
			return fmt.Errorf("frame of %d bytes", size)
		}
		end := frameHeaderLen + size
		if len(b) < end {
			break
		}
		if err := s.frame(b[3], b[4], binary.BigEndian.Uint32(b[5:])&(1<<31-1), b[frameHeaderLen:end]); err != nil {
			return err
		}
		b = b[end:]
	}
	s.n = copy(s.in[:], b)
	return nil
}

// frame carries out what a frame says. What a proxy has no reason to send to this client is an error.
func (s *session) frame(kind, flags byte, id uint32, p []byte) error {
	switch kind {
	case frameData, frameHeaders:
		return s.response(kind, flags, id, p)
	case frameSettings:
		return s.settings(flags, p)
	case framePing:
		if flags&flagAck == 0 {
			s.out = appendFrame(s.out, framePing, flagAck, 0, p)
		}
	case frameWindowUpdate:
		if id == 0 && len(p) == 4 {
			s.window += int(binary.BigEndian.Uint32(p))
			s.unblock()
		}
	case frameReset, frameGoAway:
		return fmt.Errorf("the peer ends stream %d or the connection: frame type %d, %x", id, kind, p)
	case framePushPromise, frameContinuation:
		return fmt.Errorf("unexpected frame of type %d", kind)
	}
	return nil
}

// response takes in a frame of a response.
func (s *session) response(kind, flags byte, id uint32, p []byte) error {
	if flags&flagPadded != 0 || kind == frameHeaders && flags&(flagPriority|flagEndHeaders) != flagEndHeaders {
		return fmt.Errorf("frame type %d with flags %#x", kind, flags)
	}
	st := s.find(id)
	if st == nil || st.headed != (kind == frameData) {
		return fmt.Errorf("frame type %d out of order on stream %d", kind, id)
	}
	if kind == frameHeaders {
		if err := s.heads.check(p, s.l.spec.BodySize); err != nil {
			return err
		}
		st.headed = true
	} else {
		st.got += len(p)
		if s.received += len(p); s.received > bigWindow/2 {
			s.out = appendWindowUpdate(s.out, s.received)
			s.received = 0
		}
	}
	if flags&flagEndStream == 0 {
		return nil
	}
	if st.got != s.l.spec.BodySize {
		return fmt.Errorf("body of %d bytes, want %d", st.got, s.l.spec.BodySize)
	}
	s.l.requests++
	now := time.Now()
	s.l.latency.Add(now.Sub(st.sent))
	s.start(st, now)
	return nil
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
func (s *session) settings(flags byte, p []byte) error {
	if flags&flagAck != 0 {
		return nil
	}
	for ; len(p) >= settingLen; p = p[settingLen:] {
		value := int(binary.BigEndian.Uint32(p[2:]))
		switch id := binary.BigEndian.Uint16(p); {
		case id == settingTableSize && value < tableSize,
			id == settingMaxStreams && value < len(s.streams),
			id == settingInitialWindow && value < len(s.l.request.body):
			return fmt.Errorf("the peer sets %d to %d, which is too little for this load", id, value)
		}
	}
	s.out = appendFrame(s.out, frameSettings, flagAck, 0, nil)
	return nil
}

// unblock starts requests whose body has room now.
func (s *session) unblock() {
	for len(s.blocked) > 0 && s.window >= len(s.l.request.body) {
		st := s.blocked[0]
		s.blocked = s.blocked[:copy(s.blocked, s.blocked[1:])]
		s.start(st, st.sent)
	}
}
