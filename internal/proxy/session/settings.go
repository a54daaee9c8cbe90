package session

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// Settings is a compiled config.SessionPersistence: what carries the sessions, and how long they last. It is immutable.
type Settings struct {
	name           []byte
	header         bool
	permanent      bool
	absolute, idle time.Duration // 0 means no limit
	// purpose is what tokens are signed for: those of one name are not valid for another.
	purpose string
	// opening and attributes precede and follow the token in Set-Cookie.
	opening    []byte
	attributes []byte
}

// Compile validates and compiles a message; nil for nil.
func Compile(c *config.SessionPersistence) (*Settings, error) {
	if c == nil {
		return nil, nil
	}
	s := &Settings{
		name: []byte(c.Name), header: c.Header, permanent: c.Permanent,
		absolute: time.Duration(c.AbsoluteTimeoutNanos), idle: time.Duration(c.IdleTimeoutNanos),
		purpose: "cookie " + c.Name,
	}
	if c.Header {
		s.purpose = "header " + strings.ToLower(c.Name)
	}
	switch {
	case !config.IsToken(c.Name):
		return nil, fmt.Errorf("session_persistence: %q is not a name", c.Name)
	case !c.Header && !config.IsCookiePath(c.Path):
		return nil, fmt.Errorf("session_persistence: %q is not a cookie path", c.Path)
	case s.absolute < 0 || s.idle < 0 || c.Permanent && s.absolute == 0:
		return nil, fmt.Errorf("session_persistence: its timeouts are out of bounds: %v", c)
	}
	s.opening = []byte(c.Name + "=")
	s.attributes = []byte("; Path=" + c.Path + "; HttpOnly; SameSite=Strict")
	return s, nil
}

// Header reports whether a header field carries the sessions. It is in each response; a cookie only if it has changed.
func (s *Settings) Header() bool { return s.header }

// maxRead is how many cookies with the name are read in a request: several paths, or parent domains, may have set one
// each.
const maxRead = 4

var cookieName = []byte("Cookie")

// Read reads the token of a request. t is empty if there is no valid one.
func (s *Settings) Read(k *Keys, h *message.Fields, t *Token) {
	t.n, t.renew = 0, false
	tries := 0
	s.each(h, func(value []byte) (more bool) {
		tries++
		return !k.read(t, s.purpose, value) && tries < maxRead
	})
}

// ReadUnverified reads the first value in the form of a token without verifying its signature, for diagnosis. No
// decision may depend on it.
func (s *Settings) ReadUnverified(h *message.Fields, t *Token) {
	t.n, t.renew = 0, false
	s.each(h, func(value []byte) (more bool) {
		var raw [maxEncoded]byte
		if text, _, ok := decode(raw[:], value); ok {
			t.take(text)
		}
		return t.n == 0
	})
}

// each calls yield with the values that a request has for the name, until it returns false.
func (s *Settings) each(h *message.Fields, yield func(value []byte) (more bool)) {
	for i := range h.Len() {
		f := h.At(i)
		switch {
		case s.header && message.EqualFoldBytes(f.Name, s.name):
			if !yield(f.Value) {
				return
			}
		case !s.header && message.EqualFoldBytes(f.Name, cookieName):
			for rest := f.Value; len(rest) > 0; {
				var pair []byte
				pair, rest, _ = bytes.Cut(rest, semicolon)
				value, named := bytes.CutPrefix(bytes.TrimLeft(pair, " \t"), s.opening)
				if named && !yield(unquoted(bytes.TrimRight(value, " \t"))) {
					return
				}
			}
		}
	}
}

var semicolon = []byte(";")

// unquoted removes the quotation marks that a cookie's value may have (RFC 6265 section 4.1.1).
func unquoted(v []byte) []byte {
	if n := len(v); n >= 2 && v[0] == '"' && v[n-1] == '"' {
		return v[1 : n-1]
	}
	return v
}

var setCookieName = []byte("Set-Cookie")

// Write adds the token to a response head. scratch is memory for its value; the extended slice is returned. A cookie is
// Secure if the client used TLS: without TLS clients would refuse such a cookie. If the backend itself sets a cookie
// with the name, the backend's cookie is kept and there is no session: written is false.
func (s *Settings) Write(k *Keys, h *message.Fields, t *Token, scratch []byte, secure bool, at time.Time) (_ []byte, written bool) {
	start := len(scratch)
	if s.header {
		scratch = k.appendToken(scratch, s.purpose, t)
		h.Set(s.name, scratch[start:len(scratch):len(scratch)])
		return scratch, true
	}
	for i := range h.Len() {
		if f := h.At(i); message.EqualFoldBytes(f.Name, setCookieName) && bytes.HasPrefix(bytes.TrimLeft(f.Value, " \t"), s.opening) {
			return scratch, false
		}
	}
	scratch = append(scratch, s.opening...)
	scratch = k.appendToken(scratch, s.purpose, t)
	scratch = append(scratch, s.attributes...)
	if secure {
		scratch = append(scratch, "; Secure"...)
	}
	if s.permanent {
		scratch = append(scratch, "; Max-Age="...)
		scratch = strconv.AppendInt(scratch, s.left(t, at.UnixMilli()), 10)
	}
	h.Add(setCookieName, scratch[start:len(scratch):len(scratch)])
	return scratch, true
}

// left returns how many seconds are left of the session that began last, after which all are over.
func (s *Settings) left(t *Token, now int64) int64 {
	begun := int64(0)
	for i := range t.n {
		begun = max(begun, t.stays[i].begun)
	}
	return max(0, (s.absolute.Milliseconds()-(now-begun)+999)/1000)
}
