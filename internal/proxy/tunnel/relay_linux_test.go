package tunnel

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// quiet has a message pass each way, twice, so that both directions wait for the next.
func quiet(t testing.TB, client, backend net.Conn) {
	t.Helper()
	for range 2 {
		for _, c := range [][2]net.Conn{{client, backend}, {backend, client}} {
			io.WriteString(c[0], "message")
			if _, err := io.ReadFull(c[1], make([]byte, len("message"))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// cork holds what is written to c back, or lets it go.
func cork(t *testing.T, c *net.TCPConn, on int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, on) })
	if err != nil {
		t.Fatal(err)
	}
}

// TestEndWithMessage: an end of the stream is passed on that comes together with the last message, of which the runtime's poller tells once, and
// so is a reset right behind it.
func TestEndWithMessage(t *testing.T) {
	const rounds = 50 // the system tells of data and end at once, or, now and then, of one after the other
	for name, tc := range map[string]struct {
		end  func(*net.TCPConn)
		want error
	}{
		"end":   {func(c *net.TCPConn) { c.CloseWrite() }, nil},
		"reset": {func(c *net.TCPConn) { cork(t, c, 0); c.SetLinger(0); c.Close() }, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range rounds {
				client, backend, _, end := joined(t, true)
				quiet(t, client, backend)
				from, to := client, backend
				if i%2 == 1 {
					from, to = backend, client
				}
				cork(t, from, 1)
				io.WriteString(from, "last")
				tc.end(from)
				if tc.want == nil {
					if b, err := io.ReadAll(to); string(b) != "last" || err != nil {
						t.Fatalf("round %d: got %q, %v", i, b, err)
					}
					to.CloseWrite()
				}
				select {
				case e := <-end:
					if !errors.Is(e.Err, tc.want) {
						t.Fatalf("round %d: ended by %+v, want %v", i, e, tc.want)
					}
				case <-time.After(testkit.Patience):
					t.Fatalf("round %d: the tunnel has not ended", i)
				}
			}
		})
	}
}

// TestUrgentData: what follows urgent data is passed on at once, though a read ends before the urgent byte, which is not passed on.
func TestUrgentData(t *testing.T) {
	client, backend, _, end := joined(t, true)
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
	if _, err := io.ReadFull(backend, got); string(got) != "beforebehind" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	client.Close()
	backend.Close()
	<-end
}

// TestNoReadInVain: a read that has left nothing is not followed by another before the next wait. What comes behind it shows that.
func TestNoReadInVain(t *testing.T) {
	near, client := pair(t, true)
	far, _ := pair(t, true)
	passed := 0
	tunnel := &Tunnel{Client: near, Backend: far, HangUps: &HangUps{}, Moved: func(Side, bool) {
		if passed++; passed == 1 {
			io.WriteString(client, "next")
			awaitBytes(t, near.raw)
		}
	}}
	defer tunnel.HangUps.Close()
	d := &tunnel.toBackend
	d.init(near, far, Client, Backend)
	if !tunnel.startRelay(d) {
		t.Fatal("the system does not do what a relay needs")
	}
	d.relay.empty = true
	io.WriteString(client, "first")
	awaitBytes(t, near.raw)
	waits := false
	near.raw.Control(func(fd uintptr) { waits = !tunnel.relayStep(d, fd) })
	if !waits || passed != 1 {
		t.Errorf("%d messages passed, want one; the direction waits: %v", passed, waits)
	}
}

// awaitBytes waits until there is something to read.
func awaitBytes(t *testing.T, socket syscall.RawConn) {
	t.Helper()
	testkit.Eventually(t, "bytes to read", func() (yes bool) {
		socket.Control(func(fd uintptr) {
			n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
			yes = n > 0 && err == nil
		})
		return yes
	})
}

// TestInterruptBehindWake: the deadline by which a tunnel was interrupted is not cleared with the one that a hang-up has set.
func TestInterruptBehindWake(t *testing.T) {
	near, _ := pair(t, true)
	far, _ := pair(t, true)
	tunnel := &Tunnel{Client: near, Backend: far}
	d := &tunnel.toBackend
	d.init(near, far, Client, Backend)
	d.begin()
	d.hungUp()
	tunnel.Interrupt()
	if !tunnel.leave(d, true) {
		t.Fatal("not woken")
	}
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read ends by %v, want a deadline", err)
	}
}

