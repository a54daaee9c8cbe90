package http2

import (
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
)

// TestEndIfIdle: a connection ends at once where it has had no stream for so long as is asked for, and else goes on.
func TestEndIfIdle(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	s := serve(t, Options{}, func(s *Stream) {
		close(begun)
		<-release
		hello(s)
	})
	r := s.raw(t)
	r.until("SETTINGS", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameSettings })
	s.mu.Lock()
	conn := s.conns[0]
	s.mu.Unlock()
	if conn.EndIfIdle(time.Hour) {
		t.Error("a connection that has just begun ends")
	}
	r.headers(1, true, get("/")...)
	<-begun
	if conn.EndIfIdle(0) {
		t.Error("a connection with a stream ends")
	}
	close(release)
	r.until("the end of the response", func(f xhttp2.Frame) bool {
		d, ok := f.(*xhttp2.DataFrame)
		return ok && d.StreamEnded()
	})
	for deadline := time.Now().Add(10 * time.Second); !conn.EndIfIdle(0); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a connection without a stream does not end")
		}
	}
	if code, _ := r.goAway(); code != xhttp2.ErrCodeNo {
		t.Errorf("GOAWAY with %v", code)
	}
	r.gone()
	if err := s.ended(t); err != nil {
		t.Error(err)
	}
	if conn.EndIfIdle(0) {
		t.Error("a connection that is over ends again")
	}
}

// TestScarce: while memory is scarce a body that is read gives nothing back to its stream's window, and later it gives all.
func TestScarce(t *testing.T) {
	const size = 40_000
	var scarce atomic.Bool
	scarce.Store(true)
	read := make(chan struct{})
	s := serve(t, Options{Scarce: &scarce}, func(s *Stream) {
		if _, err := io.ReadFull(s, make([]byte, size)); err != nil {
			t.Error(err)
		}
		close(read)
		s.Read(make([]byte, 1)) // until the connection ends
	})
	r := s.raw(t)
	r.headers(1, false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/")
	for sent := 0; sent < size; sent += 10_000 {
		r.WriteData(1, false, make([]byte, 10_000))
	}
	<-read
	r.WritePing(false, [8]byte{1})
	r.until("the answer to a PING", func(f xhttp2.Frame) bool {
		if w, ok := f.(*xhttp2.WindowUpdateFrame); ok && w.StreamID == 1 {
			t.Errorf("the stream's window grows by %d", w.Increment)
		}
		return f.Header().Type == xhttp2.FramePing && f.Header().Flags.Has(xhttp2.FlagPingAck)
	})
	s.mu.Lock()
	conn := s.conns[0]
	s.mu.Unlock()
	if n := conn.Held(); n != size {
		t.Errorf("%d bytes are held, want %d", n, size)
	}
	scarce.Store(false)
	conn.Resume()
	r.until("WINDOW_UPDATE", func(f xhttp2.Frame) bool {
		w, ok := f.(*xhttp2.WindowUpdateFrame)
		return ok && w.StreamID == 1 && w.Increment >= size
	})
}

// TestHeldUntilAnswered: what was read of a body counts until the response begins, because it may have to be sent again until then.
func TestHeldUntilAnswered(t *testing.T) {
	const size = 40_000
	read, answer, taken, passed := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	s := serve(t, Options{}, func(s *Stream) {
		io.ReadFull(s, make([]byte, size))
		close(read)
		<-answer
		s.WriteHead(200, nil, -1, false)
		s.Flush()
		s.Read(make([]byte, 200))
		s.SetReadDeadline(longAgo)
		s.Read(make([]byte, 200)) // a look
		close(taken)
		<-passed
	})
	r := s.raw(t)
	r.headers(1, false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/")
	for sent := 0; sent < size; sent += 10_000 {
		r.WriteData(1, false, make([]byte, 10_000))
	}
	<-read
	s.mu.Lock()
	conn := s.conns[0]
	s.mu.Unlock()
	if n := conn.Held(); n != size {
		t.Errorf("%d bytes are held, want %d", n, size)
	}
	close(answer)
	r.until("the response", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameHeaders })
	for deadline := time.Now().Add(10 * time.Second); conn.Held() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are held of a stream that was answered and waits for more", conn.Held())
		}
	}
	r.WriteData(1, false, make([]byte, 100))
	<-taken
	if n := conn.Held(); n != 100 {
		t.Errorf("%d bytes are held, want those that the reader has taken and not passed on", n)
	}
	close(passed)
}

// TestNothingHeldOfAWholeBody: what was read to its end counts until the response begins, however long that takes.
func TestNothingHeldOfAWholeBody(t *testing.T) {
	const size = 40_000
	answered := make(chan struct{})
	s := serve(t, Options{}, func(s *Stream) {
		if n, err := io.Copy(io.Discard, s); n != size || err != nil {
			t.Error(n, err)
		}
		s.WriteHead(200, nil, -1, false)
		s.Flush()
		close(answered)
		<-gone(s)
	})
	r := s.raw(t)
	r.headers(1, false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/")
	for sent := 0; sent < size; sent += 10_000 {
		r.WriteData(1, sent+10_000 == size, make([]byte, 10_000))
	}
	<-answered
	s.mu.Lock()
	conn := s.conns[0]
	s.mu.Unlock()
	if n := conn.Held(); n != 0 {
		t.Errorf("%d bytes are held of a stream that was answered", n)
	}
}

// TestPanicInOnGone: what panics at the end of one stream keeps the news from no other.
func TestPanicInOnGone(t *testing.T) {
	const streams = 8
	var waiting sync.WaitGroup
	waiting.Add(streams)
	told, panics := make(chan struct{}, streams), atomic.Int64{}
	s := serve(t, Options{Panicked: func(any) { panics.Add(1) }}, func(s *Stream) {
		gone := make(chan struct{})
		s.OnGone(func(error) {
			told <- struct{}{}
			close(gone)
			if s.ID()%4 == 1 {
				panic("gone")
			}
		})
		waiting.Done()
		<-gone
	})
	r := s.raw(t)
	for i := range streams {
		r.headers(uint32(2*i+1), true, get("/")...)
	}
	waiting.Wait()
	r.nc.Close()
	for range streams {
		select {
		case <-told:
		case <-time.After(10 * time.Second):
			t.Fatalf("%d streams are not told that they are gone", streams-len(told))
		}
	}
	s.ended(t)
	if panics.Load() != streams/2 {
		t.Errorf("%d panics were reported", panics.Load())
	}
}
