package http1

// Error is a reason why a message is not accepted. All values are created in advance, so an error allocates nothing.
type Error struct {
	Status int    // status for the client: 400, 414, 417, 431, 501, 505; for a response 502
	Reason string // a stable word for metrics and logs
	Detail string // what is wrong, for people

	upstream *Error
}

func (e *Error) Error() string { return "http1: " + e.Detail }

// Upstream returns the same error with status 502, for a body from a backend.
func (e *Error) Upstream() *Error {
	if e.upstream == nil {
		return e
	}
	return e.upstream
}

// refuse creates one of the values below and its counterpart with status 502.
func refuse(status int, reason, detail string) *Error {
	return &Error{status, reason, detail, &Error{Status: 502, Reason: reason, Detail: detail}}
}

var (
	errEmptyLines   = refuse(400, "request_line", "more than one empty line before the request line")
	errMethod       = refuse(400, "method", "method is not a token followed by one space")
	errMethodLong   = refuse(501, "method", "method is longer than 64 bytes")
	errVersion      = refuse(400, "version", "malformed HTTP version or request line")
	errVersionOther = refuse(505, "version", "HTTP version is neither HTTP/1.0 nor HTTP/1.1")
	errStatusLine   = refuse(400, "status_line", "malformed status line")

	errTarget       = refuse(400, "target", "request target is empty or has a byte that no target has")
	errTargetForm   = refuse(400, "target", "form of the request target does not fit the method")
	errTargetScheme = refuse(400, "target", "scheme of the request target is neither http nor https")
	errTargetPath   = refuse(400, "target", "path has a backslash, a null byte or a malformed escape")
	errTargetHidden = refuse(400, "target", "path has a dot segment with a parameter, or beside an encoded slash or backslash")
	errTargetClimbs = refuse(400, "target", "path climbs above the root")
	errTargetLong   = refuse(414, "target_too_long", "request target is too long")

	errHostMissing = refuse(400, "host", "no Host field in an HTTP/1.1 request")
	errHostTwice   = refuse(400, "host", "more than one Host field line")
	errHost        = refuse(400, "host", "malformed or empty host")

	errHeadLong   = refuse(431, "head_too_large", "head is too long")
	errFieldsMany = refuse(431, "too_many_fields", "too many field lines")
	errFold       = refuse(400, "field_line", "white space at the beginning of a field line")
	errName       = refuse(400, "field_line", "field name is empty or not a token followed by a colon")
	errBareCR     = refuse(400, "field_line", "CR without LF")
	errBareLF     = refuse(400, "field_line", "LF without CR")
	errControl    = refuse(400, "field_line", "control byte in a field value")

	errLengthTwice    = refuse(400, "content_length", "more than one Content-Length field line")
	errLength         = refuse(400, "content_length", "Content-Length is not a number below 2^63")
	errLengthStatus   = refuse(400, "content_length", "Content-Length where there is no body by status")
	errLookalike      = refuse(400, "framing", "field name resembles a framing field")
	errCodingTwice    = refuse(400, "transfer_encoding", "more than one Transfer-Encoding field line")
	errCoding         = refuse(400, "transfer_encoding", "Transfer-Encoding is not chunked")
	errCodingOther    = refuse(501, "transfer_encoding", "transfer coding other than chunked")
	errCodingVersion  = refuse(400, "transfer_encoding", "Transfer-Encoding in HTTP/1.0")
	errCodingStatus   = refuse(400, "transfer_encoding", "Transfer-Encoding where there is no body by status")
	errFraming        = refuse(400, "framing", "Content-Length beside Transfer-Encoding")
	errOption         = refuse(400, "connection", "connection option is not a token")
	errOptionForbids  = refuse(400, "connection", "Connection nominates a field that is not its to drop")
	errOptionsMany    = refuse(431, "connection", "Connection nominates too many fields")
	errExpect         = refuse(417, "expect", "expectation other than 100-continue")
	errUpgradeMissing = refuse(400, "upgrade", "status 101 without the protocol switched to")

	errChunkSize  = refuse(400, "chunk", "malformed chunk size")
	errChunkExt   = refuse(400, "chunk", "malformed or too long chunk extensions")
	errChunkEnd   = refuse(400, "chunk", "chunk data is not followed by CRLF")
	errTrailer    = refuse(431, "trailer_too_large", "trailer section is too long")
	errTrailerEnd = refuse(431, "trailer_too_large", "too many field lines in the trailer section")
	errTruncated  = refuse(400, "body_truncated", "connection closed before the end of the body")
)
