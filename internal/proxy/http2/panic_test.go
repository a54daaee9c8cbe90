package http2

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// fragile panics in Read or Write once it was told to.
type fragile struct {
	net.Conn
	reads, writes, ends atomic.Bool
}

func (f *fragile) SetWriteDeadline(t time.Time) error {
	if f.ends.Load() {
		panic("a defect in SetWriteDeadline")
	}
	return f.Conn.SetWriteDeadline(t)
}

func (f *fragile) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if f.reads.Load() {
		panic("a defect in Read")
	}
	return n, err
}

func (f *fragile) Write(b []byte) (int, error) {
	if f.writes.Load() {
		panic("a defect in Write")
	}
	return f.Conn.Write(b)
}

// pair is both ends of a connection.
func pair(t *testing.T) (ours *fragile, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close(); nc.Close() })
	theirs.SetDeadline(time.Now().Add(patience))
	return &fragile{Conn: nc}, theirs
}

// greet is a client that has begun a connection.
func greet(t *testing.T, peer net.Conn) *raw {
	r := &raw{t: t, nc: peer, Framer: xhttp2.NewFramer(peer, peer)}
	r.enc = hpack.NewEncoder(&r.buf)
	io.WriteString(peer, Preface)
	r.WriteSettings()
	r.WriteSettingsAck()
	return r
}

// TestPanicEndsConnection has the reader, a writer and a handler of a client's connection panic: the connection ends with all of its
// handlers, and says of it where it can.
func TestPanicEndsConnection(t *testing.T) {
	for _, place := range []string{"read", "write", "write aside", "handler"} {
		t.Run(place, func(t *testing.T) {
			nc, peer := pair(t)
			said := make(chan any, 100)
			waiting := make(chan struct{}, 10)
			c := New(nc, Options{Panicked: func(v any) { said <- v }}, func(s *Stream) {
				if string(s.Head.Path) == "/panic" {
					if place == "handler" {
						panic("a defect in the handler")
					}
					nc.writes.Store(true)
					hello(s)
					return
				}
				waiting <- struct{}{}
				io.ReadAll(s) // until the connection is gone
			})
			done := make(chan error, 1)
			go func() { done <- c.Serve(nil) }()
			r := greet(t, peer)
			r.headers(1, false, get("/")...)
			<-waiting
			switch place {
			case "read":
				nc.reads.Store(true)
				r.WritePing(false, [8]byte{})
				if code, _ := r.goAway(); code != xhttp2.ErrCodeInternal {
					t.Errorf("GOAWAY %v", code)
				}
			case "write aside":
				r.until("SETTINGS", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameSettings })
				nc.writes.Store(true)
				r.WritePing(false, [8]byte{})
			default:
				r.headers(3, true, get("/panic")...)
			}
			r.gone()
			select {
			case <-done:
			case <-time.After(patience):
				t.Fatal("Serve does not return")
			}
			if len(said) == 0 {
				t.Error("nobody was told")
			}
		})
	}
}

// TestPanicEndsClient is the same for a connection to a backend: its requests fail.
func TestPanicEndsClient(t *testing.T) {
	for _, place := range []string{"read", "write"} {
		t.Run(place, func(t *testing.T) {
			nc, peer := pair(t)
			said := make(chan any, 100)
			cl := NewClient(nc, ClientOptions{Panicked: func(v any) { said <- v }})
			go cl.Serve()
			r := &raw{t: t, nc: peer, Framer: xhttp2.NewFramer(peer, peer)}
			r.enc = hpack.NewEncoder(&r.buf)
			if _, err := io.ReadFull(peer, make([]byte, len(Preface))); err != nil {
				t.Fatal(err)
			}
			r.WriteSettings()
			r.WriteSettingsAck()
			s, err := cl.Open(ask("GET", "/"))
			if err != nil {
				t.Fatal(err)
			}
			r.until("the request", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameHeaders })
			if place == "read" {
				nc.reads.Store(true)
			} else {
				nc.writes.Store(true)
			}
			r.WritePing(false, [8]byte{})
			if _, err := s.ReadHead(&message.Response{}); err == nil {
				t.Error("the request has not failed")
			}
			s.Close()
			select {
			case <-cl.Done():
			case <-time.After(patience):
				t.Fatal("Serve does not return")
			}
			if len(said) == 0 {
				t.Error("nobody was told")
			}
		})
	}
}

// TestPanicAtTheEnd: a panic while the connection ends leaves no lock held, on which its streams would wait for ever.
func TestPanicAtTheEnd(t *testing.T) {
	nc, peer := pair(t)
	cl := NewClient(nc, ClientOptions{})
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		cl.Serve()
	}()
	r := &raw{t: t, nc: peer, Framer: xhttp2.NewFramer(peer, peer)}
	r.enc = hpack.NewEncoder(&r.buf)
	if _, err := io.ReadFull(peer, make([]byte, len(Preface))); err != nil {
		t.Fatal(err)
	}
	r.WriteSettings()
	s := open(t, cl, ask("GET", "/"))
	r.head()
	nc.ends.Store(true)
	peer.Close()
	if <-ended == nil {
		t.Fatal("nothing panicked")
	}
	closed := make(chan struct{})
	go func() {
		if _, err := s.ReadHead(&message.Response{}); err == nil {
			t.Error("the request has not failed")
		}
		s.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("a stream waits for a lock")
	}
}
