package head

import (
	"strings"

	"github.com/moongate-dev/moongate/internal/cginame"
)

const (
	isTokenChar  = 1 << iota // RFC 9110 section 5.6.2
	isUpperChar              // which field names must not have
	isValueChar              // field-value: no control character but HTAB
	isTargetChar             // visible ASCII without "#"
)

var class = func() (t [256]uint8) {
	for c := range t {
		b := byte(c)
		letter := 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
		if letter || '0' <= b && b <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0 {
			t[c] |= isTokenChar
		}
		if 'A' <= b && b <= 'Z' {
			t[c] |= isUpperChar
		}
		if b >= ' ' && b != 0x7f || b == '\t' {
			t[c] |= isValueChar
		}
		if b > ' ' && b < 0x7f && b != '#' {
			t[c] |= isTargetChar
		}
	}
	return t
}()

// all reports whether s is not empty and has bytes of that class only.
func all(s string, of uint8) bool {
	for i := range len(s) {
		if class[s[i]]&of == 0 {
			return false
		}
	}
	return len(s) > 0
}

func isToken(s string) bool { return all(s, isTokenChar) }

func isFieldName(s string) bool {
	for i := range len(s) {
		if class[s[i]]&(isTokenChar|isUpperChar) != isTokenChar {
			return false
		}
	}
	return len(s) > 0
}

func isFieldValue(s string) bool {
	if s == "" {
		return true
	}
	first, last := s[0], s[len(s)-1]
	return first != ' ' && first != '\t' && last != ' ' && last != '\t' && all(s, isValueChar)
}

func isScheme(s string) bool {
	for i := range len(s) {
		b := s[i]
		letter := 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
		if !letter && (i == 0 || !('0' <= b && b <= '9' || b == '+' || b == '-' || b == '.')) {
			return false
		}
	}
	return len(s) > 0
}

func isAuthority(s string) bool { return all(s, isTargetChar) && strings.IndexByte(s, '@') < 0 }

func isPath(s string) bool { return all(s, isTargetChar) && (s[0] == '/' || s == "*") }

// IsConnectionSpecific reports whether HTTP/2 does not allow fields of that name, which must be in lower case (RFC 9113
// section 8.2.2).
func IsConnectionSpecific(name string) bool {
	switch name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return true
	}
	return false
}

// isLookalike reports whether CGI-like backends take a field, which is neither, for Content-Length or
// Transfer-Encoding.
func isLookalike(name string) bool {
	switch len(name) {
	case len("content-length"):
		return cginame.Same(name, "content-length")
	case len("transfer-encoding"):
		return cginame.Same(name, "transfer-encoding")
	}
	return false
}

// isForbiddenTrailer reports whether a field, or one that CGI-like backends take it for, must be known before the
// content (RFC 9110 section 6.5.1): framing, routing, conditions, authentication, cookies, handling of the response.
func isForbiddenTrailer(name string) bool {
	var b [32]byte // longer than any forbidden name
	folded := cginame.Append(b[:0], name[:min(len(name), len(b))])
	for _, prefix := range [...]string{"content-", "transfer-", "x-forwarded", "proxy-", "access-control-"} {
		if len(folded) >= len(prefix) && string(folded[:len(prefix)]) == prefix {
			return true
		}
	}
	switch string(folded) {
	case "connection", "keep-alive", "te", "trailer", "upgrade", "http2-settings",
		"host", "expect", "max-forwards", "forwarded", "via", "x-real-ip",
		"cache-control", "pragma", "range", "if-match", "if-none-match", "if-modified-since",
		"if-unmodified-since", "if-range", "accept-ranges",
		"authorization", "www-authenticate", "authentication-info", "cookie", "set-cookie",
		"age", "date", "expires", "location", "retry-after", "vary":
		return true
	}
	return false
}
