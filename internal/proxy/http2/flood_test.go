package http2

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	xhttp2 "golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
)

// TestFloods has a client do useless things without end. It is cut off after a bounded number of
// them, what it makes us hold meanwhile stays under a bound, and others are served.
func TestFloods(t *testing.T) {
	const sent, mostFrames, mostMemory = 20_000, 5_000, 4 << 20
	indexed := func(r *raw, n int) []byte {
		block := append([]byte(nil), r.block(get("/", "a", strings.Repeat("b", 3900))...)...)
		last := r.block("a", strings.Repeat("b", 3900)) // now an index
		for range n {
			block = append(block, last...)
		}
		return block
	}
	open := func(r *raw) { r.headers(1, false, get("/wait")...) }
	for _, c := range []struct {
		name  string
		begin func(*raw)
		frame func(*raw, uint32) error // the n-th
	}{
		{"PING", nil, func(r *raw, _ uint32) error { return r.WritePing(false, [8]byte{}) }},
		{"PING answers", nil, func(r *raw, _ uint32) error { return r.WritePing(true, [8]byte{}) }},
		{"SETTINGS", nil, func(r *raw, n uint32) error {
			return r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: n % 100})
		}},
		{"SETTINGS of many entries", nil, func(r *raw, n uint32) error {
			var many [2000]xhttp2.Setting
			for i := range many {
				many[i] = xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: uint32(i)}
			}
			return r.WriteSettings(many[:]...)
		}},
		{"SETTINGS answers", nil, func(r *raw, _ uint32) error { return r.WriteSettingsAck() }},
		{"rapid reset", nil, func(r *raw, n uint32) error {
			r.headers(2*n+1, true, get("/wait")...)
			return r.WriteRSTStream(2*n+1, xhttp2.ErrCodeCancel)
		}},
		{"resets that we are made to send: WINDOW_UPDATE of 0", nil, func(r *raw, n uint32) error {
			r.headers(2*n+1, false, get("/wait")...)
			return r.WriteWindowUpdate(2*n+1, 0)
		}},
		{"resets that we are made to send: window too large", nil, func(r *raw, n uint32) error {
			r.headers(2*n+1, false, get("/wait")...)
			return r.WriteWindowUpdate(2*n+1, frame.MaxWindow)
		}},
		{"resets that we are made to send: DATA behind the end", nil, func(r *raw, n uint32) error {
			r.headers(2*n+1, true, get("/wait")...)
			return r.WriteData(2*n+1, true, nil)
		}},
		{"resets that we are made to send: HEADERS behind the end", nil, func(r *raw, n uint32) error {
			r.headers(2*n+1, true, get("/wait")...)
			return r.headers(2*n+1, true, "a", "b")
		}},
		{"resets that we are made to send: PRIORITY of itself", nil, func(r *raw, n uint32) error {
			r.headers(2*n+1, true, get("/wait")...)
			return r.WritePriority(2*n+1, xhttp2.PriorityParam{StreamDep: 2*n + 1})
		}},
		{"malformed requests", nil, func(r *raw, n uint32) error { return r.headers(2*n+1, true, "a", "b") }},
		{"requests that are refused", func(r *raw) {
			for id := uint32(1); id < 300; id += 2 {
				r.headers(id, true, get("/wait")...)
			}
		}, func(r *raw, n uint32) error { return r.headers(301+2*n, true, get("/wait")...) }},
		{"heads that are too large", nil, func(r *raw, n uint32) error {
			return r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 2*n + 1, BlockFragment: indexed(r, 1000), EndHeaders: true, EndStream: true})
		}},
		{"resets of closed streams", func(r *raw) { r.headers(1, true, get("/")...) }, func(r *raw, _ uint32) error {
			return r.WriteRSTStream(1, xhttp2.ErrCodeCancel)
		}},
		{"empty CONTINUATION", func(r *raw) {
			r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(get("/")...)})
		}, func(r *raw, _ uint32) error { return r.WriteContinuation(1, false, nil) }},
		{"CONTINUATION without end", func(r *raw) {
			r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(get("/")...)})
		}, func(r *raw, _ uint32) error {
			return r.WriteContinuation(1, false, []byte("\x00\x01a\x7f\x81\x7f"+strings.Repeat("b", 256)))
		}},
		{"empty CONTINUATION, few of each block", nil, func(r *raw, n uint32) error {
			r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 2*n + 1, BlockFragment: r.block(get("/")...), EndStream: true})
			for range 10 {
				r.WriteContinuation(2*n+1, false, nil)
			}
			return r.WriteContinuation(2*n+1, true, nil)
		}},
		{"HPACK bomb", nil, func(r *raw, n uint32) error {
			return r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 2*n + 1, BlockFragment: indexed(r, 2000), EndStream: true, EndHeaders: true})
		}},
		{"empty DATA", open, func(r *raw, _ uint32) error { return r.WriteData(1, false, nil) }},
		{"DATA of padding", open, func(r *raw, _ uint32) error { return r.WriteDataPadded(1, false, nil, make([]byte, 0)) }},
		{"WINDOW_UPDATE", nil, func(r *raw, _ uint32) error { return r.WriteWindowUpdate(0, 1) }},
		{"WINDOW_UPDATE of a stream", open, func(r *raw, _ uint32) error { return r.WriteWindowUpdate(1, 1) }},
		{"tiny windows", func(r *raw) {
			r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
			r.headers(1, true, get("/endless")...)
		}, func(r *raw, _ uint32) error { return r.WriteWindowUpdate(1, 1) }},
		{"PRIORITY", nil, func(r *raw, n uint32) error {
			return r.WritePriority(2*n+1, xhttp2.PriorityParam{StreamDep: 7777})
		}},
		{"PRIORITY_UPDATE", nil, func(r *raw, n uint32) error {
			return r.WriteRawFrame(xhttp2.FramePriorityUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, n+1))
		}},
		{"unknown frames", nil, func(r *raw, _ uint32) error { return r.WriteRawFrame(0xbe, 0, 1, []byte("x")) }},
		{"GOAWAY", nil, func(r *raw, _ uint32) error { return r.WriteGoAway(0, xhttp2.ErrCodeNo, nil) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			flood(t, c.begin, c.frame, sent, mostFrames, mostMemory)
		})
	}
}

