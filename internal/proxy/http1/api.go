package http1

import (
	"bytes"
	"errors"
)

// Framing is how a body is delimited (RFC 9112 section 6.3).
type Framing uint8

const (
	NoBody     Framing = iota
	Length             // by Content-Length, which may be 0
	Chunked            // by the chunked coding
	UntilClose         // by the end of the connection; responses only
)

// Form is the form of a request target (RFC 9112 section 3.2).
type Form uint8

const (
	Origin    Form = iota
	Absolute       // an http or https URI
	Authority      // CONNECT only; Path is empty, Host is the target
	Asterisk       // OPTIONS only; Path is "*"
)

// Limits bounds one message. A nil *Limits and zero fields mean the defaults.
type Limits struct {
	MaxHead   int // bytes of a head or of a trailer section; default 32 KiB
	MaxFields int // field lines of a head or of a trailer section; default 128
	MaxTarget int // bytes of a request target; default 8 KiB
}

// Limits that are not configurable.
const (
	defaultMaxHead   = 32 << 10
	defaultMaxFields = 128
	defaultMaxTarget = 8 << 10
	maxMethod        = 64      // bytes
	maxHost          = 255     // bytes, without port
	maxNominated     = 32      // fields nominated by Connection
	maxExtensions    = 4 << 10 // bytes of chunk extensions in one body
)

func (l *Limits) head() int {
	if l == nil || l.MaxHead <= 0 {
		return defaultMaxHead
	}
	return l.MaxHead
}

func (l *Limits) fields() int {
	if l == nil || l.MaxFields <= 0 {
		return defaultMaxFields
	}
	return l.MaxFields
}

func (l *Limits) target() int {
	if l == nil || l.MaxTarget <= 0 {
		return defaultMaxTarget
	}
	return l.MaxTarget
}

// ErrIncomplete means that the bytes so far are valid but the head is not complete. The caller reads more bytes after
// them and parses again from the start, as soon as WorthParsing returns true.
var ErrIncomplete = errors.New("http1: head is incomplete")

// WorthParsing reports whether to parse the beginning of a head again: parsing the first parsed bytes of buf has
// returned ErrIncomplete, and its last fresh bytes have just arrived. Nothing is missed, since a head ends with a line,
// but parsing again for each byte would take a time quadratic in the length of the head. So it requires the end of a
// line, of which there are few, a quarter more bytes than the last time, or the longest allowed head.
func WorthParsing(buf []byte, parsed, fresh int, lim *Limits) bool {
	return len(buf)-parsed >= parsed/4 || len(buf) >= lim.head() || bytes.IndexByte(buf[len(buf)-fresh:], '\n') >= 0
}

// RequestHead is what HTTP/1.1 adds to message.Request. It is reused for the next request, owns the scratch memory that
// MatchHost and Path may point into, and is valid as long as the buffer that was parsed.
type RequestHead struct {
	Minor         uint8 // HTTP/1.Minor: 0 or 1
	Form          Form
	Framing       Framing
	ContentLength int64 // -1 without Content-Length
	// KeepAlive means that the client lets the connection persist (RFC 9112 section 9.3).
	KeepAlive bool
	// Scheme is that of an absolute-form target, as received; otherwise nil.
	Scheme []byte

	// section contains message.Consumed, which the request shares. Upgrade is the value of the field if Connection
	// names it, otherwise nil. ExpectContinue is never set without a body or in HTTP/1.0. Other expectations are 417.
	section
	scratch []byte
}

// ResponseHead is what HTTP/1.1 adds to message.Response. It is reused like RequestHead.
type ResponseHead struct {
	Minor   uint8 // HTTP/1.Minor: 0 or 1
	Framing Framing
	// ContentLength is -1 without Content-Length, and for the success of a CONNECT. With NoBody (HEAD, 304) it is the
	// length that a GET would have had: pass it to AppendResponseHead.
	ContentLength int64
	// KeepAlive means that the backend lets the connection persist. It is false with UntilClose.
	KeepAlive bool
	// Upgrade is the protocol switched to with status 101, after which the connection no longer carries HTTP. With
	// status 426 it is the list of protocols asked for. With others it is nil.
	Upgrade []byte

	section
}

// Hop is what is sent to the next hop only, as Connection and the fields that it names.
type Hop struct {
	Close          bool   // Connection: close
	KeepAlive      bool   // Connection: keep-alive, which HTTP/1.0 clients need
	Upgrade        []byte // Connection: upgrade, and Upgrade with this value
	TETrailers     bool   // requests: TE: trailers
	ExpectContinue bool   // requests: Expect: 100-continue
}
