package tunnel

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/splice"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// looped is a Pair of a Loop with both its peers, and the Handler of it.
type looped struct {
	t       *testing.T
	loop    *Loop
	now     atomic.Int64
	panics  atomic.Int64
	pair    Pair
	client  *net.TCPConn
	backend *net.TCPConn // nil before accept
	to      netip.AddrPort
	listens *net.TCPListener

	hello   func(b []byte)
	redial  func() // if set, what follows the first dial that fails
	failed  chan error
	dialled chan struct{}
	end     chan End
}

func (l *looped) Hello(b []byte) { l.hello(b) }

func (l *looped) Dialled(err error) {
	if redial := l.redial; err != nil && redial != nil {
		l.redial = nil
		redial()
		return
	}
	if err != nil {
		l.failed <- err
		l.pair.Fail(Backend, err)
		return
	}
	close(l.dialled)
}

func (l *looped) Ended(e End) { l.end <- e }

// inLoop makes a pair of which nothing but the client's socket is there.
func inLoop(t *testing.T) *looped {
	t.Helper()
	l := &looped{t: t, failed: make(chan error, 1), dialled: make(chan struct{}), end: make(chan End, 1)}
	l.now.Store(1_000_000)
	l.loop = NewLoop(LoopOptions{Now: l.now.Load, Idle: time.Hour, Untaken: time.Minute, Panicked: func(any) { l.panics.Add(1) }})
	t.Cleanup(func() {
		l.loop.EndAll(errors.New("the end of the test"))
		l.loop.Close()
	})
	l.listens = listenTCP(t)
	l.to = l.listens.Addr().(*net.TCPAddr).AddrPort()
	at := listenTCP(t)
	client, err := net.DialTCP("tcp", nil, at.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	l.client = client
	c, err := at.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	file, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	raw, err := file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		n, err := unix.Dup(int(fd))
		if err != nil {
			t.Error(err)
			return
		}
		l.loop.Locked(func() { err = l.loop.Add(&l.pair, l, n) })
		if err != nil {
			t.Error(err)
		}
	})
	file.Close()
	return l
}

func listenTCP(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// dial begins to dial.
func (l *looped) dial(to netip.AddrPort) {
	l.t.Helper()
	l.loop.Locked(func() {
		if err := l.pair.Dial(to, l.now.Load()+1000); err != nil {
			l.t.Error(err)
		}
	})
}

// join makes the pair a tunnel.
func (l *looped) join() (client, backend *net.TCPConn) {
	l.t.Helper()
	l.dial(l.to)
	var err error
	if l.backend, err = l.listens.AcceptTCP(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { l.backend.Close() })
	<-l.dialled
	for _, c := range []*net.TCPConn{l.client, l.backend} {
		c.SetDeadline(time.Now().Add(testkit.Patience))
	}
	return l.client, l.backend
}

func (l *looped) sweep(after time.Duration) {
	now := l.now.Add(after.Milliseconds())
	l.loop.Sweep(now, func(*Pair) error { return nil })
}

func (l *looped) ended() End {
	l.t.Helper()
	return ended(l.t, l.end)
}

// wantReset has the connection of each end be reset.
func (l *looped) wantReset(conns ...*net.TCPConn) {
	l.t.Helper()
	for _, c := range conns {
		c.SetDeadline(time.Now().Add(testkit.Patience))
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
			l.t.Errorf("ended by %v, want a reset", err)
		}
	}
}

// TestLoopMovesBytes: all bytes arrive in both directions, in small parts and in large ones, and an end that sends no more still receives.
func TestLoopMovesBytes(t *testing.T) {
	for _, size := range []int{1, 1000, 30 << 10, 200 << 10, 5 << 20} {
		l := inLoop(t)
		client, backend := l.join()
		up, down := random(size), random(2*size)
		send := func(c *net.TCPConn, b []byte) {
			if _, err := c.Write(b); err != nil {
				t.Error(err)
			}
			c.CloseWrite()
		}
		go send(client, up)
		if got, err := io.ReadAll(backend); err != nil || !bytes.Equal(got, up) {
			t.Fatalf("%d bytes of %d came to the backend, %v", len(got), len(up), err)
		}
		go send(backend, down)
		if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, down) {
			t.Fatalf("%d bytes of %d came to the client, %v", len(got), len(down), err)
		}
		if e := l.ended(); e != (End{ToBackend: int64(len(up)), ToClient: int64(len(down))}) {
			t.Errorf("ended as %+v", e)
		}
	}
}

