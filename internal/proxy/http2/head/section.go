package head

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// Kind is the kind of message part that a section belongs to.
type Kind uint8

const (
	RequestHeader Kind = iota
	ResponseHeader
	Trailer // of a request or a response
)

// Section is a header or trailer section that is filled field by field by the decoder, in its own memory.
type Section struct {
	// Fields are the accepted field lines.
	Fields message.Fields
	// Err is the first reason why the section is malformed, nil if it is not.
	Err error
	// Large means that it exceeds the limits; later fields are missing.
	Large bool

	kind    Kind
	regular bool // a field that is not a pseudo-header field was added
	seen    uint8
	status  int16
	lines   int

	buf    []byte
	cookie []byte
	size   int // as SETTINGS_MAX_HEADER_LIST_SIZE counts it
	host   []byte

	length    int64 // -1 without Content-Length
	te        bool
	expect    bool
	expectAny bool
}

const (
	seenMethod = 1 << iota
	seenScheme
	seenAuthority
	seenPath
	seenProtocol
)

// Reset empties the section and keeps its memory.
func (x *Section) Reset(kind Kind) {
	x.Fields.Reset()
	*x = Section{buf: x.buf[:0], Fields: x.Fields, cookie: x.cookie[:0], length: -1, kind: kind}
}

var (
	errName        = errors.New("field name is empty, in upper case or no token")
	errValue       = errors.New("field value has control characters, or white space around it")
	errPseudo      = errors.New("pseudo-header field that is unknown, repeated, behind others or in a trailer section")
	errMissing     = errors.New("pseudo-header fields missing")
	errConnection  = errors.New("connection-specific field")
	errLookalike   = errors.New("field that a backend may take for Content-Length or Transfer-Encoding")
	errLength      = errors.New("Content-Length is repeated or no number")
	errLengthWrong = errors.New("Content-Length is not the sum of the DATA frames")
	errHost        = errors.New("no authority, Host differs from :authority, or either has userinfo or white space")
	errScheme      = errors.New(":scheme is no scheme")
	errMethod      = errors.New(":method is no token or too long")
	errPath        = errors.New(":path does not begin with a slash or has control characters")
	errConnect     = errors.New("CONNECT with :scheme, :path or :protocol that does not belong there, or with Content-Length and :protocol")
)

// Cap returns how many bytes of memory it keeps, not counting fields.
func (x *Section) Cap() int { return cap(x.buf) + cap(x.cookie) }

// Add adds a field; pseudo-header fields are stored in h, which is only needed for requests. Beyond maxBytes (as
// SETTINGS_MAX_HEADER_LIST_SIZE counts them) or maxLines (as HTTP/1.1 would write them), the rest is dropped.
func (x *Section) Add(name, value string, h *Head, maxBytes, maxLines int) {
	x.size += len(name) + len(value) + 32
	pseudo := name != "" && name[0] == ':'
	if !pseudo && !(len(x.cookie) > 0 && name == "cookie") { // split Cookie lines become one line (RFC 9113 section 8.2.3)
		x.lines++
	}
	if x.size > maxBytes || x.lines > maxLines {
		x.Large = true
	}
	if x.Large || x.Err != nil {
		return
	}
	if pseudo {
		if x.kind == ResponseHeader {
			x.Err = x.pseudoStatus(name, value)
		} else {
			x.Err = x.pseudo(name, value, h)
		}
		return
	}
	x.regular = true
	switch {
	case !isFieldName(name):
		x.Err = errName
	case !isFieldValue(value):
		x.Err = errValue
	case x.kind == Trailer:
		if !isForbiddenTrailer(name) {
			x.keepField(name, value)
		} else if IsConnectionSpecific(name) {
			x.Err = errConnection
		}
	case x.kind == ResponseHeader:
		x.Err = x.responseField(name, value)
	default:
		x.Err = x.field(name, value)
	}
}

func (x *Section) keep(s string) []byte {
	start := len(x.buf)
	x.buf = append(x.buf, s...)
	return x.buf[start:len(x.buf):len(x.buf)]
}

// keepField stores the field as an HTTP/1.1 line, which backends receive.
func (x *Section) keepField(name, value string) {
	start := len(x.buf)
	x.buf = append(x.buf, name...)
	x.buf = append(x.buf, ": "...)
	x.buf = append(x.buf, value...)
	x.buf = append(x.buf, "\r\n"...)
	line := x.buf[start:]
	at := len(name) + 2
	x.Fields.Append(message.Field{Name: line[:len(name)], Value: line[at : at+len(value)], Line: line})
}

