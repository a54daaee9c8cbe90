package http2

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"
	"unsafe"

	xhttp2 "golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// waitsForLong opens a stream whose response has begun, and waits for more of it until that has lasted for long.
func waitsForLong(t *testing.T) (*ClientStream, *raw, uint32) {
	t.Helper()
	c, r, _ := manual(t, ClientOptions{})
	req := ask("GET", "/")
	req.Deadline, req.Suspends = time.Time{}, true
	s := open(t, c, req)
	id := r.request()
	r.headers(id, false, ":status", "200")
	if _, err := s.ReadHead(&message.Response{}); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitAwhile(); err != ErrSuspend {
		t.Fatalf("a wait for long returns %v", err)
	}
	return s, r, id
}

// TestNotify: whatever a wait would end by is told in place of that, once.
func TestNotify(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*ClientStream, *raw, uint32)
		want error // of the wait after that
	}{
		"DATA":                  {do: func(_ *ClientStream, r *raw, id uint32) { r.WriteData(id, false, []byte("more")) }},
		"END_STREAM":            {do: func(_ *ClientStream, r *raw, id uint32) { r.WriteData(id, true, nil) }, want: io.EOF},
		"trailers":              {do: func(_ *ClientStream, r *raw, id uint32) { r.headers(id, true, "x-sum", "1") }, want: io.EOF},
		"RST_STREAM":            {do: func(_ *ClientStream, r *raw, id uint32) { r.WriteRSTStream(id, xhttp2.ErrCodeInternal) }, want: &ResetError{}},
		"end of the connection": {do: func(_ *ClientStream, r *raw, _ uint32) { r.nc.Close() }, want: ErrClosed},
		"interrupt":             {do: func(s *ClientStream, _ *raw, _ uint32) { s.SetDeadline(longAgo) }, want: os.ErrDeadlineExceeded},
		"reset":                 {do: func(s *ClientStream, _ *raw, _ uint32) { s.Reset(Cancel) }, want: &ResetError{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, r, id := waitsForLong(t)
			defer s.Close()
			woken := make(chan struct{}, 2)
			if !s.Notify(func() { woken <- struct{}{} }) {
				t.Fatal("Notify reports that something has come")
			}
			if n := s.s.header.Cap() + cap(s.s.head) + cap(s.s.tail); n > 0 {
				t.Errorf("%d bytes of heads are held", n)
			}
			tc.do(s, r, id)
			<-woken
			err := s.WaitAwhile()
			var reset *ResetError
			if _, wants := tc.want.(*ResetError); wants && errors.As(err, &reset) {
				err = tc.want
			}
			if err != tc.want {
				t.Errorf("the wait returns %v, want %v", err, tc.want)
			}
			if s.Notify(func() { woken <- struct{}{} }) {
				t.Error("Notify does not report what is there")
			}
			if len(woken) > 0 {
				t.Error("woken twice")
			}
		})
	}
}

// TestNotifyByDeadline: the deadline of a stream is kept where nobody waits, too.
func TestNotifyByDeadline(t *testing.T) {
	t.Parallel()
	s, _, _ := waitsForLong(t)
	defer s.Close()
	s.SetDeadline(time.Now().Add(20 * time.Millisecond))
	woken := make(chan struct{}, 1)
	if s.Notify(func() { woken <- struct{}{} }) {
		<-woken
	}
	if err := s.Wait(); err != os.ErrDeadlineExceeded {
		t.Errorf("the wait returns %v", err)
	}
	if s.Notify(func() { t.Error("woken though the deadline had passed") }) {
		t.Error("Notify does not report that the deadline has passed")
	}
}