// talker is one end of a conversation that goes on at random.
type talker struct {
	conn      *net.TCPConn
	dice      *rand.Rand
	sent, got []byte
	breaks    bool  // it ends by a reset
	err       error // of reading, or of a write that has taken it; nil is the end of the stream
}

// talk sends messages, answers to them, and parts so large that they are spliced, reads slowly at times, and ends.
func (a *talker) talk() {
	slow := rand.New(rand.NewPCG(a.dice.Uint64(), 1))
	var reading sync.WaitGroup
	reading.Go(func() {
		b := make([]byte, 64<<10)
		for {
			n, err := a.conn.Read(b[:1+slow.IntN(len(b))])
			a.got = append(a.got, b[:n]...)
			if err != nil {
				if err != io.EOF {
					a.err = err
				}
				return
			}
			for range slow.IntN(20) {
				runtime.Gosched()
			}
		}
	})
	var unsent error
	for range 1 + a.dice.IntN(30) {
		size := 1 + a.dice.IntN(200)
		if a.dice.IntN(10) == 0 {
			size = 1 + a.dice.IntN(400<<10)
		}
		part := random(size)
		n := 0
		n, unsent = a.conn.Write(part)
		a.sent = append(a.sent, part[:n]...)
		if unsent != nil {
			break
		}
		for range a.dice.IntN(100) {
			runtime.Gosched()
		}
	}
	if a.breaks {
		a.conn.SetLinger(0)
		a.conn.Close()
	} else {
		a.conn.CloseWrite()
	}
	reading.Wait()
	a.err = cmp.Or(a.err, unsent)
}

// TestConversations: at random, in messages and in bulk, with slow readers, half-closed and reset, and suspended in between, who sees the end of a stream has
// all of it, and who does not sees that it broke off.
func TestConversations(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i := range 200 {
		dice := rand.New(rand.NewPCG(seed, uint64(i)))
		client, backend, tunnel, end := joined(t, true)
		if dice.IntN(2) == 0 {
			for _, c := range []Duplex{tunnel.Client, tunnel.Backend} {
				c.(*socket).SetWriteBuffer(16 << 10) // which takes a part of what is written
			}
		}
		quiet(t, client, backend)
		var suspender sync.WaitGroup
		over := make(chan struct{})
		if dice.IntN(2) == 0 {
			suspender.Go(func() { suspendAgain(tunnel, over) })
		}
		ends := [2]*talker{}
		for i, c := range []*net.TCPConn{client, backend} {
			ends[i] = &talker{conn: c, dice: rand.New(rand.NewPCG(dice.Uint64(), 0)), breaks: dice.IntN(5) == 0}
		}
		var both sync.WaitGroup
		for _, a := range ends {
			both.Go(a.talk)
		}
		both.Wait()
		e := <-end
		close(over)
		suspender.Wait()
		breaks := ends[0].breaks || ends[1].breaks
		if e.Err != nil && !breaks {
			t.Errorf("conversation %d: ended by %+v", i, e)
		}
		for j, a := range ends {
			from := ends[1-j]
			switch {
			case errors.Is(a.err, os.ErrDeadlineExceeded):
				t.Errorf("conversation %d: end %d was never told", i, j)
			case !bytes.HasPrefix(from.sent, a.got):
				t.Errorf("conversation %d: end %d got %d bytes that are not what was sent", i, j, len(a.got))
			case a.err == nil && (from.breaks || len(a.got) < len(from.sent)):
				t.Errorf("conversation %d: end %d took %d bytes of %d for all, of a stream that was reset %v", i, j, len(a.got), len(from.sent), from.breaks)
			}
		}
	}
}

// suspendAgain suspends a tunnel again and again.
func suspendAgain(tunnel *Tunnel, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		default:
			tunnel.Suspend()
			runtime.Gosched()
		}
	}
}
