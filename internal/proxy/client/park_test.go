//go:build linux

package client

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// asker is a client of the Set under test.
type asker struct {
	*net.TCPConn
	t *testing.T
	w io.Writer // TCPConn, or TLS above it
	r *bufio.Reader
}

func askerOf(t *testing.T, addr string) *asker {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return &asker{c.(*net.TCPConn), t, c, bufio.NewReader(c)}
}

// ask makes a request, which is answered.
func (a *asker) ask() {
	a.t.Helper()
	if err := a.tryAsk(); err != nil {
		a.t.Fatal(err)
	}
}

func (a *asker) tryAsk() error {
	if err := a.send(); err != nil {
		return err
	}
	return a.receive()
}

// send writes a request.
func (a *asker) send() error {
	_, err := io.WriteString(a.w, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	return err
}

// receive reads a response.
func (a *asker) receive() error {
	resp, err := http.ReadResponse(a.r, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// ended fails the test unless the connection ends without another byte.
func (a *asker) ended() {
	a.t.Helper()
	if b, err := io.ReadAll(a.r); len(b) > 0 || err != nil {
		a.t.Fatalf("got %q and %v, want the end", b, err)
	}
}

// count is how many connections of the set are in the state.
func count(set *Set, state waitKind) (n int) {
	set.Each(func(c *Conn) {
		if kind, _, _ := c.wait.get(); kind == state {
			n++
		}
	})
	return n
}

// idle waits until n connections wait for a request, and lets the sweeper find them d later.
func idle(t *testing.T, set *Set, n int, d time.Duration) {
	t.Helper()
	testkit.Eventually(t, "idle", func() bool { return count(set, waitIdle) == n })
	now := set.engine.Now() + d.Milliseconds()
	set.engine.Clock.Store(now)
	set.Sweep(now)
}

func park(t *testing.T, set *Set, n int) {
	t.Helper()
	idle(t, set, n, parkAfter)
	testkit.Eventually(t, "parked", func() bool { return count(set, waitParked) == n })
}

// TestExpireMeetsRequest: a request that has come before a parked connection is ended is served.
func TestExpireMeetsRequest(t *testing.T) {
	set, addr := served(t)
	a := askerOf(t, addr)
	a.ask()
	park(t, set, 1)
	var parked *Conn
	set.Each(func(c *Conn) {
		if c.claim() { // before the request comes, so that its event finds nobody
			parked = c
		}
	})
	if parked == nil {
		t.Fatal("nothing is parked")
	}
	if err := a.send(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "readable", func() bool { return listen.Readable(parked.raw) })
	go parked.expireParked()
	if err := a.receive(); err != nil {
		t.Fatal(err)
	}
	park(t, set, 1)
	a.ask()
	// Without one it ends.
	park(t, set, 1)
	set.Each(func(c *Conn) {
		if c.claim() {
			go c.expireParked()
		}
	})
	a.ended()
}

// TestPark: a parked connection has no goroutine and no pooled memory, and serves on.
func TestPark(t *testing.T) {
	set, addr := served(t)
	first := askerOf(t, addr)
	first.ask()
	park(t, set, 1) // which makes the idle poller
	before := runtime.NumGoroutine()
	const n = 20
	all := []*asker{first}
	for i := range n {
		a := askerOf(t, addr)
		if i%2 == 0 { // the others have asked nothing yet
			a.ask()
		}
		all = append(all, a)
	}
	for range 3 {
		testkit.Eventually(t, "goroutines", func() bool { return runtime.NumGoroutine() >= before+n })
		idle(t, set, n, parkAfter)
		testkit.Eventually(t, "parked", func() bool { return count(set, waitParked) == n+1 })
		testkit.Eventually(t, "no goroutines", func() bool { return runtime.NumGoroutine() <= before })
		set.Each(func(c *Conn) {
			if c.in != nil || c.small != nil || c.big != nil || c.h1 != nil {
				t.Error("a parked connection holds memory")
			}
		})
		for _, a := range all[1:] {
			a.ask()
		}
	}
	for _, a := range all {
		a.Close()
	}
	<-set.Empty()
}

// TestParkKeepsIdleTime: parking neither lengthens nor shortens the time between requests.
func TestParkKeepsIdleTime(t *testing.T) {
	set, addr := served(t)
	a := askerOf(t, addr)
	for range 2 {
		a.ask()
		park(t, set, 1)
		later := set.engine.Now() + (set.timeouts.Idle - parkAfter).Milliseconds() - 1
		set.engine.Clock.Store(later)
		set.Sweep(later)
		if n := count(set, waitParked) + dormantCount(set); n != 1 {
			t.Fatalf("%d parked or dormant before the idle time is over", n)
		}
	}
	set.Sweep(set.engine.Now() + 1)
	a.ended()
	<-set.Empty()
}

// endsOfIdle returns what ends a connection that idles, whatever is kept of it, and other.
func endsOfIdle(other map[string]func(*Set, *asker)) map[string]func(*Set, *asker) {
	ends := map[string]func(*Set, *asker){
		"client":     func(_ *Set, a *asker) { a.Close() },
		"half-close": func(_ *Set, a *asker) { a.CloseWrite(); a.ended() },
		"reset":      func(_ *Set, a *asker) { a.SetLinger(0); a.Close() },
		"cut":        func(set *Set, a *asker) { set.Cut(); a.ended() },
		"drain, with a request": func(set *Set, a *asker) {
			set.engine.Draining.Store(true)
			a.ask() // and its response says that it is the last
			a.ended()
			a.Close()
		},
	}
	maps.Copy(ends, other)
	return ends
}

// TestParkedEnds: whatever ends a parked connection, the client sees a regular end and nothing is left.
func TestParkedEnds(t *testing.T) {
	for name, end := range endsOfIdle(map[string]func(*Set, *asker){
		"drain": func(set *Set, a *asker) {
			set.engine.Draining.Store(true)
			now := set.engine.Now() + (drainIdle - parkAfter).Milliseconds()
			set.Sweep(now - 1)
			if count(set, waitParked) != 1 {
				a.t.Error("ended at once, though the client may be asking")
			}
			set.Sweep(now)
			a.ended()
		},
	}) {
		t.Run(name, func(t *testing.T) {
			set, addr := served(t)
			a := askerOf(t, addr)
			a.ask()
			park(t, set, 1)
			end(set, a)
			<-set.Empty()
			set.idlePoller.Load().mu.Lock()
			defer set.idlePoller.Load().mu.Unlock()
			for _, c := range set.idlePoller.Load().byFD {
				if c != nil {
					t.Error("the idle poller still has the connection")
				}
			}
		})
	}
}

// TestParkRaces: a request, the sweeper, the end of the idle time, a cut and the client's end meet a connection at any
// moment of being parked and taken up again. A request is answered, or the connection ends; nothing is left.
func TestParkRaces(t *testing.T) {
	set, addr := served(t)
	stop := make(chan struct{})
	var sweeper sync.WaitGroup
	sweeper.Go(func() {
		for now := set.engine.Now(); ; now += 200 { // all that idles is parked at once, and soon at its end
			select {
			case <-stop:
				return
			default:
			}
			set.engine.Clock.Store(now)
			set.Sweep(now)
			runtime.Gosched()
		}
	})
	answered := 0
	var mu sync.Mutex
	var clients sync.WaitGroup
	for k := range 8 {
		clients.Go(func() {
			for i := range 60 {
				a := askerOf(t, addr)
				for n := range 8 {
					if a.tryAsk() != nil { // its idle time was over
						break
					}
					mu.Lock()
					answered++
					mu.Unlock()
					time.Sleep(time.Duration((i+n)%7) * 50 * time.Microsecond)
				}
				switch (k + i) % 4 {
				case 0:
					a.SetLinger(0)
				case 1:
					set.Each(func(c *Conn) {
						if c.side.Peer.Port() == uint16(a.LocalAddr().(*net.TCPAddr).Port) {
							c.cut(observe.ReasonShuttingDown)
						}
					})
				case 2:
					a.CloseWrite()
					io.Copy(io.Discard, a)
				}
				a.Close()
			}
		})
	}
	clients.Wait()
	close(stop)
	sweeper.Wait()
	testkit.Eventually(t, "all ended", func() bool {
		select {
		case <-set.Empty():
			return true
		default:
			return false
		}
	})
	if answered < 480 {
		t.Errorf("%d requests were answered, want one for each connection at least", answered)
	}
}

// selfSigned is a configuration of a TLS server.
func selfSigned(t *testing.T) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{testkit.Certificate{}.TLS(t)}}
}

// halting is a connection whose next write sends only half of it.
type halting struct {
	net.Conn
	halt bool
	rest []byte // the other half
}

func (h *halting) Write(b []byte) (int, error) {
	now := b
	if h.halt {
		now, h.rest, h.halt = b[:len(b)/2], bytes.Clone(b[len(b)/2:]), false
	}
	_, err := h.Conn.Write(now)
	return len(b), err
}

// TestParkTLS: a connection that was parked within a record goes on with it, and the end of its
// idle time is a regular end.
func TestParkTLS(t *testing.T) {
	for name, plainIO := range map[string]bool{"raw": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			set, addr := servedBy(t, plainIO, selfSigned(t))
			a := askerOf(t, addr)
			half := &halting{Conn: a.TCPConn}
			secured := tls.Client(half, &tls.Config{InsecureSkipVerify: true, ServerName: "h"})
			a.w, a.r = secured, bufio.NewReader(secured)
			rest := func() {
				idle(t, set, 1, parkAfter)
				testkit.Eventually(t, "without pooled memory", func() bool {
					given := false
					set.Each(func(c *Conn) { given = !c.holding.Load() })
					return given
				})
			}
			for range 3 {
				a.ask()
				rest()
				half.halt = true
				if err := a.send(); err != nil {
					t.Fatal(err)
				}
				testkit.Eventually(t, "half a record read", func() bool { return count(set, waitIdle) == 1 })
				rest()
				if _, err := a.Write(half.rest); err != nil {
					t.Fatal(err)
				}
				if err := a.receive(); err != nil {
					t.Fatal(err)
				}
			}
			rest()
			set.Sweep(set.engine.Now() + set.timeouts.Idle.Milliseconds())
			a.ended() // io.ErrUnexpectedEOF without close_notify
		})
	}
}

