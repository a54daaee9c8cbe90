package http1

import "github.com/moongate-dev/moongate/internal/proxy/message"

// Body decodes a body as it arrives, in pieces of any size. The zero value is a body that has ended. Errors are those
// for a request (400); for a response use their Upstream.
type Body struct {
	state      bodyState
	digits     int   // of the chunk size so far
	extensions int   // bytes of chunk extensions so far, of all chunks
	left       int64 // payload bytes to come: of the body, or of the chunk
	err        error
	trailer    trailerSection
}

type bodyState uint8

const (
	atEnd       bodyState = iota
	inLength              // left bytes of payload to come
	untilClose            // payload up to the end of the connection
	inSize                // chunk size, digits of it read
	atExtension           // after ";"
	inExtension           // inside an extension
	atSizeLF              // LF of the line before a chunk
	inChunk               // left bytes of the chunk to come
	atChunkCR             // CR after the data
	atChunkLF             // LF after the data
	inTrailer             // trailer section and the final empty line
	inError               // with the error in err
)

const (
	maxSizeDigits = 16      // of a chunk size
	maxSizePrefix = 1 << 59 // a size from here on times 16 is more than 2^63-1
)

// Init starts a new body. The memory of the last one is reused.
func (b *Body) Init(f Framing, length int64, lim *Limits) {
	b.state, b.digits, b.extensions, b.left, b.err = atEnd, 0, 0, 0, nil
	switch f {
	case Length:
		if length > 0 {
			b.state, b.left = inLength, length
		}
	case Chunked:
		b.state = inSize
	case UntilClose:
		b.state = untilClose
	}
	b.trailer.reset(lim)
}

// Decode consumes src up to the end of the body and returns the payload in it, compacted in place: data is a part of
// src, which is overwritten. n is less than len(src) only if the body has ended: the bytes after n belong to the next
// message. After an error the body remains in that state and data is nil.
func (b *Body) Decode(src []byte) (data []byte, n int, err error) {
	switch b.state {
	case atEnd:
		return nil, 0, nil
	case untilClose:
		return src, len(src), nil
	case inLength:
		n = int(min(b.left, int64(len(src))))
		if b.left -= int64(n); b.left == 0 {
			b.state = atEnd
		}
		return src[:n], n, nil
	}
	return b.decodeChunks(src)
}

func (b *Body) decodeChunks(src []byte) (data []byte, n int, err error) {
	start, end := 0, 0 // of the payload in src
	for n < len(src) && b.state != atEnd {
		switch b.state {
		case inChunk:
			size := int(min(b.left, int64(len(src)-n)))
			if start == end {
				start, end = n, n+size
			} else {
				end += copy(src[end:], src[n:n+size])
			}
			n += size
			if b.left -= int64(size); b.left == 0 {
				b.state = atChunkCR
			}
		case inTrailer:
			var done bool
			var used int
			used, done, err = b.trailer.read(src[n:])
			if n += used; done {
				b.state = atEnd
			}
		case inError:
			err = b.err
		default:
			err = b.frame(src[n])
			n++
		}
		if err != nil {
			b.state, b.err = inError, err
			return nil, n, err
		}
	}
	return src[start:end], n, nil
}

// frame processes one byte between chunks (RFC 9112 section 7.1).
func (b *Body) frame(c byte) error {
	switch b.state {
	case inSize:
		return b.size(c)
	case atExtension, inExtension:
		return b.extension(c)
	case atSizeLF:
		if c != '\n' {
			return errChunkSize
		}
		b.digits = 0
		if b.state = inChunk; b.left == 0 {
			b.state = inTrailer
		}
	case atChunkCR:
		if c != '\r' {
			return errChunkEnd
		}
		b.state = atChunkLF
	case atChunkLF:
		if c != '\n' {
			return errChunkEnd
		}
		b.state = inSize
	}
	return nil
}

func (b *Body) size(c byte) error {
	switch {
	case class[c]&isHex != 0:
		if b.digits == maxSizeDigits || b.left >= maxSizePrefix {
			return errChunkSize
		}
		b.left = b.left<<4 | int64(unhex(c))
		b.digits++
	case b.digits == 0:
		return errChunkSize
	case c == '\r':
		b.state = atSizeLF
	case c == ';':
		b.state = atExtension
	default:
		return errChunkSize
	}
	return nil
}

// extension checks and drops a byte of a chunk extension (RFC 9112 section 7.1.1).
func (b *Body) extension(c byte) error {
	if b.extensions++; b.extensions > maxExtensions {
		return errChunkExt
	}
	switch {
	case b.state == atExtension && (c == ' ' || c == '\t'):
	case b.state == atExtension && class[c]&isToken != 0:
		b.state = inExtension
	case b.state == atExtension:
		return errChunkExt
	case c == '\r':
		b.state = atSizeLF
	case class[c]&isValue == 0:
		return errChunkExt
	}
	return nil
}

// Done reports whether the body is complete, including the trailer section.
func (b *Body) Done() bool { return b.state == atEnd }

// EOF must be called when the peer closes the connection. It returns nil if that ends the message or the message had
// already ended, otherwise an error.
func (b *Body) EOF() error {
	switch b.state {
	case atEnd:
	case untilClose:
		b.state = atEnd
	case inError:
	default:
		b.state, b.err = inError, errTruncated
	}
	return b.err
}

// Remaining returns the number of payload bytes still to come, -1 if unknown.
func (b *Body) Remaining() int64 {
	switch b.state {
	case atEnd, inTrailer:
		return 0
	case inLength:
		return b.left
	}
	return -1
}

// Trailer returns the trailer section, complete when Done returns true, without the fields that are not allowed there
// (RFC 9110 section 6.5.1). Its memory belongs to the body until the next Init.
func (b *Body) Trailer() *message.Fields { return &b.trailer.fields }
