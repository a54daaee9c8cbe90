package http2

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// wait waits for the end of the connection, and is what Serve has said; the connection was made by manual.
func wait(t testing.TB, errs chan error) error {
	t.Helper()
	select {
	case err := <-errs:
		return err
	case <-time.After(patience):
		t.Fatal("the connection does not end")
		return nil
	}
}

// manual is rawBackend with a connection that the test looks after.
func manual(t testing.TB, o ClientOptions, settings ...xhttp2.Setting) (*Client, *raw, chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o.Raw, _ = ours.(*net.TCPConn).SyscallConn()
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	theirs.SetDeadline(time.Now().Add(4 * patience))
	c, errs := NewClient(ours, o), make(chan error, 1)
	go func() { errs <- c.Serve() }()
	t.Cleanup(func() { theirs.Close(); c.Close(); <-c.Done() })
	r := &raw{t: t, nc: theirs, Framer: xhttp2.NewFramer(theirs, theirs)}
	r.AllowIllegalWrites, r.AllowIllegalReads = true, true
	r.enc = hpack.NewEncoder(&r.buf)
	r.greet(settings...)
	return c, r, errs
}

func TestGoAway(t *testing.T) {
	var gone atomic.Int32
	told := make(chan struct{}, 10)
	c, r, errs := manual(t, ClientOptions{Gone: func() { gone.Add(1); told <- struct{}{} }})
	var s [4]*ClientStream
	for i := range s {
		s[i] = open(t, c, ask("GET", "/"))
		r.request()
	}
	r.WriteGoAway(frame.MaxStreamID, xhttp2.ErrCodeNo, []byte("soon"))
	<-told
	if n := c.Available(); n != 0 {
		t.Errorf("%d streams can be opened", n)
	}
	if _, err := c.Open(ask("GET", "/")); err != ErrEnds || !errors.Is(err, ErrUnavailable) || !Unprocessed(err) || !Unsent(err) {
		t.Error(err)
	}
	r.respond(1, "first")
	r.WriteGoAway(5, xhttp2.ErrCodeNo, nil)
	if got, err := answer(s[3]); !Unprocessed(err) || Unsent(err) || Malformed(err) {
		t.Error(got, err)
	}
	r.respond(3, "second")
	for i, want := range []string{`200 -1 "first"`, `200 -1 "second"`} {
		if got, err := answer(s[i]); err != nil || got != want {
			t.Error(got, err)
		}
	}
	for i := range 2 {
		s[i].Close()
	}
	s[3].Close()
	r.respond(5, "third")
	if got, err := answer(s[2]); err != nil || got != `200 -1 "third"` {
		t.Error(got, err)
	}
	select {
	case err := <-errs:
		t.Errorf("ended before the last stream was closed: %v", err)
	default:
	}
	s[2].Close()
	if err := wait(t, errs); err != nil {
		t.Error(err)
	}
	if n := gone.Load(); n != 1 {
		t.Errorf("told %d times", n)
	}
	if code, _ := r.goAway(); code != xhttp2.ErrCodeNo {
		t.Error(code)
	}
	r.gone()
}

// TestGoAwayOfIdle ends the connection at once.
func TestGoAwayOfIdle(t *testing.T) {
	_, r, errs := manual(t, ClientOptions{})
	r.WriteGoAway(0, xhttp2.ErrCodeNo, nil)
	if err := wait(t, errs); err != nil {
		t.Error(err)
	}
}

func TestDrainClient(t *testing.T) {
	c, r, errs := manual(t, ClientOptions{})
	s := open(t, c, ask("GET", "/"))
	id := r.request()
	c.Drain()
	c.Drain()
	if n := c.Available(); n != 0 {
		t.Errorf("%d streams can be opened", n)
	}
	r.respond(id, "done")
	if got, err := answer(s); err != nil || got != `200 -1 "done"` {
		t.Error(got, err)
	}
	s.Close()
	if err := wait(t, errs); err != nil {
		t.Error(err)
	}
	c.Drain()
	c.Close()
}

