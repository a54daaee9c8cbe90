package http2

import (
	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
)

// beginData counts a DATA frame, including its padding, against the windows (RFC 9113 section 6.9.1).
func (c *Conn) beginData() error {
	h := &c.head
	c.pings = 0
	if h.Stream == 0 {
		return connError(ProtocolError, "DATA on stream 0")
	}
	if c.recvWindow -= h.Length; c.recvWindow < 0 {
		return connError(FlowControlError, "more DATA than the connection's window")
	}
	if h.Has(frame.FlagPadded) {
		if h.Length == 0 {
			return connError(FrameSizeError, "padded frame without the length of padding")
		}
		c.fixed = 1
		c.left--
	}
	s, how := c.find(h.Stream)
	switch {
	case how == neverOpened:
		return connError(ProtocolError, "DATA on an idle stream")
	case how == closedLocally, how == closedLongAgo && c.client != nil:
	case s == nil || s.remoteEnded:
		return c.streamError(StreamClosed, errAfterEnd)
	case s.of != nil && !s.of.headed:
		return c.streamError(ProtocolError, errNoHead)
	default:
		if s.recvWindow -= h.Length; s.recvWindow < 0 {
			return c.streamError(FlowControlError, errWindow)
		}
	}
	return nil
}

// data processes a part of DATA. The stream may have ended since the frame began.
func (c *Conn) data(b []byte) error {
	s, _ := c.find(c.head.Stream)
	if s == nil || s.remoteEnded {
		c.credit(len(b))
		return nil
	}
	s.received += int64(len(b))
	if n := s.length; n >= 0 && s.received > n {
		c.credit(len(b))
		return c.streamError(ProtocolError, errLength)
	}
	s.body.write(b)
	c.credit(len(b)) // the windows of the streams bound what is held, see the package comment
	s.wakeReader()
	return nil
}

func (c *Conn) endData() error {
	h := &c.head
	overhead := 0
	if h.Has(frame.FlagPadded) {
		overhead = 1 + c.padded
		c.credit(overhead)
	}
	s, _ := c.find(h.Stream)
	open := s != nil && !s.remoteEnded
	if open {
		s.credit(overhead) // it is never read
	}
	if h.Length > overhead {
		c.controls.earn(2)
	} else if !h.Has(frame.FlagEndStream) {
		if err := c.control(costEmptyData); err != nil {
			return err
		}
	}
	if !open || !h.Has(frame.FlagEndStream) {
		return nil
	}
	if n := s.length; n >= 0 && s.received != n {
		return c.streamError(ProtocolError, errLength)
	}
	c.endRemote(s)
	return nil
}
