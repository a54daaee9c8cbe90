package http2

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	xhttp2 "golang.org/x/net/http2"
)

// dormancy serves one connection, which becomes dormant each time it is parked, and is woken when the client has sent something.
type dormancy struct {
	*raw
	served net.Conn
	record atomic.Pointer[Dormant] // nil while it is not dormant
	ended  chan error
}

func becomesDormant(t *testing.T, o Options, handle func(*Stream)) *dormancy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := &dormancy{raw: (&server{addr: l.Addr().String()}).raw(t), ended: make(chan error, 1)}
	if d.served, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.served.Close() })
	go func() { d.ended <- d.serve(New(d.served, o, handle), o, handle) }()
	return d
}

func (d *dormancy) serve(c *Conn, o Options, handle func(*Stream)) error {
	var prior [16]byte
	for n := 0; ; {
		if err := c.Serve(prior[:n]); err != ErrParked {
			return err
		}
		r := c.GoDormant()
		if r == nil {
			return errors.New("a parked connection cannot be dormant")
		}
		d.served.SetReadDeadline(time.Time{})
		d.record.Store(r)
		n, _ = d.served.Read(prior[:])
		d.record.Store(nil)
		c = r.Wake(d.served, o, handle)
	}
}

// rest waits until the connection is dormant and has processed all that was sent.
func (d *dormancy) rest() *Dormant {
	d.t.Helper()
	d.WritePing(false, [8]byte{})
	d.until("the answer to a PING", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FramePing })
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if r := d.record.Load(); r != nil {
			return r
		}
	}
	select {
	case err := <-d.ended:
		d.t.Fatalf("the connection has ended: %v", err)
	default:
		d.t.Fatal("the connection does not become dormant")
	}
	return nil
}

func TestDormantSize(t *testing.T) {
	if n := unsafe.Sizeof(Dormant{}); n > 208 {
		t.Errorf("a dormant connection takes %d bytes", n)
	}
}

// TestDormantTable: the dynamic table survives, whatever the client does to it.
func TestDormantTable(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	got := make(chan string, 1)
	d := becomesDormant(t, Options{ParkAfter: time.Millisecond}, func(s *Stream) {
		var b strings.Builder
		for i := range s.Head.Fields.Len() {
			f := s.Head.Fields.At(i)
			fmt.Fprintf(&b, "%s=%s ", f.Name, f.Value)
		}
		got <- b.String()
		hello(s)
	})
	d.rest()
	for stream := uint32(1); stream < 100; stream += 2 {
		if rnd.IntN(4) == 0 {
			d.enc.SetMaxDynamicTableSize(uint32(rnd.IntN(headerTable + 1)))
		}
		var fields []string
		var want strings.Builder
		for range rnd.IntN(10) {
			name, value := "user-agent", strings.Repeat("v", rnd.IntN(3)*rnd.IntN(300))
			if rnd.IntN(3) > 0 {
				name = fmt.Sprintf("x-%d", rnd.IntN(20))
			}
			fields = append(fields, name, value)
			fmt.Fprintf(&want, "%s=%s ", name, value)
		}
		d.headers(stream, true, get("/", fields...)...)
		d.response(stream)
		if got := <-got; got != want.String() {
			t.Fatalf("stream %d: got %q, want %q", stream, got, want.String())
		}
		d.rest()
	}
}

