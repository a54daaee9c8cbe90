package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// pair is a Conn and its peer.
func pair(t testing.TB) (*Conn, *net.TCPConn) {
	t.Helper()
	peer, accepted := testkit.TCPPair(t)
	accepted.SetWriteBuffer(64 << 10)
	c, err := FromTCP(accepted)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, peer
}

func (c *Conn) isWatched() bool { return c.watched.Load() != nil }

// waits is pair with a Conn that the poller watches.
func waits(t testing.TB) (*Conn, *net.TCPConn) {
	t.Helper()
	c, peer := pair(t)
	if _, err := c.watch(); err != nil {
		t.Fatal(err)
	}
	return c, peer
}

// each runs a test with a Conn that the poller watches, and with another one.
func each(t *testing.T, f func(t *testing.T, c *Conn, peer *net.TCPConn)) {
	t.Run("not watched", func(t *testing.T) {
		c, peer := pair(t)
		f(t, c, peer)
	})
	t.Run("watched", func(t *testing.T) {
		c, peer := waits(t)
		f(t, c, peer)
	})
}

func arrive(t *testing.T, c *Conn) {
	t.Helper()
	testkit.Eventually(t, "arrived", func() bool {
		var events []unix.PollFd
		c.Raw().Control(func(fd uintptr) {
			events = []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			unix.Poll(events, 0)
		})
		return events[0].Revents&unix.POLLIN != 0
	})
}

// TestWatchedWhenItWaits: the poller knows a descriptor from the first wait on, be it for bytes or for room.
func TestWatchedWhenItWaits(t *testing.T) {
	c, peer := pair(t)
	peer.Write([]byte("question"))
	arrive(t, c)
	b := make([]byte, 100)
	if n, err := c.Read(b); err != nil || string(b[:n]) != "question" {
		t.Fatalf("read %q, %v", b[:n], err)
	}
	if n, err := c.Write([]byte("answer")); err != nil || n != 6 {
		t.Fatal(n, err)
	}
	if c.isWatched() {
		t.Error("watched before it has to wait")
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		peer.Write([]byte("more"))
	}()
	if n, err := c.Read(b); err != nil || string(b[:n]) != "more" {
		t.Fatalf("read %q, %v", b[:n], err)
	}
	if !c.isWatched() {
		t.Error("not watched after it had to wait")
	}
	peer.CloseWrite()
	if n, err := c.Read(b); n != 0 || err != io.EOF {
		t.Errorf("%d bytes, %v at the end", n, err)
	}

	c, peer = pair(t)
	sent := bytes.Repeat([]byte("0123456789"), 1<<20)
	got := make(chan []byte)
	go func() {
		time.Sleep(20 * time.Millisecond)
		b, _ := io.ReadAll(peer)
		got <- b
	}()
	if n, err := c.Write(sent); n != len(sent) || err != nil {
		t.Fatal(n, err)
	}
	if !c.isWatched() {
		t.Error("not watched after it had to wait")
	}
	c.CloseWrite()
	if !bytes.Equal(<-got, sent) {
		t.Error("other bytes arrived")
	}
}

// TestWriteBoth: both pieces arrive in order, also in parts and where one is empty.
func TestWriteBoth(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, peer *net.TCPConn) {
		big := bytes.Repeat([]byte("abcdefg"), 1<<18)
		var want []byte
		got := make(chan []byte)
		go func() {
			time.Sleep(20 * time.Millisecond)
			b, _ := io.ReadAll(peer)
			got <- b
		}()
		for _, p := range [][2][]byte{{[]byte("head"), big}, {big, []byte("end")}, {big, big}, {nil, []byte("x")}, {[]byte("y"), nil}, {nil, nil}} {
			if err := c.WriteBoth(p[0], p[1]); err != nil {
				t.Fatal(err)
			}
			want = append(append(want, p[0]...), p[1]...)
		}
		c.Close()
		if !bytes.Equal(<-got, want) {
			t.Error("other bytes arrived")
		}
	})
}

