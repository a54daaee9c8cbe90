package http2

import "github.com/moongate-dev/moongate/internal/proxy/http2/fault"

// What ends streams and connections, see package fault.
type (
	Code       = fault.Code
	ConnError  = fault.ConnError
	ResetError = fault.ResetError

	MalformedError = fault.MalformedError
)

// ErrClosed is what calls on a stream return when its connection is gone, or the stream has
// been ended by its handler.
var ErrClosed = fault.ErrClosed

// ErrUnavailable tells that a connection to a backend takes no new stream; nothing was sent.
var ErrUnavailable = fault.ErrUnavailable

// Malformed tells whether err means that the backend does not speak HTTP/2 as it should.
func Malformed(err error) bool { return fault.Malformed(err) }

// Unprocessed tells whether the request that ended with err may be sent again whatever its method.
func Unprocessed(err error) bool { return fault.Unprocessed(err) }

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
