package http2

import (
	"bytes"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
)

// waitFor waits until the state of a connection is as wanted.
func (s *server) waitFor(t testing.TB, what string, is func(*Conn) bool) *Conn {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		conns := slices.Clone(s.conns)
		s.mu.Unlock()
		for _, c := range conns {
			c.mu.Lock()
			ok := is(c)
			c.mu.Unlock()
			if ok {
				return c
			}
		}
	}
	t.Fatalf("waiting for %s", what)
	return nil
}

// allPending reports that n streams wait for the client's leave to send.
func allPending(n int) func(*Conn) bool {
	return func(c *Conn) bool {
		pending := 0
		for _, s := range c.streams {
			if s.pending && !s.entry.Waits() {
				pending++
			}
		}
		return pending == n && !c.writing
	}
}

// order starts streams of 64 KiB each that may not send yet, lets them go, and returns of which
// streams the DATA frames are.
func order(t *testing.T, then func(*raw), heads ...[]string) []uint32 {
	s := serve(t, Options{}, func(s *Stream) {
		s.WriteHead(200, nil, -1, false)
		s.Write(make([]byte, 4*frame.MaxPayload), true)
	})
	r := s.rawSilent(t)
	io.WriteString(r.nc, Preface)
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
	r.WriteSettingsAck()
	r.WriteWindowUpdate(0, 1<<24)
	for i, h := range heads {
		r.headers(uint32(2*i+1), true, h...)
		s.waitFor(t, "the stream to wait", allPending(i+1))
	}
	if then != nil {
		then(r)
	}
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1 << 20})
	var ids []uint32
	for ended := 0; ended < len(heads); {
		d := r.until("DATA", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameData }).(*xhttp2.DataFrame)
		ids = append(ids, d.StreamID)
		if d.StreamEnded() {
			ended++
		}
	}
	return ids
}

func TestStreamsTakeTurns(t *testing.T) {
	ids := order(t, nil, get("/"), get("/"), get("/"))
	// The order among them is any, as SETTINGS wakes all at once, but they alternate.
	for i := 0; i+3 <= 9; i += 3 {
		turn := slices.Sorted(slices.Values(ids[i : i+3]))
		if !slices.Equal(turn, []uint32{1, 3, 5}) {
			t.Fatalf("frames of %v", ids)
		}
	}
}

func TestPriority(t *testing.T) {
	whole := func(ids []uint32) []uint32 { return slices.Compact(ids) }
	ids := order(t, nil, get("/", "priority", "u=5"), get("/", "priority", "u=0"), get("/", "priority", "u=3, i"))
	if got := whole(ids); !slices.Equal(got, []uint32{3, 5, 1}) {
		t.Errorf("by header: %v", got)
	}
	ids = order(t, func(r *raw) {
		r.WriteRawFrame(xhttp2.FramePriorityUpdate, 0, 0, append([]byte{0, 0, 0, 1}, "u=1"...))
	}, get("/"), get("/", "priority", "u=2"), get("/", "priority", "u=7 ,i , x=y"))
	if got := whole(ids); !slices.Equal(got, []uint32{1, 3, 5}) {
		t.Errorf("by PRIORITY_UPDATE: %v", got)
	}
	if got := whole(order(t, nil, get("/", "priority", "u=3"), get("/", "priority", "u=3"))); len(got) != 2 {
		t.Errorf("streams that are of use only as a whole: %v", got)
	}
}

