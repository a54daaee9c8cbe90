package fault

import "errors"

// ErrUnavailable tells that a connection to a backend takes no new stream at the moment, or not any more.
// Nothing was sent.
var ErrUnavailable = errors.New("http2: no stream can be opened")

// ErrUnprocessed is the error of requests that a backend has not looked at.
var ErrUnprocessed = errors.New("http2: the backend has not processed the request")

// MalformedError is a response that is malformed (RFC 9113 section 8.1.1) or too large. Its stream was reset.
type MalformedError struct{ Why error }

func (e *MalformedError) Error() string { return "http2: malformed response: " + e.Why.Error() }

// Unwrap is why.
func (e *MalformedError) Unwrap() error { return e.Why }

// Malformed tells whether err means that the backend does not speak HTTP/2 as it should, in this response
// or on the connection.
func Malformed(err error) bool {
	var response *MalformedError
	var conn *ConnError
	return errors.As(err, &response) || errors.As(err, &conn)
}

// Unprocessed tells whether err means that the backend surely has not done anything about the request, so
// that it may be sent again whatever its method (RFC 9113 section 8.7).
func Unprocessed(err error) bool {
	var reset *ResetError
	return errors.Is(err, ErrUnprocessed) || errors.Is(err, ErrUnavailable) ||
		errors.As(err, &reset) && reset.ByPeer && reset.Code == RefusedStream
}
