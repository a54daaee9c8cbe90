package http2

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
)

func without(name string, pairs ...string) []string {
	var rest []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] != name {
			rest = append(rest, pairs[i], pairs[i+1])
		}
	}
	return rest
}

func with(name, value string, pairs ...string) []string {
	return append([]string{name, value}, without(name, pairs...)...)
}

// TestMalformed sends requests that nobody may hand over (RFC 9113 section 8.1.1), and after
// each one that is right, on the same connection.
func TestMalformed(t *testing.T) {
	post := func(more ...string) []string {
		return append(with(":method", "POST", get("/")...), more...)
	}
	for _, c := range []struct {
		name  string
		pairs []string
		body  string
	}{
		{"no method", without(":method", get("/")...), ""},
		{"no scheme", without(":scheme", get("/")...), ""},
		{"no path", without(":path", get("/")...), ""},
		{"no authority", without(":authority", get("/")...), ""},
		{"method twice", append(get("/"), ":method", "GET"), ""},
		{"path twice", append([]string{":path", "/a"}, get("/")...), ""},
		{"authority twice", append([]string{":authority", "b"}, get("/")...), ""},
		{"unknown pseudo", append([]string{":foo", "b"}, get("/")...), ""},
		{"status", append([]string{":status", "200"}, get("/")...), ""},
		{"pseudo behind regular", append([]string{"a", "b"}, get("/")...), ""},
		{"empty path", with(":path", "", get("/")...), ""},
		{"path without slash", with(":path", "a", get("/")...), ""},
		{"absolute path", with(":path", "http://b/", get("/")...), ""},
		{"asterisk of GET", with(":path", "*", get("/")...), ""},
		{"space in path", get("/a b"), ""},
		{"CR LF in path", get("/a\r\nX: y"), ""},
		{"fragment", get("/a#b"), ""},
		{"DEL in path", get("/\x7f"), ""},
		{"no ASCII in path", get("/\xc3\xa4"), ""},
		{"empty method", with(":method", "", get("/")...), ""},
		{"method with space", with(":method", "GET /x", get("/")...), ""},
		{"method with LF", with(":method", "GET\n", get("/")...), ""},
		{"long method", with(":method", strings.Repeat("A", 65), get("/")...), ""},
		{"empty scheme", with(":scheme", "", get("/")...), ""},
		{"scheme with colon", with(":scheme", "http://", get("/")...), ""},
		{"empty authority", with(":authority", "", get("/")...), ""},
		{"userinfo", with(":authority", "u@a.test", get("/")...), ""},
		{"CR in authority", with(":authority", "a\rb", get("/")...), ""},
		{"space in authority", with(":authority", "a b", get("/")...), ""},
		{"host differs", get("/", "host", "b.test"), ""},
		{"host twice", get("/", "host", "a.test", "host", "a.test"), ""},
		{"empty name", get("/", "", "x"), ""},
		{"upper-case name", get("/", "X-a", "x"), ""},
		{"space in name", get("/", "x a", "x"), ""},
		{"colon in name", get("/", "x:a", "x"), ""},
		{"LF in name", get("/", "x\na", "x"), ""},
		{"NUL in name", get("/", "x\x00", "x"), ""},
		{"no ASCII in name", get("/", "\xc3\xa4", "x"), ""},
		{"CR in value", get("/", "x", "a\rb"), ""},
		{"LF in value", get("/", "x", "a\nb"), ""},
		{"CR LF in value", get("/", "x", "a\r\ny: z"), ""},
		{"NUL in value", get("/", "x", "a\x00b"), ""},
		{"space before value", get("/", "x", " a"), ""},
		{"tab behind value", get("/", "x", "a\t"), ""},
		{"LF in cookie", get("/", "cookie", "a\nb"), ""},
		{"connection", get("/", "connection", "close"), ""},
		{"keep-alive", get("/", "keep-alive", "5"), ""},
		{"proxy-connection", get("/", "proxy-connection", "x"), ""},
		{"upgrade", get("/", "upgrade", "websocket"), ""},
		{"transfer-encoding", post("transfer-encoding", "chunked"), "x"},
		{"transfer_encoding", post("transfer_encoding", "chunked"), "x"},
		{"content_length", post("content_length", "1"), "x"},
		{"te", get("/", "te", "gzip"), ""},
		{"te list", get("/", "te", "trailers, gzip"), ""},
		{"length no number", post("content-length", "a"), "x"},
		{"length with sign", post("content-length", "+1"), "x"},
		{"length list", post("content-length", "1,1"), "x"},
		{"length twice", post("content-length", "1", "content-length", "1"), "x"},
		{"length empty", post("content-length", ""), "x"},
		{"length too large", post("content-length", "9223372036854775808"), "x"},
		{"length without body", post("content-length", "1"), ""},
		{"CONNECT with path", with(":method", "CONNECT", without(":scheme", get("/")...)...), ""},
		{"CONNECT with scheme", with(":method", "CONNECT", without(":path", get("/")...)...), ""},
		{"extended CONNECT that is not allowed", append([]string{":protocol", "websocket"}, with(":method", "CONNECT", get("/")...)...), ""},
		{"protocol of GET", append([]string{":protocol", "websocket"}, get("/")...), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen atomic.Int32
			var refused atomic.Int32
			s := serve(t, Options{Refused: func(status int, why error) {
				if status == 400 && why != nil {
					refused.Add(1)
				}
			}}, func(s *Stream) { seen.Add(1); hello(s) })
			r := s.raw(t)
			r.headers(1, c.body == "", c.pairs...)
			if c.body != "" {
				r.WriteData(1, true, []byte(c.body))
			}
			if code := r.reset(1); code != xhttp2.ErrCodeProtocol {
				t.Errorf("reset with %v", code)
			}
			if seen.Load() != 0 || refused.Load() != 1 {
				t.Errorf("%d requests handed over, %d reported", seen.Load(), refused.Load())
			}
			r.headers(3, true, get("/")...)
			r.until("the answer", func(f xhttp2.Frame) bool { d, ok := f.(*xhttp2.DataFrame); return ok && d.StreamEnded() })
		})
	}
}