// pseudo handles a pseudo-header field (RFC 9113 section 8.3.1).
func (x *Section) pseudo(name, value string, h *Head) error {
	if x.kind == Trailer || x.regular {
		return errPseudo
	}
	var bit uint8
	var to *[]byte
	var err error
	switch name {
	case ":method":
		bit, to = seenMethod, &h.Method
		if len(value) > 64 || !isToken(value) {
			err = errMethod
		}
	case ":scheme":
		bit, to = seenScheme, &h.Scheme
		if !isScheme(value) {
			err = errScheme
		}
	case ":authority":
		bit, to = seenAuthority, &h.Authority
		if !isAuthority(value) {
			err = errHost
		}
	case ":path":
		bit, to = seenPath, &h.Path
		if !isPath(value) {
			err = errPath
		}
	case ":protocol":
		bit, to = seenProtocol, &h.Protocol
		if !isToken(value) {
			err = errConnect
		}
	default:
		return errPseudo
	}
	if x.seen&bit != 0 {
		return errPseudo
	}
	x.seen |= bit
	*to = x.keep(value)
	return err
}

// field handles any other field of a request's header section.
func (x *Section) field(name, value string) error {
	switch name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return errConnection
	case "te":
		if !strings.EqualFold(value, "trailers") {
			return errConnection
		}
		x.te = true
	case "host":
		if x.host != nil || !isAuthority(value) {
			return errHost
		}
		x.host = x.keep(value)
	case "content-length":
		return x.contentLength(value)
	case "expect":
		if strings.EqualFold(value, "100-continue") {
			x.expect = true
		} else {
			x.expectAny = true
		}
	case "http2-settings", "proxy-authorization", "proxy-authenticate", "proxy-authentication-info":
	case "cookie":
		if len(x.cookie) > 0 {
			x.cookie = append(x.cookie, "; "...)
		}
		x.cookie = append(x.cookie, value...)
	default:
		if isLookalike(name) {
			return errLookalike
		}
		x.keepField(name, value)
	}
	return nil
}

// Settle evaluates a complete header section that is not too large and fills in h. ended means that there is no body,
// extended that CONNECT may have :protocol. The error is for the log.
func (x *Section) Settle(h *Head, ended, extended bool) error {
	if x.Err != nil {
		return x.Err
	}
	if len(x.cookie) > 0 {
		x.keepCookie()
	}
	if err := x.settleTarget(h, extended); err != nil {
		return err
	}
	if ended && x.length > 0 {
		return errLengthWrong
	}
	if x.length >= 0 {
		start := len(x.buf)
		x.buf = strconv.AppendInt(x.buf, x.length, 10)
		h.Length = x.buf[start:len(x.buf):len(x.buf)]
	}
	h.Fields = x.Fields
	h.HasBody = !ended
	h.ContentLength = x.length
	if ended {
		h.ContentLength = 0
	}
	h.TETrailers = x.te
	h.ExpectContinue = x.expect && !ended && x.length != 0 // no content, no expectation (RFC 9110 section 10.1.1)
	h.ExpectOther = x.expectAny
	return nil
}

func (x *Section) settleTarget(h *Head, extended bool) error {
	connect := string(h.Method) == "CONNECT"
	switch {
	case x.seen&seenProtocol != 0 && !(connect && extended && x.length < 0): // a tunnel has no content (RFC 9110 section 9.3.6)
		return errConnect
	case connect && x.seen&seenProtocol == 0:
		if x.seen != seenMethod|seenAuthority {
			return errConnect
		}
	case x.seen&(seenMethod|seenScheme|seenPath) != seenMethod|seenScheme|seenPath:
		return errMissing
	case string(h.Path) == "*" && string(h.Method) != "OPTIONS":
		return errPath
	}
	if x.host != nil {
		if x.seen&seenAuthority == 0 {
			h.Authority = x.host
		} else if !message.EqualFoldBytes(withoutDefaultPort(x.host, h.Scheme), withoutDefaultPort(h.Authority, h.Scheme)) {
			return errHost
		}
	}
	if len(h.Authority) == 0 {
		return errHost
	}
	return nil
}

// withoutDefaultPort returns the authority without its port if that is empty or the default of the scheme, which does
// not change its meaning (RFC 3986 section 6.2.3).
func withoutDefaultPort(authority, scheme []byte) []byte {
	i := bytes.LastIndexByte(authority, ':')
	if i < 0 || bytes.IndexByte(authority[i:], ']') >= 0 { // within an IPv6 address
		return authority
	}
	port := authority[i+1:]
	if len(port) == 0 || string(port) == "80" && message.EqualFold(scheme, "http") || string(port) == "443" && message.EqualFold(scheme, "https") {
		return authority[:i]
	}
	return authority
}

func (x *Section) keepCookie() {
	const name = "cookie"
	start := len(x.buf)
	x.buf = append(x.buf, name+": "...)
	x.buf = append(x.buf, x.cookie...)
	x.buf = append(x.buf, "\r\n"...)
	line := x.buf[start:]
	at := len(name) + 2
	x.Fields.Append(message.Field{Name: line[:len(name)], Value: line[at : at+len(x.cookie)], Line: line})
}

func (x *Section) contentLength(value string) error {
	n, ok := parseLength(value)
	if !ok || x.length >= 0 {
		return errLength
	}
	x.length = n
	return nil
}

func parseLength(s string) (n int64, ok bool) {
	if len(s) == 0 || len(s) > 19 {
		return 0, false
	}
	var u uint64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		u = u*10 + uint64(s[i]-'0')
	}
	return int64(u), u <= 1<<63-1
}
