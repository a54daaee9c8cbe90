package http2

import (
	"runtime"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
)

// FuzzBackend reads any bytes behind a backend's SETTINGS: nothing panics, every call returns, and the
// pieces in which bytes come make no difference to responses that are complete.
func FuzzBackend(f *testing.F) {
	addHostile(f, rawOK)
	f.Add([]byte{})
	f.Add(script())
	f.Add(frames(func(f *xhttp2.Framer, block func(...string) []byte) {
		f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 3, BlockFragment: block(":status", "304", "content-length", "9"), EndHeaders: true})
		f.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1}, xhttp2.Setting{ID: 99, Val: 2})
		f.WritePriority(5, xhttp2.PriorityParam{StreamDep: 3})
		f.WriteGoAway(3, xhttp2.ErrCodeNo, nil)
		f.WriteData(3, true, nil)
		f.WriteRSTStream(1, xhttp2.ErrCodeRefusedStream)
		f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 5, BlockFragment: block(":status", "100"), EndHeaders: true})
		f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 5, BlockFragment: block(":status", "200"), EndHeaders: true, EndStream: true})
	}))
	f.Add(frames(func(f *xhttp2.Framer, block func(...string) []byte) {
		f.WritePushPromise(xhttp2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: block(get("/")...), EndHeaders: true})
	}))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, err := runClient(t, in, 1<<20)
		pieces, errPieces := runClient(t, in, 1)
		for i := range whole {
			if whole[i] != pieces[i] && !calm(err) && !calm(errPieces) {
				t.Errorf("stream %d: as a whole %q, %v; in pieces %q, %v", 2*i+1, whole[i], err, pieces[i], errPieces)
			}
		}
	})
}

// runClient opens three streams on a connection on which a backend has sent SETTINGS and in, and tells which
// responses were complete.
func runClient(t *testing.T, in []byte, piece int) (complete [3]string, err error) {
	c := NewClient(&memory{in: append([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"), in...), piece: piece}, ClientOptions{})
	var streams [3]*ClientStream
	for i, method := range []string{"GET", "HEAD", "POST"} {
		q := ask(method, "/")
		q.Last, q.Deadline = i < 2, time.Time{}
		streams[i] = open(t, c, q)
	}
	for sent := false; !sent; runtime.Gosched() { // what GOAWAY means depends on it
		c.c.mu.Lock()
		sent = !streams[2].s.unsent
		c.c.mu.Unlock()
	}
	err = c.Serve()
	for i, s := range streams {
		for s.Write(make([]byte, 1000), false) == nil {
		}
		if got, err := answer(s); err == nil {
			complete[i] = got
		}
		s.Close()
	}
	if n, m := len(c.c.streams), c.c.open; n != 0 || m != 0 {
		t.Errorf("%d streams are left, %d open", n, m)
	}
	return complete, err
}
