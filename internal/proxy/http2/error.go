package http2

import "github.com/moongate-dev/moongate/internal/proxy/http2/fault"

// What ends streams and connections, see package fault.
type (
	Code       = fault.Code
	ConnError  = fault.ConnError
	ResetError = fault.ResetError
)

// ErrClosed is what calls on a stream return when its connection is gone, or the stream has
// been ended by its handler.
var ErrClosed = fault.ErrClosed

// Error codes.
const (
	NoError            = fault.NoError
	ProtocolError      = fault.ProtocolError
	InternalError      = fault.InternalError
	FlowControlError   = fault.FlowControlError
	SettingsTimeout    = fault.SettingsTimeout
	StreamClosed       = fault.StreamClosed
	FrameSizeError     = fault.FrameSizeError
	RefusedStream      = fault.RefusedStream
	Cancel             = fault.Cancel
	CompressionError   = fault.CompressionError
	ConnectError       = fault.ConnectError
	EnhanceYourCalm    = fault.EnhanceYourCalm
	InadequateSecurity = fault.InadequateSecurity
	HTTP11Required     = fault.HTTP11Required
)
