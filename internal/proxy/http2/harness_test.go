package http2

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"context"

	"github.com/moongate-dev/moongate/internal/proxy/message"
	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// server serves connections on loopback until the test ends.
type server struct {
	addr   string
	mu     sync.Mutex
	conns  []*Conn
	errs   chan error
	served sync.WaitGroup
}

func serve(t testing.TB, o Options, handle func(*Stream)) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: l.Addr().String(), errs: make(chan error, 1024)}
	s.served.Add(1)
	go func() {
		defer s.served.Done()
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			c := New(nc, o, handle)
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			s.served.Add(1)
			go func() {
				defer s.served.Done()
				s.errs <- c.Serve(nil)
			}()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		s.served.Wait()
	})
	return s
}

// ended is what Serve of the next connection to end returned.
func (s *server) ended(t testing.TB) error {
	t.Helper()
	select {
	case err := <-s.errs:
		return err
	case <-time.After(patience):
		t.Fatal("the connection does not end")
		return nil
	}
}

// client is an independent implementation, with one connection unless it wants more.
func (s *server) client(t testing.TB) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, s.addr)
	}}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// fields makes field lines of pairs.
func fields(pairs ...string) *message.Fields {
	f := &message.Fields{}
	for i := 0; i < len(pairs); i += 2 {
		f.Add([]byte(pairs[i]), []byte(pairs[i+1]))
	}
	return f
}

// raw is a client that sends what it is told to.
type raw struct {
	t  testing.TB
	nc net.Conn
	*xhttp2.Framer
	enc *hpack.Encoder
	buf bytes.Buffer
}

// raw connects and greets; what the server greets with is left to be read.
func (s *server) raw(t testing.TB) *raw {
	t.Helper()
	r := s.rawSilent(t)
	io.WriteString(r.nc, Preface)
	r.WriteSettings()
	r.WriteSettingsAck()
	return r
}

func (s *server) rawSilent(t testing.TB) *raw {
	t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(4 * patience))
	r := &raw{t: t, nc: nc, Framer: xhttp2.NewFramer(nc, nc)}
	r.AllowIllegalWrites = true
	r.enc = hpack.NewEncoder(&r.buf)
	return r
}

// block encodes name-value pairs.
func (r *raw) block(pairs ...string) []byte {
	r.buf.Reset()
	for i := 0; i < len(pairs); i += 2 {
		r.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return r.buf.Bytes()
}

func get(path string, more ...string) []string {
	return append([]string{":method", "GET", ":scheme", "http", ":authority", "a.test", ":path", path}, more...)
}

// headers sends a head that ends the stream if asked to.
func (r *raw) headers(stream uint32, end bool, pairs ...string) error {
	return r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: stream, BlockFragment: r.block(pairs...), EndStream: end, EndHeaders: true})
}

// until reads frames until one satisfies; others are dropped, a frame is valid until the next.
func (r *raw) until(what string, is func(xhttp2.Frame) bool) xhttp2.Frame {
	r.t.Helper()
	for {
		f, err := r.ReadFrame()
		if err != nil {
			r.t.Fatalf("waiting for %s: %v", what, err)
		}
		if is(f) {
			return f
		}
	}
}

func (r *raw) reset(stream uint32) xhttp2.ErrCode {
	r.t.Helper()
	f := r.until("RST_STREAM", func(f xhttp2.Frame) bool {
		if g, ok := f.(*xhttp2.GoAwayFrame); ok {
			r.t.Fatalf("GOAWAY %v %s", g.ErrCode, g.DebugData())
		}
		return f.Header().Type == xhttp2.FrameRSTStream && f.Header().StreamID == stream
	})
	return f.(*xhttp2.RSTStreamFrame).ErrCode
}

func (r *raw) goAway() (xhttp2.ErrCode, string) {
	r.t.Helper()
	f := r.until("GOAWAY", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameGoAway })
	g := f.(*xhttp2.GoAwayFrame)
	return g.ErrCode, string(g.DebugData())
}

// gone reads to the end of the connection, and closes it.
func (r *raw) gone() {
	r.t.Helper()
	defer r.nc.Close()
	for {
		if _, err := r.ReadFrame(); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				r.t.Fatal("the connection does not end")
			}
			return
		}
	}
}

// hello answers requests with a small body.
func hello(s *Stream) {
	s.WriteHead(200, fields("Content-Type", "text/plain"), 5, false)
	s.Write([]byte("hello"), true)
}

// quiet waits until no handler runs.
func (s *server) quiet(t testing.TB) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		running := 0
		s.mu.Lock()
		for _, c := range s.conns {
			c.mu.Lock()
			running += len(c.streams)
			if c.writing {
				running++
			}
			c.mu.Unlock()
		}
		s.mu.Unlock()
		if running == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("handlers do not end")
		}
		time.Sleep(time.Millisecond)
	}
}