// segments is how many segments have come in at a peer.
func segments(t *testing.T, peer *net.TCPConn) (n uint32) {
	t.Helper()
	raw, err := peer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); failed == nil {
			n = info.Segs_in
		}
	})
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSendLast: the end comes in the same segment as what is sent, and not before what the socket did not take.
func TestSendLast(t *testing.T) {
	send := func(c *Conn, b []byte) (n int) {
		t.Helper()
		c.Raw().Control(func(fd uintptr) {
			var errno error
			if n, errno = SendLast(fd, b); errno != unix.Errno(0) {
				t.Fatal(errno)
			}
		})
		return n
	}
	c, peer := pair(t)
	before := segments(t, peer)
	if n := send(c, []byte("answer")); n != 6 {
		t.Fatal(n)
	}
	if got, err := io.ReadAll(peer); err != nil || string(got) != "answer" {
		t.Errorf("got %q, %v", got, err)
	}
	if n := segments(t, peer) - before; n != 1 {
		t.Errorf("%d segments", n)
	}

	c, peer = pair(t)
	big := bytes.Repeat([]byte("0123456789"), 1<<20)
	n := send(c, big)
	if n == len(big) {
		t.Fatal("the socket takes all")
	}
	go func() {
		c.Write(big[n:])
		c.Close()
	}()
	if got, err := io.ReadAll(peer); err != nil || !bytes.Equal(got, big) {
		t.Errorf("got %d bytes of %d, %v", len(got), len(big), err)
	}
}

// TestDeadlines: they end waits and calls to come, until they are taken back, whether the poller watches the descriptor when they are set or not.
func TestDeadlines(t *testing.T) {
	past, soon := time.Unix(1, 0), func() time.Time { return time.Now().Add(30 * time.Millisecond) }
	for name, set := range map[string]func(c *Conn){
		"before":    func(c *Conn) { c.SetReadDeadline(past) },
		"both":      func(c *Conn) { c.SetDeadline(past) },
		"meanwhile": func(c *Conn) { time.AfterFunc(30*time.Millisecond, func() { c.SetReadDeadline(past) }) },
		"later":     func(c *Conn) { c.SetReadDeadline(soon()) },
		"by wall":   func(c *Conn) { c.SetReadDeadline(soon().Round(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, c *Conn, peer *net.TCPConn) {
				set(c)
				b := make([]byte, 8)
				for range 2 {
					if n, err := c.Read(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Fatal(n, err)
					}
				}
				if _, err := c.Write([]byte("x")); errors.Is(err, os.ErrDeadlineExceeded) != (name == "both") {
					t.Error(err)
				}
				c.SetDeadline(time.Time{})
				peer.Write([]byte("late"))
				if n, err := c.Read(b); n != 4 || err != nil {
					t.Error(n, err)
				}
			})
		})
	}
	each(t, func(t *testing.T, c *Conn, peer *net.TCPConn) {
		c.SetDeadline(time.Now().Add(1<<63 - 1)) // which must not come round to the past
		c.SetReadDeadline(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
		go func() {
			time.Sleep(10 * time.Millisecond)
			peer.Write([]byte("x"))
		}()
		if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Error(n, err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Error(err)
		}
	})
	each(t, func(t *testing.T, c *Conn, peer *net.TCPConn) {
		c.SetWriteDeadline(soon())
		if _, err := c.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestClose: it ends what waits and what is called later, once; the peer sees the end, or with ResetOnClose a reset.
func TestClose(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, peer *net.TCPConn) {
		failed := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 1))
			failed <- err
		}()
		time.Sleep(10 * time.Millisecond)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		for name, err := range map[string]error{
			"Close": c.Close(), "SetDeadline": c.SetDeadline(time.Now()), "CloseWrite": c.CloseWrite(), "WriteBoth": c.WriteBoth([]byte("a"), []byte("b")),
			"Control": c.Raw().Control(func(uintptr) { t.Error("called") }), "Read": c.Raw().Read(func(uintptr) bool { t.Error("called"); return true }),
		} {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n, err := peer.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Error(n, err)
		}
	})
	each(t, func(t *testing.T, c *Conn, peer *net.TCPConn) {
		c.ResetOnClose()
		c.Close()
		if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Error(err)
		}
	})
}

