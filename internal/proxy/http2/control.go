package http2

import (
	"encoding/binary"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
)

func (c *Conn) endSettings() error {
	if c.head.Has(frame.FlagAck) {
		c.answered = true
		return nil
	}
	first := !c.greeted
	c.greeted = true
	if c.client != nil {
		c.client.headers = c.settings.headers
		c.client.allow(c.settings.streams, first)
	}
	c.out = frame.AppendHeader(c.out, 0, frame.Settings, frame.FlagAck, 0)
	change := c.settings.window - c.initialWindow
	c.initialWindow = c.settings.window
	if change == 0 {
		return nil
	}
	for _, s := range c.streams {
		if s.err != nil || s.localEnded { // RFC 9113 section 6.9.2
			continue
		}
		if s.sendWindow += change; s.sendWindow > frame.MaxWindow {
			return connError(FlowControlError, "window too large")
		}
		c.schedule(s)
	}
	return nil
}

// schedule adds a stream whose window has grown to those that write, if it has anything to write.
func (c *Conn) schedule(s *Stream) {
	if s.pending && s.sendWindow > 0 && s.unwritable() == nil {
		c.queue.Add(&s.entry, s.short())
	}
}

func (c *Conn) ping(b []byte) error {
	if !c.head.Has(frame.FlagAck) {
		c.out = frame.AppendPing(c.out, frame.FlagAck, binary.BigEndian.Uint64(b))
	} else if c.draining == drainAnnounced && binary.BigEndian.Uint64(b) == pingOfDrain {
		c.refuseMore()
	}
	return c.control(1)
}

func (c *Conn) windowUpdate(n int) error {
	if err := c.control(1); err != nil {
		return err
	}
	if c.head.Stream == 0 {
		switch {
		case n == 0:
			return connError(ProtocolError, "WINDOW_UPDATE of 0")
		case n > frame.MaxWindow-c.sendWindow:
			return connError(FlowControlError, "window too large")
		}
		if c.sendWindow += n; c.sendWindow > 0 {
			c.queue.Feed()
		}
		return nil
	}
	s, how := c.find(c.head.Stream)
	switch {
	case how == neverOpened:
		return connError(ProtocolError, "WINDOW_UPDATE of an idle stream")
	case s == nil:
		return nil
	case n == 0:
		return c.streamError(ProtocolError, errWindow)
	case n > frame.MaxWindow-s.sendWindow:
		return c.streamError(FlowControlError, errWindow)
	}
	s.sendWindow += n
	c.schedule(s)
	return nil
}

// priority handles a PRIORITY frame, which RFC 9113 deprecates; only its form is checked.
func (c *Conn) priority(b []byte) error {
	if err := c.control(1); err != nil {
		return err
	}
	switch {
	case !c.dependsOnItself(b):
		return nil
	case c.head.Stream > c.lastID:
		return connError(ProtocolError, "stream depends on itself")
	}
	return c.streamError(ProtocolError, errDepends)
}

// dependsOnItself reports a stream error by RFC 7540 section 5.3.1.
func (c *Conn) dependsOnItself(b []byte) bool {
	return binary.BigEndian.Uint32(b)&frame.MaxStreamID == c.head.Stream
}

func (c *Conn) priorityUpdate(id uint32, value []byte) error {
	if c.client != nil {
		return connError(ProtocolError, "PRIORITY_UPDATE from a server") // RFC 9218 section 7.1
	}
	if id == 0 {
		return connError(ProtocolError, "PRIORITY_UPDATE of stream 0")
	}
	if s, _ := c.find(id); s != nil {
		c.queue.Reprioritise(&s.entry, value)
	}
	return nil
}

func (c *Conn) peerReset(code Code) error {
	s, how := c.find(c.head.Stream)
	if how == neverOpened {
		return connError(ProtocolError, "RST_STREAM of an idle stream")
	}
	if s == nil {
		return c.control(1)
	}
	err := &ResetError{Code: code, ByPeer: true}
	if s.of != nil && s.remoteEnded {
		// A complete response remains valid: the backend wants no more of the request (RFC 9113 section 8.1).
		c.stopWriting(s, err)
		c.endLocal(s)
		return nil
	}
	s.err, s.byPeer = err, true
	c.drop(s)
	if s.of != nil {
		return nil // this side has opened it
	}
	return c.provoked()
}

// streamError resets the stream of the current frame, whether it is open or not, because of an error of the peer.
func (c *Conn) streamError(code Code, why error) error {
	s, _ := c.find(c.head.Stream)
	if s == nil {
		c.out = frame.AppendReset(c.out, c.head.Stream, code)
		return c.provoked()
	}
	c.resetStream(s, code)
	if s.of != nil {
		s.err = &MalformedError{Why: why}
		return nil // bounded by the number of streams that this side opens
	}
	return c.provoked()
}

// The values of the PINGs that this side sends.
const pingOfDrain, pingOfWatch = 1, 2
