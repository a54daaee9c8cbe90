package http2

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// rawBackend is a connection to a backend that sends what it is told to. It has greeted, and so have we.
func rawBackend(t testing.TB, o ClientOptions, settings ...xhttp2.Setting) (*Client, *raw) {
	t.Helper()
	c, r := rawBackendSilent(t, o)
	r.greet(settings...)
	return c, r
}

func (r *raw) greet(settings ...xhttp2.Setting) {
	r.t.Helper()
	preface := make([]byte, len(Preface))
	if _, err := io.ReadFull(r.nc, preface); err != nil || string(preface) != Preface {
		r.t.Fatalf("preface %q, %v", preface, err)
	}
	r.WriteSettings(settings...)
	r.WriteSettingsAck()
	r.until("acknowledged SETTINGS", func(f xhttp2.Frame) bool {
		s, ok := f.(*xhttp2.SettingsFrame)
		return ok && s.IsAck()
	})
}

func rawBackendSilent(t testing.TB, o ClientOptions) (*Client, *raw) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, l.Addr().String(), o, false)
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(4 * patience))
	r := &raw{t: t, nc: nc, Framer: xhttp2.NewFramer(nc, nc)}
	r.AllowIllegalWrites, r.AllowIllegalReads = true, true
	r.enc = hpack.NewEncoder(&r.buf)
	return c, r
}

// request reads up to the end of a request, and is its stream's number.
func (r *raw) request() (stream uint32) {
	r.t.Helper()
	r.until("a request", func(f xhttp2.Frame) bool {
		if !f.Header().Flags.Has(xhttp2.FlagDataEndStream) {
			return false
		}
		switch f.(type) {
		case *xhttp2.HeadersFrame, *xhttp2.DataFrame:
			stream = f.Header().StreamID
			return true
		}
		return false
	})
	return stream
}

// head reads up to the head of a request.
func (r *raw) head() (stream uint32) {
	r.t.Helper()
	f := r.until("a request head", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameHeaders })
	return f.Header().StreamID
}

// respond answers a request completely.
func (r *raw) respond(stream uint32, body string) {
	r.headers(stream, false, ":status", "200")
	r.WriteData(stream, true, []byte(body))
}

// frame sends a frame of any form, also such as a Framer does not make.
func (r *raw) frame(typ frame.Type, flags uint8, stream uint32, payload ...byte) {
	r.WriteRawFrame(xhttp2.FrameType(typ), xhttp2.Flags(flags), stream, payload)
}

// large sends a head with one field more, whose value is large, in several frames.
func (r *raw) large(stream uint32, end bool, size int, pairs ...string) {
	b := r.block(append(pairs, "a", strings.Repeat("x", size))...)
	r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: stream, BlockFragment: b[:10], EndStream: end})
	for b = b[10:]; len(b) > 0; {
		n := min(len(b), frame.MaxPayload)
		r.WriteContinuation(stream, n == len(b), b[:n])
		b = b[n:]
	}
}