// TestParkedHTTP2: a connection that was parked before it said anything can still begin with the preface of HTTP/2.
func TestParkedHTTP2(t *testing.T) {
	set, addr := served(t)
	a := askerOf(t, addr)
	park(t, set, 1)
	// The preface and an empty SETTINGS frame.
	if _, err := io.WriteString(a, http2.Preface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	var head [9]byte
	if _, err := io.ReadFull(a, head[:]); err != nil || head[3] != 4 {
		t.Errorf("got %q, %v, want SETTINGS", head, err)
	}
}

// TestUnparkable: where the idle poller does not take a connection it idles on its goroutine and serves on.
func TestUnparkable(t *testing.T) {
	set, addr := served(t)
	a := askerOf(t, addr)
	a.ask()
	park(t, set, 1)
	a.ask()
	other, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	if err := unix.Dup3(other, set.idlePoller.Load().set.FD, unix.O_CLOEXEC); err != nil { // it can watch nothing any more
		t.Fatal(err)
	}
	for range 3 {
		idle(t, set, 1, parkAfter)
		testkit.Eventually(t, "without pooled memory", func() bool {
			given := false
			set.Each(func(c *Conn) { given = !c.holding.Load() })
			return given && count(set, waitIdle) == 1
		})
		a.ask()
	}
}

// TestPlainIdles: connections that are read by way of net.Conn give pooled memory back and serve on.
func TestPlainIdles(t *testing.T) {
	set, addr := servedBy(t, true, nil)
	a := askerOf(t, addr)
	for range 3 {
		a.ask()
		idle(t, set, 1, parkAfter)
		testkit.Eventually(t, "without pooled memory", func() bool {
			given := false
			set.Each(func(c *Conn) { given = !c.holding.Load() })
			return given && count(set, waitIdle) == 1
		})
	}
	set.Sweep(set.engine.Now() + set.timeouts.Idle.Milliseconds())
	a.ended()
}
