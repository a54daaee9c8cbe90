package http1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// meaning is everything about a request but how it was written.
func meaning(req *message.Request, h *RequestHead) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", req.Method, req.Path)
	if req.HasQuery {
		fmt.Fprintf(&b, " ?%s", req.Query)
	}
	fmt.Fprintf(&b, " @%s", req.Host)
	if string(req.MatchHost) != string(req.Host) {
		fmt.Fprintf(&b, "=%s", req.MatchHost)
	}
	switch h.Framing {
	case Length:
		fmt.Fprintf(&b, " length=%d", h.ContentLength)
	case Chunked:
		b.WriteString(" chunked")
	}
	if h.ExpectContinue {
		b.WriteString(" expect")
	}
	if h.TETrailers {
		b.WriteString(" te")
	}
	if h.Upgrade != nil {
		fmt.Fprintf(&b, " upgrade=%s", h.Upgrade)
	}
	describe(&b, &req.Header)
	return b.String()
}

func describe(b *strings.Builder, fields *message.Fields) {
	for i := range fields.Len() {
		fmt.Fprintf(b, " [%s:%s]", fields.At(i).Name, fields.At(i).Value)
	}
}

const at = " HTTP/1.1\r\nHost: a\r\n\r\n"

var acceptedRequests = []struct{ in, want string }{
	{"GET /" + at, "GET / @a"},
	{"\r\nGET /" + at, "GET / @a"},
	{"get /" + at, "get / @a"},
	{"M-SEARCH! /" + at, "M-SEARCH! / @a"},
	{"GET / HTTP/1.0\r\n\r\n", "GET / @ close"},
	{"GET / HTTP/1.0\r\nHost: b\r\nConnection: Keep-Alive\r\n\r\n", "GET / @b"},
	{"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", "GET / @ close"},
	{"GET / HTTP/1.1\r\nHost:a\r\nConnection: CLOSE\r\n\r\n", "GET / @a close"},
	{"GET / HTTP/1.1\r\nHost:\t a \t\r\nX:\r\nY:  b c \r\nZ: \tå\r\n\r\n", "GET / @a [X:] [Y:b c] [Z:å]"},

	// Target forms.
	{"GET HTTP://B.example:81/x?y" + at, "GET /x ?y @B.example:81=b.example absolute"},
	{"GET https://b" + at, "GET / @b absolute"},
	{"GET http://b?q" + at, "GET / ?q @b absolute"},
	{"GET http://b/ HTTP/1.1\r\nHost:\r\n\r\n", "GET / @b absolute"},
	{"GET http://[::1]:8080/ HTTP/1.0\r\n\r\n", "GET / @[::1]:8080=[::1] close absolute"},
	{"OPTIONS *" + at, "OPTIONS * @a asterisk"},
	{"OPTIONS http://b" + at, "OPTIONS * @b asterisk"},
	{"OPTIONS http://b/" + at, "OPTIONS / @b absolute"},
	{"CONNECT b:443" + at, "CONNECT  @b:443=b authority"},

	// Host.
	{"GET / HTTP/1.1\r\nHost: WWW.Example.COM.:8080\r\n\r\n", "GET / @WWW.Example.COM.:8080=www.example.com"},
	{"GET / HTTP/1.1\r\nHost: a_b-c~.x:\r\n\r\n", "GET / @a_b-c~.x:=a_b-c~.x"},
	{"GET / HTTP/1.1\r\nHost: 192.0.2.1:65535\r\n\r\n", "GET / @192.0.2.1:65535=192.0.2.1"},
	{"GET / HTTP/1.1\r\nHost: [2001:DB8::1]:80\r\n\r\n", "GET / @[2001:DB8::1]:80=[2001:db8::1]"},
	{"GET / HTTP/1.1\r\nHost: [::]\r\n\r\n", "GET / @[::]"},
	{"GET / HTTP/1.1\r\nHost: [1::]\r\n\r\n", "GET / @[1::]"},
	{"GET / HTTP/1.1\r\nHost: [1:2:3:4:5:6:7:8]\r\n\r\n", "GET / @[1:2:3:4:5:6:7:8]"},
	{"GET / HTTP/1.1\r\nHost: [::ffff:192.0.2.1]\r\n\r\n", "GET / @[::ffff:192.0.2.1]"},

	// Paths.
	{"GET /a//b///" + at, "GET /a//b/// @a"},
	{"GET //b/c" + at, "GET //b/c @a"},
	{"GET /a/./b/../c/." + at, "GET /a/c/ @a"},
	{"GET /a/b/.." + at, "GET /a/ @a"},
	{"GET /a/.." + at, "GET / @a"},
	{"GET /a//../b" + at, "GET /a/b @a"},
	{"GET //.." + at, "GET / @a"},
	{"GET /a/%2e%2E/%41%7e%5f%2D" + at, "GET /A~_- @a"},
	{"GET /a%2fb%5c%3f%25%20" + at, "GET /a%2Fb%5C%3F%25%20 @a"},
	{"GET /a%2f.b%5c..c%2f...%2f%2f" + at, "GET /a%2F.b%5C..c%2F...%2F%2F @a"},
	{"GET /a%2f/../b" + at, "GET /b @a"},
	{"GET /%252e%252e/" + at, "GET /%252e%252e/ @a"},
	{"GET /.../.a/..b/c./d.." + at, "GET /.../.a/..b/c./d.. @a"},
	{"GET /a;b=../.c;d/..e;/...;/;.." + at, "GET /a;b=../.c;d/..e;/...;/;.. @a"},
	{"GET /a|[b]{c}\"<>^`:@!$&'()*+,;=" + at, "GET /a|[b]{c}\"<>^`:@!$&'()*+,;= @a"},
	{"GET /?" + at, "GET / ? @a"},
	{"GET /?a/../b\\%zz%2e?/.." + at, "GET / ?a/../b\\%zz%2e?/.. @a"},
	{"GET http://b/./%61" + at, "GET /a @b absolute"},

	// Framing.
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "POST / @a length=0"},
	{"POST / HTTP/1.1\r\nHost: a\r\ncontent-LENGTH: 9223372036854775807\r\n\r\n", "POST / @a length=9223372036854775807"},
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 007\r\n\r\n", "POST / @a length=7"},
	{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \tChunked \r\nTrailer: x\r\n\r\n", "POST / @a chunked [Trailer:x]"},
	{"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\n", "POST / @ length=3 close"},

	// Hop-by-hop fields.
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n\r\n", "POST / @a length=1 expect"},
	{"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", "GET / @a"},
	{"POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n", "POST / @ length=1 close"},
	{"GET / HTTP/1.1\r\nHost: a\r\nTE: gzip;q=0.5, Trailers\r\nConnection: TE\r\n\r\n", "GET / @a te"},
	{"GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nConnection: x-a, ,close\r\nX-B: 2\r\nConnection: X-B,y\r\nx-b: 3\r\nZ: 4\r\n\r\n", "GET / @a [Z:4] close"},
	{"GET / HTTP/1.1\r\nHost: a\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nProxy-Authorization: x\r\nHTTP2-Settings: x\r\nProxy-Authenticate: x\r\nProxy-Authentication-Info: x\r\nUpgrade: x\r\n\r\n", "GET / @a"},
	{"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n", "GET / @a upgrade=websocket"},
	{"GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "GET / @ close"},
	{"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n", "GET / @a"},
	{"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket, HTTP/2.0\r\n\r\n", "GET / @a"},
	{"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: TLS/1.0\r\n\r\n", "GET / @a"},
	{"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: a\r\nUpgrade: b\r\n\r\n", "GET / @a"},
	{"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: x\r\nAuthorization: y\r\nCookie: z\r\n\r\n", "GET / @a [X-Forwarded-For:x] [Authorization:y] [Cookie:z]"},
}

var formNames = map[Form]string{Absolute: " absolute", Authority: " authority", Asterisk: " asterisk"}

func TestAcceptedRequests(t *testing.T) {
	var req message.Request
	var h RequestHead
	for _, c := range acceptedRequests {
		in := c.in + "tail"
		n, err := ParseRequest([]byte(in), &req, &h, nil)
		if err != nil || n != len(c.in) {
			t.Errorf("%q: n %d of %d, error %v", c.in, n, len(c.in), err)
			continue
		}
		got := meaning(&req, &h)
		if !h.KeepAlive {
			got += " close"
		}
		if got += formNames[h.Form]; got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.in, got, c.want)
		}
		for i := range len(c.in) {
			if _, err := ParseRequest([]byte(c.in[:i]), &req, &h, nil); err != ErrIncomplete {
				t.Fatalf("%q: error %v, want incomplete", c.in[:i], err)
			}
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	var req message.Request
	var h RequestHead
	cases := append(refusedRequests[:len(refusedRequests):len(refusedRequests)], refusedLines...)
	for _, c := range cases {
		in := []byte(c.input())
		_, err := ParseRequest(in, &req, &h, nil)
		e, ok := err.(*Error)
		if !ok || e.Status != c.status || e.Reason != c.reason {
			t.Errorf("%s: error %+v, want %d %s", c.name, err, c.status, c.reason)
			continue
		}
		checkPrefixes(t, c.name, in, e)
	}
}

// checkPrefixes parses ever more of in: once refused, it must stay refused for the same reason.
func checkPrefixes(t *testing.T, name string, in []byte, want *Error) {
	t.Helper()
	var req message.Request
	var h RequestHead
	step := 1 + len(in)/1024
	refused := false
	for i := 0; i <= len(in); i += step {
		_, err := ParseRequest(in[:i], &req, &h, nil)
		if err == want {
			refused = true
		} else if refused || err != ErrIncomplete {
			t.Fatalf("%s: error %v after %d bytes, want %v", name, err, i, want)
		}
	}
}

// TestRefusedEarly names what must not wait for more bytes.
func TestRefusedEarly(t *testing.T) {
	for _, in := range []string{
		"\x16", " ", "\n", "\rX", "\r\n\r", "GE\x00", "GET /a#", "GET / HTTX", "GET / HTTP/1.1\rX",
		"GET / HTTP/1.1\r\n ", "GET / HTTP/1.1\r\nHost ", "GET / HTTP/1.1\r\nA: b\x00", "GET / HTTP/1.1\r\nA: \n",
		"POST / HTTP/1.1\r\nContent-Length: x\r\n", "POST /.. HTTP/1.1\r\n",
		"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n",
	} {
		var req message.Request
		var h RequestHead
		_, err := ParseRequest([]byte(in), &req, &h, nil)
		if _, ok := err.(*Error); !ok {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestRequestLimits(t *testing.T) {
	var req message.Request
	var h RequestHead
	in := []byte("GET /abc HTTP/1.1\r\nHost: a\r\nB: c\r\n\r\n")
	for _, c := range []struct {
		lim    Limits
		status int
	}{
		{Limits{MaxHead: len(in), MaxFields: 2, MaxTarget: 4}, 0},
		{Limits{MaxHead: len(in) - 1}, 431},
		{Limits{MaxFields: 1}, 431},
		{Limits{MaxTarget: 3}, 414},
	} {
		_, err := ParseRequest(in, &req, &h, &c.lim)
		if e, _ := err.(*Error); c.status == 0 && err != nil || c.status != 0 && (e == nil || e.Status != c.status) {
			t.Errorf("%+v: %v", c.lim, err)
		}
	}
}

// TestWorthParsing counts how many bytes are parsed in all of a head that comes byte by byte, and parses again where a line ends and at the limit.
func TestWorthParsing(t *testing.T) {
	for name, c := range map[string]struct {
		lines, length int
	}{"one line": {1, 30 << 10}, "short lines": {100, 300}} {
		head := []byte(strings.Repeat(strings.Repeat("a", c.length-2)+"\r\n", c.lines))
		parsed, work, ended := 0, 0, 0
		for n := 1; n <= len(head); n++ {
			worth := WorthParsing(head[:n], parsed, 1, nil)
			if worth {
				parsed = n
				work += n
			}
			if head[n-1] == '\n' && worth {
				ended++
			}
		}
		if most := (5 + c.lines) * len(head); work > most || ended != c.lines {
			t.Errorf("%s: %d bytes are parsed, want at most %d; %d ends of lines, want %d", name, work, most, ended, c.lines)
		}
	}
	long := make([]byte, 100)
	for n, want := range map[int]bool{99: false, 100: true} {
		if got := WorthParsing(long[:n], 98, 1, &Limits{MaxHead: 100}); got != want {
			t.Errorf("%d bytes of 100: %v", n, got)
		}
	}
}
