package config

import "strings"

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