func TestWriteWaitsForWindow(t *testing.T) {
	const size = 300 << 10
	errs := make(chan error, 1)
	s := serve(t, Options{Timeouts: Timeouts{Write: time.Second}}, func(s *Stream) {
		s.WriteHead(200, nil, -1, false)
		errs <- s.Write(bytes.Repeat([]byte("x"), size), true)
	})
	r := s.raw(t)
	r.headers(1, true, get("/")...)
	got := 0
	read := func(until int) {
		t.Helper()
		for got < until {
			got += len(r.until("DATA", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameData }).(*xhttp2.DataFrame).Data())
		}
		if got != until {
			t.Fatalf("%d bytes for a window of %d", got, until)
		}
	}
	read(frame.DefaultWindow)
	r.WriteWindowUpdate(0, 1<<20)
	r.WriteWindowUpdate(1, 1)
	read(frame.DefaultWindow + 1)
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: frame.DefaultWindow + 10})
	read(frame.DefaultWindow + 11)
	// A window below zero takes as long to be usable.
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
	r.WriteWindowUpdate(1, frame.DefaultWindow+10)
	r.WriteWindowUpdate(1, 5)
	read(frame.DefaultWindow + 16)
	if err := <-errs; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Write returned %v", err)
	}
	if code := r.reset(1); code != xhttp2.ErrCodeInternal {
		t.Errorf("reset with %v", code)
	}
}

func TestReadDeadline(t *testing.T) {
	errs := make(chan error, 2)
	s := serve(t, Options{}, func(s *Stream) {
		var p [10]byte
		s.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := s.Read(p[:])
		errs <- err
		s.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Millisecond, func() { s.SetReadDeadline(time.Unix(1, 0)) })
		_, err = s.Read(p[:])
		errs <- err
	})
	r := s.raw(t)
	r.headers(1, false, get("/")...)
	for range 2 {
		if err := <-errs; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read returned %v", err)
		}
	}
}

// TestUploadIsBounded sends what nobody reads: only the windows of streams bound what is kept, and that of the connection is
// given back, so that other streams go on.
func TestUploadIsBounded(t *testing.T) {
	release := make(chan struct{})
	o := Options{StreamWindow: 64 << 10, ConnWindow: 64 << 10}
	s := serve(t, o, func(s *Stream) {
		<-release
		io.Copy(io.Discard, s)
		s.WriteHead(204, nil, -1, true)
	})
	r := s.raw(t)
	piece := make([]byte, 4<<10)
	sent, window := 0, 64<<10
	for id := uint32(1); id <= 7; id += 2 {
		r.headers(id, false, get("/")...)
		for range 15 {
			for window < len(piece) {
				u := r.until("WINDOW_UPDATE", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameWindowUpdate }).(*xhttp2.WindowUpdateFrame)
				if u.StreamID != 0 {
					t.Fatalf("the window of stream %d is given back, which nobody reads", u.StreamID)
				}
				window += int(u.Increment)
			}
			r.WriteData(id, false, piece)
			sent, window = sent+len(piece), window-len(piece)
		}
	}
	s.waitFor(t, "all that was sent to be held", func(c *Conn) bool {
		held := 0
		for _, s := range c.streams {
			held += s.body.len()
		}
		return held == sent
	})
	// Reading opens the windows of streams again.
	close(release)
	opened := map[uint32]uint32{}
	for opened[1] < 32<<10 || opened[7] < 32<<10 {
		u := r.until("WINDOW_UPDATE", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameWindowUpdate }).(*xhttp2.WindowUpdateFrame)
		opened[u.StreamID] += u.Increment
	}
	for id := uint32(1); id <= 7; id += 2 {
		r.WriteData(id, true, piece)
	}
	s.quiet(t)
}

