package http2

import (
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// ClientStream is a request to a backend and its response. One goroutine may write while another
// reads; each of both halves is for one goroutine at a time. Calls return the errors
// os.ErrDeadlineExceeded after the deadline, *ResetError, *MalformedError, *ConnError where the backend has
// broken the rules of the connection, and ErrClosed where the connection is gone. What has come
// completely of a response can be read nevertheless.
type ClientStream struct{}

// MalformedError is a response that is malformed (RFC 9113 section 8.1.1) or too large. Its stream was reset.
type MalformedError struct{ Why error }

func (e *MalformedError) Error() string { return "http2: malformed response: " + e.Why.Error() }

// Unwrap is why.
func (e *MalformedError) Unwrap() error { return e.Why }

// Malformed tells whether err means that the backend does not speak HTTP/2 as it should, in this response
// or on the connection.
func Malformed(err error) bool { return false }

// Unprocessed tells whether err means that the backend surely has not done anything about the request, so
// that it may be sent again whatever its method (RFC 9113 section 8.7).
func Unprocessed(err error) bool { return false }

// ReadHead waits for the next response head and fills in r, Reason apart: first for every interim
// one, then for the final one. What r points to is valid until the next call, or Close after the final one. ended tells that
// there is neither body nor trailers.
func (s *ClientStream) ReadHead(r *message.Response) (ended bool, err error) {
	return false, ErrClosed
}

// ContentLength is that of the final head, -1 without one. For HEAD and 304 it is what another
// method or status would have had.
func (s *ClientStream) ContentLength() int64 { return -1 }

// Read reads the response body, after the final head. io.EOF is its regular end, and only seen if all of
// it came. The backend may send more as far as what it sent was read.
func (s *ClientStream) Read(p []byte) (int, error) { return 0, ErrClosed }

// Buffered is how many bytes Read has without waiting.
func (s *ClientStream) Buffered() int { return 0 }

// Ended tells that Read would return io.EOF at once, so that the end can be passed on with the last bytes.
func (s *ClientStream) Ended() bool { return false }

// Trailers are the response's trailer fields, complete after Read returned io.EOF, and valid until Close.
func (s *ClientStream) Trailers() *message.Fields { return nil }

// Write sends a part of the request body, which may be empty; with last the last one. It returns when
// p is not used any more. A backend that has answered completely may want no more: *ResetError with NoError.
func (s *ClientStream) Write(p []byte, last bool) error { return ErrClosed }

// WriteTrailers ends the request with trailer fields, which may be nil. f may be changed when it returns.
func (s *ClientStream) WriteTrailers(f *message.Fields) error { return ErrClosed }

// SetDeadline is until when calls wait, those under way too; zero is for ever. It may be called from any goroutine
// before Close.
func (s *ClientStream) SetDeadline(t time.Time) {}

// Reset gives the stream up with RST_STREAM, unless it has ended. Calls under way return. It may be
// called from any goroutine before Close.
func (s *ClientStream) Reset(code Code) {}

// Close gives the stream's memory back, after Reset(Cancel) where it has not ended. No other call may be
// under way, or come later.
func (s *ClientStream) Close() {}