// TestLengthOfBody checks that a body which is not of the announced length never looks complete.
func TestLengthOfBody(t *testing.T) {
	for _, c := range []struct {
		name   string
		pieces []string
		ends   bool // with END_STREAM on the last piece, else by trailers
	}{
		{"too short", []string{"ab"}, true},
		{"too long", []string{"ab", "cd"}, true},
		{"empty", []string{""}, true},
		{"too short with trailers", []string{"ab"}, false},
		{"too long with trailers", []string{"abcd"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ends := make(chan error, 1)
			s := serve(t, Options{}, func(s *Stream) {
				var p [10]byte
				for {
					if _, err := s.Read(p[:]); err != nil {
						ends <- err
						return
					}
				}
			})
			r := s.raw(t)
			r.headers(1, false, get("/", "content-length", "3")...)
			for i, p := range c.pieces {
				r.WriteData(1, c.ends && i == len(c.pieces)-1, []byte(p))
			}
			if !c.ends {
				r.headers(1, true, "x-a", "b")
			}
			if code := r.reset(1); code != xhttp2.ErrCodeProtocol {
				t.Errorf("reset with %v", code)
			}
			err, ok := (<-ends).(*ResetError)
			if !ok || err.Code != ProtocolError {
				t.Errorf("the reader got %v", err)
			}
		})
	}
}

