package http2

import (
	"errors"

	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
)

// Errors in responses, in addition to those of package head.
var (
	errAfterEnd = errors.New("frame after the end of the stream")
	errTrailer  = errors.New("trailer section that is malformed, does not end the stream, or cuts the body short")
	errNoHead   = errors.New("DATA before the header section")
	errLength   = errors.New("content is not as long as it should be")
	errWindow   = errors.New("flow-control window exceeded")
	errInterims = errors.New("too many interim responses at once")
)

// maxInterims is the largest number of interim heads of a response that wait to be read. MaxHeaderBytes bounds the sum
// of their sizes.
const maxInterims = 64

// endResponse handles a complete header block that is a response head.
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
		length, content = -1, -1 // the following bytes belong to a tunnel
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

// keepInterim stores an interim head, in exchange for another section's memory.
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

// fail ends a stream to a backend because the connection has ended. A complete response remains readable.
func (c *Conn) fail(s *Stream, cause error) {
	why := ErrClosed
	if connErr, ok := cause.(*ConnError); ok {
		why = connErr
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

// unknown reports whether the backend has certainly not received the head of the stream's request.
func (c *Conn) unknown(s *Stream) bool { return s.unsent || c.broken && s.headEnd > c.wrote }

// cannotWrite must be called after a write has failed. The backend may have answered before it closed, for example with
// 413, so what has arrived is still read, for at most Timeouts.Linger.
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

// stopWriting makes calls that write fail. Calls that read continue.
func (c *Conn) stopWriting(s *Stream, why error) {
	s.stopped = why
	s.entry.Leave()
	s.writable.send()
}