func flood(t *testing.T, begin func(*raw), frame func(*raw, uint32) error, sent uint32, mostFrames, mostMemory int64) {
	var running, most atomic.Int32
	s := serve(t, Options{}, func(s *Stream) {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		switch string(s.Head.Path) {
		case "/wait":
			<-gone(s)
		case "/endless":
			s.WriteHead(200, nil, -1, false)
			for s.Write(make([]byte, 1<<10), false) == nil {
			}
		default:
			hello(s)
		}
	})
	others(t, s)
	s.quiet(t)
	before := heapNow()
	r := s.raw(t)
	answers := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, r.nc)
		answers <- n
	}()
	if begin != nil {
		begin(r)
	}
	var n uint32
	var grown int64
	c := s.waitFor(t, "the connection", func(c *Conn) bool { return c.nc.RemoteAddr().String() == r.nc.LocalAddr().String() })
	over := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.ended
	}
	for ; n < sent && !over(); n++ {
		if n%2000 == 1000 {
			others(t, s)
			grown = max(grown, heapNow()-before)
		}
		if err := frame(r, n); err != nil {
			break
		}
	}
	r.nc.(*net.TCPConn).CloseWrite()
	others(t, s)
	var told *ConnError
	for err := s.ended(t); !errors.As(err, &told); err = s.ended(t) { // others' connections end too
	}
	// SETTINGS, DATA behind the end and the like may break other rules before they are too many.
	if told.Code != EnhanceYourCalm && told.Code != StreamClosed && told.Code != FlowControlError {
		t.Errorf("ended with %v", told)
	}
	if c.frames > mostFrames {
		t.Errorf("cut off only after %d frames", c.frames)
	}
	grown = max(grown, heapNow()-before)
	if grown > mostMemory {
		t.Errorf("%d bytes more are held, want at most %d", grown, mostMemory)
	}
	if n := most.Load(); n > 2*128 {
		t.Errorf("%d handlers ran at a time", n)
	}
	t.Logf("%d frames, %d bytes held, %d bytes of answers, %d handlers: %v", c.frames, grown, <-answers, most.Load(), told)
}

// TestSmallCredits: a client that gives the windows back for each small read of a large response is no flood, be it for a part of each
// frame or for what the windows are used up by: then each frame is as small.
func TestSmallCredits(t *testing.T) {
	const size, read, initial = 2 << 20, 512, 65535
	for name, holds := range map[string]int{"large frames": 0, "small frames": initial - read} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, Options{}, func(s *Stream) {
				s.WriteHead(200, nil, -1, false)
				s.Write(make([]byte, size), true)
			})
			r := s.raw(t)
			r.headers(1, true, get("/")...)
			got, given := 0, 0
			for got < size {
				f := r.until("DATA", func(f xhttp2.Frame) bool {
					return f.Header().Type == xhttp2.FrameData || f.Header().Type == xhttp2.FrameGoAway
				})
				d, ok := f.(*xhttp2.DataFrame)
				if !ok {
					t.Fatalf("after %d bytes: %v", got, f)
				}
				for got += len(d.Data()); given+read <= got-holds; given += read {
					r.WriteWindowUpdate(1, read)
					r.WriteWindowUpdate(0, read)
				}
			}
		})
	}
}

// TestHonestClient does much of what floods do, as honest clients do it.
func TestHonestClient(t *testing.T) {
	s := serve(t, Options{}, func(s *Stream) {
		s.WriteHead(200, nil, -1, false)
		for range 3 {
			s.Write([]byte("some"), false)
		}
		s.Write(nil, true)
	})
	r := s.raw(t)
	for n := range uint32(3000) {
		r.headers(2*n+1, false, get("/")...)
		r.WriteData(2*n+1, true, nil)
		for ended := false; !ended; {
			d := r.until("DATA", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameData }).(*xhttp2.DataFrame)
			if ended = d.StreamEnded(); !ended {
				r.WriteWindowUpdate(0, 4)
				r.WriteWindowUpdate(2*n+1, 4)
			}
		}
		r.WritePing(false, [8]byte{})
		if n%2 == 0 { // of streams that have ended: too late to mean anything
			r.WriteRSTStream(2*n+1, xhttp2.ErrCodeCancel)
		}
	}
}
