package compression

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"sync"
	"sync/atomic"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// Settings of the encoders: a level that a gateway can afford while it passes bytes on, with memory that many streams
// can use at the same time.
const (
	gzipLevel   = 5
	brotliLevel = 3
	brotliBits  = 16       // for a window of 64 KiB
	zstdWindow  = 64 << 10 // bytes
)

// weights are approximately how many bytes an encoder holds, by its encoding; TestEncoderMemory measures it.
var weights = [encodings]int64{Gzip: 1100 << 10, Brotli: 900 << 10, Zstd: 750 << 10}

// maxHeld is the largest number of bytes held by encoders that streams keep between their parts.
const maxHeld = 64 << 20

// encoder is the common interface of the libraries.
type encoder interface {
	io.Writer
	Flush() error
	Close() error
	Reset(io.Writer)
}

// pooled is an encoder with its target, so that an unused one holds nothing of a stream.
type pooled struct {
	encoder
	to target
}

// target is what an encoder writes to.
type target struct{ io.Writer }

// pools hold the unused encoders. The garbage collector releases them.
var pools [encodings]sync.Pool

func take(e Encoding, to io.Writer) *pooled {
	p, _ := pools[e].Get().(*pooled)
	if p == nil {
		p = &pooled{}
		switch e {
		case Gzip:
			p.encoder, _ = flate.NewWriter(nil, gzipLevel) // a valid level
		case Brotli:
			p.encoder = brotli.NewWriterOptions(nil, brotli.WriterOptions{Quality: brotliLevel, LGWin: brotliBits})
		case Zstd:
			p.encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(zstdWindow),
				zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false)) // valid options
		}
	}
	p.to.Writer = to
	p.Reset(&p.to)
	return p
}

func give(e Encoding, p *pooled) {
	p.to.Writer = nil
	pools[e].Put(p)
}

// Encoders are shared by the streams of a proxy. The zero value is ready for use. It is safe for concurrent use.
type Encoders struct {
	held  atomic.Int64 // bytes
	stats [encodings]struct{ responses, in, out, refused atomic.Uint64 }
}

// Stats returns the statistics of each encoding.
func (s *Encoders) Stats() (all []Stats) {
	for e := Gzip; e < encodings; e++ {
		c := &s.stats[e]
		all = append(all, Stats{Encoding: e, Responses: c.responses.Load(), In: c.in.Load(), Out: c.out.Load(), Refused: c.refused.Load()})
	}
	return all
}

// Held returns approximately how many bytes are held by encoders that streams keep.
func (s *Encoders) Held() int64 { return s.held.Load() }

// hold reports whether one more encoder may be kept, and counts it.
func (s *Encoders) hold(e Encoding) bool {
	if s.held.Add(weights[e]) > maxHeld {
		s.held.Add(-weights[e])
		return false
	}
	return true
}

// Stream compresses one body. The zero value has none.
type Stream struct {
	of       *Encoders
	encoding Encoding
	to       io.Writer
	enc      *pooled // nil while it keeps none
	err      error
	// alone means that it keeps no encoder between its parts, and busy that one is working: after a panic it is not
	// reused.
	alone, busy bool

	begun   bool // for a gzip stream: its header was written
	crc     uint32
	size    uint32 // modulo 2^32
	tail    [len(deflateEnd) + 8]byte
	in, out uint64
}

// Begin starts the stream of a body whose encoding is written to to, which is not used any more after it has returned
// an error. It returns false if all the memory for encoders is used: then the body cannot have that encoding. A Gzip
// stream needs no kept encoder: it starts again with each part. scarce means that memory is scarce, so that no encoder
// is kept.
func (s *Stream) Begin(of *Encoders, e Encoding, to io.Writer, scarce bool) bool {
	*s = Stream{of: of, encoding: e, to: to}
	if scarce || !of.hold(e) {
		if e != Gzip {
			of.stats[e].refused.Add(1)
			*s = Stream{}
			return false
		}
		s.alone = true
	}
	of.stats[e].responses.Add(1)
	return true
}

// Active reports whether there is a body to compress.
func (s *Stream) Active() bool { return s.encoding != Identity }

// Encoding returns the encoding of the body.
func (s *Stream) Encoding() Encoding { return s.encoding }