func TestCloseClient(t *testing.T) {
	c, r, errs := manual(t, ClientOptions{})
	s := open(t, c, ask("GET", "/"))
	r.request()
	c.Close()
	if got, err := answer(s); err != ErrClosed || Unprocessed(err) || Malformed(err) {
		t.Error(got, err)
	}
	if err := wait(t, errs); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	s.Close()
	r.gone()

	c, _, errs = manual(t, ClientOptions{})
	c.Close()
	if err := wait(t, errs); err != nil {
		t.Errorf("idle: %v", err)
	}
}

func TestBackendResets(t *testing.T) {
	c, r, _ := manual(t, ClientOptions{})
	for _, code := range []xhttp2.ErrCode{xhttp2.ErrCodeNo, xhttp2.ErrCodeProtocol, xhttp2.ErrCodeRefusedStream, xhttp2.ErrCodeCancel, xhttp2.ErrCodeEnhanceYourCalm, 99} {
		s := open(t, c, ask("GET", "/"))
		r.WriteRSTStream(r.request(), code)
		got, err := answer(s)
		var reset *ResetError
		if !errors.As(err, &reset) || !reset.ByPeer || reset.Code != Code(code) || Malformed(err) || Unprocessed(err) != (code == xhttp2.ErrCodeRefusedStream) || Unsent(err) {
			t.Errorf("%v: %s, %v", code, got, err)
		}
		s.Close()
	}
	// So often as no client may.
	for range 2 * resetBurst {
		s := open(t, c, ask("GET", "/"))
		r.WriteRSTStream(r.request(), xhttp2.ErrCodeRefusedStream)
		if got, err := answer(s); !Unprocessed(err) {
			t.Fatal(got, err)
		}
		s.Close()
	}
}

// TestEarlyAnswer: a backend that has answered completely may refuse the rest of the request; the response
// stands (RFC 9113 section 8.1). So it does when the connection ends.
func TestEarlyAnswer(t *testing.T) {
	for _, how := range []string{"reset", "end", "both"} {
		c, r, _ := manual(t, ClientOptions{})
		q := ask("POST", "/")
		q.Last, q.Body = false, []byte("abc")
		s := open(t, c, q)
		id := r.head()
		r.headers(id, false, ":status", "413")
		r.WriteData(id, true, []byte("too much"))
		if how != "end" {
			r.WriteRSTStream(id, xhttp2.ErrCodeNo)
		}
		if how != "reset" {
			r.nc.Close()
		}
		var err error
		for err == nil {
			err = s.Write(make([]byte, 1000), false)
		}
		var reset *ResetError
		if errors.As(err, &reset) != (how != "end") && how != "both" {
			t.Errorf("%s: write: %v", how, err)
		}
		if how == "end" {
			<-c.Done()
		}
		if got, err := answer(s); err != nil || got != `413 -1 "too much"` {
			t.Errorf("%s: %s, %v", how, got, err)
		}
		s.Close()
	}
}

// TestCloseBeforeEnd gives up streams in each state.
func TestCloseBeforeEnd(t *testing.T) {
	c, r, _ := manual(t, ClientOptions{})
	for i := range 4 {
		q := ask("POST", "/")
		q.Last = i != 1
		s := open(t, c, q)
		id := r.head()
		switch i {
		case 1:
			r.headers(id, true, ":status", "200")
			answer(s)
		case 2:
			r.headers(id, false, ":status", "200")
			r.WriteData(id, false, []byte("abc"))
			s.ReadHead(&message.Response{})
		case 3:
			r.headers(id, true, ":status", "200")
			answer(s)
		}
		s.Close()
		if i == 3 {
			break // nothing is left to be given up
		}
		if code := r.reset(id); code != xhttp2.ErrCodeCancel {
			t.Errorf("%d: %v", i, code)
		}
	}
	r.WritePing(false, [8]byte{1})
	f := r.until("PING", func(f xhttp2.Frame) bool { return true })
	if f.Header().Type != xhttp2.FramePing {
		t.Errorf("%v", f)
	}
}