// TestCloseWithinStep: a descriptor that a step has is not closed before the step ends, also where that panics or another wait is nested in it, which Close ends.
func TestCloseWithinStep(t *testing.T) {
	open := func(fd uintptr) bool {
		_, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
		return err == nil
	}
	t.Run("at once", func(t *testing.T) {
		c, peer := pair(t)
		err := c.Raw().Read(func(fd uintptr) bool {
			c.Close()
			if !open(fd) {
				t.Error("closed within the step")
			}
			return false
		})
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if n, err := peer.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Error(n, err)
		}
	})
	t.Run("panic", func(t *testing.T) {
		c, peer := pair(t)
		func() {
			defer func() { recover() }()
			c.Raw().Read(func(uintptr) bool { panic("in a test") })
		}()
		c.Close()
		if n, err := peer.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Error(n, err)
		}
	})
	t.Run("nested wait", func(t *testing.T) {
		c, peer := pair(t)
		err := c.Raw().Read(func(fd uintptr) bool {
			time.AfterFunc(50*time.Millisecond, func() { c.Close() })
			if _, err := c.Write(make([]byte, 64<<20)); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			if !open(fd) {
				t.Error("closed within the step")
			}
			return false
		})
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		peer.SetReadDeadline(time.Now().Add(testkit.Patience))
		if _, err := io.Copy(io.Discard, peer); err != nil {
			t.Error(err)
		}
	})
}

// TestAddresses: both ends are known, also after Close that of the peer.
func TestAddresses(t *testing.T) {
	c, peer := pair(t)
	if want := peer.LocalAddr().(*net.TCPAddr).AddrPort(); c.Peer() != want || c.RemoteAddr().String() != want.String() {
		t.Errorf("the peer is %v, want %v", c.Peer(), want)
	}
	if want := peer.RemoteAddr().(*net.TCPAddr).AddrPort(); c.Local() != want || c.LocalAddr().String() != want.String() {
		t.Errorf("its own end is %v, want %v", c.Local(), want)
	}
	c.Close()
	if c.Local() != peer.RemoteAddr().(*net.TCPAddr).AddrPort() {
		t.Error("its own end is not known any more")
	}
	if c, _ = pair(t); c.Close() != nil || c.Local() != (netip.AddrPort{}) {
		t.Errorf("an end is known that was not asked for before Close: %v", c.Local())
	}
}

// TestRaces: Close, deadlines, reads, writes and looks at the descriptor meet at any moment, and no descriptor is left.
func TestRaces(t *testing.T) {
	files := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	peer, _ := testkit.TCPPair(t) // the poller has its own descriptors by then
	peer.SetReadDeadline(time.Now())
	peer.Read(make([]byte, 1))
	// Whoever closes a descriptor twice closes one of these.
	stop, others := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				others <- nil
				return
			default:
			}
			r, w, err := os.Pipe()
			if err = errors.Join(err, r.Close(), w.Close()); err != nil {
				others <- err
				return
			}
		}
	}()
	before := files()
	for range 300 {
		dialed, accepted := testkit.TCPPair(t)
		c, err := FromTCP(accepted)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for _, f := range []func(){
			func() { c.Read(make([]byte, 1)) },
			func() { c.Write(make([]byte, 1<<10)) },
			func() { c.Raw().Control(func(uintptr) {}) },
			func() { c.SetReadDeadline(time.Unix(1, 0)); c.SetDeadline(time.Time{}) },
			func() { dialed.Write([]byte("x")) },
			func() { c.Raw().Read(func(uintptr) bool { c.Write([]byte("y")); return false }) },
			func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			},
		} {
			all.Go(f)
		}
		all.Wait()
		dialed.Close()
	}
	close(stop)
	if err := <-others; err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "closed", func() bool { return files() <= before })
}

// TestNotWatchable: where the poller cannot watch the descriptor a wait fails, and Close closes it.
func TestNotWatchable(t *testing.T) {
	fd, err := unix.Open(t.TempDir(), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // which epoll does not take
	if err != nil {
		t.Fatal(err)
	}
	c := New(fd, netip.AddrPort{})
	for range 2 {
		if err := c.Raw().Read(func(uintptr) bool { return false }); err == nil || err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a wait ends with %v", err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
		t.Error(err)
	}
}

// TestControlAfterClose: nothing is called any more, also while a step still has the descriptor.
func TestControlAfterClose(t *testing.T) {
	c, _ := pair(t)
	c.Raw().Read(func(uintptr) bool {
		c.watch()
		c.Close()
		if err := c.Raw().Control(func(uintptr) { t.Error("called") }); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := c.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		return true
	})
}
