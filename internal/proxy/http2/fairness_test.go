package http2

import (
	"io"
	"net"
	"testing"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
)

// TestSmallBesideLarge: a small response on a connection full of large ones waits for what is on its way already, not
// for a frame of each.
func TestSmallBesideLarge(t *testing.T) {
	const large, chunk = 100, 4 * frame.MaxPayload
	near, far := net.Pipe() // holds nothing back, so that what is counted is ours
	s := &server{errs: make(chan error, 1)}
	c := New(far, Options{}, func(s *Stream) {
		if string(s.Head.Path) == "/small" {
			hello(s)
			return
		}
		s.WriteHead(200, nil, -1, false)
		for s.Write(make([]byte, chunk), false) == nil {
		}
	})
	s.conns = append(s.conns, c)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Serve(nil)
	}()
	defer func() {
		near.Close()
		<-ended
	}()
	r := &raw{t: t, nc: near, Framer: xhttp2.NewFramer(near, near)}
	r.enc = hpack.NewEncoder(&r.buf)
	io.WriteString(near, Preface)
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1 << 30})
	r.WriteSettingsAck()
	r.WriteWindowUpdate(0, 1<<30)
	for i := range uint32(large) {
		r.headers(2*i+1, true, get("/large")...)
	}
	s.waitFor(t, "all to have something to be written", func(c *Conn) bool {
		waiting := 0
		for _, s := range c.streams {
			if s.entry.Waits() {
				waiting++
			}
		}
		return waiting >= large-2*batchSize/frame.MaxPayload
	})
	r.headers(2*large+1, true, get("/small")...)
	s.waitFor(t, "the answer to the small one", func(c *Conn) bool {
		s := c.streams[2*large+1]
		return s == nil && c.lastID == 2*large+1 || s != nil && (s.entry.Waits() || s.localEnded)
	})
	before := 0
	r.until("the small response", func(f xhttp2.Frame) bool {
		if f.Header().StreamID == 2*large+1 {
			return f.Header().Flags.Has(xhttp2.FlagDataEndStream)
		}
		before += int(f.Header().Length)
		return false
	})
	// One batch is being written, one is full, and one frame may have its turn before.
	if most := 2*batchSize + frame.MaxPayload; before > most {
		t.Errorf("%d bytes of others come before it, want %d at most", before, most)
	}
	if c.streams == nil || before == 0 {
		t.Error("nothing was in its way")
	}
}
