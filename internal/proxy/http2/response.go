package http2

import (
	"errors"

	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
)

// What is wrong with responses, beside what package head says.
var (
	errAfterEnd = errors.New("frame behind the end of the stream")
	errTrailer  = errors.New("trailer section that is malformed, does not end the stream, or cuts the body short")
	errNoHead   = errors.New("DATA before the header section")
	errLength   = errors.New("content is not as long as it should be")
	errWindow   = errors.New("windows of flow control not kept")
	errInterims = errors.New("too many interim responses at once")
)

// maxInterims bounds how many interim heads of a response wait to be read; their sizes together are
// bounded by MaxHeaderBytes.
const maxInterims = 64

// endResponse follows a header block that is a response head.
func (c *Conn) endResponse() error {
	b := &c.block
	s, _ := c.find(b.stream)
	if s == nil {
		return nil
	}
	x, r := &b.section, s.of
	if x.Large {
		return c.streamError(Cancel, errLarge)
	}
	length, content, err := x.SettleResponse(b.ended, r.toHead)
	if err != nil {
		return c.streamError(ProtocolError, err)
	}
	if r.toConnect && x.Status() >= 200 && x.Status() < 300 {
		length, content = -1, -1 // what follows is a tunnel's
		s.connected = true
	}
	if x.Status() < 200 {
		if !r.keepInterim(x, c.o.MaxHeaderBytes) {
			return c.streamError(EnhanceYourCalm, errInterims)
		}
		s.wakeReader()
		return c.control(1)
	}
	s.header, b.section = b.section, s.header
	r.headed, r.length, s.length = true, length, content
	c.controls.earn(4)
	if b.ended {
		c.endRemote(s)
	} else {
		s.wakeReader()
	}
	return nil
}

// keepInterim puts an interim head aside, in exchange for another section's memory.
func (s *ClientStream) keepInterim(x *head.Section, most int) bool {
	if s.interims == nil {
		s.interims = &interims{}
	}
	p, size := s.interims, x.Size()
	for i := p.first; i < p.last; i++ {
		size += p.list[i].Size()
	}
	if p.last == maxInterims || size > most {
		return false
	}
	if p.last == len(p.list) {
		p.list = append(p.list, head.Section{})
	}
	p.list[p.last], *x = *x, p.list[p.last]
	p.last++
	return true
}

// fail ends a stream of ours because the connection has ended. A response that is complete stays readable.
func (c *Conn) fail(s *Stream, cause error) {
	why := ErrClosed
	if told, ok := cause.(*ConnError); ok {
		why = told
	}
	switch {
	case s.remoteEnded:
		c.stopWriting(s, why)
		return
	case c.unknown(s):
		why = ErrUnsent
	}
	s.err = why
	c.drop(s)
}

// unknown reports that the backend has certainly not got the head of the stream's request.
func (c *Conn) unknown(s *Stream) bool { return s.unsent || c.broken && s.headEnd > c.wrote }

// cannotWrite follows a write that failed. A backend may have answered before it closed, such as with 413, so
// what has come is still read, for Timeouts.Linger at most.
func (cl *Client) cannotWrite(cause error) {
	c := cl.c
	cl.gone, c.cause, c.brokenAt = true, cause, c.clock()
	for _, s := range c.streams {
		switch {
		case s.err != nil:
		case c.unknown(s):
			s.err = ErrUnsent
			c.drop(s)
		default:
			c.stopWriting(s, ErrClosed)
		}
	}
}

// stopWriting has calls that write fail, while those that read go on.
func (c *Conn) stopWriting(s *Stream, why error) {
	s.stopped = why
	s.entry.Leave()
	s.writable.send()
}
