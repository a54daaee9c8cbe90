package config

import (
	"slices"
	"strings"
)

// IsToken reports whether s can be the name of a header field, or of a cookie (RFC 9110 section 5.6.2, RFC 6265 section 4.1.1).
func IsToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if letter := 'a' <= c|0x20 && c|0x20 <= 'z'; !letter && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// IsControl reports whether r is a character that RFC 9110 section 5.5 forbids in the value of a header field.
func IsControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// IsCookiePath reports whether s can be the Path attribute of a cookie: it begins with a slash and contains no semicolon or control
// character (RFC 6265 section 4.1.1).
func IsCookiePath(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == ';' {
			return false
		}
	}
	return strings.HasPrefix(s, "/")
}

// removedBeforeMatching are the header fields for the connection that RemovedBeforeMatching reports.
var removedBeforeMatching = []string{
	"connection", "http2-settings", "keep-alive", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization", "proxy-connection", "transfer-encoding",
}

// RemovedBeforeMatching reports whether a proxy removes a header field from requests before it matches them. The name is in lower
// case.
func RemovedBeforeMatching(name string) bool { return slices.Contains(removedBeforeMatching, name) }

// SetBeforeMatching reports whether a proxy sets or removes a header field before it matches a request, so that the client's value
// is not matched unless the client is trusted. The name is in lower case.
func SetBeforeMatching(name string) bool {
	return name == "forwarded" || name == "x-real-ip" || name == "x-request-id" || name == "x-forwarded" || strings.HasPrefix(name, "x-forwarded-")
}
