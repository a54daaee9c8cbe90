package http1

import (
	"errors"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// TestAdopt checks what is refused, and with what status; FuzzAdopt checks the rest.
func TestAdopt(t *testing.T) {
	for _, tc := range []struct {
		method, scheme, authority, path string
		status                          int // 0 is accepted
	}{
		{"GET", "http", "h", "/", 0},
		{"GET", "HTTPS", "h:80", "/a?b", 0},
		{"OPTIONS", "http", "h", "*", 0},
		{"CONNECT", "", "h:443", "", 0},
		{"CONNECT", "", "h", "", 400},
		{"GET", "http", "h", "*", 400},
		{"GET", "http", "h", "", 400},
		{"GET", "http", "", "/", 400},
		{"GET", "ftp", "h", "/", 400},
		{"GET", "http", "h", "a", 400},
		{"GET", "http", "h", "http://h/", 400},
		{"GET", "http", "h", "/ HTTP/1.1\r\nX: y", 400},
		{"GET /", "http", "h", "/", 400},
		{"", "http", "h", "/", 400},
		{strings.Repeat("A", 65), "http", "h", "/", 501},
		{"GET", "http", "h\r\nX: y", "/", 400},
		{"GET", "http", "user@h", "/", 400},
		{"GET", "http", "h", "/../a", 400},
		{"GET", "http", "h", "/" + strings.Repeat("a", 9000), 414},
	} {
		var head RequestHead
		var req message.Request
		err := head.Adopt([]byte(tc.method), []byte(tc.scheme), []byte(tc.authority), []byte(tc.path), &req, nil)
		var refused *Error
		if errors.As(err, &refused) != (tc.status != 0) || refused != nil && refused.Status != tc.status {
			t.Errorf("%.20q %q %q %.20q: %v, want status %d", tc.method, tc.scheme, tc.authority, tc.path, err, tc.status)
		}
	}
}

// FuzzAdopt compares Adopt with ParseRequest: both accept the same and understand the same.
func FuzzAdopt(f *testing.F) {
	for _, seed := range [][3]string{{"GET", "h", "/"}, {"OPTIONS", "H.:80", "*"}, {"GET", "[::1]:8", "/%61/./b/..?c?d"},
		{"PUT", "h", "/a\r\nb"}, {"GET", "a b", "/"}, {"CONNECT", "h:1", "/x"}, {"A", "h\r\nX: y", "/\\"}} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, method, authority, path string) {
		if method == "CONNECT" || len(path) > 0 && path[0] != '/' && path != "*" {
			return // of other forms in HTTP/1.1
		}
		var a, b RequestHead
		var adopted, parsed message.Request
		err := a.Adopt([]byte(method), []byte("http"), []byte(authority), []byte(path), &adopted, nil)
		text := method + " " + path + " HTTP/1.1\r\nHost:" + authority + "\r\n\r\n"
		n, perr := ParseRequest([]byte(text), &parsed, &b, nil)
		if perr == nil && (n != len(text) || parsed.Header.Len() > 0 || string(parsed.Host) != authority || b.Form == Absolute) {
			perr = errTarget // something else than was meant
		}
		if (err == nil) != (perr == nil) {
			t.Fatalf("%q %q %q: %v, parsed: %v", method, authority, path, err, perr)
		}
		if err != nil {
			return
		}
		if string(adopted.Method) != string(parsed.Method) || string(adopted.MatchHost) != string(parsed.MatchHost) || string(adopted.Path) != string(parsed.Path) ||
			string(adopted.Query) != string(parsed.Query) || adopted.HasQuery != parsed.HasQuery || a.Form != b.Form {
			t.Fatalf("%q %q %q: %+v, parsed: %+v", method, authority, path, adopted, parsed)
		}
	})
}