// TestDormantState: windows, the numbers of streams and budgets survive.
func TestDormantState(t *testing.T) {
	d := becomesDormant(t, Options{ParkAfter: time.Millisecond}, func(s *Stream) {
		io.Copy(io.Discard, s)
		hello(s)
	})
	d.rest()
	d.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 2})
	d.WriteWindowUpdate(0, 1000)
	d.headers(1, false, ":method", "POST", ":scheme", "http", ":authority", "a.test", ":path", "/")
	d.WriteData(1, true, make([]byte, 100))
	part := func(stream uint32, want string) {
		t.Helper()
		f := d.until("DATA", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameData })
		if data := string(f.(*xhttp2.DataFrame).Data()); f.Header().StreamID != stream || data != want {
			t.Fatalf("got %q on stream %d, want %q on %d", data, f.Header().StreamID, want, stream)
		}
	}
	part(1, "he")
	d.WriteWindowUpdate(1, 3)
	part(1, "llo")
	was := d.rest()
	if was.sendWindow != 65535+1000-5 || was.initialWindow != 2 || was.consumed != 100 || was.recvWindow != 1<<20-100 || was.lastID != 1 || !was.tableSizeSent {
		t.Errorf("dormant: %+v", was)
	}
	is := d.rest()
	was.readAt, was.controls = is.readAt, is.controls // which the PING has changed
	if !reflect.DeepEqual(is, was) {
		t.Errorf("dormant: %+v, again %+v", was, is)
	}
	d.headers(3, true, get("/")...)
	part(3, "he")
	d.WriteRSTStream(3, xhttp2.ErrCodeCancel)
	if is = d.rest(); is.resets.spent == 0 || len(is.closed.streams) != 1 || is.closed.reason(3) != closedByPeer {
		t.Errorf("after a reset: %+v", is)
	}
	d.headers(1, true, get("/")...) // which was used
	if code, _ := d.goAway(); code != xhttp2.ErrCodeProtocol {
		t.Errorf("GOAWAY with %v", code)
	}
	d.gone()
	<-d.ended
}

// TestDormantHalfFrame: what arrives in parts is answered when it is complete; within a frame the connection is not dormant.
func TestDormantHalfFrame(t *testing.T) {
	d := becomesDormant(t, Options{ParkAfter: time.Millisecond}, hello)
	d.rest()
	d.nc.Write([]byte{0, 0, 8, 6, 0})
	time.Sleep(20 * time.Millisecond)
	if d.record.Load() != nil {
		t.Error("it is dormant within a frame")
	}
	d.nc.Write([]byte("\x00\x00\x00\x0012345678"))
	f := d.until("the answer to a PING", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FramePing })
	if p := f.(*xhttp2.PingFrame); !p.IsAck() || string(p.Data[:]) != "12345678" {
		t.Errorf("got %v", p)
	}
	d.rest()
}

// TestDormantIdle: the idle time includes the time of dormancy.
func TestDormantIdle(t *testing.T) {
	const idle = 200 * time.Millisecond
	d := becomesDormant(t, Options{ParkAfter: time.Millisecond, Timeouts: Timeouts{Idle: idle}}, hello)
	began := time.Now()
	d.rest()
	time.Sleep(idle)
	d.served.SetReadDeadline(longAgo) // wakes it
	if code, _ := d.goAway(); code != xhttp2.ErrCodeNo {
		t.Errorf("GOAWAY with %v", code)
	}
	d.gone()
	if err := <-d.ended; err != nil || time.Since(began) < idle {
		t.Errorf("ended after %v with %v", time.Since(began), err)
	}
}

// TestNotDormant: a parked connection does not become dormant if it is to end, or is within a frame; once it is dormant nothing else ends it.
func TestNotDormant(t *testing.T) {
	o := Options{ParkAfter: 20 * time.Millisecond}
	for name, tell := range map[string]func(*Conn){
		"Drain":     (*Conn).Drain,
		"EndIfIdle": func(c *Conn) { c.EndIfIdle(0) },
	} {
		t.Run(name, func(t *testing.T) {
			_, c, _, returned := parking(t, o)
			wantRest(t, returned)
			if tell(c); c.GoDormant() != nil {
				t.Error("it is dormant")
			}
			_, c, _, returned = parking(t, o)
			wantRest(t, returned)
			if !c.CanBeDormant() || c.GoDormant() == nil {
				t.Error("it cannot be dormant")
			}
			if tell(c); c.Woken() {
				t.Error("a dormant connection is woken by what has released it")
			}
		})
	}
	t.Run("part of DATA", func(t *testing.T) {
		r, c, _, returned := parking(t, o)
		r.headers(1, false, ":method", "POST", ":scheme", "http", ":authority", "a.test", ":path", "/")
		if code := r.reset(1); code != xhttp2.ErrCodeNo {
			t.Errorf("reset with %v", code)
		}
		r.nc.Write([]byte{0, 0, 8, 0, 0, 0, 0, 0, 1, 'a'})
		wantRest(t, returned)
		if c.CanBeDormant() || c.GoDormant() != nil {
			t.Error("it can be dormant")
		}
	})
}