// TestLateDeadline: the timer of a wait that is over wakes nobody, though the stream's memory is another's.
func TestLateDeadline(t *testing.T) {
	t.Parallel()
	s, r, id := waitsForLong(t)
	defer s.Close()
	s.SetDeadline(time.Now().Add(patience))
	woken := make(chan struct{}, 2)
	s.Notify(func() { woken <- struct{}{} })
	s.s.c.mu.Lock()
	p := s.suspension
	s.s.c.mu.Unlock()
	r.WriteData(id, false, []byte("more"))
	<-woken
	p.expire()
	if len(woken) > 0 {
		t.Error("woken by the timer of a wait that was over")
	}
}

// TestSuspendsWhereAllowed: whoever has not asked for it is never told to suspend, and the reader has nothing to look for.
func TestSuspendsWhereAllowed(t *testing.T) {
	t.Parallel()
	c, r, _ := manual(t, ClientOptions{})
	s := open(t, c, ask("GET", "/"))
	defer s.Close()
	r.headers(r.request(), false, ":status", "200")
	s.ReadHead(&message.Response{})
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	if c.c.suspendDue() != 0 {
		t.Error("the reader looks for streams to be suspended")
	}
}

// twoParts is a handler that is suspended between the parts of its response.
type twoParts struct {
	s     *Stream
	armed chan func()
	ready bool // Await is to report that
}

func (h *twoParts) Await(wake func()) bool {
	if h.ready {
		return false
	}
	h.armed <- wake
	return true
}

func (h *twoParts) Resume() { h.s.Write([]byte("second"), true) }

// TestSuspendedHandler: the response goes on when the handler does, and the connection waits for it.
func TestSuspendedHandler(t *testing.T) {
	for name, ready := range map[string]bool{"later": false, "at once": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			armed := make(chan func(), 1)
			srv := serve(t, Options{}, func(s *Stream) {
				s.WriteHead(200, fields(), -1, false)
				s.Write([]byte("first "), false)
				s.Suspend(&twoParts{s, armed, ready})
			})
			resp, err := srv.client(t).Get("http://" + srv.addr + "/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			first := make([]byte, len("first "))
			io.ReadFull(resp.Body, first)
			if !ready {
				wake := <-armed
				srv.mu.Lock()
				c := srv.conns[0]
				srv.mu.Unlock()
				c.mu.Lock()
				if n := len(c.streams); n != 1 {
					t.Errorf("%d streams while one is suspended", n)
				}
				for _, s := range c.streams {
					if n := s.header.Cap() + cap(s.head) + cap(s.tail) + len(s.Head.Path); n > 0 {
						t.Errorf("%d bytes of heads are held", n)
					}
				}
				c.mu.Unlock()
				wake()
			}
			if rest, err := io.ReadAll(resp.Body); string(first)+string(rest) != "first second" || err != nil {
				t.Errorf("%q %q, %v", first, rest, err)
			}
		})
	}
}

// TestSuspendedHandlerOfDeadConnection: Serve returns when suspended handlers have come to their ends, and not before.
func TestSuspendedHandlerOfDeadConnection(t *testing.T) {
	t.Parallel()
	armed := make(chan func(), 1)
	srv := serve(t, Options{}, func(s *Stream) { s.Suspend(&twoParts{s: s, armed: armed}) })
	r := srv.raw(t)
	r.headers(1, true, get("/")...)
	wake := <-armed
	r.nc.Close()
	srv.mu.Lock()
	c := srv.conns[0]
	srv.mu.Unlock()
	for over := false; !over; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		over = c.ended
		c.mu.Unlock()
	}
	select {
	case err := <-srv.errs:
		t.Fatalf("Serve has returned %v before the handler has", err)
	default:
	}
	wake()
	srv.ended(t)
}

// TestSizes bounds what idle streams hold: the allocator, which adds 8 bytes, has no sizes between 896 and 1024, nor between that and 1152.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(Stream{}); n > 896-8 {
		t.Errorf("a Stream has %d bytes", n)
	}
	if n := unsafe.Sizeof(ClientStream{}); n > 1024-8 {
		t.Errorf("a ClientStream has %d bytes", n)
	}
}
