package http1

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/cginame"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// trailerSection collects a trailer section, which may arrive in pieces, in its own memory.
type trailerSection struct {
	fields    message.Fields
	buf       []byte
	line      int  // beginning of the current line in buf
	named     bool // the name of the current line was read
	lines     int
	maxBytes  int
	maxFields int
}

func (t *trailerSection) reset(lim *Limits) {
	t.fields.Reset()
	t.buf, t.line, t.named, t.lines = t.buf[:0], 0, false, 0
	t.maxBytes, t.maxFields = lim.head(), lim.fields()
}

// read consumes src up to the empty line that ends the section. A line is scanned from its beginning when it is
// complete, and once or twice before, in however many pieces it arrives.
func (t *trailerSection) read(src []byte) (n int, done bool, err error) {
	for n < len(src) {
		piece := src[n:]
		if i := bytes.IndexByte(piece, '\n'); i >= 0 {
			piece = piece[:i+1]
		}
		if len(t.buf)+len(piece) > t.maxBytes {
			return n, false, errTrailer
		}
		t.buf = append(t.buf, piece...)
		n += len(piece)
		if t.buf[t.line] == '\r' {
			if len(t.buf) == t.line+1 {
				continue
			}
			if t.buf[t.line+1] != '\n' {
				return n, false, errBareCR
			}
			return n, true, nil
		}
		if t.lines == t.maxFields {
			return n, false, errTrailerEnd
		}
		if piece[len(piece)-1] != '\n' && t.goesOn(len(t.buf)-len(piece)) {
			continue
		}
		l, err := scanField(t.buf, t.line)
		if err == ErrIncomplete {
			t.named = true // otherwise goesOn would have returned true
			continue
		}
		if err != nil {
			return n, false, err
		}
		t.add(l)
	}
	return n, false, nil
}

// goesOn reports whether buf[from:], which has just arrived, only continues the current name or value.
func (t *trailerSection) goesOn(from int) bool {
	if t.named {
		return t.buf[from-1] != '\r' && valueEnd(t.buf, from) == len(t.buf)
	}
	for _, c := range t.buf[from:] {
		if class[c]&isToken == 0 {
			return false
		}
	}
	return true
}

// add adds the complete line l. If buf moves later, the line stays where it is.
func (t *trailerSection) add(l fieldLine) {
	name := t.buf[t.line:l.colon]
	if !isForbidden(name) {
		t.fields.Append(message.Field{Name: name, Value: t.buf[l.value:l.end], Line: t.buf[t.line:l.next]})
	}
	t.line, t.named = l.next, false
	t.lines++
}

// forbiddenTrailers are fields that must be known before the content (RFC 9110
// section 6.5.1): framing, routing, conditions, authentication, cookies, handling
// of the response, format of the content.
var forbiddenTrailers = [...]string{
	"connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "http2-settings",
	"host", "expect", "max-forwards", "forwarded", "via", "x-real-ip",
	"cache-control", "pragma", "range", "if-match", "if-none-match", "if-modified-since",
	"if-unmodified-since", "if-range", "accept-ranges",
	"authorization", "www-authenticate", "authentication-info", "cookie", "set-cookie",
	"age", "date", "expires", "location", "retry-after", "vary",
}

var forbiddenTrailerPrefixes = [...]string{"content-", "transfer-", "x-forwarded", "proxy-", "access-control-"}

// isForbidden reports whether a field, or one that CGI-like backends take it for, is not allowed in a trailer section.
func isForbidden(name []byte) bool {
	var b [32]byte // longer than any forbidden name
	folded := cginame.Append(b[:0], name[:min(len(name), len(b))])
	for _, prefix := range forbiddenTrailerPrefixes {
		if len(folded) >= len(prefix) && string(folded[:len(prefix)]) == prefix {
			return true
		}
	}
	for _, known := range forbiddenTrailers {
		if string(folded) == known {
			return true
		}
	}
	return false
}
