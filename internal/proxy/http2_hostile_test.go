package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// rawHTTP2 speaks HTTP/2 without any of a client's scruples.
type rawHTTP2 struct {
	t     testing.TB
	c     net.Conn
	fr    *http2.Framer
	block bytes.Buffer
	enc   *hpack.Encoder
}

func (g *gateway) rawHTTP2() *rawHTTP2 {
	g.t.Helper()
	r := &rawHTTP2{t: g.t, c: g.dial()}
	r.enc = hpack.NewEncoder(&r.block)
	r.fr = http2.NewFramer(r.c, bufio.NewReader(r.c))
	r.fr.AllowIllegalWrites = true
	r.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	io.WriteString(r.c, http2.ClientPreface)
	r.fr.WriteSettings()
	return r
}

// head sends a header section of "name: value" lines.
func (r *rawHTTP2) head(stream uint32, end bool, lines ...[2]string) {
	r.block.Reset()
	for _, l := range lines {
		r.enc.WriteField(hpack.HeaderField{Name: l[0], Value: l[1]})
	}
	r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndStream: end, EndHeaders: true, BlockFragment: r.block.Bytes()})
}

// outcome reads on until the stream has ended, and tells how: the status, then "reset" or "end"; or "closed".
func (r *rawHTTP2) outcome(stream uint32) string {
	said := ""
	for {
		f, err := r.fr.ReadFrame()
		if err != nil {
			return said + "closed"
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				r.fr.WriteSettingsAck()
			}
		case *http2.GoAwayFrame:
			said += "goaway "
		}
		if f.Header().StreamID != stream {
			continue
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			return said + "reset"
		case *http2.MetaHeadersFrame:
			if s := f.PseudoValue("status"); s != "" {
				said += s + " "
			}
			if f.StreamEnded() {
				return said + "end"
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				return said + "end"
			}
		}
	}
}

func request2(method, path string, more ...[2]string) [][2]string {
	return append([][2]string{{":method", method}, {":scheme", "http"}, {":authority", "example.org"}, {":path", path}}, more...)
}

