package tunnel

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// socket is a TCP connection as the end of a tunnel.
type socket struct {
	*net.TCPConn
	raw    syscall.RawConn // nil where nothing is to be spliced
	panics bool
	// ends is called for CloseWrite, unless it is nil.
	ends func() error
}

func (s *socket) CloseWrite() error {
	if s.ends != nil {
		return s.ends()
	}
	return s.TCPConn.CloseWrite()
}

func (s *socket) Raw() syscall.RawConn { return s.raw }
func (s *socket) Interrupt()           { s.SetDeadline(time.Unix(1, 0)) }

func (s *socket) ReadInto(b Buffer) (int, error) {
	if s.panics {
		panic("socket of the test")
	}
	return s.Read(b.Take())
}

func (s *socket) WasReset() bool { return s.raw != nil && listen.WasReset(s.raw) }

// pair returns both ends of a TCP connection: the gateway's and the peer's.
func pair(t *testing.T, spliced bool) (*socket, *net.TCPConn) {
	t.Helper()
	peer, c := testkit.TCPPair(t)
	s := &socket{TCPConn: c}
	if spliced {
		var err error
		if s.raw, err = s.SyscallConn(); err != nil {
			t.Fatal(err)
		}
	}
	peer.SetDeadline(time.Now().Add(30 * time.Second))
	return s, peer
}

// suspensions is how often a tunnel of joined was awaited.
var suspensions atomic.Int64

// joined returns the far ends of a tunnel, and how it ends.
func joined(t *testing.T, spliced bool) (client, backend *net.TCPConn, tunnel *Tunnel, end chan End) {
	t.Helper()
	near, client := pair(t, spliced)
	far, backend := pair(t, spliced)
	hangUps := &HangUps{}
	tunnel = &Tunnel{Client: near, Backend: far, Moved: func(Side, bool) {}, Panicked: func(any) {}, HangUps: hangUps, Suspends: true}
	end = make(chan End, 1)
	go func() {
		e := tunnel.Run()
		for e.Suspended {
			woken := make(chan struct{})
			if tunnel.Await(func() { close(woken) }) {
				suspensions.Add(1)
				<-woken
			}
			e = tunnel.Run()
		}
		if e.Err != nil { // as the owners of connections do
			near.SetLinger(0)
			far.SetLinger(0)
		}
		near.Close()
		far.Close()
		hangUps.Close()
		end <- e
	}()
	return client, backend, tunnel, end
}

