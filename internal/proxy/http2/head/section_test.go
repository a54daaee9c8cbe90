package head

import (
	"fmt"
	"strings"
	"testing"
)

// settled is a request's head of these pseudo-header fields and fields, in pairs.
func settled(t *testing.T, maxLines int, pairs ...string) (*Section, *Head, error) {
	t.Helper()
	x, h := &Section{}, &Head{}
	x.Reset(RequestHeader)
	for i := 0; i < len(pairs); i += 2 {
		x.Add(pairs[i], pairs[i+1], h, 32<<10, maxLines)
	}
	return x, h, x.Settle(h, true, true)
}

// TestHostAndAuthority: both may be there if they are the same, where the default port of the scheme and an empty one are as none.
func TestHostAndAuthority(t *testing.T) {
	for _, c := range []struct {
		scheme, authority, host string
		same                    bool
	}{
		{"http", "a.test", "a.test", true},
		{"http", "a.test", "A.test:80", true},
		{"http", "a.test:80", "a.test", true},
		{"HTTP", "a.test:80", "a.test:", true},
		{"https", "a.test", "a.test:", true},
		{"https", "a.test:443", "a.test", true},
		{"https", "[::1]:443", "[::1]", true},
		{"http", "[::80]", "[::80]", true},
		{"http", "a.test:8080", "a.test:8080", true},
		{"http", "[::80]", "[:", false},
		{"http", "a.test", "a.test:443", false},
		{"https", "a.test", "a.test:80", false},
		{"http", "a.test", "a.test:080", false},
		{"http", "a.test:8080", "a.test", false},
		{"http", "a.test", "b.test:80", false},
		{"ftp", "a.test", "a.test:80", false},
	} {
		_, h, err := settled(t, 128, ":method", "GET", ":scheme", c.scheme, ":authority", c.authority, ":path", "/", "host", c.host)
		if (err == nil) != c.same || c.same && string(h.Authority) != c.authority {
			t.Errorf("%s, %s and Host %s: %v, authority %q", c.scheme, c.authority, c.host, err, h.Authority)
		}
	}
	if _, _, err := settled(t, 128, ":method", "CONNECT", ":authority", "a.test:80", "host", "a.test"); err == nil {
		t.Error("CONNECT, whose port is never a default, was taken with a Host without it")
	}
}

// TestLines: as many as HTTP/1.1 would write, whatever Cookie is split into.
func TestLines(t *testing.T) {
	get := []string{":method", "GET", ":scheme", "http", ":authority", "a.test", ":path", "/"}
	fields := func(n int) (pairs []string) {
		for i := range n {
			pairs = append(pairs, fmt.Sprint("x-", i), "v")
		}
		return pairs
	}
	cookies := func(n int) (pairs []string) { return strings.Split(strings.Repeat("cookie,a=b,", n), ",")[:2*n] }
	for name, c := range map[string]struct {
		pairs []string
		large bool
	}{
		"no pseudo-header fields":    {fields(8), false},
		"one field too many":         {fields(9), true},
		"cookies":                    {cookies(100), false},
		"cookies beside fields":      {append(fields(7), cookies(100)...), false},
		"cookies as the line beyond": {append(fields(8), cookies(1)...), true},
		"cookies of many bytes":      {cookies(1000), true},
	} {
		x, h, err := settled(t, 8, append(get[:len(get):len(get)], c.pairs...)...)
		if x.Large != c.large || err != nil || !c.large && h.Fields.Len() > 8 {
			t.Errorf("%s: large is %v, %v, %d lines", name, x.Large, err, h.Fields.Len())
		}
	}
}

// TestTrailerFields: what must be known before the content is dropped, also in a spelling that a CGI-like backend takes for it.
func TestTrailerFields(t *testing.T) {
	for name, want := range map[string]bool{
		"content-length": false, "content_length": false, "content.type": false, "x-forwarded": false, "x+forwarded+for": false, "set~cookie": false, "x'real|ip": false, "if.match": false,
		"x-sum": true, "x.sum": true, "x.real": true, "if.matches": true, "contents": true, "x.content-length": true,
		"a-name.that+is_longer-than-all-of-those-that-are-dropped": true, "content.that-is-longer-than-all-of-those-that-are-dropped": false,
	} {
		var x Section
		x.Reset(Trailer)
		x.Add(name, "1", nil, 32<<10, 128)
		if x.Err != nil || (x.Fields.Len() == 1) != want {
			t.Errorf("%s: %d fields, %v", name, x.Fields.Len(), x.Err)
		}
	}
}

// TestLookalikes: a field that CGI-like servers take for one of framing is malformed, and others are not.
func TestLookalikes(t *testing.T) {
	for name, want := range map[string]error{
		"content_length": errLookalike, "content.length": errLookalike, "content~length": errLookalike, "transfer_encoding": errLookalike, "transfer+encoding": errLookalike,
		"accept-charset": nil, "content-lengths": nil, "content.lengths": nil, "transfer.encodings": nil, "x-forwarded-proto": nil,
	} {
		for _, kind := range []Kind{RequestHeader, ResponseHeader} {
			var x Section
			x.Reset(kind)
			x.Add(name, "1", &Head{}, 32<<10, 128)
			if x.Err != want {
				t.Errorf("%s: %v, want %v", name, x.Err, want)
			}
		}
	}
}
