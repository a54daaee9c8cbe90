package http2

import (
	"errors"

	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/proxy/http2/encode"
	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
)

var (
	errLarge   = errors.New("header section too large")
	errMany    = errors.New("too many streams")
	errDepends = errors.New("stream depends on itself")
)

type blockKind uint8

const (
	blockSkip blockKind = iota // decoded only to update the table
	blockHeader
	blockTrailer
	blockResponse
)

// block is an incomplete header block: HEADERS and its CONTINUATION frames.
type block struct {
	open   bool
	kind   blockKind
	stream uint32
	ended  bool // HEADERS has END_STREAM
	bytes  int
	frames int // number of CONTINUATION frames
	updates
	s *Stream // the stream that a request begins, not yet published
	// section is the section of a response or of trailers. It is exchanged for the stream's when it is complete.
	section head.Section
	// part is the beginning of an incomplete field. The decoder would keep the memory of the longest one indefinitely.
	part []byte
}

const headerTable = 4 << 10 // bytes of the peer's dynamic table, the protocol's default

func (c *Conn) beginHeaders() error {
	h := &c.head
	c.pings = 0
	if h.Stream == 0 {
		return connError(ProtocolError, "HEADERS on stream 0")
	}
	if h.Has(frame.FlagPadded) {
		c.fixed = 1
	}
	if h.Has(frame.FlagPriority) {
		c.fixed += 5
	}
	if c.left -= c.fixed; c.left < 0 {
		return connError(FrameSizeError, "HEADERS too short")
	}
	if c.decoder == nil {
		c.decoder = c.newDecoder()
	}
	b := &c.block
	*b = block{open: true, stream: h.Stream, ended: h.Has(frame.FlagEndStream), section: b.section, part: b.part[:0]}
	return c.identify()
}

func (c *Conn) newDecoder() *hpack.Decoder {
	d := hpack.NewDecoder(headerTable, c.field)
	d.SetMaxStringLength(2 * c.o.MaxHeaderBytes)
	return d
}

// identify determines the kind of the block that begins: a request, trailers, or an error.
func (c *Conn) identify() error {
	b := &c.block
	s, how := c.find(b.stream)
	switch {
	case how == neverOpened && c.client != nil:
		return connError(ProtocolError, "HEADERS on a stream that we have not opened")
	case how == neverOpened && b.stream%2 == 0:
		return connError(ProtocolError, "stream with an even number")
	case how == neverOpened:
		c.lastID = b.stream
		if c.draining == drainRefuse {
			return nil
		}
		b.kind, b.s = blockHeader, c.newStream(b.stream)
	case how == closedLocally, how == closedLongAgo && c.client != nil:
		return c.control(1)
	case how == closedLongAgo:
		return connError(ProtocolError, "stream numbers do not rise")
	case how == closedByEnd:
		return connError(StreamClosed, "HEADERS on a stream that has ended")
	case s == nil || s.remoteEnded:
		return c.streamError(StreamClosed, errAfterEnd)
	case s.of != nil && !s.of.headed:
		b.kind = blockResponse
		b.section.Reset(head.ResponseHeader)
	case !b.ended, s.connected: // in a tunnel only DATA may follow (RFC 9113 section 8.5)
		return c.streamError(ProtocolError, errTrailer)
	default:
		b.kind = blockTrailer
		b.section.Reset(head.Trailer)
	}
	return nil
}

func (c *Conn) headersPrefix(b []byte) error {
	if c.head.Has(frame.FlagPadded) {
		if err := c.pad(int(b[0])); err != nil {
			return err
		}
		b = b[1:]
	}
	if c.head.Has(frame.FlagPriority) && c.block.kind == blockHeader && c.dependsOnItself(b) {
		c.block.s.header.Err = errDepends
	}
	return nil
}

func (c *Conn) continueBlock() error {
	b := &c.block
	b.frames++
	if b.frames > maxContinuations {
		return connError(EnhanceYourCalm, "too many CONTINUATION frames")
	}
	return c.control(costContinuation)
}

