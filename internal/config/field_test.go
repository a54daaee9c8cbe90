package config

import (
	"strings"
	"testing"
)

// TestIsToken asks for each byte whether it is a tchar of RFC 9110 section 5.6.2.
func TestIsToken(t *testing.T) {
	const tchars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for c := range 256 {
		if s := string([]byte{'a', byte(c), 'z'}); IsToken(s) != (strings.IndexByte(tchars, byte(c)) >= 0) {
			t.Errorf("%q: %t", s, IsToken(s))
		}
	}
	if IsToken("") {
		t.Error("nothing is a token")
	}
}

func TestIsCookiePath(t *testing.T) {
	for path, want := range map[string]bool{
		"/": true, "/a b/%20": true, "": false, "a": false, "/;Domain=x": false, "/\r\nX: y": false, "/\x7f": false, "/\xc3\xa9": false,
	} {
		if IsCookiePath(path) != want {
			t.Errorf("%q: %t", path, !want)
		}
	}
}
