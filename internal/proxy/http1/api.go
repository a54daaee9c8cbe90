package http1

import (
	"bytes"
	"errors"
)

// Framing says how a body is delimited (RFC 9112 section 6.3).
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

// Limits bound what one message may occupy. A nil *Limits and zero fields mean the defaults.
type Limits struct {
	MaxHead   int // bytes of a head or of a trailer section; 32 KiB
	MaxFields int // field lines of a head or of a trailer section; 128
	MaxTarget int // bytes of a request target; 8 KiB
}

// Bounds that need no knob.
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

// ErrIncomplete means that the bytes so far are right but the head is not at its
// end. The caller reads more behind them and parses again from the start, as soon as that is WorthParsing.
var ErrIncomplete = errors.New("http1: head is incomplete")

// WorthParsing reports whether to parse the beginning of a head again: buf, of which the first parsed bytes were ErrIncomplete and
// the last fresh bytes have just come. Nothing is missed, since a head ends with a line, but parsing that starts over with each
// byte would take a time quadratic in the length of the head. So it needs the end of a line, of which there are few, or a quarter
// more than the last time, or that the head is as long as it may be.
func WorthParsing(buf []byte, parsed, fresh int, lim *Limits) bool {
	return len(buf)-parsed >= parsed/4 || len(buf) >= lim.head() || bytes.IndexByte(buf[len(buf)-fresh:], '\n') >= 0
}

// RequestHead is what HTTP/1.1 adds to message.Request. It is reused for the next
// request, owns the scratch memory that MatchHost and Path may point into, and is
// valid as long as the buffer that was parsed.
type RequestHead struct {
	Minor         uint8 // HTTP/1.Minor: 0 or 1
	Form          Form
	Framing       Framing
	ContentLength int64 // -1 without Content-Length
	// KeepAlive: the client lets the connection persist (RFC 9112 section 9.3).
	KeepAlive bool
	// Scheme is that of an absolute-form target, as received; else nil.
	Scheme []byte

	// The section has message.Consumed, which is also the request's. Upgrade is the value of the field where Connection names it, else nil.
	// ExpectContinue is never set without a body or in HTTP/1.0. Other expectations are 417.
	section
	scratch []byte
}

// ResponseHead is what HTTP/1.1 adds to message.Response; reused as RequestHead is.
type ResponseHead struct {
	Minor   uint8 // HTTP/1.Minor: 0 or 1
	Framing Framing
	// ContentLength is -1 without Content-Length, and for the success of a CONNECT. With NoBody (HEAD, 304) it is the
	// length that a GET would have had: pass it to AppendResponseHead.
	ContentLength int64
	// KeepAlive: the backend lets the connection persist. False with UntilClose.
	KeepAlive bool
	// Upgrade is the protocol switched to with status 101; what follows the head is then no HTTP. With status 426 it is the
	// protocols that are asked for. With others it is nil.
	Upgrade []byte

	section
}

// Hop is what we say to the next hop only, as Connection and the fields it names.
type Hop struct {
	Close          bool   // Connection: close
	KeepAlive      bool   // Connection: keep-alive, which an HTTP/1.0 client wants to read
	Upgrade        []byte // Connection: upgrade, and Upgrade with this value
	TETrailers     bool   // requests: TE: trailers
	ExpectContinue bool   // requests: Expect: 100-continue
}
