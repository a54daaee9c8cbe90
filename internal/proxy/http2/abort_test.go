package http2

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
)

func TestClientResets(t *testing.T) {
	errs := make(chan error, 3)
	s := serve(t, Options{}, func(s *Stream) {
		gone := gone(s)
		_, err := s.Read(make([]byte, 10))
		errs <- err
		<-gone
		errs <- s.WriteHead(200, nil, -1, true)
		errs <- s.Err()
	})
	r := s.raw(t)
	r.headers(1, false, get("/")...)
	r.WriteRSTStream(1, xhttp2.ErrCodeCancel)
	for range 3 {
		err, ok := (<-errs).(*ResetError)
		if !ok || !err.ByPeer || err.Code != Cancel {
			t.Errorf("got %v", err)
		}
	}
}

func TestClientGoes(t *testing.T) {
	errs := make(chan error, 2)
	s := serve(t, Options{}, func(s *Stream) {
		_, err := s.Read(make([]byte, 10))
		errs <- err
		<-gone(s)
		errs <- s.WriteHead(200, nil, -1, true)
	})
	r := s.raw(t)
	r.headers(1, false, get("/")...)
	s.waitFor(t, "the stream", func(c *Conn) bool { return len(c.streams) == 1 })
	r.nc.Close()
	for range 2 {
		if err := <-errs; err != ErrClosed {
			t.Errorf("got %v", err)
		}
	}
	if err := s.ended(t); err == nil {
		t.Error("Serve returned nil though a stream was open")
	}
}

// TestHandlerLeaves checks what becomes of streams that the handler has not ended.
func TestHandlerLeaves(t *testing.T) {
	for _, c := range []struct {
		name   string
		handle func(*Stream)
		end    bool // of the request
		code   xhttp2.ErrCode
	}{
		{"without a word", func(*Stream) {}, true, xhttp2.ErrCodeInternal},
		{"after the head", func(s *Stream) { s.WriteHead(200, nil, -1, false) }, true, xhttp2.ErrCodeInternal},
		{"in the body", func(s *Stream) { s.WriteHead(200, nil, -1, false); s.Write([]byte("a"), false) }, true, xhttp2.ErrCodeInternal},
		{"with a reset", func(s *Stream) { s.Reset(HTTP11Required) }, true, xhttp2.ErrCodeHTTP11Required},
		{"before the request has ended", hello, false, xhttp2.ErrCodeNo},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, Options{}, func(s *Stream) {
				if string(s.Head.Path) == "/a" {
					c.handle(s)
					return
				}
				hello(s)
			})
			r := s.raw(t)
			r.headers(1, c.end, get("/a")...)
			if code := r.reset(1); code != c.code {
				t.Errorf("reset with %v, want %v", code, c.code)
			}
			if !c.end { // late DATA and trailers are no error
				r.WriteData(1, false, []byte("late"))
				r.headers(1, true, "a", "b")
			}
			r.headers(3, true, get("/")...)
			r.until("the answer", func(f xhttp2.Frame) bool {
				d, ok := f.(*xhttp2.DataFrame)
				return ok && d.StreamID == 3 && d.StreamEnded()
			})
		})
	}
}

// TestOutOfOrder checks that a response cannot be written in an order that has no meaning.
func TestOutOfOrder(t *testing.T) {
	s := serve(t, Options{}, func(s *Stream) {
		if s.Write(nil, false) == nil || s.WriteTrailers(fields("a", "b")) == nil {
			t.Error("a body before the head")
		}
		if err := s.WriteInformational(103, fields("link", "x")); err != nil {
			t.Error(err)
		}
		s.WriteHead(200, nil, -1, false)
		if s.WriteHead(200, nil, -1, false) == nil || s.WriteInformational(103, nil) == nil {
			t.Error("a head after the head")
		}
		s.Write(nil, true)
		if s.Write(nil, true) == nil || s.WriteTrailers(nil) == nil {
			t.Error("a body after its end")
		}
	})
	r := s.raw(t)
	r.headers(1, true, get("/")...)
	r.until("the end", func(f xhttp2.Frame) bool { d, ok := f.(*xhttp2.DataFrame); return ok && d.StreamEnded() })
}

func TestClose(t *testing.T) {
	s := serve(t, Options{}, func(s *Stream) { <-gone(s) })
	r := s.raw(t)
	r.headers(1, true, get("/")...)
	c := s.waitFor(t, "the stream", func(c *Conn) bool { return len(c.streams) == 1 })
	c.Close()
	r.gone()
	s.ended(t)
}