func TestDeadlines(t *testing.T) {
	for name, call := range map[string]func(*ClientStream) error{
		"head":  func(s *ClientStream) error { return second(s.ReadHead(&message.Response{})) },
		"body":  func(s *ClientStream) error { s.ReadHead(&message.Response{}); return second(s.Read(make([]byte, 10))) },
		"write": func(s *ClientStream) error { return s.Write(make([]byte, 100<<10), false) },
	} {
		c, r, _ := manual(t, ClientOptions{})
		begin := func(deadline time.Time) *ClientStream {
			q := ask("POST", "/")
			q.Last, q.Deadline = false, deadline
			s := open(t, c, q)
			if id := r.head(); name == "body" {
				r.headers(id, false, ":status", "200")
			}
			return s
		}
		s := begin(time.Now().Add(20 * time.Millisecond))
		if err := call(s); err != os.ErrDeadlineExceeded {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
		for _, end := range []func(*ClientStream){
			func(s *ClientStream) { s.SetDeadline(time.Now().Add(time.Millisecond)) },
			func(s *ClientStream) { s.SetDeadline(longAgo) },
			func(s *ClientStream) { s.Reset(Cancel) },
			func(s *ClientStream) { c.Close() },
		} {
			s := begin(time.Time{})
			errs := make(chan error)
			go func() { errs <- call(s) }()
			end(s)
			select {
			case err := <-errs:
				if err == nil {
					t.Errorf("%s: no error", name)
				}
			case <-time.After(patience):
				t.Fatalf("%s: still waits", name)
			}
			s.Close()
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestPings: a backend that is silent is asked whether it lives, while streams are open.
func TestPings(t *testing.T) {
	o := ClientOptions{PingAfter: 30 * time.Millisecond, PingTimeout: patience}
	c, r, errs := manual(t, o)
	s := open(t, c, ask("GET", "/"))
	id := r.request()
	for i := range 3 { // it answers, and lives on
		for range quickPings {
			f := r.until("PING", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FramePing })
			r.WritePing(true, f.(*xhttp2.PingFrame).Data)
		}
		switch i {
		case 0:
			r.headers(id, false, ":status", "200")
		case 1:
			r.WriteData(id, false, []byte("here"))
		}
	}
	r.WritePing(false, [8]byte{7})
	r.until("the answer to our own", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FramePing && f.Header().Flags != 0 })
	c.c.mu.Lock() // which the reader gives away where it waits
	due, _ := c.c.due()
	c.c.mu.Unlock()
	if due < slowPing {
		t.Errorf("the next PING after %d in a row is due at %d ms", quickPings, due)
	}
	r.WriteData(id, true, nil)
	if got, err := answer(s); err != nil || got != `200 -1 "here"` {
		t.Error(got, err)
	}
	s.Close()
	c.Close()
	wait(t, errs)

	o.PingTimeout = 30 * time.Millisecond
	c, r, errs = manual(t, o)
	s = open(t, c, ask("GET", "/"))
	r.request()
	if got, err := answer(s); err != ErrClosed || Unprocessed(err) {
		t.Error(got, err)
	}
	if err := wait(t, errs); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	s.Close()
}

// TestIdleNeedsNoPing: without streams nothing is sent, and a stream after that has all its time.
func TestIdleNeedsNoPing(t *testing.T) {
	c, r, _ := manual(t, ClientOptions{PingAfter: 20 * time.Millisecond, PingTimeout: patience})
	time.Sleep(100 * time.Millisecond) // several times as long as a PING would take
	s := open(t, c, ask("GET", "/"))
	f := r.until("anything", func(xhttp2.Frame) bool { return true })
	if f.Header().Type != xhttp2.FrameHeaders {
		t.Errorf("%v", f)
	}
	r.respond(1, "x")
	if got, err := answer(s); err != nil {
		t.Error(got, err)
	}
	s.Close()
}

func TestStreamLimit(t *testing.T) {
	var freed atomic.Int32
	more := make(chan struct{}, 100)
	c, r, _ := manual(t, ClientOptions{MaxStreams: 5, Freed: func() { freed.Add(1); more <- struct{}{} }},
		xhttp2.Setting{ID: xhttp2.SettingMaxConcurrentStreams, Val: 2})
	<-more // of the first settings
	a, b := open(t, c, ask("GET", "/")), open(t, c, ask("GET", "/"))
	r.request()
	r.request()
	if _, err := c.Open(ask("GET", "/")); err != ErrUnavailable {
		t.Fatal(err)
	}
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingMaxConcurrentStreams, Val: 100})
	<-more
	if n, known := c.MaxStreams(); n != 5 || !known || c.Available() != 3 {
		t.Errorf("%d at most, known %v, %d more", n, known, c.Available())
	}
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingMaxConcurrentStreams, Val: 1}, xhttp2.Setting{ID: xhttp2.SettingMaxFrameSize, Val: 1 << 20})
	r.respond(1, "x")
	if got, err := answer(a); err != nil || c.Available() != 0 {
		t.Error(got, err, c.Available())
	}
	a.Close()
	<-more
	if n := c.Available(); n != 0 {
		t.Errorf("%d more, of one that is there", n)
	}
	r.WriteSettings() // says nothing of it
	r.respond(3, "y")
	if got, err := answer(b); err != nil {
		t.Error(got, err)
	}
	b.Close()
	<-more
	if n := c.Available(); n != 1 {
		t.Errorf("%d more", n)
	}
}

