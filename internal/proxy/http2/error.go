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

// ConnError ends a connection. The peer was sent it as GOAWAY.
type ConnError struct {
	Code Code
	Why  string
}

// connError returns a ConnError.
func connError(code Code, why string) *ConnError { return &ConnError{code, why} }

func (e *ConnError) Error() string {
	return fmt.Sprintf("http2: connection error %#x: %s", uint32(e.Code), e.Why)
}

// ResetError is returned by calls on a stream after one side has reset it.
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

// ErrClosed is returned by calls on a stream when its connection is gone, or when its handler has ended the stream.
var ErrClosed = errors.New("http2: closed")

// ErrUnavailable means that a connection to a backend takes no new stream at the moment, or not any more. Nothing was
// sent.
var ErrUnavailable = errors.New("http2: no stream can be opened")

// ErrEnds is an ErrUnavailable that means that the connection takes no new streams any more.
var ErrEnds = fmt.Errorf("%w: the connection ends", ErrUnavailable)

// ErrHeadTooLarge means that the head of a request is larger than the backend accepts (SETTINGS_MAX_HEADER_LIST_SIZE,
// RFC 9113 section 10.5.1). Backends end the whole connection for a much larger one. Nothing was sent. The limit is
// unknown before the backend's SETTINGS have arrived.
var ErrHeadTooLarge = errors.New("http2: the head is larger than the backend takes")

// ErrUnprocessed is the error of requests that, as the backend reports, it has not processed.
var ErrUnprocessed = errors.New("http2: the backend has not processed the request")

// ErrUnsent is the error of requests that were opened, but whose head has not reached the backend.
var ErrUnsent = errors.New("http2: the request was not sent")

// MalformedError means that a response is malformed (RFC 9113 section 8.1.1) or too large. Its stream was reset.
type MalformedError struct{ Why error }

func (e *MalformedError) Error() string { return "http2: malformed response: " + e.Why.Error() }

// Unwrap returns Why.
func (e *MalformedError) Unwrap() error { return e.Why }

// Malformed reports whether err means that the backend violates HTTP/2, in this response or on the connection.
func Malformed(err error) bool {
	var response *MalformedError
	var conn *ConnError
	return errors.As(err, &response) || errors.As(err, &conn)
}

// Unprocessed reports whether err means that the backend has certainly not processed the request, so that it may be
// sent again whatever its method (RFC 9113 section 8.7).
func Unprocessed(err error) bool {
	var reset *ResetError
	return Unsent(err) || errors.Is(err, ErrUnprocessed) ||
		errors.As(err, &reset) && reset.ByPeer && reset.Code == RefusedStream
}

// Unsent reports whether err means that nothing of the request has reached the backend, so that sending it elsewhere
// does not repeat it.
func Unsent(err error) bool { return errors.Is(err, ErrUnsent) || errors.Is(err, ErrUnavailable) }

// Reset reports whether err means that the peer has reset the stream, and therefore has received the request.
func Reset(err error) bool {
	var reset *ResetError
	return errors.As(err, &reset) && reset.ByPeer
}

// Canceled reports whether err means that the peer has reset the stream because it does not need it any more.
func Canceled(err error) bool {
	var reset *ResetError
	return errors.As(err, &reset) && reset.ByPeer && reset.Code == Cancel
}