// TestBytesPass has both ends send at the same time, in parts of all sizes, and each end its stream while the other goes on.
func TestBytesPass(t *testing.T) {
	for name, spliced := range map[string]bool{"copied": false, "spliced": true} {
		t.Run(name, func(t *testing.T) {
			var lent atomic.Int64
			buffer.Count(&lent)
			defer buffer.Count(nil)
			client, backend, _, end := joined(t, spliced)
			up, down := random(3<<20), random(5<<20)
			send := func(c *net.TCPConn, b []byte) {
				r := rand.New(rand.NewPCG(1, uint64(len(b))))
				for len(b) > 0 {
					n := min(1+r.IntN(300<<10), len(b))
					if _, err := c.Write(b[:n]); err != nil {
						t.Error(err)
						return
					}
					b = b[n:]
				}
				c.CloseWrite()
			}
			go send(client, up)
			go send(backend, down)
			got := make(chan []byte)
			go func() {
				b, err := io.ReadAll(backend)
				if err != nil {
					t.Error(err)
				}
				got <- b
			}()
			b, err := io.ReadAll(client)
			if err != nil || !bytes.Equal(b, down) {
				t.Errorf("the client got %d bytes, equal %v, %v; want %d", len(b), bytes.Equal(b, down), err, len(down))
			}
			if b := <-got; !bytes.Equal(b, up) {
				t.Errorf("the backend got %d bytes, equal %v; want %d", len(b), bytes.Equal(b, up), len(up))
			}
			if e := <-end; e != (End{ToBackend: int64(len(up)), ToClient: int64(len(down))}) {
				t.Errorf("ended by %+v", e)
			}
			if n := lent.Load(); n != 0 {
				t.Errorf("%d buffers were not given back", n)
			}
		})
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	r.Read(b)
	return b
}

// TestHalfClosed: an end that sends no more may receive for as long as the other sends.
func TestHalfClosed(t *testing.T) {
	client, backend, _, end := joined(t, true)
	io.WriteString(client, "question")
	client.CloseWrite()
	if b, err := io.ReadAll(backend); string(b) != "question" || err != nil {
		t.Fatalf("%q %v", b, err)
	}
	for _, part := range []string{"an ", "answer"} {
		io.WriteString(backend, part)
		got := make([]byte, len(part))
		if _, err := io.ReadFull(client, got); string(got) != part || err != nil {
			t.Fatalf("%q %v", got, err)
		}
	}
	select {
	case e := <-end:
		t.Fatalf("ended by %+v while the backend may send", e)
	default:
	}
	backend.CloseWrite()
	if e := <-end; e.Err != nil || e.ToBackend != 8 || e.ToClient != 9 {
		t.Errorf("ended by %+v", e)
	}
}

// TestReset: the end that fails is named, and the tunnel ends though the other end is silent.
func TestReset(t *testing.T) {
	for name, tc := range map[string]struct {
		reset func(client, backend *net.TCPConn) *net.TCPConn
		want  Side
	}{
		"client":  {func(c, _ *net.TCPConn) *net.TCPConn { return c }, Client},
		"backend": {func(_, b *net.TCPConn) *net.TCPConn { return b }, Backend},
	} {
		t.Run(name, func(t *testing.T) {
			client, backend, _, end := joined(t, true)
			io.WriteString(client, "hello")
			if _, err := io.ReadFull(backend, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			c := tc.reset(client, backend)
			c.SetLinger(0)
			c.Close()
			if e := <-end; e.Failed != tc.want || !errors.Is(e.Err, syscall.ECONNRESET) {
				t.Errorf("ended by %+v", e)
			}
		})
	}
}

// TestInterrupt ends an idle tunnel, whose buffers are all given back.
func TestInterrupt(t *testing.T) {
	_, _, tunnel, end := joined(t, false)
	tunnel.Interrupt()
	if e := <-end; !errors.Is(e.Err, os.ErrDeadlineExceeded) {
		t.Errorf("ended by %+v", e)
	}
}

// TestPanic: a panic of either goroutine ends the tunnel, and that of the caller's is the caller's.
func TestPanic(t *testing.T) {
	for _, client := range []bool{true, false} {
		near, _ := pair(t, false)
		far, _ := pair(t, false)
		near.panics, far.panics = client, !client
		told := 0
		tunnel := &Tunnel{Client: near, Backend: far, Moved: func(Side, bool) {}, Panicked: func(any) { told++ }}
		passed := func() (v any) {
			defer func() { v = recover() }()
			if e := tunnel.Run(); e.Err != errPanicked {
				t.Errorf("ended by %+v", e)
			}
			return nil
		}()
		if (passed == nil) != client || (told == 1) != client {
			t.Errorf("client %v: %v passed through, told %d times", client, passed, told)
		}
	}
}

// TestGoroutines: a tunnel is two goroutines, beside the one that all tunnels share, and none is left behind.
func TestGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	client, backend, _, end := joined(t, true)
	for _, c := range [][2]*net.TCPConn{{client, backend}, {backend, client}} {
		io.WriteString(c[0], "x")
		if _, err := io.ReadFull(c[1], make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := runtime.NumGoroutine() - before; n > 3 {
		t.Errorf("%d goroutines", n)
	}
	client.Close()
	backend.Close()
	<-end
}

// TestEndIsMoved: while an end does not take the end of the stream it shows as one that bytes are written to, so that this is bounded likewise.
func TestEndIsMoved(t *testing.T) {
	for name, failure := range map[string]error{"taken": nil, "not taken": os.ErrDeadlineExceeded} {
		t.Run(name, func(t *testing.T) {
			near, client := pair(t, false)
			far, backend := pair(t, false)
			var writing atomic.Bool
			shown := false
			far.ends = func() error {
				shown = writing.Load()
				return failure
			}
			tunnel := &Tunnel{Client: near, Backend: far, Panicked: func(any) {}, Moved: func(to Side, w bool) {
				if to == Backend {
					writing.Store(w)
				}
			}}
			client.CloseWrite()
			backend.CloseWrite()
			if e := tunnel.Run(); !errors.Is(e.Err, failure) || !shown || writing.Load() != (failure != nil) {
				t.Errorf("ended by %+v; shown as being written to %v, and after that %v", e, shown, writing.Load())
			}
		})
	}
}
