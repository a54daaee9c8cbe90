package http2

import (
	"errors"
	"fmt"
)

// Code is an error code (RFC 9113 section 7).
type Code uint32

// Error codes.
const (
	NoError            Code = 0x0
	ProtocolError      Code = 0x1
	InternalError      Code = 0x2
	FlowControlError   Code = 0x3
	SettingsTimeout    Code = 0x4
	StreamClosed       Code = 0x5
	FrameSizeError     Code = 0x6
	RefusedStream      Code = 0x7
	Cancel             Code = 0x8
	CompressionError   Code = 0x9
	ConnectError       Code = 0xa
	EnhanceYourCalm    Code = 0xb
	InadequateSecurity Code = 0xc
	HTTP11Required     Code = 0xd
)

// ConnError ends a connection; it was told to the peer as GOAWAY.
type ConnError struct {
	Code Code
	Why  string
}

// connError returns a ConnError.
func connError(code Code, why string) *ConnError { return &ConnError{code, why} }

func (e *ConnError) Error() string {
	return fmt.Sprintf("http2: connection error %#x: %s", uint32(e.Code), e.Why)
}

// ResetError is what calls on a stream return after one side has reset it.
type ResetError struct {
	Code   Code
	ByPeer bool
}

func (e *ResetError) Error() string {
	who := "us"
	if e.ByPeer {
		who = "the peer"
	}
	return fmt.Sprintf("http2: stream reset by %s with %#x", who, uint32(e.Code))
}

// ErrClosed is what calls on a stream return when its connection is gone, or the stream has
// been ended by its handler.
var ErrClosed = errors.New("http2: closed")

// ErrUnavailable reports that a connection to a backend takes no new stream at the moment, or not any more.
// Nothing was sent.
var ErrUnavailable = errors.New("http2: no stream can be opened")

// ErrEnds is ErrUnavailable where the connection takes no new stream any more.
var ErrEnds = fmt.Errorf("%w: the connection ends", ErrUnavailable)

// ErrHeadTooLarge reports that the head of a request is larger than the backend takes (SETTINGS_MAX_HEADER_LIST_SIZE, RFC 9113 section 10.5.1): backends end the whole connection
// for one that is much larger. Nothing was sent. Before the backend's SETTINGS have come nothing is known of that.
var ErrHeadTooLarge = errors.New("http2: the head is larger than the backend takes")

// ErrUnprocessed is the error of requests that a backend says it has not looked at.
var ErrUnprocessed = errors.New("http2: the backend has not processed the request")

// ErrUnsent is the error of requests that were opened and of which not even the head has got to the backend.
var ErrUnsent = errors.New("http2: the request was not sent")

// MalformedError is a response that is malformed (RFC 9113 section 8.1.1) or too large. Its stream was reset.
type MalformedError struct{ Why error }

func (e *MalformedError) Error() string { return "http2: malformed response: " + e.Why.Error() }

// Unwrap is why.
func (e *MalformedError) Unwrap() error { return e.Why }

// Malformed reports whether err means that the backend does not speak HTTP/2 as it should, in this response
// or on the connection.
func Malformed(err error) bool {
	var response *MalformedError
	var conn *ConnError
	return errors.As(err, &response) || errors.As(err, &conn)
}

// Unprocessed reports whether err means that the backend surely has not done anything about the request, so
// that it may be sent again whatever its method (RFC 9113 section 8.7).
func Unprocessed(err error) bool {
	var reset *ResetError
	return Unsent(err) || errors.Is(err, ErrUnprocessed) ||
		errors.As(err, &reset) && reset.ByPeer && reset.Code == RefusedStream
}

// Unsent reports whether err means that the backend knows nothing of the request, so that to send it elsewhere is to send it for the first time.
func Unsent(err error) bool { return errors.Is(err, ErrUnsent) || errors.Is(err, ErrUnavailable) }

// Reset reports whether err is that the peer has reset the stream, and so has got the request.
func Reset(err error) bool {
	var reset *ResetError
	return errors.As(err, &reset) && reset.ByPeer
}

// Canceled reports whether err is that the peer has reset the stream because it does not need it any more.
func Canceled(err error) bool {
	var reset *ResetError
	return errors.As(err, &reset) && reset.ByPeer && reset.Code == Cancel
}