// TestLoopUrgentData: what follows urgent data is not left, though a read ends before it.
func TestLoopUrgentData(t *testing.T) {
	l := inLoop(t)
	client, backend := l.join()
	quiet(t, client, backend)
	raw, err := client.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	cork(t, client, 1)
	raw.Control(func(fd uintptr) {
		for _, part := range []struct {
			data  string
			flags int
		}{{"before", unix.MSG_MORE}, {"!", unix.MSG_OOB | unix.MSG_MORE}, {"behind", 0}} {
			if err == nil {
				err = unix.Sendto(int(fd), []byte(part.data), part.flags, nil)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	cork(t, client, 0)
	got := make([]byte, len("beforebehind"))
	if _, err := io.ReadFull(backend, got); err != nil || string(got) != "beforebehind" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestLoopUrgentDataBehindMuch: what is behind urgent data arrives, also where so much was before it that the rest is moved without being copied.
func TestLoopUrgentDataBehindMuch(t *testing.T) {
	l := inLoop(t)
	raw, err := l.client.SyscallConn() // all is there before anything is read
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Repeat([]byte("x"), 2*splice.Worth)
	cork(t, l.client, 1)
	raw.Control(func(fd uintptr) {
		for _, part := range []struct {
			data  []byte
			flags int
		}{{before, unix.MSG_MORE}, {[]byte("!"), unix.MSG_OOB | unix.MSG_MORE}, {[]byte("behind"), 0}} {
			if err == nil {
				err = unix.Sendto(int(fd), part.data, part.flags, nil)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	cork(t, l.client, 0)
	_, backend := l.join()
	got := make([]byte, len(before)+len("behind"))
	if _, err := io.ReadFull(backend, got); err != nil || !bytes.HasSuffix(got, []byte("xbehind")) {
		t.Errorf("got %q, %v", got[len(before)-10:], err)
	}
}

// TestLoopReset: who breaks off has the other end be reset, also behind the end of its own stream, and whether or not something is on its way.
func TestLoopReset(t *testing.T) {
	for _, before := range []string{"nothing", "its end", "much"} {
		for _, side := range []Side{Client, Backend} {
			l := inLoop(t)
			from, to := l.join()
			quiet(t, from, to)
			if side == Backend {
				from, to = to, from
			}
			switch before {
			case "its end":
				from.CloseWrite()
				if _, err := to.Read(make([]byte, 1)); err != io.EOF {
					t.Fatal(err)
				}
			case "much":
				from.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
				from.Write(make([]byte, 32<<20)) // more than fits on the way
			}
			from.SetLinger(0)
			from.Close()
			if before != "its end" { // which is all that to reads
				l.wantReset(to)
			}
			if e := l.ended(); e.Failed != side || e.Err == nil {
				t.Errorf("behind %s: ended as %+v, want a failure of side %d", before, e, side)
			}
		}
	}
}

// TestLoopUntaken: what an end does not take is held, and no more is read for it; it goes on where the end takes it, and the tunnel ends where it does not.
func TestLoopUntaken(t *testing.T) {
	var lent atomic.Int64
	buffer.Count(&lent)
	defer buffer.Count(nil)
	for _, taken := range []bool{true, false} {
		l := inLoop(t)
		client, backend := l.join()
		const size = 32 << 20 // more than fits on the way
		sent := make(chan error, 1)
		go func() {
			_, err := client.Write(make([]byte, size))
			client.CloseWrite()
			sent <- err
		}()
		testkit.Eventually(t, "bytes are held", func() (stuck bool) {
			l.loop.Locked(func() {
				_, stuck = l.pair.Stuck()
				stuck = stuck && l.pair.Held() > 0
			})
			return stuck
		})
		l.sweep(time.Minute - time.Millisecond)
		if !taken {
			l.sweep(2 * time.Minute)
			if e := l.ended(); !errors.Is(e.Err, os.ErrDeadlineExceeded) || e.Failed != Neither {
				t.Errorf("ended as %+v", e)
			}
			l.wantReset(backend)
			<-sent
			continue
		}
		if n, err := io.Copy(io.Discard, backend); n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		backend.Close()
		if e := l.ended(); e.Err != nil {
			t.Errorf("ended as %+v", e)
		}
	}
	if n := lent.Load(); n != 0 {
		t.Errorf("%d buffers were not given back", n)
	}
}

// TestLoopIdle: a tunnel through which nothing moves ends when its time is over, and not before; a message begins that anew.
func TestLoopIdle(t *testing.T) {
	l := inLoop(t)
	client, backend := l.join()
	quiet(t, client, backend)
	l.sweep(time.Hour - time.Second)
	quiet(t, client, backend)
	l.sweep(time.Hour - time.Second)
	select {
	case e := <-l.end:
		t.Fatalf("ended before its time as %+v", e)
	default:
	}
	l.sweep(time.Second)
	if e := l.ended(); !errors.Is(e.Err, os.ErrDeadlineExceeded) {
		t.Errorf("ended as %+v", e)
	}
	l.wantReset(client, backend)
}

// TestLoopDialFails: a dial that is refused, or not answered in time, is told of; so is a client that leaves meanwhile, and one that only sends its last is not.
func TestLoopDialFails(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		l := inLoop(t)
		l.listens.Close()
		l.dial(l.to)
		if err := <-l.failed; !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("failed by %v", err)
		}
		l.wantReset(l.client)
	})
	t.Run("not answered", func(t *testing.T) {
		l := inLoop(t)
		l.dial(testkit.FullListener(t).Addr().(*net.TCPAddr).AddrPort())
		l.client.CloseWrite()
		l.sweep(999 * time.Millisecond)
		select {
		case err := <-l.failed:
			t.Fatalf("failed before its time by %v", err)
		case e := <-l.end:
			t.Fatalf("ended as %+v, since the client has sent its last", e)
		default:
		}
		l.sweep(time.Millisecond)
		if err := <-l.failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("failed by %v", err)
		}
	})
	t.Run("client leaves", func(t *testing.T) {
		l := inLoop(t)
		l.dial(testkit.FullListener(t).Addr().(*net.TCPAddr).AddrPort())
		l.client.SetLinger(0)
		l.client.Close()
		if e := l.ended(); e.Failed != Client || !errors.Is(e.Err, syscall.ECONNRESET) {
			t.Errorf("ended as %+v", e)
		}
	})
	t.Run("gone", func(t *testing.T) {
		l := inLoop(t)
		l.dial(testkit.FullListener(t).Addr().(*net.TCPAddr).AddrPort())
		gone := errors.New("gone")
		l.loop.Sweep(l.now.Load(), func(*Pair) error { return gone })
		if err := <-l.failed; err != gone {
			t.Errorf("failed by %v", err)
		}
	})
}

// TestLoopRedials: what the poller has told of the socket of a dial that was given up is not taken for an event of the next one.
func TestLoopRedials(t *testing.T) {
	for name, events := range map[string]uint32{"refused": unix.EPOLLERR | unix.EPOLLHUP, "connected": unix.EPOLLOUT} {
		t.Run(name, func(t *testing.T) {
			l := inLoop(t)
			full := testkit.FullListener(t).Addr().(*net.TCPAddr).AddrPort()
			l.redial = func() {
				if err := l.pair.Dial(full, l.now.Load()+1000); err != nil {
					t.Error(err)
				}
			}
			told := func() (e []unix.EpollEvent) {
				l.loop.Locked(func() { e = append(e, l.pair.eventOf(&l.pair.backend, events)) })
				return e
			}
			l.dial(full)
			stale := told() // which waits for the lock
			l.sweep(time.Second)
			l.loop.report(stale)
			select {
			case err := <-l.failed:
				t.Fatalf("the second dial failed by %v", err)
			case <-l.dialled:
				t.Fatal("joined to a socket that is not connected")
			default:
			}
			l.loop.report(told())
			select {
			case <-l.failed:
			case <-l.dialled:
			default:
				t.Error("an event of the second dial is not taken for one")
			}
		})
	}
}

// TestLoopHello: what the client says first is shown as it comes, and not taken: it goes to the backend first, or is there for who takes the socket over.
func TestLoopHello(t *testing.T) {
	await := func(l *looped, whole int, do func()) {
		l.hello = func(b []byte) {
			if len(b) >= whole {
				do()
			}
		}
		l.loop.Locked(func() { l.pair.AwaitHello(l.now.Load() + 1000) })
	}
	t.Run("joined", func(t *testing.T) {
		l := inLoop(t)
		await(l, 4, func() {
			if err := l.pair.Dial(l.to, l.now.Load()+1000); err != nil {
				t.Error(err)
			}
		})
		io.WriteString(l.client, "he")
		io.WriteString(l.client, "llo")
		backend, err := l.listens.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		defer backend.Close()
		l.client.CloseWrite()
		backend.SetDeadline(time.Now().Add(testkit.Patience))
		if b, err := io.ReadAll(backend); string(b) != "hello" || err != nil {
			t.Errorf("got %q, %v", b, err)
		}
	})
	t.Run("behind urgent data", func(t *testing.T) {
		l := inLoop(t)
		looked := make(chan string, 10)
		l.hello = func(b []byte) {
			if looked <- string(b); len(b) == 5 {
				l.pair.Fail(Neither, errors.New("the hello is there"))
			}
		}
		l.loop.Locked(func() { l.pair.AwaitHello(l.now.Load() + 1000) })
		raw, err := l.client.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), []byte("!"), unix.MSG_OOB, nil) })
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(l.client, "he")
		if b := <-looked; b != "he" {
			t.Fatalf("got %q", b)
		}
		io.WriteString(l.client, "llo")
		if e := l.ended(); e.Failed != Neither {
			t.Errorf("ended as %+v", e)
		}
	})
	t.Run("given up", func(t *testing.T) {
		l := inLoop(t)
		fd := make(chan int, 1)
		await(l, 5, func() { fd <- l.pair.GiveUp() })
		io.WriteString(l.client, "hello")
		n := <-fd
		defer unix.Close(n)
		b := make([]byte, 10)
		if n, err := unix.Read(n, b); string(b[:max(n, 0)]) != "hello" || err != nil {
			t.Errorf("got %q, %v", b[:max(n, 0)], err)
		}
	})
	for name, tc := range map[string]struct {
		do   func(l *looped)
		want error
	}{
		"too late": {func(l *looped) { l.sweep(time.Second) }, os.ErrDeadlineExceeded},
		"ends":     {func(l *looped) { l.client.CloseWrite() }, io.EOF},
		"half":     {func(l *looped) { io.WriteString(l.client, "he"); l.client.CloseWrite() }, io.ErrUnexpectedEOF},
		"reset":    {func(l *looped) { l.client.SetLinger(0); l.client.Close() }, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			l := inLoop(t)
			await(l, 5, func() { t.Error("a hello came") })
			tc.do(l)
			if e := l.ended(); e.Failed != Client || !errors.Is(e.Err, tc.want) {
				t.Errorf("ended as %+v, want %v", e, tc.want)
			}
		})
	}
}

// TestLoopPanic: a panic ends the pair that it happens in, and no other.
func TestLoopPanic(t *testing.T) {
	l := inLoop(t)
	l.hello = func([]byte) { panic("a panic of the test") }
	l.loop.Locked(func() { l.pair.AwaitHello(l.now.Load() + 1000) })
	io.WriteString(l.client, "hello")
	if e := l.ended(); !errors.Is(e.Err, errPanicked) {
		t.Errorf("ended as %+v", e)
	}
	l.wantReset(l.client)
	if n := l.panics.Load(); n != 1 {
		t.Errorf("%d panics were told of", n)
	}
}