func TestTrailers(t *testing.T) {
	got := make(chan string, 1)
	s := serve(t, Options{}, func(s *Stream) {
		var p [10]byte
		var err error
		for err == nil {
			_, err = s.Read(p[:])
		}
		var b strings.Builder
		b.WriteString(err.Error())
		for i := range s.Trailers().Len() {
			b.WriteString(" " + string(s.Trailers().At(i).Line))
		}
		got <- b.String()
		hello(s)
	})
	r := s.raw(t)
	r.headers(1, false, get("/")...)
	r.WriteData(1, false, []byte("abc"))
	r.headers(1, true, "x-sum", "1", "host", "b", "content-length", "7", "x-forwarded-for", "::1")
	if want, g := "EOF x-sum: 1\r\n", <-got; g != want {
		t.Errorf("got %q, want %q", g, want)
	}
	for i, pairs := range [][]string{{":path", "/"}, {"X-A", "b"}, {"x", "a\nb"}} {
		id := uint32(3 + 2*i)
		r.headers(id, false, get("/")...)
		r.headers(id, true, pairs...)
		if code := r.reset(id); code != xhttp2.ErrCodeProtocol {
			t.Errorf("%v: reset with %v", pairs, code)
		}
		<-got
	}
	r.headers(9, false, get("/")...)
	r.headers(9, false, "x", "a") // no END_STREAM
	if code := r.reset(9); code != xhttp2.ErrCodeProtocol {
		t.Errorf("trailers in the middle: reset with %v", code)
	}
}

func TestConnect(t *testing.T) {
	s := serve(t, Options{ExtendedConnect: true}, func(s *Stream) {
		if string(s.Head.Method) == "CONNECT" && string(s.Head.Protocol) == "" && string(s.Head.Authority) == "a.test:1" && len(s.Head.Path) == 0 {
			s.WriteHead(501, nil, 0, true)
			return
		}
		if string(s.Head.Protocol) != "websocket" || string(s.Head.Path) != "/chat" || !s.Head.HasBody {
			t.Errorf("%+v", s.Head)
		}
		s.WriteHead(200, nil, -1, false)
		s.Flush()
		var p [100]byte
		n, _ := s.Read(p[:])
		s.Write(p[:n], true)
	})
	r := s.raw(t)
	settings := r.until("SETTINGS", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameSettings })
	if v, ok := settings.(*xhttp2.SettingsFrame).Value(xhttp2.SettingEnableConnectProtocol); !ok || v != 1 {
		t.Error("extended CONNECT is not announced")
	}
	r.headers(1, false, append([]string{":protocol", "websocket"}, with(":method", "CONNECT", get("/chat")...)...)...)
	r.until("the head", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameHeaders })
	r.WriteData(1, false, []byte("ping"))
	d := r.until("DATA", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameData }).(*xhttp2.DataFrame)
	if string(d.Data()) != "ping" {
		t.Errorf("got %q", d.Data())
	}
	r.headers(3, false, ":method", "CONNECT", ":authority", "a.test:1")
	r.until("the refusal", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameHeaders && f.Header().StreamID == 3 })
}

