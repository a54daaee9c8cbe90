package http2

import (
	"encoding/binary"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
)

// input is the state of the frame being read. Frames are processed as their bytes arrive: DATA and header blocks in
// parts; of other frames only the part that must be complete is kept in the reader's buffer.
type input struct {
	prefaced int // bytes of the preface that have arrived
	inFrame  bool
	head     frame.Header
	fixed    int   // bytes that must be available at once, before the rest of the frame
	left     int   // bytes of the frame still to come, after fixed and before the padding
	padding  int   // bytes of the padding still to come
	padded   int   // bytes of the padding
	skip     bool  // the rest of the frame is ignored
	frames   int64 // number of complete frames; a header block counts as one
	settings peerSettings
	block    block
}

// maxPriorityUpdate is how many bytes of a PRIORITY_UPDATE are examined.
const maxPriorityUpdate = 4 + 128

// consume processes as much of b as it can, and returns the number of bytes.
func (c *Conn) consume(b []byte) (n int, err error) {
	for err == nil {
		rest := b[n:]
		k, done := 0, false
		switch {
		case c.prefaced < len(Preface):
			k, err = c.preface(rest)
			done = k == 0
		case !c.inFrame:
			if done = len(rest) < frame.HeaderLen; !done {
				k = frame.HeaderLen
				c.head = frame.ParseHeader(rest)
				err = c.begin()
			}
		case c.fixed > 0:
			if done = len(rest) < c.fixed; !done {
				k, c.fixed = c.fixed, 0
				err = c.prefix(rest[:k])
			}
		case c.left > 0:
			k = min(len(rest), c.left)
			c.left -= k
			if done = k == 0; !done && !c.skip {
				err = c.piece(rest[:k])
			}
		case c.padding > 0:
			k = min(len(rest), c.padding)
			c.padding -= k
			done = k == 0
		default:
			c.inFrame = false
			err = c.end()
			if !c.block.open {
				c.frames++
			}
		}
		n += k
		if done {
			break
		}
	}
	return n, err
}

func (c *Conn) preface(b []byte) (int, error) {
	want := Preface[c.prefaced:]
	k := min(len(b), len(want))
	if string(b[:k]) != want[:k] {
		return k, connError(ProtocolError, "not the preface of HTTP/2")
	}
	c.prefaced += k
	return k, nil
}

// begin checks a frame header, and sets how much must be available before the frame can be processed.
func (c *Conn) begin() error {
	h := &c.head
	c.inFrame, c.fixed, c.left, c.padding, c.skip = true, 0, h.Length, 0, false
	if h.Length > frame.MaxPayload {
		return connError(FrameSizeError, "frame too long")
	}
	if !c.greeted && (h.Type != frame.Settings || h.Has(frame.FlagAck)) {
		return connError(ProtocolError, "the first frame is not SETTINGS")
	}
	if c.block.open != (h.Type == frame.Continuation) || c.block.open && c.block.stream != h.Stream {
		return connError(ProtocolError, "header block interrupted, or CONTINUATION without one")
	}
	whole, ofStream := -1, true // its length, if only one is valid
	switch h.Type {
	case frame.Data:
		return c.beginData()
	case frame.Headers:
		return c.beginHeaders()
	case frame.Continuation:
		return c.continueBlock()
	case frame.Priority:
		whole = 5
	case frame.Reset, frame.WindowUpdate:
		whole, ofStream = 4, h.Type == frame.Reset
	case frame.Ping:
		whole, ofStream = 8, false
	case frame.Settings:
		return c.beginSettings()
	case frame.PushPromise:
		return connError(ProtocolError, "PUSH_PROMISE that was not allowed")
	case frame.GoAway:
		return c.beginOther(8)
	case frame.PriorityUpdate:
		return c.beginOther(4)
	default:
		c.skip = true
		return c.control(1)
	}
	if h.Length != whole {
		return connError(FrameSizeError, "frame of wrong length")
	}
	if h.Type != frame.WindowUpdate && ofStream != (h.Stream != 0) {
		return connError(ProtocolError, "frame on stream 0, or not on it")
	}
	c.fixed, c.left = whole, 0
	return nil
}

// beginOther begins connection-level frames that may be long and need not be complete.
func (c *Conn) beginOther(least int) error {
	if c.head.Stream != 0 {
		return connError(ProtocolError, "frame that is not on stream 0")
	}
	if c.head.Length < least {
		return connError(FrameSizeError, "frame of wrong length")
	}
	c.fixed = min(c.head.Length, maxPriorityUpdate)
	c.left -= c.fixed
	c.skip = true
	return c.control(1)
}

func (c *Conn) beginSettings() error {
	h := &c.head
	switch {
	case h.Stream != 0:
		return connError(ProtocolError, "SETTINGS of a stream")
	case h.Has(frame.FlagAck) && h.Length != 0, h.Length%frame.SettingLen != 0:
		return connError(FrameSizeError, "SETTINGS of wrong length")
	}
	c.settings = peerSettings{window: c.initialWindow, streams: unlimited, headers: unlimited}
	if c.client != nil && c.greeted {
		c.settings.streams, c.settings.headers = c.client.allowed, c.client.headers
	}
	c.setFixed()
	return c.control(costSettings)
}

// setFixed makes the next entry of SETTINGS be read as a whole.
func (c *Conn) setFixed() {
	if c.left > 0 {
		c.fixed = frame.SettingLen
		c.left -= frame.SettingLen
	}
}

// prefix processes the part that must be complete: all of short frames, the beginning of others.
func (c *Conn) prefix(b []byte) error {
	switch c.head.Type {
	case frame.Data:
		return c.pad(int(b[0]))
	case frame.Headers:
		return c.headersPrefix(b)
	case frame.Priority:
		return c.priority(b)
	case frame.Reset:
		return c.peerReset(Code(binary.BigEndian.Uint32(b)))
	case frame.Settings:
		c.setFixed()
		return c.settings.set(frame.Setting(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint32(b[2:]), c.client != nil)
	case frame.Ping:
		return c.ping(b)
	case frame.WindowUpdate:
		return c.windowUpdate(int(binary.BigEndian.Uint32(b) & frame.MaxWindow))
	case frame.GoAway:
		if c.client != nil {
			c.client.goAway(binary.BigEndian.Uint32(b) & frame.MaxStreamID)
		}
	case frame.PriorityUpdate:
		return c.priorityUpdate(binary.BigEndian.Uint32(b)&frame.MaxStreamID, b[4:])
	}
	return nil
}

func (c *Conn) pad(n int) error {
	if n > c.left {
		return connError(ProtocolError, "more padding than frame")
	}
	c.left -= n
	c.padding, c.padded = n, n
	return nil
}

// piece processes bytes of DATA or of a header block.
func (c *Conn) piece(b []byte) error {
	if c.head.Type == frame.Data {
		return c.data(b)
	}
	return c.fragment(b)
}

// end must be called after the last byte of a frame.
func (c *Conn) end() error {
	switch c.head.Type {
	case frame.Data:
		return c.endData()
	case frame.Headers, frame.Continuation:
		if c.head.Has(frame.FlagEndHeaders) {
			return c.endBlock()
		}
	case frame.Settings:
		return c.endSettings()
	}
	return nil
}