// TestMalformedResponses: each ends its stream and no other.
func TestMalformedResponses(t *testing.T) {
	ok := []string{":status", "200"}
	send := func(end bool, pairs ...string) func(*raw, uint32) {
		return func(r *raw, id uint32) { r.headers(id, end, pairs...) }
	}
	for name, x := range map[string]func(*raw, uint32){
		"no status":                send(true, "a", "b"),
		"empty":                    send(true),
		"status twice":             send(true, ":status", "200", ":status", "200"),
		"status behind":            send(true, "a", "b", ":status", "200"),
		"status short":             send(true, ":status", "20"),
		"status long":              send(true, ":status", "2000"),
		"status signed":            send(true, ":status", "+20"),
		"status below":             send(true, ":status", "099"),
		"status empty":             send(true, ":status", ""),
		"a request's field":        send(true, ":status", "200", ":path", "/"),
		"unknown pseudo-field":     send(true, ":status", "200", ":foo", "/"),
		"switch of protocols":      send(false, ":status", "101"),
		"interim end":              send(true, ":status", "100"),
		"interim length":           send(false, ":status", "103", "content-length", "1"),
		"upper case":               send(true, append(ok, "Foo", "a")...),
		"empty name":               send(true, append(ok, "", "a")...),
		"name with colon":          send(true, append(ok, "a:b", "a")...),
		"name with space":          send(true, append(ok, "a ", "a")...),
		"value with CR LF":         send(true, append(ok, "a", "b\r\nc: d")...),
		"value with NUL":           send(true, append(ok, "a", "b\x00")...),
		"value in white space":     send(true, append(ok, "a", " b")...),
		"connection":               send(true, append(ok, "connection", "close")...),
		"keep-alive":               send(true, append(ok, "keep-alive", "timeout=5")...),
		"proxy-connection":         send(true, append(ok, "proxy-connection", "close")...),
		"upgrade":                  send(true, append(ok, "upgrade", "websocket")...),
		"te":                       send(true, append(ok, "te", "trailers")...),
		"transfer-encoding":        send(false, append(ok, "transfer-encoding", "chunked")...),
		"transfer_encoding":        send(false, append(ok, "transfer_encoding", "chunked")...),
		"content_length":           send(false, append(ok, "content_length", "4")...),
		"length twice":             send(false, append(ok, "content-length", "4", "content-length", "4")...),
		"length no number":         send(false, append(ok, "content-length", "+4")...),
		"length too large":         send(false, append(ok, "content-length", "9223372036854775808")...),
		"length without content":   send(true, append(ok, "content-length", "4")...),
		"length with 204":          send(true, ":status", "204", "content-length", "4"),
		"large":                    func(r *raw, id uint32) { r.large(id, true, 40<<10, ok...) },
		"many fields":              send(true, append(ok, strings.Split(strings.Repeat("a,b,", 128)+"a,b", ",")...)...),
		"DATA before the head":     func(r *raw, id uint32) { r.WriteData(id, true, []byte("a")) },
		"DATA behind interim head": func(r *raw, id uint32) { r.headers(id, false, ":status", "100"); r.WriteData(id, true, nil) },
		"less than said": func(r *raw, id uint32) {
			r.headers(id, false, append(ok, "content-length", "4")...)
			r.WriteData(id, true, []byte("abc"))
		},
		"more than said": func(r *raw, id uint32) {
			r.headers(id, false, append(ok, "content-length", "4")...)
			r.WriteData(id, false, []byte("abcde"))
		},
		"less, and trailers": func(r *raw, id uint32) {
			r.headers(id, false, append(ok, "content-length", "4")...)
			r.headers(id, true, "a", "b")
		},
		"content of 204":           func(r *raw, id uint32) { r.headers(id, false, ":status", "204"); r.WriteData(id, true, []byte("a")) },
		"content of 304":           func(r *raw, id uint32) { r.headers(id, false, ":status", "304"); r.WriteData(id, true, []byte("a")) },
		"trailers without end":     func(r *raw, id uint32) { r.headers(id, false, ok...); r.headers(id, false, "a", "b") },
		"trailers with status":     func(r *raw, id uint32) { r.headers(id, false, ok...); r.headers(id, true, ":status", "200") },
		"trailers with connection": func(r *raw, id uint32) { r.headers(id, false, ok...); r.headers(id, true, "connection", "close") },
		"trailers in upper case":   func(r *raw, id uint32) { r.headers(id, false, ok...); r.headers(id, true, "Foo", "close") },
		"large trailers": func(r *raw, id uint32) {
			r.headers(id, false, ok...)
			r.large(id, true, 40<<10)
		},
		"update of 0":           func(r *raw, id uint32) { r.frame(frame.WindowUpdate, 0, id, 0, 0, 0, 0) },
		"update over the bound": func(r *raw, id uint32) { r.WriteWindowUpdate(id, frame.MaxWindow) },
		"depends on itself":     func(r *raw, id uint32) { r.WritePriority(id, xhttp2.PriorityParam{StreamDep: id}) },
		"interim heads without end": func(r *raw, id uint32) {
			for range 70 {
				r.headers(id, false, ":status", "103")
			}
		},
		"large interim heads": func(r *raw, id uint32) {
			for range 3 {
				r.large(id, false, 20<<10, ":status", "103")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, r := rawBackend(t, ClientOptions{})
			other := open(t, c, ask("GET", "/"))
			defer other.Close()
			r.request()
			s := open(t, c, ask("GET", "/"))
			defer s.Close()
			id := r.request()
			x(r, id)
			if code := r.reset(id); code == xhttp2.ErrCodeNo {
				t.Error("reset without an error")
			}
			if got, err := answer(s); !Malformed(err) || Unprocessed(err) {
				t.Errorf("got %s, %v", got, err)
			}
			r.respond(1, "still here")
			if got, err := answer(other); err != nil || got != `200 -1 "still here"` {
				t.Errorf("another stream: %s, %v", got, err)
			}
		})
	}
}

