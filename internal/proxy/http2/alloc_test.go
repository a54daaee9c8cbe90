//go:build !race

// Without the race detector: it empties pools at random.
package http2

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"slices"
	"testing"

	xhttp2 "golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
)

// warm is a connection on which requests were made before, and one more request with its answer. With
// fresh, each has a path that is not in the table.
func warm(t testing.TB, handle func(*Stream), fresh bool) func() {
	r := serve(t, Options{}, handle).raw(t)
	r.WriteWindowUpdate(0, frame.MaxWindow-frame.DefaultWindow)
	read := make([]byte, 64<<10)
	sent := make([]byte, 0, 1024)
	var header [frame.HeaderLen]byte
	id := uint32(1)
	r.headers(id, true, get("/some/path?and=query", "user-agent", "test", "accept", "*/*")...)
	r.until("the end", func(f xhttp2.Frame) bool { d, ok := f.(*xhttp2.DataFrame); return ok && d.StreamEnded() })
	// The second time everything is in the table.
	block := bytes.Clone(r.block(get("/some/path?and=query", "user-agent", "test", "accept", "*/*")...))
	if fresh { // instead of its index, a literal with the static name :path
		path := append([]byte{0x04, 31}, "/path-that-nobody-has-asked-for"...)
		block = slices.Concat(block[:3], path, block[4:])
	}
	return func() {
		id += 2
		sent = frame.AppendHeader(sent[:0], len(block), frame.Headers, frame.FlagEndStream|frame.FlagEndHeaders, id)
		sent = append(sent, block...)
		if _, err := r.nc.Write(sent); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := io.ReadFull(r.nc, header[:]); err != nil {
				t.Fatal(err)
			}
			h := frame.ParseHeader(header[:])
			if _, err := io.ReadFull(r.nc, read[:h.Length]); err != nil {
				t.Fatal(err)
			}
			if h.Stream == id && h.Type == frame.Data && h.Has(frame.FlagEndStream) {
				return
			}
		}
	}
}

// fixedAnswer answers without allocating.
func fixedAnswer() func(*Stream) {
	f, body := fields("content-type", "text/plain", "date", "Sat, 21 Nov 2026 20:00:00 GMT"), []byte("hello")
	return func(s *Stream) {
		s.WriteHead(200, f, int64(len(body)), false)
		s.Write(body, true)
	}
}

func TestAllocations(t *testing.T) {
	for _, c := range []struct {
		name  string
		fresh bool
		most  float64
	}{{"a request as before", false, 0}, {"a path not seen before", true, 1}} {
		request := warm(t, fixedAnswer(), c.fresh)
		for range 100 {
			request()
		}
		if n := testing.AllocsPerRun(1000, request); n > c.most {
			t.Errorf("%s: %v allocations on a warm connection, want at most %v", c.name, n, c.most)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	request := warm(b, fixedAnswer(), false)
	b.ReportAllocs()
	for b.Loop() {
		request()
	}
}

func BenchmarkDownload(b *testing.B) {
	const size = 1 << 20
	piece := make([]byte, 64<<10)
	r := serve(b, Options{}, func(s *Stream) {
		s.WriteHead(200, nil, -1, false)
		for range size / len(piece) {
			s.Write(piece, false)
		}
		s.Write(nil, true)
	}).raw(b)
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: frame.MaxWindow})
	r.WriteWindowUpdate(0, frame.MaxWindow-frame.DefaultWindow)
	r.SetReuseFrames()
	id, unread := uint32(1), uint32(0)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		r.headers(id, true, get("/")...)
		for {
			f, err := r.ReadFrame()
			if err != nil {
				b.Fatal(err)
			}
			if d, ok := f.(*xhttp2.DataFrame); ok {
				unread += d.Length
				if d.StreamEnded() {
					break
				}
			}
		}
		r.WriteWindowUpdate(0, unread)
		id, unread = id+2, 0
	}
}

func BenchmarkUpload(b *testing.B) {
	const size = 1 << 20
	s := serve(b, Options{}, func(s *Stream) {
		var p [16 << 10]byte
		for {
			if _, err := s.Read(p[:]); err != nil {
				break
			}
		}
		s.WriteHead(204, nil, -1, true)
	})
	client := s.client(b)
	body := make([]byte, size)
	b.SetBytes(size)
	for b.Loop() {
		resp, err := client.Post("http://a.test/", "", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
}

// TestIdleMemory bounds what a connection without streams holds, its goroutine included.
func TestIdleMemory(t *testing.T) {
	const most, conns = 24 << 10, 200
	s := serve(t, Options{}, fixedAnswer())
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	clients := make([]net.Conn, conns)
	before := heap() // the clients' sockets count too
	for i := range clients {
		r := s.rawSilent(t)
		io.WriteString(r.nc, Preface)
		r.WriteSettings()
		r.WriteSettingsAck()
		r.headers(1, true, get("/", "user-agent", "test")...)
		r.until("the end", func(f xhttp2.Frame) bool { d, ok := f.(*xhttp2.DataFrame); return ok && d.StreamEnded() })
		clients[i] = r.nc
	}
	s.quiet(t)
	each := (heap() - before) / conns
	t.Logf("%d bytes for each idle connection", each)
	if each > most {
		t.Errorf("an idle connection holds %d bytes, want at most %d", each, most)
	}
	runtime.KeepAlive(clients)
}
