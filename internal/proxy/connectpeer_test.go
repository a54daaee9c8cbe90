package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// connectPeer is a client's end of an HTTP/2 connection that knows extended CONNECT, which that of net/http does not.
type connectPeer struct {
	t testing.TB
	framePeer

	mu      sync.Mutex // guards what follows, and what streams hold
	changed sync.Cond
	streams map[uint32]*streamTunnel
	next    uint32
	window  int
	initial int // window of a stream
	allowed bool
	err     error
}

// streamTunnel is a stream of a client. What is not read from it holds back its sender.
type streamTunnel struct {
	p      *connectPeer
	id     uint32
	Header http.Header // :status included; nil before it has come
	window int
	got    []byte
	err    error // behind got
}

// connectPeer makes an HTTP/2 connection to the gateway: in the clear, or over TLS to the server name sni.
func (g *gateway) connectPeer(sni string) *connectPeer {
	g.t.Helper()
	var c net.Conn = g.dial()
	if sni != "" {
		var err error
		if c, _, err = g.dialTLS(sni, func(c *tls.Config) { c.NextProtos = []string{"h2"} }); err != nil {
			g.t.Fatal(err)
		}
	}
	io.WriteString(c, http2.ClientPreface)
	p := &connectPeer{t: g.t, framePeer: framePeer{Framer: http2.NewFramer(c, c), c: c}, streams: map[uint32]*streamTunnel{}, next: 1, window: 65535, initial: 65535}
	p.changed.L = &p.mu
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.sends(func() { p.WriteSettings() })
	read := make(chan struct{})
	go func() { defer close(read); p.read() }()
	g.t.Cleanup(func() { c.Close(); <-read })
	p.wait("SETTINGS_ENABLE_CONNECT_PROTOCOL", func() bool { return p.allowed })
	return p
}

// sends has frames written one after the other.
func (p *connectPeer) sends(f func()) {
	p.framePeer.mu.Lock()
	defer p.framePeer.mu.Unlock()
	f()
}

// wait waits for what another goroutine makes true, or for the end of the connection.
func (p *connectPeer) wait(what string, is func() bool) {
	p.t.Helper()
	late := time.AfterFunc(30*time.Second, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err = errors.New("late")
		p.changed.Broadcast()
	})
	defer late.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !is() && p.err == nil {
		p.changed.Wait()
	}
	if !is() {
		p.t.Fatalf("no %s: %v", what, p.err)
	}
}

func (p *connectPeer) read() {
	for {
		f, err := p.ReadFrame()
		p.mu.Lock()
		if err != nil {
			p.err = err
			for _, s := range p.streams {
				s.end(fmt.Errorf("the connection has ended: %v", err)) // io.EOF is the end of the stream
			}
			p.changed.Broadcast()
			p.mu.Unlock()
			return
		}
		answer := p.take(f)
		p.changed.Broadcast()
		p.mu.Unlock()
		if answer != nil {
			p.sends(answer)
		}
	}
}

// take takes in a frame, and returns what is to be answered.
func (p *connectPeer) take(f http2.Frame) (answer func()) {
	s := p.streams[f.Header().StreamID]
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			p.initial = int(v)
		}
		v, _ := f.Value(http2.SettingEnableConnectProtocol)
		p.allowed = v == 1
		return func() { p.WriteSettingsAck() }
	case *http2.PingFrame:
		if data := f.Data; !f.IsAck() {
			return func() { p.WritePing(true, data) }
		}
	case *http2.WindowUpdateFrame:
		if s != nil {
			s.window += int(f.Increment)
		} else if f.StreamID == 0 {
			p.window += int(f.Increment)
		}
	case *http2.MetaHeadersFrame:
		s.Header = http.Header{}
		for _, field := range f.Fields {
			s.Header.Add(field.Name, field.Value)
		}
		if f.StreamEnded() {
			s.end(io.EOF)
		}
	case *http2.DataFrame:
		s.got = append(s.got, f.Data()...)
		if f.StreamEnded() {
			s.end(io.EOF)
		}
		if n := f.Length; n > 0 {
			return func() { p.WriteWindowUpdate(0, n) }
		}
	case *http2.RSTStreamFrame:
		if s != nil {
			s.end(http2.StreamError{StreamID: f.StreamID, Code: f.ErrCode})
		}
	}
	return nil
}

func (s *streamTunnel) end(err error) {
	if s.err == nil {
		s.err = err
	}
}

// open begins a stream; fields are pairs. It returns when the response head has come, or the stream has ended.
func (p *connectPeer) open(end bool, fields ...string) *streamTunnel {
	p.t.Helper()
	p.mu.Lock()
	s := &streamTunnel{p: p, id: p.next, window: p.initial}
	p.streams[s.id] = s
	p.next += 2
	p.mu.Unlock()
	p.head(s.id, end, fields...)
	p.wait("response", func() bool { return s.Header != nil || s.err != nil })
	return s
}

// connect sends an extended CONNECT.
func (p *connectPeer) connect(protocol, url string, fields ...string) *streamTunnel {
	p.t.Helper()
	scheme, rest, _ := strings.Cut(url, "://")
	authority, path, _ := strings.Cut(rest, "/")
	return p.open(false, append([]string{":method", "CONNECT", ":protocol", protocol, ":scheme", scheme, ":authority", authority, ":path", "/" + path,
		"sec-websocket-version", "13"}, fields...)...)
}

// get sends a GET, and returns its status and body.
func (p *connectPeer) get(path string) string {
	p.t.Helper()
	s := p.open(true, ":method", "GET", ":scheme", "http", ":authority", "h", ":path", path)
	b, err := io.ReadAll(s)
	return fmt.Sprint(s.status(), " ", string(b), " ", err)
}

func (s *streamTunnel) status() string { return s.Header.Get(":status") }

// Read implements io.Reader.
func (s *streamTunnel) Read(b []byte) (n int, err error) {
	s.p.mu.Lock()
	for len(s.got) == 0 && s.err == nil {
		s.p.changed.Wait()
	}
	n = copy(b, s.got)
	s.got = s.got[n:]
	if err = s.err; n > 0 {
		err = nil
	}
	over := s.err != nil
	s.p.mu.Unlock()
	if n > 0 && !over {
		s.p.sends(func() { s.p.WriteWindowUpdate(s.id, uint32(n)) })
	}
	return n, err
}

// Write implements io.Writer.
func (s *streamTunnel) Write(b []byte) (n int, err error) {
	for n < len(b) {
		s.p.mu.Lock()
		for (s.window <= 0 || s.p.window <= 0) && (s.err == nil || s.err == io.EOF) {
			s.p.changed.Wait()
		}
		if s.err != nil && s.err != io.EOF {
			defer s.p.mu.Unlock()
			return n, s.err
		}
		k := min(len(b)-n, s.window, s.p.window, 16<<10)
		s.window -= k
		s.p.window -= k
		s.p.mu.Unlock()
		s.p.sends(func() { err = s.p.WriteData(s.id, false, b[n:n+k]) })
		if err != nil {
			return n, err
		}
		n += k
	}
	return n, nil
}

// CloseWrite ends the stream's direction to the gateway.
func (s *streamTunnel) CloseWrite() { s.p.sends(func() { s.p.WriteData(s.id, true, nil) }) }

// Reset breaks the stream off.
func (s *streamTunnel) Reset() {
	s.p.sends(func() { s.p.WriteRSTStream(s.id, http2.ErrCodeCancel) })
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.end(http2.StreamError{StreamID: s.id, Code: http2.ErrCodeCancel})
	s.p.changed.Broadcast()
}