// TestGoodResponses are unusual and right.
func TestGoodResponses(t *testing.T) {
	for name, x := range map[string]struct {
		method string
		send   func(*raw, uint32)
		want   string
	}{
		"no content":     {"GET", func(r *raw, id uint32) { r.headers(id, true, ":status", "204", "content-length", "0") }, "204 -1"},
		"length of HEAD": {"HEAD", func(r *raw, id uint32) { r.headers(id, true, ":status", "200", "content-length", "7") }, "200 7"},
		"HEAD with empty DATA": {"HEAD", func(r *raw, id uint32) {
			r.headers(id, false, ":status", "200", "content-length", "7")
			r.WriteData(id, true, nil)
		}, "200 7"},
		"length of 304": {"GET", func(r *raw, id uint32) { r.headers(id, true, ":status", "304", "content-length", "7") }, "304 7"},
		"status 999":    {"GET", func(r *raw, id uint32) { r.headers(id, true, ":status", "999") }, "999 -1"},
		"interim": {"GET", func(r *raw, id uint32) {
			r.headers(id, false, ":status", "103", "link", "a")
			r.headers(id, false, ":status", "102")
			r.headers(id, true, ":status", "200")
		}, "103 link=a; 102; 200 -1"},
		"not for us": {"GET", func(r *raw, id uint32) {
			r.headers(id, true, ":status", "407", "proxy-authenticate", "basic", "http2-settings", "a")
		}, "407 -1"},
		"cookies":       {"GET", func(r *raw, id uint32) { r.headers(id, true, ":status", "200", "set-cookie", "a", "set-cookie", "b") }, "200 set-cookie=a set-cookie=b -1"},
		"trailers only": {"POST", func(r *raw, id uint32) { r.headers(id, true, ":status", "200", "grpc-status", "0") }, "200 grpc-status=0 -1"},
		"trailers": {"POST", func(r *raw, id uint32) {
			r.headers(id, false, ":status", "200")
			r.headers(id, true, "grpc-status", "0", "content-length", "5")
		}, `200 -1 "" grpc-status=0`},
		"padding": {"GET", func(r *raw, id uint32) {
			r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: r.block(":status", "200", "content-length", "3"), EndHeaders: true, PadLength: 9, Priority: xhttp2.PriorityParam{StreamDep: 77}})
			r.WriteDataPadded(id, false, []byte("ab"), make([]byte, 200))
			r.WriteDataPadded(id, true, []byte("c"), nil)
		}, `200 3 "abc"`},
		"in pieces": {"GET", func(r *raw, id uint32) {
			b := r.block(":status", "200", "a", "b")
			r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: b[:1]})
			r.WriteContinuation(id, false, b[1:3])
			r.WriteContinuation(id, true, b[3:])
			r.frame(0x77, 0, id, 1, 2, 3)
			r.WritePriority(id, xhttp2.PriorityParam{StreamDep: 9})
			r.WriteData(id, true, nil)
		}, `200 a=b -1 ""`},
	} {
		t.Run(name, func(t *testing.T) {
			c, r := rawBackend(t, ClientOptions{})
			s := open(t, c, ask(x.method, "/"))
			defer s.Close()
			x.send(r, r.request())
			got, err := answer(s)
			// An end that comes apart from the head may be seen together with it or behind it.
			if got = strings.TrimSuffix(got, ` ""`); err != nil || got != strings.TrimSuffix(x.want, ` ""`) {
				t.Errorf("got %s, %v, want %s", got, err, x.want)
			}
		})
	}
}