// TestHTTP2Smuggling: what could mean something else to a backend in HTTP/1.1 never gets there.
func TestHTTP2Smuggling(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var mu sync.Mutex
	var heard bytes.Buffer
	g := startGateway(t, Timeouts{})
	g.serve(rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			head, err := readHead(r)
			mu.Lock()
			heard.WriteString(head)
			mu.Unlock()
			if err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}), nil)
	for _, tc := range []struct {
		name  string
		lines [][2]string
		want  string // "reset" unless told
	}{
		{name: "LF in a value", lines: request2("GET", "/", [2]string{"x", "a\nb: c"})},
		{name: "CRLF in a value", lines: request2("GET", "/", [2]string{"x", "a\r\n\r\nGET /evil HTTP/1.1\r\nHost: evil"})},
		{name: "CR in a value", lines: request2("GET", "/", [2]string{"x", "a\rb"})},
		{name: "NUL in a value", lines: request2("GET", "/", [2]string{"x", "a\x00b"})},
		{name: "CRLF in a name", lines: request2("GET", "/", [2]string{"x: y\r\nz", "a"})},
		{name: "colon in a name", lines: request2("GET", "/", [2]string{"x:", "a"})},
		{name: "space in a name", lines: request2("GET", "/", [2]string{"content-length ", "3"})},
		{name: "empty name", lines: request2("GET", "/", [2]string{"", "a"})},
		{name: "upper case", lines: request2("GET", "/", [2]string{"Transfer-Encoding", "chunked"})},
		{name: "transfer-encoding", lines: request2("POST", "/", [2]string{"transfer-encoding", "chunked"})},
		{name: "connection", lines: request2("GET", "/", [2]string{"connection", "x-forwarded-for"})},
		{name: "upgrade", lines: request2("GET", "/", [2]string{"upgrade", "websocket"})},
		{name: "keep-alive", lines: request2("GET", "/", [2]string{"keep-alive", "1"})},
		{name: "proxy-connection", lines: request2("GET", "/", [2]string{"proxy-connection", "close"})},
		{name: "te", lines: request2("GET", "/", [2]string{"te", "chunked"})},
		{name: "two lengths", lines: request2("POST", "/", [2]string{"content-length", "3"}, [2]string{"content-length", "4"})},
		{name: "a length that is none", lines: request2("POST", "/", [2]string{"content-length", "+3"})},
		{name: "length without a body", lines: request2("POST", "/", [2]string{"content-length", "3"})},
		{name: "lookalike", lines: request2("POST", "/", [2]string{"content_length", "3"})},
		{name: "lookalike with a dot", lines: request2("POST", "/", [2]string{"content.length", "3"})},
		{name: "another host", lines: request2("GET", "/", [2]string{"host", "evil"})},
		{name: "pseudo-header behind", lines: request2("GET", "/", [2]string{"x", "y"}, [2]string{":path", "/evil"})},
		{name: "path twice", lines: append([][2]string{{":path", "/evil"}}, request2("GET", "/")...)},
		{name: "method with CRLF", lines: request2("GET / HTTP/1.1\r\nHost: evil\r\n\r\nGET", "/")},
		{name: "method with a space", lines: request2("GET /evil", "/")},
		{name: "path with CRLF", lines: request2("GET", "/ HTTP/1.1\r\nHost: evil\r\n\r\n")},
		{name: "path with a space", lines: request2("GET", "/ HTTP/1.1")},
		{name: "no path", lines: request2("GET", "")},
		{name: "absolute path", lines: request2("GET", "http://evil/")},
		{name: "asterisk", lines: request2("GET", "*")},
		{name: "authority with CRLF", lines: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a\r\nb: c"}, {":path", "/"}}},
		{name: "no authority", lines: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}}},
		{name: "fragment", lines: request2("GET", "/#evil")},
		{name: "backslash", lines: request2("GET", "/a\\b"), want: "400 end"},
		{name: "climbing path", lines: request2("GET", "/a/../../b"), want: "400 end"},
		{name: "NUL in the path", lines: request2("GET", "/%00"), want: "400 end"},
		{name: "path in the authority", lines: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a/b"}, {":path", "/"}}, want: "400 end"},
		{name: "other scheme", lines: [][2]string{{":method", "GET"}, {":scheme", "ftp"}, {":authority", "a"}, {":path", "/"}}, want: "400 end"},
		{name: "long method", lines: request2(strings.Repeat("A", 100), "/")},
		{name: "long path", lines: request2("GET", "/"+strings.Repeat("a", 9000)), want: "414 end"},
		{name: "large head", lines: request2("GET", "/", slices.Repeat([][2]string{{"x", strings.Repeat("a", 3000)}}, 14)...), want: "431 end"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := g.rawHTTP2()
			defer r.c.Close()
			want := tc.want
			if want == "" {
				want = "reset"
			}
			r.head(1, true, tc.lines...)
			if got := r.outcome(1); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			r.head(3, true, request2("GET", "/fine")...)
			if got := r.outcome(3); got != "200 end" {
				t.Errorf("the next request: %s", got)
			}
		})
	}
	mu.Lock()
	defer mu.Unlock()
	for line := range strings.Lines(heard.String()) {
		if strings.Contains(line, " HTTP/1.1") && line != "GET /fine HTTP/1.1\r\n" || strings.Contains(line, "evil") {
			t.Errorf("the backend heard %q", line)
		}
	}
}

// TestHTTP2BodyLength: a body that is shorter or longer than Content-Length, or is cut off, never looks
// complete to the backend.
func TestHTTP2BodyLength(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	for _, tc := range []struct {
		name, declared string
		data           []string
		end            bool
	}{
		{"too short", "10", []string{"abc"}, true},
		{"too long", "3", []string{"abcd"}, true},
		{"too long, in parts", "3", []string{"ab", "cd"}, false},
		{"too long behind its end", "3", []string{"abc", "d"}, true},
		{"not even begun", "3", []string{""}, true},
		{"cut off", "", []string{"abc"}, false},
	} {
		for _, pause := range []time.Duration{0, 30 * time.Millisecond} {
			t.Run(fmt.Sprint(tc.name, pause), func(t *testing.T) {
				got := make(chan string, 8)
				g := startGateway(t, Timeouts{})
				g.serve(rawBackend(t, func(c net.Conn, r *bufio.Reader) {
					b, _ := io.ReadAll(r)
					got <- string(b)
				}), nil)
				r := g.rawHTTP2()
				lines := request2("POST", "/")
				if tc.declared != "" {
					lines = append(lines, [2]string{"content-length", tc.declared})
				}
				r.head(1, false, lines...)
				for i, data := range tc.data {
					time.Sleep(pause)
					r.fr.WriteData(1, tc.end && i == len(tc.data)-1, []byte(data))
				}
				if tc.declared == "" {
					time.Sleep(pause)
					r.fr.WriteRSTStream(1, http2.ErrCodeCancel)
				} else if o := r.outcome(1); o != "reset" {
					t.Errorf("%s, want reset", o)
				}
				r.c.Close()
				if g.reasonsLogged(1)[0] == "ok" {
					t.Error("logged ok")
				}
				select {
				case all := <-got: // a connection that was used at all
					_, body, _ := strings.Cut(all, "\r\n\r\n")
					if tc.declared == "" && strings.HasSuffix(body, "0\r\n\r\n") || fmt.Sprint(len(body)) == tc.declared && tc.name != "too long behind its end" {
						t.Errorf("the backend has a whole request: %q", all)
					}
				case <-time.After(100 * time.Millisecond):
				}
			})
		}
	}
}