// TestStreamNumbersEnd: the last number is used, and then the connection is done with.
func TestStreamNumbersEnd(t *testing.T) {
	gone := make(chan struct{})
	c, r, errs := manual(t, ClientOptions{Gone: func() { close(gone) }})
	c.c.mu.Lock()
	c.c.lastID = frame.MaxStreamID - 2
	c.c.mu.Unlock()
	s := open(t, c, ask("GET", "/"))
	<-gone
	if _, err := c.Open(ask("GET", "/")); err != ErrEnds {
		t.Error(err)
	}
	id := r.request()
	if id != frame.MaxStreamID {
		t.Errorf("stream %d", id)
	}
	r.respond(id, "last")
	if got, err := answer(s); err != nil || got != `200 -1 "last"` {
		t.Error(got, err)
	}
	s.Close()
	if err := wait(t, errs); err != nil {
		t.Error(err)
	}
}

// broken is a connection that takes some bytes and then no more.
type broken struct {
	net.Conn
	mu   sync.Mutex
	left int
	read chan struct{} // closed by Close
	once sync.Once
}

func (b *broken) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(p), b.left)
	if b.left -= n; n < len(p) {
		return n, io.ErrClosedPipe
	}
	return n, nil
}

func (b *broken) Read([]byte) (int, error) { <-b.read; return 0, io.ErrClosedPipe }
func (b *broken) Close() error             { b.once.Do(func() { close(b.read) }); return nil }
func (b *broken) SetReadDeadline(at time.Time) error {
	if at == longAgo {
		b.Close()
	}
	return nil
}
func (b *broken) SetWriteDeadline(time.Time) error { return nil }

// TestUnsent: a request of which not even the head was taken by the network is known to be unprocessed, and one
// that was is not.
func TestUnsent(t *testing.T) {
	greeting := len(NewClient(&broken{}, ClientOptions{}).c.out)
	q := ask("GET", "/"+strings.Repeat("a", 1000))
	processed := 0
	for extra := range 1200 {
		nc := &broken{left: greeting + extra, read: make(chan struct{})}
		c := NewClient(nc, ClientOptions{})
		s := open(t, c, q)
		s2, err2 := c.Open(q)
		go c.Serve()
		_, err := answer(s)
		if err2 == nil { // else the first was already known to have failed
			_, err2 = answer(s2)
			s2.Close()
		}
		if err == nil || !Unprocessed(err2) || Unprocessed(err) != Unsent(err) || !Unsent(err2) {
			t.Fatal(err, err2)
		}
		if !Unprocessed(err) {
			processed++
		} else if processed > 0 {
			t.Fatalf("unprocessed with %d bytes", extra)
		}
		s.Close()
		<-c.Done()
	}
	if processed == 0 || processed > 200 {
		t.Errorf("%d of 1200 may be processed", processed)
	}
}

