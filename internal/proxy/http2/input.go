package http2

import (
	"encoding/binary"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
)

// input is how far the frame being read has come. Frames are taken in as their bytes come: DATA
// and header blocks in pieces, of others only what must be whole waits in the reader's buffer.
type input struct {
	prefaced int // bytes of the preface that have come
	inFrame  bool
	head     frame.Header
	fixed    int   // bytes that must be there at once, before anything else of the frame
	left     int   // bytes of the frame that have not come, behind fixed and before padding
	padding  int   // bytes of it that have not come
	padded   int   // bytes of it
	skip     bool  // the rest of the frame means nothing
	frames   int64 // that are complete, header blocks counting as one
	settings peerSettings
	block    block
}

// maxPriorityUpdate is how many bytes are looked at of a PRIORITY_UPDATE.
const maxPriorityUpdate = 4 + 128

// consume takes in what it can of b and tells how much that was.
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

// begin judges a frame header, and says how much must be there before the frame means anything.
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
	whole, ofStream := -1, true // its length, where there is only one
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

// beginOther is for frames of the connection that may be long and are not needed as a whole.
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

// setFixed has the next entry of SETTINGS come as a whole.
func (c *Conn) setFixed() {
	if c.left > 0 {
		c.fixed = frame.SettingLen
		c.left -= frame.SettingLen
	}
}

// prefix carries out what must be whole: all of short frames, the beginning of others.
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

// piece takes in bytes of DATA or of a header block.
func (c *Conn) piece(b []byte) error {
	if c.head.Type == frame.Data {
		return c.data(b)
	}
	return c.fragment(b)
}

// end follows the last byte of a frame.
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