// TestMalformedConnect: what is no extended CONNECT, or no tunnel, ends its stream.
func TestMalformedConnect(t *testing.T) {
	ended := make(chan error, 1)
	s := serve(t, Options{ExtendedConnect: true}, func(s *Stream) {
		s.WriteHead(200, nil, -1, false)
		s.Flush()
		_, err := s.Read(make([]byte, 1))
		ended <- err
	})
	r := s.raw(t)
	extended := func(pairs ...string) []string {
		return append([]string{":protocol", "websocket"}, with(":method", "CONNECT", get("/chat", pairs...)...)...)
	}
	for i, c := range []struct {
		name  string
		pairs []string
	}{
		{"GET", append([]string{":protocol", "websocket"}, get("/chat")...)},
		{"without path", without(":path", extended()...)},
		{"without scheme", without(":scheme", extended()...)},
		{"without authority", without(":authority", extended()...)},
		{"with a path that is none", with(":path", "*", extended()...)},
		{"protocol that is no token", with(":protocol", "web socket", extended()...)},
		{"protocol that is empty", with(":protocol", "", extended()...)},
		{"two protocols", append([]string{":protocol", "websocket"}, extended()...)},
		{"Content-Length", extended("content-length", "0")},
		{"Upgrade", extended("upgrade", "websocket")},
		{"Connection", extended("connection", "upgrade")},
	} {
		id := uint32(2*i + 1)
		r.headers(id, false, c.pairs...)
		if code := r.reset(id); code != xhttp2.ErrCodeProtocol {
			t.Errorf("%s: reset with %v", c.name, code)
		}
	}
	const id = 101
	r.headers(id, false, extended()...)
	r.until("the head", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameHeaders })
	r.headers(id, true, "x", "a")
	if code := r.reset(id); code != xhttp2.ErrCodeProtocol {
		t.Errorf("trailers of a tunnel: reset with %v", code)
	}
	if err := <-ended; err == nil || err == io.EOF {
		t.Errorf("the tunnel has ended with %v", err)
	}
	r.headers(id+2, false, ":method", "CONNECT", ":authority", "a.test:1") // not extended
	r.until("the head", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameHeaders })
	r.headers(id+2, true, "x", "a")
	if code := r.reset(id + 2); code != xhttp2.ErrCodeProtocol {
		t.Errorf("trailers of a CONNECT: reset with %v", code)
	}
	if err := <-ended; err == nil || err == io.EOF {
		t.Errorf("the CONNECT has ended with %v", err)
	}
}

// TestManyAnsweredEarly: all streams that may run can be answered before their bodies end, and what their client has sent meanwhile harms no other.
func TestManyAnsweredEarly(t *testing.T) {
	s := serve(t, Options{}, func(s *Stream) {
		s.WriteHead(429, nil, 0, true)
		s.Flush()
	})
	r := s.raw(t)
	const all = defaultMaxStreams
	for i := range uint32(all) {
		r.headers(2*i+1, false, with(":method", "POST", get("/")...)...)
	}
	ended := 0
	r.until("all are ended", func(f xhttp2.Frame) bool {
		if reset, is := f.(*xhttp2.RSTStreamFrame); is {
			if ended++; reset.ErrCode != xhttp2.ErrCodeNo {
				t.Errorf("stream %d: reset with %v", reset.StreamID, reset.ErrCode)
			}
		}
		return ended == all
	})
	for range 8 {
		for i := range uint32(all) {
			r.WriteData(2*i+1, false, make([]byte, 100))
		}
	}
	for i := range uint32(all) {
		r.headers(2*i+1, true, "x", "a")
	}
	r.headers(2*all+1, true, get("/")...)
	r.until("another answer", func(f xhttp2.Frame) bool {
		return f.Header().Type == xhttp2.FrameHeaders && f.Header().StreamID == 2*all+1
	})
}

// TestClosedStreams: so many are remembered, the last ones of a parked connection, and no others.
func TestClosedStreams(t *testing.T) {
	var c closedStreams
	reasons := []closeReason{closedByEnd, closedByPeer, closedLocally}
	for n := range uint32(3 * rememberedStreams) {
		c.add(n+1, reasons[n%3])
		for id := uint32(1); id <= n+2; id++ {
			want := closedLongAgo
			if id <= n+1 && id+rememberedStreams > n+1 {
				want = reasons[(id-1)%3]
			}
			if got := c.reason(id); got != want {
				t.Fatalf("after %d streams, %d is %d, want %d", n+1, id, got, want)
			}
		}
	}
	c.shrink()
	const last = 3 * rememberedStreams
	if c.reason(last) != reasons[(last-1)%3] || c.reason(last-fewStreams+1) == closedLongAgo || c.reason(last-fewStreams) != closedLongAgo || cap(c.streams) != fewStreams {
		t.Errorf("of a parked connection: %v", c.streams)
	}
	for id := uint32(last + 1); id <= 2*last; id++ {
		c.add(id, closedLocally)
	}
	if c.reason(2*last) != closedLocally || c.reason(2*last-rememberedStreams+1) != closedLocally || c.reason(2*last-rememberedStreams) != closedLongAgo {
		t.Error("of one that goes on")
	}
}