// fragment decodes a part of a header block.
func (c *Conn) fragment(p []byte) error {
	b := &c.block
	if b.bytes += len(p); b.bytes > 2*c.o.MaxHeaderBytes {
		return connError(EnhanceYourCalm, "header block too large")
	}
	for len(p) > 0 {
		leading := !b.field
		n, ok := b.scan(p)
		if !ok {
			return connError(CompressionError, "update of the table's size behind a field")
		}
		if c.decode(p[:b.whole]) != nil {
			return connError(CompressionError, "header block cannot be decoded")
		}
		b.part = append(b.part, p[b.whole:n]...)
		if leading && !b.field && b.state == atStart {
			c.tableSize = uint32(b.left)
			if c.decoder.Close() != nil { // another table size update may follow
				return connError(CompressionError, "header block cannot be decoded")
			}
		}
		p = p[n:]
	}
	return nil
}

// decode passes bytes that end a field to the decoder, preceded by the field's earlier bytes.
func (c *Conn) decode(p []byte) error {
	b := &c.block
	if len(p) > 0 && len(b.part) > 0 {
		b.part = append(b.part, p...)
		p, b.part = b.part, b.part[:0]
	}
	_, err := c.decoder.Write(p)
	return err
}

// field processes a decoded field. As far as the table allows, fields that are too large or not needed are not decoded.
func (c *Conn) field(f hpack.HeaderField) {
	b := &c.block
	x, h := &b.section, (*head.Head)(nil)
	switch b.kind {
	case blockSkip:
		c.decoder.SetEmitEnabled(false)
		return
	case blockHeader:
		x, h = &b.s.header, &b.s.Head
	}
	x.Add(f.Name, f.Value, h, c.o.MaxHeaderBytes, c.o.MaxFields)
	if x.Large {
		c.decoder.SetEmitEnabled(false)
	}
}

func (c *Conn) endBlock() error {
	b := &c.block
	b.open = false
	c.decoder.SetEmitEnabled(true)
	if len(b.part) > 0 || c.decoder.Close() != nil {
		return connError(CompressionError, "header block cut off")
	}
	switch b.kind {
	case blockHeader:
		return c.endHeader()
	case blockTrailer:
		return c.endTrailer()
	case blockResponse:
		return c.endResponse()
	}
	return nil
}

// endHeader begins a stream or refuses it.
func (c *Conn) endHeader() error {
	b := &c.block
	s := b.s
	b.s = nil
	if c.ended { // a write has failed meanwhile, and nothing would end the stream
		s.recycle()
		return nil
	}
	var status int
	var why error
	switch {
	case c.open >= c.o.MaxStreams || len(c.streams) >= 2*c.o.MaxStreams:
		status, why = 503, errMany
		c.out = frame.AppendReset(c.out, s.id, RefusedStream)
	case s.header.Large:
		status, why = 431, errLarge
		c.out = encode.AppendSection(c.out, s.id, status, nil, 0, true, true)
		if !b.ended {
			c.out = frame.AppendReset(c.out, s.id, NoError)
		}
	default:
		if why = s.header.Settle(&s.Head, b.ended, c.o.ExtendedConnect); why != nil {
			status = 400
			c.out = frame.AppendReset(c.out, s.id, ProtocolError)
		}
	}
	if why != nil {
		c.closed.add(s.id, closedLocally)
		s.recycle()
		if c.o.Refused != nil {
			c.o.Refused(status, why)
		}
		return c.provoked()
	}
	c.controls.earn(4)
	s.length = s.Head.ContentLength
	s.connected = string(s.Head.Method) == "CONNECT"
	s.window = c.firstWindow()
	s.recvWindow = s.window
	s.sendWindow = c.initialWindow
	s.remoteEnded = b.ended
	if v, ok := s.Head.Fields.Get("priority"); ok {
		s.entry.Prioritise(v)
	}
	if c.streams == nil {
		c.streams = make(map[uint32]*Stream)
	}
	c.streams[s.id] = s
	c.open++
	c.handlers.Add(1)
	c.workers.start(s)
	return nil
}

func (c *Conn) endTrailer() error {
	b := &c.block
	s, _ := c.find(b.stream)
	if s == nil || s.remoteEnded {
		return nil
	}
	if n := s.length; b.section.Large || b.section.Err != nil || n >= 0 && s.received != n {
		return c.streamError(ProtocolError, errTrailer)
	}
	s.trailer, b.section = b.section, s.trailer
	c.endRemote(s)
	return nil
}
