package http2

import (
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
)

// parking serves one connection, whose Serve is called again for each value of again, and tells what it returned.
func parking(t *testing.T, o Options) (r *raw, c *Conn, again chan<- bool, returned <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := &server{addr: l.Addr().String()}
	r = s.raw(t)
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c = New(nc, o, hello)
	calls, results := make(chan bool, 1), make(chan error)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range calls {
			results <- c.Serve(nil)
		}
	}()
	t.Cleanup(func() {
		close(calls)
		nc.Close()
		<-done
	})
	calls <- true
	return r, c, calls, results
}

func wantRest(t *testing.T, returned <-chan error) {
	t.Helper()
	select {
	case err := <-returned:
		if err != ErrParked {
			t.Fatalf("Serve returned %v, want ErrParked", err)
		}
	case <-time.After(patience):
		t.Fatal("the connection does not rest")
	}
}

func (r *raw) response(stream uint32) {
	r.t.Helper()
	r.until("a response", func(f xhttp2.Frame) bool {
		d, ok := f.(*xhttp2.DataFrame)
		return ok && d.StreamID == stream && d.StreamEnded()
	})
}

// TestPark: a parked connection holds neither a goroutine nor what it had for streams, and goes on with the state that the client has: of header
// compression, streams and windows.
func TestPark(t *testing.T) {
	r, c, again, returned := parking(t, Options{ParkAfter: 50 * time.Millisecond})
	r.headers(1, true, get("/", "a-field", "that is in the table from now on")...)
	r.response(1)
	wantRest(t, returned)
	if c.streams != nil || c.out != nil || c.gathering != nil || c.workers.n != 0 || c.in.in != nil || c.block.section.Cap() != 0 {
		t.Error("a parked connection holds memory")
	}
	if c.Woken() {
		t.Error("a parked connection is woken by nobody")
	}
	for id := uint32(3); id < 9; id += 2 {
		r.headers(id, true, get("/", "a-field", "that is in the table from now on")...)
		again <- true
		r.response(id)
		wantRest(t, returned)
	}
	r.WriteWindowUpdate(0, 1<<20)
	r.WritePing(false, [8]byte{1})
	again <- true
	r.until("the answer to a PING", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FramePing })
	wantRest(t, returned)
	if c.sendWindow <= 1<<20 {
		t.Errorf("a window of %d", c.sendWindow)
	}
	r.headers(1, true, get("/")...) // which has been used
	again <- true
	if code, _ := r.goAway(); code != xhttp2.ErrCodeStreamClosed {
		t.Errorf("GOAWAY with %v", code)
	}
	r.gone()
	var told *ConnError
	if err := <-returned; !errors.As(err, &told) {
		t.Errorf("Serve returned %v", err)
	}
}

// TestRestAfterLongField: what a long field has needed that came in parts is given back, and the buffer that it came in.
func TestRestAfterLongField(t *testing.T) {
	const n, length = 8, 30 << 10
	var all []*Conn
	for range n {
		r, c, _, returned := parking(t, Options{ParkAfter: 50 * time.Millisecond})
		block := r.block(get("/", "a", strings.Repeat("~", length))...) // which Huffman's code makes no shorter
		r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:length/2], EndStream: true})
		r.WriteContinuation(1, true, block[length/2:])
		r.response(1)
		wantRest(t, returned)
		all = append(all, c)
	}
	heap := func() int64 {
		var m runtime.MemStats
		for range 3 { // what is in pools lives for two
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	with := heap()
	for _, c := range all {
		c.decoder, c.block = nil, block{}
	}
	if held := (with - heap()) / n; held > length/4 {
		t.Errorf("a connection holds %d bytes of header blocks", held)
	}
	runtime.KeepAlive(all)
}

// TestNoPark: what is unfinished keeps a connection from being parked.
func TestNoPark(t *testing.T) {
	const rest = 20 * time.Millisecond
	for name, leave := range map[string]func(*raw){
		"no SETTINGS": func(*raw) {},
		"no acknowledgement": func(r *raw) {
			r.WriteSettings()
		},
		"part of a frame": func(r *raw) {
			r.WriteSettings()
			r.WriteSettingsAck()
			r.nc.Write([]byte{0, 0, 8, 6})
		},
		"part of a header block": func(r *raw) {
			r.WriteSettings()
			r.WriteSettingsAck()
			r.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(get("/")...), EndStream: true})
		},
		"part of a request": func(r *raw) {
			r.WriteSettings()
			r.WriteSettingsAck()
			r.headers(1, false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/")
		},
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan struct{}, 1)
			s := serve(t, Options{ParkAfter: rest, Timeouts: Timeouts{Head: 10 * rest, SettingsAck: 10 * rest, Idle: time.Minute}}, func(s *Stream) {
				begun <- struct{}{}
				io.Copy(io.Discard, s)
			})
			r := s.rawSilent(t)
			io.WriteString(r.nc, Preface)
			leave(r)
			if name == "part of a request" {
				<-begun
				time.Sleep(5 * rest)
				s.mu.Lock()
				c := s.conns[0]
				s.mu.Unlock()
				c.Close()
			}
			if err := s.ended(t); err == ErrParked {
				t.Error("it is parked")
			}
		})
	}
}

// TestParkEnds: a parked connection is told to end, and does when it goes on; its idle time ends it, too.
func TestParkEnds(t *testing.T) {
	for name, end := range map[string]func(*Conn){
		"Drain":     (*Conn).Drain,
		"EndIfIdle": func(c *Conn) { c.EndIfIdle(0) },
	} {
		t.Run(name, func(t *testing.T) {
			r, c, again, returned := parking(t, Options{ParkAfter: 20 * time.Millisecond, Timeouts: Timeouts{Drain: time.Millisecond}})
			r.headers(1, true, get("/")...)
			r.response(1)
			wantRest(t, returned)
			end(c)
			if !c.Woken() {
				t.Fatal("nobody knows that it has something to do")
			}
			again <- true
			go r.gone()
			if err := <-returned; err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("idle", func(t *testing.T) {
		const idle = 300 * time.Millisecond
		r, c, again, returned := parking(t, Options{ParkAfter: 20 * time.Millisecond, Timeouts: Timeouts{Idle: idle}})
		wantRest(t, returned)
		if left := c.IdleLeft(); left > idle-20*time.Millisecond {
			t.Errorf("%v of the idle time is left", left)
		}
		for left := c.IdleLeft(); left > 0; left = c.IdleLeft() {
			time.Sleep(left)
		}
		again <- true
		if code, _ := r.goAway(); code != xhttp2.ErrCodeNo {
			t.Errorf("GOAWAY with %v", code)
		}
		r.gone()
		if err := <-returned; err != nil {
			t.Error(err)
		}
	})
}

// TestStayAwake: a connection that nobody else can wait for is served on by Serve alone.
func TestStayAwake(t *testing.T) {
	const rest = 20 * time.Millisecond
	r, c, again, returned := parking(t, Options{ParkAfter: rest})
	wantRest(t, returned)
	c.NeverPark()
	again <- true
	for id := uint32(1); id < 7; id += 2 {
		r.headers(id, true, get("/")...)
		r.response(id)
		select {
		case err := <-returned:
			t.Fatalf("Serve returned %v", err)
		case <-time.After(5 * rest):
		}
	}
	r.nc.Close()
	if err := <-returned; err != nil {
		t.Error(err)
	}
}