// TestUnsentIsNotRefused: a backend that goes away, or allows fewer streams, has not refused a request that still waits to be written.
func TestUnsentIsNotRefused(t *testing.T) {
	for name, happens := range map[string]func(*Client){
		"GOAWAY":        func(cl *Client) { cl.goAway(0) },
		"fewer streams": func(cl *Client) { cl.allow(1, false) },
	} {
		nc, peer := net.Pipe() // whose writes wait, as nobody reads
		c := NewClient(nc, ClientOptions{})
		first := open(t, c, ask("GET", "/"))
		for sent := false; !sent; runtime.Gosched() {
			c.c.mu.Lock()
			sent = !first.s.unsent
			c.c.mu.Unlock()
		}
		waits := open(t, c, ask("GET", "/"))
		c.c.mu.Lock()
		happens(c)
		c.c.unlock()
		if got, err := answer(waits); !Unsent(err) || !Unprocessed(err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		waits.Close()
		c.c.mu.Lock()
		err := first.s.err
		c.c.mu.Unlock()
		if Unsent(err) || Unprocessed(err) != (name == "GOAWAY") {
			t.Errorf("%s: the request that is being written: %v", name, err)
		}
		peer.Close()
		c.Serve()
		first.Close()
	}
}

// TestHeaderListSize: a request whose head is larger than the backend takes is not sent, since backends may end the connection for it, with the requests of others.
func TestHeaderListSize(t *testing.T) {
	c, r, _ := manual(t, ClientOptions{}, xhttp2.Setting{ID: xhttp2.SettingMaxHeaderListSize, Val: 400})
	with := func(n int) *ClientRequest {
		request := ask("GET", "/")
		request.Header.Add([]byte("x-long"), []byte(strings.Repeat("v", n)))
		return request
	}
	settled := func() {
		r.WritePing(false, [8]byte{1})
		r.until("the answer", func(f xhttp2.Frame) bool {
			return f.Header().Type == xhttp2.FramePing && f.Header().Flags.Has(xhttp2.FlagPingAck)
		})
	}
	settled()
	if _, err := c.Open(with(400)); err != ErrHeadTooLarge || Unprocessed(err) {
		t.Errorf("above the limit: %v", err)
	}
	s := open(t, c, with(100))
	r.request()
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingMaxConcurrentStreams, Val: 10}) // the limit stays
	settled()
	if _, err := c.Open(with(400)); err != ErrHeadTooLarge {
		t.Errorf("after other settings: %v", err)
	}
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingMaxHeaderListSize, Val: 4000})
	settled()
	large := open(t, c, with(400))
	r.request()
	for i, stream := range []*ClientStream{s, large} {
		r.respond(uint32(2*i+1), "ok")
		if got, err := answer(stream); err != nil || got != `200 -1 "ok"` {
			t.Error(got, err)
		}
		stream.Close()
	}
}

// TestFreedByFirstSettings: who waits for streams hears of the first settings, which may allow more than was known of the backend before.
func TestFreedByFirstSettings(t *testing.T) {
	freed := make(chan struct{}, 1)
	manual(t, ClientOptions{Freed: func() { freed <- struct{}{} }}, xhttp2.Setting{ID: xhttp2.SettingMaxConcurrentStreams, Val: 50})
	select {
	case <-freed:
	case <-time.After(patience):
		t.Error("nobody is told of the settings")
	}
}

// TestFullIsNotTheEnd: a connection whose streams are all in use, fewer than before maybe, goes on.
func TestFullIsNotTheEnd(t *testing.T) {
	c, r, _ := manual(t, ClientOptions{}, xhttp2.Setting{ID: xhttp2.SettingMaxConcurrentStreams, Val: 1})
	s := open(t, c, ask("GET", "/"))
	r.request()
	if _, err := c.Open(ask("GET", "/")); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrEnds) {
		t.Error(err)
	}
	s.Close()
	c.Drain()
	if _, err := c.Open(ask("GET", "/")); !errors.Is(err, ErrEnds) {
		t.Error(err)
	}
}

// TestDirectWritesEnd: who writes for others, and must not wait, has that end though they go on.
func TestDirectWritesEnd(t *testing.T) {
	nc, peer := net.Pipe()
	c := NewClient(nc, ClientOptions{})
	writes := 0
	c.c.direct = func(b []byte) (int, error) {
		c.c.mu.Lock()
		defer c.c.mu.Unlock()
		if writes++; writes < 1000 {
			c.c.out = frame.AppendPing(c.c.out, 0, 1)
		}
		return len(b), nil
	}
	s := open(t, c, ask("GET", "/"))
	c.c.mu.Lock()
	if writes > directWrites {
		t.Errorf("%d writes by who has opened a stream", writes)
	}
	c.c.mu.Unlock()
	peer.Close()
	s.Close()
	c.Close()
	c.c.asides.Wait()
}
