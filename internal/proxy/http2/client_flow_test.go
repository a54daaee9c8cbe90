//lint:file-ignore SA1019 x/net serves a single connection that is handed to it, which net/http does not.

package http2

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestSlowReaderStallsNoOther: streams whose responses nobody reads hold what their windows allow,
// and others on the connection go on.
func TestSlowReaderStallsNoOther(t *testing.T) {
	const window, size, slow = 64 << 10, 8 << 20, 20
	c := connect(t, backend(t, func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 32<<10)
		for range size / len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}, &xhttp2.Server{}), ClientOptions{StreamWindow: window}, false)
	var stalled []*ClientStream
	for range slow {
		s := open(t, c, ask("GET", "/"))
		if _, err := s.ReadHead(&message.Response{}); err != nil {
			t.Fatal(err)
		}
		stalled = append(stalled, s)
	}
	s := open(t, c, ask("GET", "/"))
	if got, err := answer(s); err != nil || got != fmt.Sprintf("200 content-type=application/octet-stream -1 %d bytes", size) {
		t.Error(got, err)
	}
	s.Close()
	c.c.mu.Lock()
	held := 0
	for _, s := range stalled {
		n := s.s.body.len()
		if held += n; n > window+1 {
			t.Errorf("a stream holds %d bytes", n)
		}
	}
	c.c.mu.Unlock()
	if held < slow*window/2 {
		t.Errorf("only %d bytes are held: the test shows nothing", held)
	}
	// One of them reads after all.
	if b, err := io.ReadAll(stalled[0]); err != nil || len(b) != size {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	for _, s := range stalled {
		s.Close()
	}
}

// TestWideWindowsAreBounded: a backend may send 256 KiB of a response that nobody reads, whatever the window is. Who reads gives it the whole window, within
// the bound for all connections, which is given back with the streams.
func TestWideWindowsAreBounded(t *testing.T) {
	const size, window = 8 << 20, 1 << 20
	shared := &Widening{Most: 2 * (window - backendWindow)}
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 32<<10)
		for range size / len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}, &xhttp2.Server{})
	var streams []*ClientStream
	held := func(s *ClientStream) int {
		s.s.c.mu.Lock()
		defer s.s.c.mu.Unlock()
		return s.s.body.len()
	}
	for range 4 { // each on a connection of its own
		s := open(t, connect(t, addr, ClientOptions{StreamWindow: window, Widening: shared}, false), ask("GET", "/"))
		if _, err := s.ReadHead(&message.Response{}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the first window is full", func() bool { return held(s) == backendWindow })
		streams = append(streams, s)
	}
	for i, s := range streams {
		if _, err := io.ReadFull(s, make([]byte, backendWindow/2)); err != nil {
			t.Fatal(err)
		}
		want := backendWindow
		if i < 2 {
			want = window
		}
		testkit.Eventually(t, fmt.Sprintf("stream %d holds %d bytes", i, want), func() bool { return held(s) == want })
	}
	for _, s := range streams {
		if b, err := io.ReadAll(s); err != nil || len(b) != size-backendWindow/2 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		s.Close()
	}
	if n := shared.used.Load(); n != 0 {
		t.Errorf("%d bytes are taken when all streams are closed", n)
	}
}

// TestWindowIsEnforced: a backend that sends more than a stream's window loses the stream, and a
// connection's worth of padding on streams that are gone goes on being credited.
func TestWindowIsEnforced(t *testing.T) {
	c, r, _ := manual(t, ClientOptions{StreamWindow: 64 << 10})
	s := open(t, c, ask("GET", "/"))
	id := r.request()
	r.headers(id, false, ":status", "200")
	for range 5 {
		r.WriteData(id, false, make([]byte, frame.MaxPayload))
	}
	if code := r.reset(id); code != xhttp2.ErrCodeFlowControl {
		t.Error(code)
	}
	for {
		if _, err := s.Read(make([]byte, 1000)); err != nil {
			if !Malformed(err) {
				t.Error(err)
			}
			break
		}
	}
	credited := 0
	go func() {
		for range 2 * clientWindow / frame.MaxPayload {
			if r.WriteData(id, false, make([]byte, frame.MaxPayload)) != nil {
				return
			}
		}
	}()
	for credited < clientWindow {
		f := r.until("credit", func(f xhttp2.Frame) bool {
			return f.Header().Type == xhttp2.FrameWindowUpdate && f.Header().StreamID == 0
		})
		credited += int(f.(*xhttp2.WindowUpdateFrame).Increment)
	}
	s.Close()
}