// Write compresses a part of the body, and with last its end. When Write returns, everything was passed to the writer.
func (s *Stream) Write(part []byte, last bool) error {
	s.in += uint64(len(part))
	s.busy = true
	err := s.write(part, last)
	s.busy = false
	return err
}

func (s *Stream) write(part []byte, last bool) error {
	if s.encoding == Gzip {
		return s.writeGzip(part, last)
	}
	if s.enc == nil {
		s.enc = take(s.encoding, (*counting)(s))
	}
	if _, err := s.enc.Write(part); err != nil {
		return s.failed(err)
	}
	if last {
		return s.failed(s.enc.Close())
	}
	return s.failed(s.enc.Flush())
}

// failed returns the error of the writer if that has made the encoder fail.
func (s *Stream) failed(err error) error {
	if err != nil && s.err != nil {
		return s.err
	}
	return err
}

// counting is a Stream as the writer of its encoder.
type counting Stream

func (c *counting) Write(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	c.out += uint64(len(b))
	n, err := c.to.Write(b)
	c.err = err
	return n, err
}

// gzipHead is the header of a gzip stream: deflate, without a name or a time, by an unknown system (RFC 1952 section
// 2.3).
var gzipHead = [...]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

// deflateEnd is an empty last block (RFC 1951 section 3.2.6).
var deflateEnd = [...]byte{0x03, 0x00}

// alonePart is how much of a part an encoder that is not kept compresses at a time. It is returned before its output is
// sent, which may take long.
const alonePart = 32 << 10

// Buffered is a writer that can make room, so that the next write does not wait.
type Buffered interface {
	// Room waits until n bytes can be written without waiting.
	Room(n int) error
}

// writeGzip is Write for Gzip. After each Flush its blocks may be independent of the previous ones, since a block may
// refer to those before it but need not.
func (s *Stream) writeGzip(part []byte, last bool) error {
	to := (*counting)(s)
	if !s.begun {
		s.begun = true
		if _, err := to.Write(gzipHead[:]); err != nil {
			return err
		}
	}
	s.crc = crc32.Update(s.crc, crc32.IEEETable, part)
	s.size += uint32(len(part))
	for len(part) > 0 {
		n := len(part)
		if s.alone {
			n = min(n, alonePart)
			if b, ok := s.to.(Buffered); ok {
				if err := b.Room(n + n/8 + 64); err != nil {
					s.err = err
					return err
				}
			}
		}
		if s.enc == nil {
			s.enc = take(Gzip, to)
		}
		if _, err := s.enc.Write(part[:n]); err != nil {
			return s.failed(err)
		}
		if err := s.enc.Flush(); err != nil {
			return s.failed(err)
		}
		part = part[n:]
		s.Rest()
	}
	if !last {
		return nil
	}
	end := append(s.tail[:0], deflateEnd[:]...)
	end = binary.LittleEndian.AppendUint32(end, s.crc)
	end = binary.LittleEndian.AppendUint32(end, s.size)
	_, err := to.Write(end)
	return err
}

// appending is a writer that appends to a slice.
type appending []byte

func (a *appending) Write(b []byte) (int, error) {
	*a = append(*a, b...)
	return len(b), nil
}

// Append appends the encoding of a whole body, without counting it.
func (s *Encoders) Append(to []byte, e Encoding, body []byte) []byte {
	out := appending(to)
	stream := Stream{of: s, encoding: e, to: &out, alone: true}
	stream.Write(body, true) //nolint:errcheck // the writer accepts everything
	stream.Rest()
	return out
}

// Slow makes a stream with long pauses between its parts keep no encoder, if its encoding permits.
func (s *Stream) Slow() {
	if s.encoding == Gzip && !s.alone {
		s.alone = true
		s.of.held.Add(-weights[Gzip])
		s.Rest()
	}
}

// Rest returns an encoder that is not to be kept.
func (s *Stream) Rest() {
	if s.alone && s.enc != nil {
		give(s.encoding, s.enc)
		s.enc = nil
	}
}

// End ends the stream, whether its body has ended or not, returns its encoder, and counts it. It does nothing if there
// is no stream.
func (s *Stream) End() {
	if !s.Active() {
		return
	}
	if s.enc != nil && !s.busy {
		give(s.encoding, s.enc)
	}
	if !s.alone {
		s.of.held.Add(-weights[s.encoding])
	}
	c := &s.of.stats[s.encoding]
	c.in.Add(s.in)
	c.out.Add(s.out)
	*s = Stream{}
}
