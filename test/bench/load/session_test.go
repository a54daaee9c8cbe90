//go:build linux

package load

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/test/bench/frame"
	"golang.org/x/net/http2/hpack"
)

const getText = "GET /a?b=c HTTP/1.1\r\nHost: h\r\nUser-Agent: agent/1.0\r\nCookie: a=b; c=d\r\n\r\n"

// The blocks of a request say the same, the first and all later ones, and stay as they are.
func TestRequest2(t *testing.T) {
	r, err := newRequest2([]byte(getText), "https")
	if err != nil {
		t.Fatal(err)
	}
	want := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "h"},
		{Name: ":path", Value: "/a?b=c", Sensitive: true}, {Name: "user-agent", Value: "agent/1.0"}, {Name: "cookie", Value: "a=b; c=d"}}
	d := hpack.NewDecoder(frame.TableSize, nil)
	for i, block := range [][]byte{r.first, r.later, r.later, r.later} {
		got, err := d.DecodeFull(block)
		if err != nil || len(got) != len(want) {
			t.Fatalf("block %d: %v, %v", i, got, err)
		}
		for k := range want {
			if got[k] != want[k] {
				t.Errorf("block %d: %v, want %v", i, got[k], want[k])
			}
		}
	}
	if len(r.later) >= len(r.first) {
		t.Errorf("later blocks have %d bytes, the first %d", len(r.later), len(r.first))
	}
	for _, text := range []string{"", "GET /\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"} {
		if _, err := newRequest2([]byte(text), "http"); err == nil {
			t.Errorf("%q is taken for a request", text)
		}
	}
}

// Frames of a body of any size add up to it, and the last one ends the stream.
func TestRequest2Body(t *testing.T) {
	for _, size := range []int{0, 1, frame.MaxSize, frame.MaxSize + 1, 3 * frame.MaxSize} {
		r, err := newRequest2([]byte("POST / HTTP/1.1\r\nHost: h\r\n\r\n"+strings.Repeat("x", size)), "http")
		if err != nil {
			t.Fatal(err)
		}
		var body []byte
		frames := r.appendBody(r.appendHead(nil, 3, size == 0), 3, true)
		for len(frames) > 0 {
			n := int(frames[0])<<16 | int(frames[1])<<8 | int(frames[2])
			kind, flags := frames[3], frames[4]
			if binary.BigEndian.Uint32(frames[5:]) != 3 || n > frame.MaxSize {
				t.Fatalf("frame header %x", frames[:9])
			}
			if kind == frame.Data {
				body = append(body, frames[9:9+n]...)
			}
			frames = frames[9+n:]
			if ends := flags&frame.EndStream != 0; ends != (len(frames) == 0) {
				t.Errorf("%d bytes: END_STREAM %v with %d bytes of frames to come", size, ends, len(frames))
			}
		}
		if len(body) != size {
			t.Errorf("%d bytes of DATA, want %d", len(body), size)
		}
	}
}