// TestAbortsAtEveryMoment cuts and resets exchanges wherever they are, and looks for what is left.
func TestAbortsAtEveryMoment(t *testing.T) {
	s := serve(t, Options{}, func(s *Stream) {
		var both sync.WaitGroup
		both.Go(func() { io.Copy(io.Discard, s) })
		s.WriteHead(200, fields("a", "b"), -1, false)
		s.Write(make([]byte, 100_000), false)
		s.WriteTrailers(fields("a", "b"))
		both.Wait()
	})
	r := s.raw(t)
	s.waitFor(t, "the connection", func(c *Conn) bool { return c.answered })
	before := runtime.NumGoroutine()
	r.nc.Close()
	s.ended(t)
	random := rand.New(rand.NewPCG(1, 2))
	var all sync.WaitGroup
	for i := range 60 {
		r := s.raw(t)
		seed := random.Uint64()
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, 1))
			go io.Copy(io.Discard, r.nc)
			for id := uint32(1); id < 40; id += 2 {
				r.headers(id, false, get(fmt.Sprint("/", i))...)
				for range random.IntN(4) {
					r.WriteData(id, random.IntN(4) == 0, make([]byte, random.IntN(frame.MaxPayload)))
					r.WriteWindowUpdate(0, 1<<16)
				}
				if random.IntN(2) == 0 {
					r.WriteRSTStream(id, xhttp2.ErrCodeCancel)
				}
				if random.IntN(30) == 0 {
					break
				}
			}
			r.nc.Close()
		})
	}
	all.Wait()
	for range 60 {
		s.ended(t)
	}
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

func TestDrain(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, Options{}, func(s *Stream) { <-release; hello(s) })
	r := s.raw(t)
	r.headers(1, true, get("/")...)
	c := s.waitFor(t, "the stream", func(c *Conn) bool { return len(c.streams) == 1 })
	c.Drain()
	c.Drain()
	g := r.until("GOAWAY", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameGoAway }).(*xhttp2.GoAwayFrame)
	if g.LastStreamID != frame.MaxStreamID || g.ErrCode != xhttp2.ErrCodeNo {
		t.Errorf("first %v", g)
	}
	r.headers(3, true, get("/")...) // sent before the client knew
	p := r.until("PING", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FramePing }).(*xhttp2.PingFrame)
	r.WritePing(true, p.Data)
	g = r.until("GOAWAY", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameGoAway }).(*xhttp2.GoAwayFrame)
	if g.LastStreamID != 3 || g.ErrCode != xhttp2.ErrCodeNo {
		t.Errorf("second %v", g)
	}
	r.headers(5, true, get("/")...)
	close(release)
	for ended := 0; ended < 2; {
		d := r.until("the answers", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameData }).(*xhttp2.DataFrame)
		if d.StreamID == 5 {
			t.Error("a stream above the last was served")
		}
		if d.StreamEnded() {
			ended++
		}
	}
	r.gone()
	if err := s.ended(t); err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

// TestDrainIgnored sends requests whole, with DATA, trailers and whatever else may belong to a stream, after the second
// GOAWAY: a client may have sent them before it knew. They are dropped, and what is under way goes on to its end.
func TestDrainIgnored(t *testing.T) {
	const window = 64 << 10
	release := make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	handled := make(chan uint32, 100)
	s := serve(t, Options{ConnWindow: window}, func(s *Stream) {
		handled <- s.ID()
		<-release
		b, err := io.ReadAll(s)
		if err != nil {
			t.Error(err)
		}
		name, _ := s.Head.Fields.Get("x-indexed")
		s.WriteHead(200, fields("x-indexed", string(name)), int64(len(b)), false)
		s.Write(b, true)
	})
	r := s.raw(t)
	r.headers(1, false, get("/")...)
	c := s.waitFor(t, "the stream", func(c *Conn) bool { return len(c.streams) == 1 })
	c.Drain()
	p := r.until("PING", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FramePing }).(*xhttp2.PingFrame)
	r.WritePing(true, p.Data)
	s.waitFor(t, "the second step", func(c *Conn) bool { return c.draining == drainRefuse })
	body := make([]byte, 1<<10)
	last := uint32(3)
	for ; last <= 301; last += 2 { // more than package closed remembers, and more bytes than the connection's window
		switch last % 3 {
		case 0: // trailers, with a field that enters the table
			r.headers(last, false, with(":method", "POST", get("/", "x-indexed", "1")...)...)
			r.WriteData(last, false, body)
			r.headers(last, true, "x-sum", "1")
		case 1:
			r.headers(last, false, with(":method", "POST", get("/")...)...)
			r.WriteDataPadded(last, true, body, make([]byte, 10))
		case 2:
			r.headers(last, true, get("/")...)
			r.WriteRSTStream(last, xhttp2.ErrCodeCancel)
			r.WriteWindowUpdate(last, 1)
		}
		if last%51 == 0 { // until what was sent is credited again
			r.WritePing(false, [8]byte{byte(last)})
			r.until("the answer", func(f xhttp2.Frame) bool {
				return f.Header().Type == xhttp2.FramePing && f.Header().Flags.Has(xhttp2.FlagPingAck)
			})
		}
	}
	r.headers(3, true, "x-late", "1") // of one that came long before
	r.WriteData(1, false, []byte("hel"))
	r.headers(1, true, "x-sum", "1")
	let()
	var got []byte
	r.until("the answer", func(f xhttp2.Frame) bool {
		switch f := f.(type) {
		case *xhttp2.GoAwayFrame:
			if f.ErrCode != xhttp2.ErrCodeNo || f.LastStreamID != 1 {
				t.Fatalf("%v %s", f, f.DebugData())
			}
		case *xhttp2.RSTStreamFrame:
			t.Fatalf("%v", f)
		case *xhttp2.DataFrame:
			got = append(got, f.Data()...)
			return f.StreamEnded()
		}
		return false
	})
	if string(got) != "hel" {
		t.Errorf("got %q", got)
	}
	r.gone()
	if err := s.ended(t); err != nil {
		t.Errorf("Serve returned %v", err)
	}
	if n := len(handled); n != 1 {
		t.Errorf("%d requests were handled", n)
	}
}

