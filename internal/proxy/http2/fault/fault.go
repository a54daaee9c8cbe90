// Package fault is the errors of HTTP/2 (RFC 9113 sections 5.4 and 7). It exists so that packages which know nothing
// of connections can say what is wrong with one.
//
// It is pure and imports the standard library only.
package fault

import (
	"errors"
	"fmt"
)

// Code is an error code (RFC 9113 section 7).
type Code uint32

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

// Conn makes a ConnError.
func Conn(code Code, why string) *ConnError { return &ConnError{code, why} }

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
