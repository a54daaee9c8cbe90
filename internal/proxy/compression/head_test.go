package compression

import (
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

func text(f *message.Fields) string {
	var b strings.Builder
	for i := range f.Len() {
		b.WriteString(string(f.At(i).Name) + ": " + string(f.At(i).Value) + "\n")
	}
	return b.String()
}

func TestFit(t *testing.T) {
	for _, tc := range []struct {
		status int
		header []string
		want   bool
	}{
		{200, []string{"Content-Type: text/html"}, true},
		{200, []string{"content-type: TEXT/HTML; charset=utf-8"}, true},
		{200, []string{"Content-Type: application/json;charset=utf-8"}, true},
		{404, []string{"Content-Type: text/plain"}, true},
		{500, []string{"Content-Type: image/svg+xml"}, true},
		{200, nil, false},
		{200, []string{"Content-Type: text/html-sandboxed"}, false},
		{200, []string{"Content-Type: text/event-stream"}, false},
		{200, []string{"Content-Type: application/grpc"}, false},
		{200, []string{"Content-Type: image/png"}, false},
		{200, []string{"Content-Type: image/png", "Content-Type: text/html"}, false},
		{101, []string{"Content-Type: text/html"}, false},
		{204, []string{"Content-Type: text/html"}, false},
		{205, []string{"Content-Type: text/html"}, false},
		{206, []string{"Content-Type: text/html"}, false},
		{304, []string{"Content-Type: text/html"}, false},
		{200, []string{"Content-Type: text/html", "Content-Range: bytes 0-1/2"}, false},
		{200, []string{"Content-Type: text/html", "Content-Encoding: gzip"}, false},
		{200, []string{"Content-Encoding: br", "Content-Type: text/html"}, false},
		{200, []string{"Content-Type: text/html", "Cache-Control: public, No-Transform"}, false},
		{200, []string{"Content-Type: text/html", "Cache-Control: max-age=1", "Cache-Control: no-transform"}, false},
		{200, []string{"Content-Type: text/html", "Cache-Control: no-transformation"}, true},
	} {
		resp := &message.Response{Status: tc.status, Header: *fields(tc.header...)}
		if got := Fit(resp); got != tc.want {
			t.Errorf("%d %q: got %v", tc.status, tc.header, got)
		}
	}
	for _, c := range contentTypes {
		if !Fit(&message.Response{Status: 200, Header: *fields("Content-Type: " + c)}) {
			t.Errorf("%s is not fit", c)
		}
	}
}

func TestAddVary(t *testing.T) {
	for _, tc := range [][2]string{
		{"", "Vary: Accept-Encoding\n"},
		{"Vary: Origin", "Vary: Origin, Accept-Encoding\n"},
		{"Vary: ", "Vary: Accept-Encoding\n"},
		{"Vary: origin , ACCEPT-ENCODING", "Vary: origin , ACCEPT-ENCODING\n"},
		{"Vary: *", "Vary: *\n"},
		{"Vary: Origin|A: b|vary: Accept-Encoding", "Vary: Origin\nA: b\nvary: Accept-Encoding\n"},
		{"Vary: Origin|Vary: Cookie", "Vary: Origin, Accept-Encoding\nVary: Cookie\n"},
		{"Vary: Accept-Encodings", "Vary: Accept-Encodings, Accept-Encoding\n"},
	} {
		f := &message.Fields{}
		if tc[0] != "" {
			f = fields(strings.Split(tc[0], "|")...)
		}
		AddVary(f, nil)
		if got := text(f); got != tc[1] {
			t.Errorf("%q: got %q, want %q", tc[0], got, tc[1])
		}
	}
}

func TestEncode(t *testing.T) {
	f := fields("ETag: \"a\"", "Accept-Ranges: bytes", "Content-MD5: x", "Digest: y", "repr-digest: z", "Content-Digest: w", "X-Digest: stays")
	Encode(f, Brotli, []byte("scratch"))
	if got, want := text(f), "ETag: W/\"a\"\nX-Digest: stays\nContent-Encoding: br\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, tag := range []string{`W/"a"`, "", "none"} {
		f := fields("ETag: " + tag)
		if WeakenETag(f, nil); text(f) != "ETag: "+tag+"\n" {
			t.Errorf("%q became %q", tag, text(f))
		}
	}
}

// TestNotModified: the entity tag of a 304 is that which the client has.
func TestNotModified(t *testing.T) {
	for _, tc := range []struct {
		ifNoneMatch, tag, want string
	}{
		{`W/"a"`, `"a"`, `W/"a"`},
		{`"b", W/"a"`, `"a"`, `W/"a"`},
		{`"a", W/"a"`, `"a"`, `W/"a"`},
		{`"a"`, `"a"`, `"a"`},
		{`W/"b"`, `"a"`, `"a"`},
		{`*`, `"a"`, `"a"`},
		{`W/"a"`, `W/"a"`, `W/"a"`},
		{``, `"a"`, `"a"`},
	} {
		f := fields("ETag: "+tc.tag, "Vary: Origin")
		NotModified(fields("If-None-Match: "+tc.ifNoneMatch), f, nil)
		if got, want := text(f), "ETag: "+tc.want+"\nVary: Origin, Accept-Encoding\n"; got != want {
			t.Errorf("%v: got %q, want %q", tc, got, want)
		}
	}
}