// TestInterrupt: calls of a stream that read, and that wait to write, end when it is interrupted, and so do later ones; OnGone's function may interrupt it.
func TestInterrupt(t *testing.T) {
	started, failed := make(chan *Stream, 1), make(chan error, 4)
	interrupted := make(chan struct{})
	s := serve(t, Options{}, func(s *Stream) {
		s.OnGone(func(error) { s.Interrupt() })
		s.SetWriteTimeout(time.Hour)
		s.WriteHead(200, nil, -1, false)
		written := make(chan struct{})
		go func() {
			defer close(written)
			failed <- s.Write(make([]byte, 1<<20), false) // more than the window
			failed <- s.Write(nil, false)
		}()
		started <- s
		for range 2 {
			_, err := s.Read(make([]byte, 1))
			failed <- err
		}
		<-written
		<-interrupted // Interrupt must have returned before the handler does
		s.OnGone(nil)
	})
	r := s.raw(t)
	r.headers(1, false, with(":method", "POST", get("/")...)...)
	stream := <-started
	r.until("DATA", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameData })
	stream.Interrupt()
	close(interrupted)
	for range 4 {
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a call has ended with %v", err)
		}
	}
	r.headers(3, false, with(":method", "POST", get("/")...)...)
	<-started
	r.WriteRSTStream(3, xhttp2.ErrCodeCancel)
	for range 4 {
		if err := <-failed; err == nil {
			t.Error("a call of a stream that is gone has succeeded")
		}
	}
}

func TestLimits(t *testing.T) {
	big := strings.Repeat("a", 5000)
	var many []string
	for range 200 {
		many = append(many, "a", "b")
	}
	for name, pairs := range map[string][]string{
		"bytes": get("/", "a", big, "b", big, "c", big), "one field": get("/", "a", big+big+big),
		"fields": get("/", many...), "cookies": get("/", "cookie", big, "cookie", big, "cookie", big), "path": get("/" + big + big + big),
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, Options{MaxHeaderBytes: 10000}, hello)
			r := s.raw(t)
			r.ReadMetaHeaders = nil
			for id := uint32(1); id < 20; id += 2 {
				r.headers(id, id%4 == 1, pairs...)
				h := r.until("the head", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameHeaders }).(*xhttp2.HeadersFrame)
				if b := h.HeaderBlockFragment(); !strings.Contains(string(b), "431") {
					t.Errorf("answered %q", b)
				}
			}
			r.headers(21, true, get("/")...)
			r.until("the answer", func(f xhttp2.Frame) bool { d, ok := f.(*xhttp2.DataFrame); return ok && d.StreamEnded() })
		})
	}
}

func TestTooManyStreams(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, Options{MaxStreams: 3}, func(s *Stream) { <-release; hello(s) })
	r := s.raw(t)
	for id := uint32(1); id <= 9; id += 2 {
		r.headers(id, true, get("/")...)
	}
	for _, id := range []uint32{7, 9} {
		if code := r.reset(id); code != xhttp2.ErrCodeRefusedStream {
			t.Errorf("reset with %v", code)
		}
	}
	// Those that were reset run on for a while, but not without bound.
	for id := uint32(1); id <= 5; id += 2 {
		r.WriteRSTStream(id, xhttp2.ErrCodeCancel)
	}
	for id := uint32(11); id <= 15; id += 2 {
		r.headers(id, true, get("/")...)
		r.WriteRSTStream(id, xhttp2.ErrCodeCancel)
	}
	r.headers(17, true, get("/")...)
	if code := r.reset(17); code != xhttp2.ErrCodeRefusedStream {
		t.Errorf("reset with %v", code)
	}
	close(release)
	s.quiet(t)
	r.headers(19, true, get("/")...)
	r.until("the answer", func(f xhttp2.Frame) bool { d, ok := f.(*xhttp2.DataFrame); return ok && d.StreamEnded() })
}