// TestUploadWindow: what is sent keeps to the backend's windows, to the byte.
func TestUploadWindow(t *testing.T) {
	c, r, _ := manual(t, ClientOptions{}, xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 10})
	var got []byte
	read := func(n int) {
		t.Helper()
		for len(got) < n {
			f := r.until("DATA", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameData })
			got = append(got, f.(*xhttp2.DataFrame).Data()...)
		}
		if len(got) != n {
			t.Fatalf("%d bytes, want %d", len(got), n)
		}
	}
	body := make([]byte, 100)
	for i := range body {
		body[i] = byte(i)
	}
	q := post(string(body))
	q.Last, q.Length = false, -1
	s := open(t, c, q)
	id := r.head()
	read(10)
	r.WriteWindowUpdate(id, 5)
	read(15)
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 20})
	read(25)
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0}) // 20 below 0
	r.WriteWindowUpdate(id, 21)
	read(26)
	wrote := make(chan error)
	go func() { wrote <- s.Write([]byte("tail"), true) }()
	r.WriteWindowUpdate(id, 1000)
	read(104)
	if err := <-wrote; err != nil || string(got) != string(body)+"tail" {
		t.Errorf("%q, %v", got, err)
	}
	s.Close()
}

// TestBlockedSocket: where the backend takes nothing from the network, no call of a stream waits longer than the stream
// is to; and when it goes on, nothing is missing.
func TestBlockedSocket(t *testing.T) {
	c, r, _ := manual(t, ClientOptions{})
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: frame.MaxWindow})
	r.WriteWindowUpdate(0, frame.MaxWindow-frame.DefaultWindow)
	r.WritePing(false, [8]byte{})
	r.until("PING", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FramePing })
	q := ask("POST", "/")
	q.Last = false
	s := open(t, c, q)
	piece := bytes.Repeat([]byte("0123456789"), 10_000)
	sent := 0
	for {
		s.SetDeadline(time.Now().Add(100 * time.Millisecond))
		if err := s.Write(piece, false); err != nil {
			if err != os.ErrDeadlineExceeded {
				t.Fatal(err)
			}
			break
		}
		if sent += len(piece); sent > 100<<20 {
			t.Fatal("the socket is not full")
		}
	}
	var others []*ClientStream
	for range 20 {
		q := post(string(piece))
		q.Deadline = time.Now().Add(time.Millisecond)
		other := open(t, c, q)
		if got, err := answer(other); err != os.ErrDeadlineExceeded {
			t.Fatal(got, err)
		}
		others = append(others, other)
	}
	for _, o := range others[10:] {
		o.Close() // nothing of them was sent
	}
	s.Close()
	last := open(t, c, ask("GET", "/last"))
	defer last.Close()
	got, heads := 0, 0
	for {
		f, err := r.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *xhttp2.DataFrame:
			if f.StreamID == 1 {
				for _, b := range f.Data() {
					if b != '0'+byte(got%10) {
						t.Fatalf("byte %d is %q", got, b)
					}
					got++
				}
			}
			continue
		case *xhttp2.HeadersFrame:
			heads++
			if f.StreamEnded() {
				if got < sent || heads < 2 {
					t.Errorf("%d bytes of %d at least, %d heads", got, sent, heads)
				}
				r.respond(f.StreamID, "on")
				if got, err := answer(last); err != nil || got != `200 -1 "on"` {
					t.Error(got, err)
				}
				for _, o := range others[:10] {
					o.Close()
				}
				return
			}
		}
	}
}