// TestBackendBreaksConnection: each ends the connection, with the reason told, and nothing else.
func TestBackendBreaksConnection(t *testing.T) {
	raws := func(typ frame.Type, flags uint8, stream uint32, payload ...byte) func(*raw, uint32) {
		return func(r *raw, _ uint32) { r.frame(typ, flags, stream, payload...) }
	}
	for name, x := range map[string]struct {
		send func(*raw, uint32)
		code Code
	}{
		"push":                       {raws(frame.PushPromise, 4, 1, 0, 0, 0, 2, 0x88), ProtocolError},
		"push allowed":               {raws(frame.Settings, 0, 0, 0, 2, 0, 0, 0, 1), ProtocolError},
		"head of no stream":          {func(r *raw, _ uint32) { r.headers(0, true, ":status", "200") }, ProtocolError},
		"head of an unopened stream": {func(r *raw, id uint32) { r.headers(id+2, true, ":status", "200") }, ProtocolError},
		"head of an even stream":     {func(r *raw, _ uint32) { r.headers(2, true, ":status", "200") }, ProtocolError},
		"data of no stream":          {raws(frame.Data, 0, 0, 1), ProtocolError},
		"data of an unopened stream": {raws(frame.Data, 0, 99, 1), ProtocolError},
		"reset of an even stream":    {raws(frame.Reset, 0, 2, 0, 0, 0, 0), ProtocolError},
		"reset too short":            {raws(frame.Reset, 0, 1, 0, 0, 0), FrameSizeError},
		"update of an even stream":   {raws(frame.WindowUpdate, 0, 2, 0, 0, 0, 1), ProtocolError},
		"update of 0":                {raws(frame.WindowUpdate, 0, 0, 0, 0, 0, 0), ProtocolError},
		"update over the bound":      {raws(frame.WindowUpdate, 0, 0, 0x7f, 0xff, 0xff, 0xff), FlowControlError},
		"window over the bound":      {raws(frame.Settings, 0, 0, 0, 4, 0x80, 0, 0, 0), FlowControlError},
		"frames too small":           {raws(frame.Settings, 0, 0, 0, 5, 0, 0, 0x3f, 0xff), ProtocolError},
		"settings of a stream":       {raws(frame.Settings, 0, 1), ProtocolError},
		"settings cut":               {raws(frame.Settings, 0, 0, 1), FrameSizeError},
		"priority update":            {raws(frame.PriorityUpdate, 0, 0, 0, 0, 0, 1), ProtocolError},
		"ping of a stream":           {raws(frame.Ping, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0), ProtocolError},
		"goaway of a stream":         {raws(frame.GoAway, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0), ProtocolError},
		"goaway too short":           {raws(frame.GoAway, 0, 0, 0, 0, 0, 0), FrameSizeError},
		"frame too long":             {raws(0x77, 0, 0, make([]byte, frame.MaxPayload+1)...), FrameSizeError},
		"continuation of nothing":    {raws(frame.Continuation, 4, 1, 0x88), ProtocolError},
		"interrupted head":           {func(r *raw, id uint32) { r.frame(frame.Headers, 0, id, 0x88); r.WritePing(false, [8]byte{}) }, ProtocolError},
		"bad compression":            {raws(frame.Headers, 5, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), CompressionError},
		"cut compression":            {raws(frame.Headers, 5, 1, 0x00, 0x05, 'a'), CompressionError},
		"too much padding":           {func(r *raw, id uint32) { r.headers(id, false, ":status", "200"); r.frame(frame.Data, 8, id, 9, 0) }, ProtocolError},
		"HTTP/1.1":                   {func(r *raw, _ uint32) { io.WriteString(r.nc, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n") }, FrameSizeError},
		"block without end": {func(r *raw, id uint32) {
			r.frame(frame.Headers, 0, id, 0x88)
			for range maxContinuations + 1 {
				r.frame(frame.Continuation, 0, id)
			}
		}, EnhanceYourCalm},
		"block too large": {func(r *raw, id uint32) {
			r.frame(frame.Headers, 0, id, 0x88)
			for range 6 {
				r.frame(frame.Continuation, 0, id, make([]byte, frame.MaxPayload)...)
			}
		}, 0}, // what is wrong with it first does not matter
	} {
		t.Run(name, func(t *testing.T) {
			c, r := rawBackend(t, ClientOptions{})
			s := open(t, c, ask("GET", "/"))
			defer s.Close()
			x.send(r, r.request())
			code, why := r.goAway()
			if x.code != 0 && Code(code) != x.code || why == "" {
				t.Errorf("told %v %s, want %#x", code, why, x.code)
			}
			got, err := answer(s)
			var told *ConnError
			if !Malformed(err) || !errors.As(err, &told) || Unprocessed(err) {
				t.Errorf("got %s, %v", got, err)
			}
			r.gone()
			if _, err := c.Open(ask("GET", "/")); !errors.Is(err, ErrUnavailable) {
				t.Error(err)
			}
		})
	}
}

// TestStrayFrames come on streams that are closed, and mean nothing.
func TestStrayFrames(t *testing.T) {
	c, r := rawBackend(t, ClientOptions{})
	var ids []uint32
	for range 2 * rememberedStreams { // the first are remembered no more
		s := open(t, c, ask("GET", "/"))
		ids = append(ids, r.request())
		s.Close()
		if code := r.reset(ids[len(ids)-1]); code != xhttp2.ErrCodeCancel {
			t.Fatal(code)
		}
	}
	for _, id := range []uint32{ids[0], ids[len(ids)-1]} {
		r.headers(id, false, ":status", "200", "x-new", fmt.Sprint(id))
		r.WriteData(id, false, make([]byte, 1000))
		r.WriteWindowUpdate(id, 1)
		r.WriteRSTStream(id, xhttp2.ErrCodeCancel)
	}
	s := open(t, c, ask("GET", "/"))
	defer s.Close()
	id := r.request()
	r.headers(id, false, ":status", "200", "x-new", fmt.Sprint(ids[0])) // the table has gone on
	r.WriteData(id, true, []byte("ok"))
	if got, err := answer(s); err != nil || got != fmt.Sprintf(`200 x-new=%d -1 "ok"`, ids[0]) {
		t.Error(got, err)
	}
}

// TestResponseMemory: fields of a response stay as they are though the next comes.
func TestResponseMemory(t *testing.T) {
	c, r := rawBackend(t, ClientOptions{})
	s := open(t, c, ask("GET", "/"))
	defer s.Close()
	id := r.request()
	for i := range 5 {
		r.headers(id, false, ":status", "103", "x-n", strings.Repeat(fmt.Sprint(i), 50))
	}
	r.headers(id, false, ":status", "200", "x-n", strings.Repeat("f", 50))
	r.WriteData(id, false, []byte("a"))
	r.headers(id, true, "x-n", strings.Repeat("t", 50))
	for i := range 6 {
		var h message.Response
		if _, err := s.ReadHead(&h); err != nil {
			t.Fatal(err)
		}
		want := strings.Repeat("f", 50)
		if i < 5 {
			want = strings.Repeat(fmt.Sprint(i), 50)
		}
		// Another stream's head uses memory meanwhile.
		other := open(t, c, ask("GET", "/"))
		r.headers(r.request(), true, ":status", "200", "x-n", strings.Repeat("o", 50))
		if got, err := answer(other); err != nil {
			t.Fatal(got, err)
		}
		other.Close()
		if v, _ := h.Header.Get("x-n"); string(v) != want {
			t.Errorf("%d: %s", i, v)
		}
	}
	if b, err := io.ReadAll(s); string(b) != "a" || err != nil {
		t.Fatal(b, err)
	}
	if v, _ := s.Trailers().Get("x-n"); string(v) != strings.Repeat("t", 50) {
		t.Errorf("trailer %s", v)
	}
}