// moments2 are those of a request by HTTP/2 at which its client may go.
var moments2 = []struct {
	name    string
	do      func(*rawHTTP2)
	reply   string // of the backend, before it waits to be cancelled
	reaches bool
}{
	{name: "behind the preface", do: func(r *rawHTTP2) {}},
	{name: "within a header block", do: func(r *rawHTTP2) {
		r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
	}},
	{name: "waiting for the response", do: func(r *rawHTTP2) { r.head(1, true, request2("GET", "/")...) }, reaches: true},
	{name: "within a body", do: func(r *rawHTTP2) {
		r.head(1, false, request2("POST", "/", [2]string{"content-length", "100"})...)
		r.fr.WriteData(1, false, []byte("abc"))
	}, reaches: true},
	{name: "before a body", do: func(r *rawHTTP2) { r.head(1, false, request2("POST", "/")...) }, reaches: true},
	{name: "within the response head", do: func(r *rawHTTP2) { r.head(1, true, request2("GET", "/")...) }, reply: "HTTP/1.1 200 OK\r\nConte", reaches: true},
	{name: "within the response body", do: func(r *rawHTTP2) { r.head(1, true, request2("GET", "/")...) },
		reply: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", reaches: true},
	{name: "within upload and response", do: func(r *rawHTTP2) {
		r.head(1, false, request2("POST", "/", [2]string{"content-length", "100"})...)
		r.fr.WriteData(1, false, []byte("abc"))
	}, reply: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", reaches: true},
	{name: "with its window shut", do: func(r *rawHTTP2) { r.head(1, true, request2("GET", "/")...) },
		reply: "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 200_000), reaches: true},
}

// TestHTTP2ClientVanishes ends a stream, or its connection, at every moment: the backend's request is
// cancelled and nothing is left.
func TestHTTP2ClientVanishes(t *testing.T) {
	for _, tc := range moments2 {
		for _, how := range []string{"RST_STREAM", "close", "reset"} {
			if how == "RST_STREAM" && !tc.reaches {
				continue
			}
			t.Run(tc.name+"/"+how, func(t *testing.T) {
				t.Parallel()
				begun, cancelled := make(chan struct{}, 1), make(chan struct{}, 1)
				g := startGateway(t, Timeouts{})
				g.serve(rawBackend(t, func(c net.Conn, r *bufio.Reader) {
					if _, err := readHead(r); err != nil {
						return
					}
					begun <- struct{}{}
					io.WriteString(c, tc.reply)
					io.Copy(io.Discard, r)
					cancelled <- struct{}{}
				}), nil)
				r := g.rawHTTP2()
				tc.do(r)
				if tc.reaches {
					<-begun
				}
				time.Sleep(30 * time.Millisecond)
				switch how {
				case "RST_STREAM":
					r.fr.WriteRSTStream(1, http2.ErrCodeCancel)
				case "close":
					r.c.Close()
				default:
					r.c.(*net.TCPConn).SetLinger(0)
					r.c.Close()
				}
				if !tc.reaches {
					return
				}
				select {
				case <-cancelled:
				case <-time.After(testkit.Patience):
					t.Fatal("the backend still works for nobody")
				}
				if words := g.reasonsLogged(1); words[0] != "client_closed" {
					t.Errorf("logged %q, want client_closed", words[0])
				}
				if how != "RST_STREAM" {
					return
				}
				if f, err := r.fr.ReadFrame(); err != nil { // the connection goes on
					t.Error(f, err)
				}
			})
		}
	}
}

// TestHTTP2NothingLeaks runs the above, then looks for goroutines and descriptors.
func TestHTTP2NothingLeaks(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	t.Run("clients", TestHTTP2ClientVanishes)
}