// encoded is a block by an encoder that keeps its table, or by one that was told to have none.
func encoded(e *hpack.Encoder, out *bytes.Buffer, fields ...string) []byte {
	out.Reset()
	for i := 0; i < len(fields); i += 2 {
		e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(out.Bytes())
}

// What is skipped because it is known must be what decoding would have said.
func TestHeads(t *testing.T) {
	var out bytes.Buffer
	good := []string{":status", "200", "content-length", "5", "x-a", strings.Repeat("v", 200)}
	t.Run("with a table", func(t *testing.T) {
		e, h := hpack.NewEncoder(&out), &heads{spec: &Spec{BodySize: 5}}
		for i := range 4 {
			if err := h.check(encoded(e, &out, good...), responseHead); err != nil {
				t.Fatal(err)
			}
			if known := len(h.known[responseHead]) > 0; known != (i > 0) {
				t.Errorf("response %d: known is %v", i, known)
			}
		}
		// Another field moves all entries of the table: what is known means something else now.
		moved := bytes.Clone(h.known[responseHead])
		if err := h.check(encoded(e, &out, append(good, "x-b", "new")...), responseHead); err != nil || len(h.known[responseHead]) > 0 {
			t.Fatalf("error %v, %d bytes are known", err, len(h.known[responseHead]))
		}
		if err := h.check(moved, responseHead); err == nil {
			t.Error("indices of another table are accepted")
		}
	})
	t.Run("without a table", func(t *testing.T) {
		e, h := hpack.NewEncoder(&out), &heads{spec: &Spec{BodySize: 5}}
		e.SetMaxDynamicTableSize(0)
		for i := range 3 {
			if err := h.check(encoded(e, &out, good...), responseHead); err != nil {
				t.Fatal(err)
			}
			if known := len(h.known[responseHead]) > 0; known != (i > 0) {
				t.Errorf("response %d: known is %v", i, known)
			}
		}
	})
	for name, fields := range map[string][]string{
		"status":    {":status", "503", "content-length", "5"},
		"no status": {"content-length", "5"},
		"length":    {":status", "200", "content-length", "6"},
		"no length": {":status", "200"},
	} {
		if err := (&heads{spec: &Spec{BodySize: 5}}).check(encoded(hpack.NewEncoder(&out), &out, fields...), responseHead); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := (&heads{spec: &Spec{BodySize: 5}}).check([]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, responseHead); err == nil {
		t.Error("an index beyond the table is accepted")
	}
}

// http2Server answers on both TLS and in the clear.
func http2Server(t *testing.T, secure bool, h http.HandlerFunc) netip.AddrPort {
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP2(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	return address(t, s)
}

func TestHTTP2(t *testing.T) {
	for _, c := range []struct {
		name                 string
		secure               bool
		request              string
		upload, size, stream int
	}{
		{"one stream", false, getText, 0, 1000, 1},
		{"streams", false, getText, 0, 1000, 8},
		{"TLS", true, getText, 0, 1000, 8},
		{"large responses", true, getText, 0, 100_000, 8},
		{"uploads that wait for the window", false, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20000\r\n\r\n", 20_000, 1000, 8},
		{"uploads by TLS", true, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20000\r\n\r\n", 20_000, 1000, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			var wrong atomic.Int64
			body := strings.Repeat("x", c.size)
			addr := http2Server(t, c.secure, func(w http.ResponseWriter, r *http.Request) {
				n, err := io.Copy(io.Discard, r.Body)
				if r.ProtoMajor != 2 || err == nil && n != int64(c.upload) || r.Host != "h" {
					wrong.Add(1)
				}
				w.Header().Set("Content-Length", strconv.Itoa(c.size))
				io.WriteString(w, body)
			})
			s := spec(addr, c.request+strings.Repeat("y", c.upload), c.size)
			s.Streams = c.stream
			if c.secure {
				s.ServerName = "h"
			}
			check(t, s)
			if n := wrong.Load(); n != 0 {
				t.Errorf("the server found %d requests wrong", n)
			}
		})
	}
}

// A peer that does anything else than a proxy should ends the run, with what it did.
func TestHTTP2ErrorsEndTheRun(t *testing.T) {
	var block bytes.Buffer
	head := encoded(hpack.NewEncoder(&block), &block, ":status", "200", "content-length", "2")
	bad := encoded(hpack.NewEncoder(&block), &block, ":status", "503", "content-length", "2")
	settings := frame.Append(nil, frame.Settings, 0, 0, nil)
	with := func(frames ...[]byte) string { return string(bytes.Join(append([][]byte{settings}, frames...), nil)) }
	ok := frame.Append(nil, frame.Headers, frame.EndHeaders, 1, head)
	for _, c := range []struct{ name, text, want string }{
		{"status", with(frame.Append(nil, frame.Headers, frame.EndHeaders, 1, bad)), "503"},
		{"no body", with(frame.Append(nil, frame.Headers, frame.EndHeaders|frame.EndStream, 1, head)), "has no body"},
		{"too much", with(ok, frame.Append(nil, frame.Data, frame.EndStream, 1, []byte("abc"))), "body of 3 bytes"},
		{"body first", with(frame.Append(nil, frame.Data, frame.EndStream, 1, []byte("ab"))), "DATA before HEADERS"},
		{"another stream", with(frame.Append(nil, frame.Headers, frame.EndHeaders, 99, head)), "stream 99"},
		{"trailers", with(ok, ok), "HEADERS on stream 1 after 0 bytes"},
		{"padding", with(ok, frame.Append(nil, frame.Data, frame.Padded, 1, []byte{0})), "flags"},
		{"reset", with(frame.Append(nil, frame.Reset, 0, 1, make([]byte, 4))), "ends stream 1"},
		{"GOAWAY", with(frame.Append(nil, frame.GoAway, 0, 0, make([]byte, 8))), "the connection"},
		{"small window", string(frame.Append(nil, frame.Settings, 0, 0, []byte{0, 4, 0, 0, 0, 1})), "too little"},
		{"few streams", string(frame.Append(nil, frame.Settings, 0, 0, []byte{0, 3, 0, 0, 0, 1})), "too little"},
		{"no HTTP/2", "HTTP/1.1 400 Bad Request\r\n\r\n", "frame of"},
		{"end", with(ok), "closed with streams open"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := spec(answer(t, c.text, true), "POST / HTTP/1.1\r\nHost: h\r\n\r\nxy", 2)
			s.Connections, s.Streams = 1, 2
			s.Warmup = time.Minute // until the errors end it
			if _, err := Run(s); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
		})
	}
}

// The server's first answer comes in many pieces, its PING has an answer, and what is asked for next comes as one.
func TestHTTP2PiecesAndPings(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	seen := make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		var block bytes.Buffer
		head := encoded(hpack.NewEncoder(&block), &block, ":status", "200", "content-length", "2")
		frames := frame.Append(nil, frame.Settings, 0, 0, nil)
		frames = frame.Append(frames, frame.Ping, 0, 0, []byte("12345678"))
		frames = frame.Append(frames, frame.Headers, frame.EndHeaders, 1, head)
		frames = frame.Append(frames, frame.Data, frame.EndStream, 1, []byte("ab"))
		for i := range frames {
			c.Write(frames[i : i+1])
		}
		var all []byte
		buf := make([]byte, 4096)
		for !bytes.Contains(all, frame.Append(nil, frame.Ping, frame.Ack, 0, []byte("12345678"))) ||
			!bytes.Contains(all, []byte{frame.Headers, frame.EndHeaders | frame.EndStream, 0, 0, 0, 5}) {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			all = append(all, buf[:n]...)
		}
		seen <- all
	}()
	s := spec(netip.MustParseAddrPort(l.Addr().String()), getText, 2)
	s.Connections, s.Streams, s.Warmup = 1, 2, time.Minute
	done := make(chan error, 1)
	go func() {
		_, err := Run(s)
		done <- err
	}()
	select {
	case all := <-seen:
		if !bytes.HasPrefix(all, []byte(frame.Preface)) {
			t.Errorf("begins with %q", all[:min(len(all), 30)])
		}
	case err := <-done:
		t.Fatalf("the run ended with %v before the answers came", err)
	}
	l.Close()
	<-done // nobody listens any more, so that it cannot open the connection again
}

// As in HTTP/1.1, the generator's own work must not allocate.
func TestSessionAllocatesNothing(t *testing.T) {
	request, err := newRequest2([]byte(getText), "http")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	e := hpack.NewEncoder(&out)
	e.SetMaxDynamicTableSize(0)
	l := &loop{spec: &Spec{BodySize: 2, Streams: 1}, request: request}
	s := newSession(&conn{}, l)
	s.start(&s.streams[0], time.Now())
	head := encoded(e, &out, ":status", "200", "content-length", "2")
	later := encoded(e, &out, ":status", "200", "content-length", "2")
	frames := make([]byte, 0, 1024)
	exchange := func() {
		frames = frame.Append(frames[:0], frame.Headers, frame.EndHeaders, s.last, head)
		frames = frame.Append(frames, frame.Data, frame.EndStream, s.last, []byte("ab"))
		head = later
		s.n = copy(s.in[:], frames)
		if err := s.consume(); err != nil {
			t.Fatal(err)
		}
		s.out = s.out[:0]
	}
	for range 3 {
		exchange()
	}
	if n := testing.AllocsPerRun(100, exchange); n != 0 {
		t.Errorf("%v allocations for a request, want 0", n)
	}
	if l.requests < 100 {
		t.Errorf("%d requests were counted", l.requests)
	}
}