// TestWindowsWiden: a stream whose body is read gets its whole window, as long as those of all streams together remain
// below the bound.
func TestWindowsWiden(t *testing.T) {
	const streams, whole = 30, 256 << 10
	release := make(chan struct{})
	s := serve(t, Options{StreamWindow: whole}, func(s *Stream) {
		io.ReadFull(s, make([]byte, 16<<10))
		<-release
		s.WriteHead(204, nil, -1, true)
	})
	r := s.raw(t)
	increments := map[uint32]uint32{}
	for i := range uint32(streams) {
		id := 2*i + 1
		r.headers(id, false, get("/")...)
		r.WriteData(id, false, make([]byte, 16<<10))
		for increments[id] == 0 {
			u := r.until("WINDOW_UPDATE", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameWindowUpdate }).(*xhttp2.WindowUpdateFrame)
			increments[u.StreamID] += u.Increment
		}
	}
	wide := 0
	for i := range uint32(streams) {
		switch n := increments[2*i+1]; n {
		case 16 << 10:
		case 16<<10 + whole - 65535:
			wide++
		default:
			t.Errorf("the window of a stream has grown by %d", n)
		}
	}
	if most := maxWidened / (whole - 65535); wide != most {
		t.Errorf("%d of %d streams have a wide window, want %d", wide, streams, most)
	}
	close(release)
	s.waitFor(t, "the end of all streams", func(c *Conn) bool { return len(c.streams) == 0 && c.widened == 0 })
}

func TestUploadAboveWindow(t *testing.T) {
	o := Options{StreamWindow: 64 << 10, ConnWindow: 128 << 10}
	s := serve(t, o, func(s *Stream) { <-gone(s) })
	piece := make([]byte, 8<<10)
	r := s.raw(t)
	r.headers(1, false, get("/")...)
	for range 9 {
		r.WriteData(1, false, piece)
	}
	if code := r.reset(1); code != xhttp2.ErrCodeFlowControl {
		t.Errorf("reset with %v", code)
	}
}

// gone is closed when the stream is.
func gone(s *Stream) chan struct{} {
	c := make(chan struct{})
	s.OnGone(func(error) { close(c) })
	return c
}

// TestPaddingIsGivenBack uploads padding only, many times the windows.
func TestPaddingIsGivenBack(t *testing.T) {
	s := serve(t, Options{StreamWindow: 64 << 10, ConnWindow: 64 << 10}, func(s *Stream) {
		n, err := io.Copy(io.Discard, s)
		if n != 3000 || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		s.WriteHead(204, nil, -1, true)
	})
	r := s.raw(t)
	r.headers(1, false, get("/")...)
	conn, stream := 64<<10, 64<<10
	pad := make([]byte, 255)
	for i := range 3000 {
		for conn < 300 || stream < 300 {
			u := r.until("WINDOW_UPDATE", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameWindowUpdate }).(*xhttp2.WindowUpdateFrame)
			if u.StreamID == 0 {
				conn += int(u.Increment)
			} else {
				stream += int(u.Increment)
			}
		}
		r.WriteDataPadded(1, i == 2999, []byte("x"), pad)
		conn, stream = conn-257, stream-257
	}
	r.until("the answer", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameHeaders })
}

// TestSlowReaders has clients open many streams and read nothing: what they make us hold stays
// under the bound, and others are served.
func TestSlowReaders(t *testing.T) {
	const conns, most = 10, 10 * (1 << 20)
	piece := make([]byte, 64<<10)
	s := serve(t, Options{}, func(s *Stream) {
		if string(s.Head.Path) == "/small" {
			hello(s)
			return
		}
		s.WriteHead(200, nil, -1, false)
		for s.Write(piece, false) == nil {
		}
	})
	before := heapNow()
	for range conns {
		r := s.raw(t)
		r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: frame.MaxWindow})
		r.WriteWindowUpdate(0, frame.MaxWindow-frame.DefaultWindow)
		for id := uint32(1); id < 200; id += 2 {
			r.headers(id, true, get("/")...)
		}
	}
	s.waitFor(t, "the streams", func(c *Conn) bool { return len(c.streams) == 100 })
	others(t, s)
	if grown := heapNow() - before; grown > most {
		t.Errorf("%d connections that do not read make us hold %d bytes, want at most %d", conns, grown, most)
	}
}

func heapNow() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// others makes requests on another connection.
func others(t *testing.T, s *server) {
	t.Helper()
	client := s.client(t)
	for range 10 {
		resp, err := client.Get("http://a.test/small")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
