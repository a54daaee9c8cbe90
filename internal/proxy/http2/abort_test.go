package http2

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
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
		c := s.waitFor(t, "a connection", func(c *Conn) bool { return c.lastID > 20 && c.draining == drainNot && !c.over })
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