// TestBackendFloods sends frames until the connection is over, which must be soon.
func TestBackendFloods(t *testing.T) {
	head := func(r *raw, id uint32) { r.headers(id, false, ":status", "200") }
	for name, x := range map[string]struct {
		first func(*raw, uint32)
		each  func(*raw, uint32, int) error
	}{
		"SETTINGS": {nil, func(r *raw, _ uint32, i int) error {
			return r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: uint32(i)})
		}},
		"SETTINGS ack":    {nil, func(r *raw, _ uint32, _ int) error { return r.WriteSettingsAck() }},
		"PING":            {nil, func(r *raw, _ uint32, _ int) error { return r.WritePing(false, [8]byte{}) }},
		"PING ack":        {nil, func(r *raw, _ uint32, _ int) error { return r.WritePing(true, [8]byte{}) }},
		"empty DATA":      {head, func(r *raw, id uint32, _ int) error { return r.WriteData(id, false, nil) }},
		"padding":         {head, func(r *raw, id uint32, _ int) error { return r.WriteDataPadded(id, false, nil, make([]byte, 100)) }},
		"WINDOW_UPDATE":   {nil, func(r *raw, id uint32, _ int) error { return r.WriteWindowUpdate(id, 1) }},
		"PRIORITY":        {nil, func(r *raw, id uint32, _ int) error { return r.WritePriority(id, xhttp2.PriorityParam{}) }},
		"unknown frames":  {nil, func(r *raw, id uint32, _ int) error { return r.WriteRawFrame(99, 0, id, nil) }},
		"GOAWAY":          {nil, func(r *raw, id uint32, _ int) error { return r.WriteGoAway(id, 0, nil) }},
		"RST_STREAM":      {func(r *raw, id uint32) { r.headers(id, true, ":status", "200") }, func(r *raw, id uint32, _ int) error { return r.WriteRSTStream(id, 0) }},
		"interim heads":   {nil, func(r *raw, id uint32, _ int) error { return r.headers(id, false, ":status", "103") }},
		"heads behind":    {func(r *raw, id uint32) { r.WriteData(id, false, nil) }, func(r *raw, id uint32, _ int) error { return r.headers(id, false, ":status", "103") }},
		"CONTINUATION":    {func(r *raw, id uint32) { r.frame(frame.Headers, 0, id) }, func(r *raw, id uint32, _ int) error { return r.WriteContinuation(id, false, nil) }},
		"DATA of no more": {func(r *raw, id uint32) { r.headers(id, true, ":status", "200") }, func(r *raw, id uint32, _ int) error { return r.WriteData(id, false, nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			c, r := rawBackend(t, ClientOptions{})
			s := open(t, c, ask("GET", "/"))
			defer s.Close()
			id := r.request()
			var reading sync.WaitGroup
			reading.Go(func() { // interim heads are read as fast as they come
				answer(s)
			})
			if x.first != nil {
				x.first(r, id)
			}
			go io.Copy(io.Discard, r.nc)
			end := time.Now().Add(patience)
			for i := 0; ; i++ {
				if x.each(r, id, i) != nil {
					break
				}
				if i > 1_000_000 || time.Now().After(end) {
					t.Fatal("goes on for ever")
				}
			}
			select {
			case <-c.Done():
			case <-time.After(patience):
				t.Fatal("the connection does not end")
			}
			reading.Wait()
		})
	}
}

// TestCompressionBomb: small blocks that stand for large heads cost memory once, and their stream.
func TestCompressionBomb(t *testing.T) {
	c, r := rawBackend(t, ClientOptions{})
	r.enc.SetMaxDynamicTableSize(4096)
	value := strings.Repeat("x", 3000)
	for range 50 {
		s := open(t, c, ask("GET", "/"))
		id := r.request()
		pairs := []string{":status", "200"}
		for range 1000 { // an index of one byte each
			pairs = append(pairs, "bomb", value)
		}
		r.headers(id, true, pairs...)
		if got, err := answer(s); !Malformed(err) {
			t.Fatal(len(got), err)
		}
		s.Close()
	}
	var m *MalformedError
	s := open(t, c, ask("GET", "/"))
	defer s.Close()
	r.respond(r.request(), "fine")
	if got, err := answer(s); errors.As(err, &m) || got != `200 -1 "fine"` {
		t.Error(got, err)
	}
}

