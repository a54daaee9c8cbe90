package http2

import (
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// Stream is one request and its response. One goroutine may read while another writes; each of
// both halves is for one goroutine at a time.
type Stream struct {
	Head Head
}

// ID is the stream's number.
func (s *Stream) ID() uint32 { return 0 }

// Read reads the request body; io.EOF is its regular end, and only seen if all of it came. Other
// errors: os.ErrDeadlineExceeded, *ResetError, ErrClosed.
func (s *Stream) Read(p []byte) (int, error) { panic("not yet") }

// Trailers are the request's trailer fields, complete after Read returned io.EOF.
func (s *Stream) Trailers() *message.Fields { return nil }

// SetReadDeadline is until when Read waits, for the present call too; zero is for ever.
func (s *Stream) SetReadDeadline(t time.Time) {}

// WriteInformational sends a 1xx head, at once.
func (s *Stream) WriteInformational(status int, fields *message.Fields) error { panic("not yet") }

// WriteHead takes the final response head, with Content-Length unless it is -1. Names are sent in lower
// case; connection-specific fields are left out. With end there is no body, and it is sent at
// once; else it waits for Write or Flush, to go out together with them. fields may be
// changed when it returns.
func (s *Stream) WriteHead(status int, fields *message.Fields, contentLength int64, end bool) error {
	panic("not yet")
}

// Write sends a part of the body, which may be empty; with end the last one. It returns when p is not
// used any more, which is when flow control and the network have let all of it through,
// or part of it is left out with an error: os.ErrDeadlineExceeded after Timeouts.Write,
// *ResetError, ErrClosed.
func (s *Stream) Write(p []byte, end bool) error { panic("not yet") }

// WriteTrailers ends the response with trailer fields. Without any it is as Write(nil, true).
func (s *Stream) WriteTrailers(fields *message.Fields) error { panic("not yet") }

// Flush sends a head that waits.
func (s *Stream) Flush() error { panic("not yet") }

// Reset ends the stream in both directions with RST_STREAM, unless it has ended. It may be called from any
// goroutine until the handler returns.
func (s *Stream) Reset(code Code) {}

// OnGone has f called once when the client resets the stream or the connection ends; at once if it
// did already. f runs on another goroutine, must not block, and is not called any more
// when OnGone(nil) has returned, or the handler.
func (s *Stream) OnGone(f func()) {}

// Err is why the stream is gone, nil while it is not.
func (s *Stream) Err() error { return nil }
