package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/proxy/http2/encode"
	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// memory is a connection on which the client has sent everything and reads everything.
type memory struct {
	net.Conn
	in    []byte
	piece int // bytes that one Read gives at most
}

func (m *memory) Read(p []byte) (int, error) {
	if len(m.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), m.piece)], m.in)
	m.in = m.in[n:]
	return n, nil
}

func (m *memory) Write(p []byte) (int, error)        { return len(p), nil }
func (m *memory) Close() error                       { return nil }
func (m *memory) SetReadDeadline(at time.Time) error { return nil }
func (m *memory) SetWriteDeadline(time.Time) error   { return nil }

// frames makes what clients send of what a Framer is told.
func frames(write func(*xhttp2.Framer, func(...string) []byte)) []byte {
	var out, block bytes.Buffer
	f := xhttp2.NewFramer(&out, nil)
	f.AllowIllegalWrites = true
	enc := hpack.NewEncoder(&block)
	write(f, func(pairs ...string) []byte {
		block.Reset()
		for i := 0; i < len(pairs); i += 2 {
			enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
		}
		return block.Bytes()
	})
	return out.Bytes()
}

// FuzzConnection serves any bytes behind preface and SETTINGS: nothing panics, every goroutine
// ends, and the pieces in which bytes come make no difference.
func FuzzConnection(f *testing.F) {
	addHostile(f, rawGet)
	f.Add([]byte{})
	f.Add(frames(func(f *xhttp2.Framer, block func(...string) []byte) {
		f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block(get("/", "content-length", "4")...), EndHeaders: true})
		f.WriteDataPadded(1, false, []byte("ab"), make([]byte, 3))
		f.WriteWindowUpdate(1, 5)
		f.WriteData(1, false, []byte("cd"))
		f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block("x", "y"), EndHeaders: true, EndStream: true})
		f.WriteRSTStream(1, xhttp2.ErrCodeCancel)
		f.WritePing(false, [8]byte{})
	}))
	f.Add(frames(func(f *xhttp2.Framer, block func(...string) []byte) {
		b := block(get("/a?b", "cookie", "a", "cookie", "b", "priority", "u=1, i")...)
		f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 3, BlockFragment: b[:5], EndStream: true, PadLength: 2, Priority: xhttp2.PriorityParam{StreamDep: 1}})
		f.WriteContinuation(3, false, b[5:7])
		f.WriteContinuation(3, true, b[7:])
		f.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1}, xhttp2.Setting{ID: 99, Val: 2})
		f.WritePriority(5, xhttp2.PriorityParam{StreamDep: 3})
		f.WriteRawFrame(xhttp2.FramePriorityUpdate, 0, 0, []byte("\x00\x00\x00\x03u=7"))
		f.WriteGoAway(0, xhttp2.ErrCodeNo, []byte("bye"))
	}))
	f.Fuzz(func(t *testing.T, in []byte) {
		// Handlers never answer, so that only the client's bytes decide what happens.
		wait := func(s *Stream) { <-gone(s) }
		whole, err := run(in, 1<<20, wait)
		pieces, errPieces := run(in, 1, wait)
		if whole != pieces && !calm(err) && !calm(errPieces) {
			t.Errorf("as a whole %s, %v; in pieces %s, %v", whole, err, pieces, errPieces)
		}
		run(in, 7, func(s *Stream) {
			n, err := io.Copy(io.Discard, s)
			if l := s.Head.ContentLength; err == nil && l >= 0 && n != l {
				t.Errorf("%d bytes of %d look complete", n, l)
			}
			s.WriteHead(200, fields("a", "b"), -1, false)
			s.Write(make([]byte, 100), false)
			s.WriteTrailers(s.Trailers())
		})
	})
}

// calm reports that the client was cut off for what depends on time and on who writes when.
func calm(err error) bool {
	var told *ConnError
	return errors.As(err, &told) && told.Code == EnhanceYourCalm
}

// run serves preface, SETTINGS and in, and describes what was understood.
func run(in []byte, piece int, handle func(*Stream)) (string, error) {
	start := []byte(Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x04\x01\x00\x00\x00\x00")
	c := New(&memory{in: append(start, in...), piece: piece}, Options{
		MaxStreams: 8, Timeouts: Timeouts{Write: time.Hour},
	}, handle)
	err := c.Serve(nil)
	return fmt.Sprintf("%d frames, last %d, window %d, table %v", c.frames, c.lastID, c.sendWindow, c.decoder != nil), err
}

// FuzzEncode encodes any response head, and has an independent decoder read it.
func FuzzEncode(f *testing.F) {
	f.Add(200, "Content-Type", "text/plain", "x-a", "b", int64(5))
	f.Add(599, "Connection", "close", strings.Repeat("N", 200), strings.Repeat("v", 40_000), int64(-1))
	f.Fuzz(func(t *testing.T, status int, name1, value1, name2, value2 string, length int64) {
		if status < 100 || status > 999 {
			return
		}
		b := encode.AppendSection(nil, 1, status, fields(name1, value1, name2, value2), length, true, true)
		framer := xhttp2.NewFramer(nil, bytes.NewReader(b))
		var block []byte
		for ended := false; !ended; {
			fr, err := framer.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			switch fr := fr.(type) {
			case *xhttp2.HeadersFrame:
				block, ended = append(block, fr.HeaderBlockFragment()...), fr.HeadersEnded()
			case *xhttp2.ContinuationFrame:
				block, ended = append(block, fr.HeaderBlockFragment()...), fr.HeadersEnded()
			}
		}
		got, err := hpack.NewDecoder(4096, nil).DecodeFull(block)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			got[i].Sensitive = false
		}
		want := []hpack.HeaderField{{Name: ":status", Value: fmt.Sprint(status)}}
		for _, p := range [][2]string{{name1, value1}, {name2, value2}} {
			name := string(message.AppendLower(nil, []byte(p[0])))
			if !head.IsConnectionSpecific(name) && name != "" {
				want = append(want, hpack.HeaderField{Name: name, Value: p[1]})
			}
		}
		if length >= 0 {
			want = append(want, hpack.HeaderField{Name: "content-length", Value: fmt.Sprint(length)})
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("decoded %v, want %v", got, want)
		}
	})
}