// TestPipe: over a connection that is no socket of ours, with reads and writes in small pieces.
func TestPipe(t *testing.T) {
	ours, theirs := net.Pipe()
	var served sync.WaitGroup
	served.Go(func() { (&xhttp2.Server{}).ServeConn(theirs, &xhttp2.ServeConnOpts{Handler: http.HandlerFunc(echo)}) })
	t.Cleanup(served.Wait)
	c := serveClient(t, ours, ClientOptions{})
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			for j := range 10 {
				s := open(t, c, post(strings.Repeat("x", 20+i*j*1000)))
				got, err := answer(s)
				if want := fmt.Sprintf(" %d bytes", 20+i*j*1000); err != nil || !strings.Contains(got, want) {
					t.Errorf("%s, %v", got, err)
				}
				s.Close()
			}
		})
	}
	wg.Wait()
}

// TestClientOverTLS: where bytes cannot go to the socket directly.
func TestClientOverTLS(t *testing.T) {
	ours, theirs := net.Pipe()
	config := &tls.Config{Certificates: []tls.Certificate{testkit.Certificate{}.TLS(t)}, NextProtos: []string{"h2"}}
	var served sync.WaitGroup
	served.Go(func() {
		nc := tls.Server(theirs, config)
		if nc.Handshake() == nil {
			(&xhttp2.Server{}).ServeConn(nc, &xhttp2.ServeConnOpts{Handler: http.HandlerFunc(echo)})
		}
	})
	t.Cleanup(served.Wait)
	nc := tls.Client(ours, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := nc.Handshake(); err != nil || nc.ConnectionState().NegotiatedProtocol != "h2" {
		t.Fatal(err)
	}
	c := serveClient(t, nc, ClientOptions{})
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			size := 20 + i*i*5000
			got, err := exchange(t, c, post(strings.Repeat("x", size)))
			if want := fmt.Sprintf(" %d bytes", size); err != nil || !strings.Contains(got, want) {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	wg.Wait()
}

// TestGivenUpBodyIsNotSent: a backend that has answered all and wants no more of the request gets no byte of it when windows
// grow later, since the memory may be another's by then.
func TestGivenUpBodyIsNotSent(t *testing.T) {
	for _, grow := range []string{"SETTINGS", "WINDOW_UPDATE"} {
		c, r, _ := manual(t, ClientOptions{}, xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
		body := []byte("secret of one client")
		request := post("")
		request.Body, request.Length = body, int64(len(body))
		s := open(t, c, request)
		id := r.head()
		if s.GiveUpBody() {
			t.Fatal("the body is given up while the backend may take it")
		}
		r.headers(id, false, ":status", "200")
		r.WriteData(id, true, []byte("answer"))
		r.WriteRSTStream(id, xhttp2.ErrCodeNo)
		if _, err := s.ReadHead(&message.Response{}); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); !s.GiveUpBody(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the body is not given up")
			}
		}
		copy(body, "secret of another one")
		if grow == "SETTINGS" {
			r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1000})
		} else {
			r.WriteWindowUpdate(id, 1000)
		}
		for i := range byte(3) { // answers go before DATA in one write, so one PING would not do
			r.WritePing(false, [8]byte{i})
			r.until("the answer to the PING", func(f xhttp2.Frame) bool {
				if d, ok := f.(*xhttp2.DataFrame); ok {
					t.Errorf("%s: %q is sent", grow, d.Data())
				}
				p, ok := f.(*xhttp2.PingFrame)
				return ok && p.IsAck()
			})
		}
		s.Close()
	}
}