// TestDrainEnds has the client make a mistake after streams were ignored: the last GOAWAY names no higher stream than the
// one before (RFC 9113 section 6.8), so that the client may send again what was ignored.
func TestDrainEnds(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	s := serve(t, Options{}, func(s *Stream) { <-release })
	r := s.raw(t)
	r.headers(1, true, get("/")...)
	c := s.waitFor(t, "the stream", func(c *Conn) bool { return len(c.streams) == 1 })
	c.Drain()
	p := r.until("PING", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FramePing }).(*xhttp2.PingFrame)
	r.WritePing(true, p.Data)
	r.headers(3, true, get("/")...)
	r.headers(5, true, get("/")...)
	r.WriteRawFrame(xhttp2.FrameWindowUpdate, 0, 0, make([]byte, 4)) // by 0, which is an error of the connection
	var last uint32
	for code := xhttp2.ErrCodeNo; code == xhttp2.ErrCodeNo; {
		g := r.until("GOAWAY", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameGoAway }).(*xhttp2.GoAwayFrame)
		code, last = g.ErrCode, g.LastStreamID
	}
	if last != 1 {
		t.Errorf("the last stream is %d", last)
	}
}

// TestDrainUnderLoad drains connections while a client makes requests: none fails.
func TestDrainUnderLoad(t *testing.T) {
	s := serve(t, Options{Timeouts: Timeouts{Linger: patience}}, hello)
	client := s.client(t)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := client.Get("http://a.test/")
				if err != nil {
					t.Error(err)
					return
				}
				if b, err := io.ReadAll(resp.Body); string(b) != "hello" || err != nil {
					t.Errorf("%q %v", b, err)
				}
				resp.Body.Close()
			}
		})
	}
	for range 20 {
		c := s.waitFor(t, "a connection", func(c *Conn) bool { return c.lastID > 20 && c.draining == drainNot && !c.ended })
		c.Drain()
		if err := s.ended(t); err != nil {
			t.Errorf("Serve returned %v", err)
		}
	}
	close(stop)
	all.Wait()
}

