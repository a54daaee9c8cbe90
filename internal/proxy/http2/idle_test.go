package http2

import (
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
