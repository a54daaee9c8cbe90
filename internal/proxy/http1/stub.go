package http1

import "github.com/moongate-dev/moongate/internal/proxy/message"

type section struct{}

// Error is a message that is not accepted. All values are made in advance.
type Error struct {
	Status int    // what the client gets: 400, 414, 417, 431, 501, 505; of a response 502
	Reason string // a stable word for metrics and logs
	Detail string // what is wrong, for humans
}

func (e *Error) Error() string { return "http1: " + e.Detail }

// Upstream is the same error with status 502, for a body that came from a backend.
func (e *Error) Upstream() *Error { return e }

// ParseRequest parses the request head at the beginning of buf and returns its
// length, that of an empty line before it included. It fills req and head anew;
// both point into buf. It returns ErrIncomplete, or an *Error after which the
// connection must be closed.
func ParseRequest(buf []byte, req *message.Request, head *RequestHead, lim *Limits) (n int, err error) {
	panic("soon")
}

// ParseResponse parses the response head at the beginning of buf, the answer to a
// request with that method, and returns its length. See ParseRequest. A 1xx head
// other than 101 is followed by another head.
func ParseResponse(buf, method []byte, resp *message.Response, head *ResponseHead, lim *Limits) (n int, err error) {
	panic("soon")
}

// DropNominated removes the fields that Connection nominated from a trailer section.
func (s *section) DropNominated(f *message.Fields) { panic("soon") }

// Body decodes a body as it comes in, in pieces of any size. The zero value is a
// body that is at its end. Errors are those of a request (400); a response's are
// their Upstream.
type Body struct{}

// Init starts a new body; memory of the last one is kept.
func (b *Body) Init(f Framing, length int64, lim *Limits) { panic("soon") }

// Decode consumes src up to the end of the body and returns the payload found in it,
// compacted in place: data is a part of src, which is overwritten. n is less than
// len(src) only if the body ended before: what is behind n belongs to the next
// message. After an error the body stays in error and data is nil.
func (b *Body) Decode(src []byte) (data []byte, n int, err error) { panic("soon") }

// Done tells whether the body is complete, the trailer section included.
func (b *Body) Done() bool { panic("soon") }

// EOF says that the peer closed. It returns nil where that ends the message or the
// message was at its end already, else an error.
func (b *Body) EOF() error { panic("soon") }

// Remaining is the number of payload bytes still to come, -1 if that is unknown.
func (b *Body) Remaining() int64 { panic("soon") }

// Trailer is the trailer section, complete when Done, without the fields that have
// no business there (RFC 9110 section 6.5.1). Its memory is the body's until the next Init.
func (b *Body) Trailer() *message.Fields { panic("soon") }

// AppendRequestHead appends req as an HTTP/1.1 request head: origin-form target (or
// "*"), Host first, req.Header, then the fields of framing and hop. Length writes
// length; UntilClose is written as Chunked, since no request ends by closing.
func AppendRequestHead(dst []byte, req *message.Request, f Framing, length int64, hop Hop) []byte {
	panic("soon")
}

// AppendResponseHead appends resp as an HTTP/1.1 response head. NoBody with a length
// of 0 or more writes it (HEAD, 304), but never on 1xx and 204; UntilClose says Connection: close.
func AppendResponseHead(dst []byte, resp *message.Response, f Framing, length int64, hop Hop) []byte {
	panic("soon")
}

// AppendChunkHead appends the line before a chunk of n > 0 bytes. ChunkEnd follows the chunk.
func AppendChunkHead(dst []byte, n int) []byte { panic("soon") }

// ChunkEnd stands behind the data of a chunk.
const ChunkEnd = "\r\n"

// AppendLastChunk appends the last chunk and the trailer section, which may be nil.
func AppendLastChunk(dst []byte, trailer *message.Fields) []byte { panic("soon") }