func TestTimeouts(t *testing.T) {
	const short = 20 * time.Millisecond
	for _, c := range []struct {
		name string
		t    Timeouts
		send func(*raw)
		code xhttp2.ErrCode
	}{
		{"idle", Timeouts{Idle: short}, func(*raw) {}, xhttp2.ErrCodeNo},
		{"header block", Timeouts{Head: short}, func(r *raw) {
			r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(get("/")...)})
		}, xhttp2.ErrCodeProtocol},
		{"half a frame", Timeouts{Head: short}, func(r *raw) { r.nc.Write([]byte{0, 0, 8, 6, 0}) }, xhttp2.ErrCodeProtocol},
		{"half a PING", Timeouts{Head: short}, func(r *raw) { r.nc.Write([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0, 1}) }, xhttp2.ErrCodeProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, Options{Timeouts: c.t}, hello)
			r := s.raw(t)
			c.send(r)
			if code, why := r.goAway(); code != c.code {
				t.Errorf("GOAWAY %v %s, want %v", code, why, c.code)
			}
			r.gone()
			err := s.ended(t)
			if told := new(ConnError); (c.code == xhttp2.ErrCodeNo) != (err == nil) || err != nil && !errors.As(err, &told) {
				t.Errorf("Serve returned %v", err)
			}
		})
	}
	t.Run("silence before the preface", func(t *testing.T) {
		s := serve(t, Options{Timeouts: Timeouts{Head: short}}, hello)
		s.rawSilent(t).gone()
	})
	t.Run("SETTINGS not acknowledged", func(t *testing.T) {
		s := serve(t, Options{Timeouts: Timeouts{SettingsAck: short}}, hello)
		r := s.rawSilent(t)
		io.WriteString(r.nc, Preface)
		r.WriteSettings()
		if code, _ := r.goAway(); code != xhttp2.ErrCodeSettingsTimeout {
			t.Errorf("GOAWAY %v", code)
		}
	})
	t.Run("PING not answered", func(t *testing.T) {
		s := serve(t, Options{Timeouts: Timeouts{Ping: short}}, func(s *Stream) { <-gone(s) })
		r := s.raw(t)
		r.headers(1, true, get("/")...)
		for range 3 {
			p := r.until("PING", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FramePing }).(*xhttp2.PingFrame)
			r.WritePing(true, p.Data)
		}
		r.gone()
		if err := s.ended(t); err == nil {
			t.Error("Serve returned nil")
		}
	})
	t.Run("draining, no answer to PING", func(t *testing.T) {
		s := serve(t, Options{Timeouts: Timeouts{Drain: short}}, hello)
		r := s.raw(t)
		s.waitFor(t, "the connection", func(c *Conn) bool { return c.greeted }).Drain()
		r.gone()
		if err := s.ended(t); err != nil {
			t.Errorf("Serve returned %v", err)
		}
	})
}

// TestClientThatNeverReads has the write timeout end what is blocked in the network.
func TestClientThatNeverReads(t *testing.T) {
	s := serve(t, Options{Timeouts: Timeouts{Write: 50 * time.Millisecond}}, func(s *Stream) {
		s.WriteHead(200, nil, -1, false)
		for s.Write(make([]byte, 64<<10), false) == nil {
		}
	})
	r := s.raw(t)
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: frame.MaxWindow})
	r.WriteWindowUpdate(0, frame.MaxWindow-frame.DefaultWindow)
	r.headers(1, true, get("/")...)
	if err := s.ended(t); err == nil {
		t.Error("Serve returned nil")
	}
}

// TestDrainAwaitsHead: a request whose head has begun to come when the second step of draining says that it is carried out, is.
func TestDrainAwaitsHead(t *testing.T) {
	s := serve(t, Options{}, hello)
	r := s.raw(t)
	block := r.block(get("/", "x-long", strings.Repeat("v", 1000))...)
	r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:100], EndStream: true})
	c := s.waitFor(t, "the beginning of the head", func(c *Conn) bool { return c.block.open })
	if c.EndIfIdle(0) {
		t.Error("the connection is ended for having no request")
	}
	c.Drain()
	s.waitFor(t, "the first step", func(c *Conn) bool { return c.draining == drainAnnounced })
	c.mu.Lock()
	c.refuseMore()
	c.wakeReader()
	c.mu.Unlock()
	var last uint32
	r.until("the second GOAWAY", func(f xhttp2.Frame) bool {
		g, ok := f.(*xhttp2.GoAwayFrame)
		if ok {
			last = g.LastStreamID
		}
		return ok && last != frame.MaxStreamID
	})
	if last != 1 {
		t.Fatalf("the last stream is %d", last)
	}
	r.WriteContinuation(1, true, block[100:])
	r.until("the response", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameHeaders && f.Header().StreamID == 1 })
	r.gone()
}

// TestWindowOfEndedStream: a change of the initial window is none of streams that nothing more is sent on (RFC 9113 section 6.9.2).
func TestWindowOfEndedStream(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, Options{}, func(s *Stream) {
		hello(s)
		<-release
	})
	defer close(release)
	r := s.raw(t)
	r.headers(1, false, with(":method", "POST", get("/")...)...)
	r.WriteWindowUpdate(1, 1<<30)
	r.until("the end of the response", func(f xhttp2.Frame) bool {
		return f.Header().StreamID == 1 && f.Header().Type == xhttp2.FrameData && f.Header().Flags.Has(xhttp2.FlagDataEndStream)
	})
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: frame.MaxWindow})
	r.WritePing(false, [8]byte{1})
	r.until("the answer", func(f xhttp2.Frame) bool {
		if g, ok := f.(*xhttp2.GoAwayFrame); ok {
			t.Fatalf("%v: %s", g.ErrCode, g.DebugData())
		}
		return f.Header().Type == xhttp2.FramePing && f.Header().Flags.Has(xhttp2.FlagPingAck)
	})
}
