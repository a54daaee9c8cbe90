//go:build linux

package client

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// framesAsker is a client of HTTP/2 that sends what it is told to.
type framesAsker struct {
	*net.TCPConn
	*xhttp2.Framer
	t      *testing.T
	fields *hpack.Encoder
	block  bytes.Buffer
	last   uint32 // stream
}

func framesAskerOf(t *testing.T, addr string) *framesAsker {
	t.Helper()
	return framesAskerOn(t, askerOf(t, addr).TCPConn)
}

func framesAskerOn(t *testing.T, tcp *net.TCPConn) *framesAsker {
	a := &framesAsker{TCPConn: tcp, Framer: xhttp2.NewFramer(tcp, tcp), t: t, last: ^uint32(0)}
	a.fields = hpack.NewEncoder(&a.block)
	io.WriteString(tcp, http2.Preface)
	a.WriteSettings()
	a.WriteSettingsAck()
	return a
}

// send begins a request, whose fields are in the dynamic table after the first one.
func (a *framesAsker) send(more ...[2]string) {
	a.last += 2
	a.block.Reset()
	for _, f := range append([][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "h"}, {":path", "/"}, {"user-agent", "a test"}}, more...) {
		a.fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	a.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: a.last, BlockFragment: a.block.Bytes(), EndStream: true, EndHeaders: true})
}

// until reads to a frame of the type; the connection must not end before.
func (a *framesAsker) until(typ xhttp2.FrameType) xhttp2.Frame {
	a.t.Helper()
	for {
		f, err := a.ReadFrame()
		if err != nil {
			a.t.Fatalf("waiting for %v: %v", typ, err)
		}
		if f.Header().Type == typ {
			return f
		}
	}
}

// ask makes a request, which is answered.
func (a *framesAsker) ask(more ...[2]string) {
	a.t.Helper()
	a.send(more...)
	if f := a.until(xhttp2.FrameHeaders); f.Header().StreamID != a.last {
		a.t.Fatalf("got %v, want the response on stream %d", f, a.last)
	}
	for f := a.until(xhttp2.FrameData); !f.Header().Flags.Has(xhttp2.FlagDataEndStream); f = a.until(xhttp2.FrameData) {
	}
}

// goneWithGoAway fails the test unless the connection ends with GOAWAY.
func (a *framesAsker) goneWithGoAway() {
	a.t.Helper()
	if f := a.until(xhttp2.FrameGoAway).(*xhttp2.GoAwayFrame); f.ErrCode != xhttp2.ErrCodeNo {
		a.t.Errorf("GOAWAY with %v", f.ErrCode)
	}
	if _, err := io.Copy(io.Discard, a.TCPConn); err != nil {
		a.t.Error(err)
	}
}

// parksSoon makes HTTP/2 connections be parked at once.
func parksSoon(s *Set) { s.parkHTTP2After = time.Millisecond }

// restHTTP2 waits until n connections are parked, and lets the sweeper make them dormant.
func restHTTP2(t *testing.T, set *Set, n int) {
	t.Helper()
	parkedHTTP2(t, set, n)
	later(set, dormantAfter)
	if got := dormantCount(set); got != n {
		t.Fatalf("%d connections are dormant, want %d", got, n)
	}
}

// allTaken waits until the clients have acknowledged everything that was sent on dormant connections, which takes no longer than a delayed
// acknowledgement: those that have not are not ended to make room.
func allTaken(t *testing.T, set *Set) {
	t.Helper()
	testkit.Eventually(t, "acknowledged", func() bool {
		set.dormants.mu.Lock()
		defer set.dormants.mu.Unlock()
		for _, of := range set.dormants.lists() {
			for d := of.first; d != nil; d = d.after {
				if n, err := unix.IoctlGetInt(int(d.fd), unix.SIOCOUTQ); n > 0 || err != nil {
					return false
				}
			}
		}
		return true
	})
}

// TestHTTP2Dormant: dormant connections of HTTP/2 have no Conn, count as before, and serve on, again and again.
func TestHTTP2Dormant(t *testing.T) {
	set, addr := servedBy(t, false, nil, parksSoon)
	const n = 10
	var all []*framesAsker
	for range n {
		all = append(all, framesAskerOf(t, addr))
	}
	files := 0
	for round := range 3 {
		for _, a := range all {
			a.ask()
		}
		restHTTP2(t, set, n)
		set.Each(func(*Conn) { t.Error("a dormant connection has a Conn") })
		if got := set.connections.open.Load(); got != n {
			t.Errorf("%d connections count, want %d", got, n)
		}
		if round == 0 {
			files = openFiles(t)
		} else if got := openFiles(t); got != files {
			t.Errorf("%d descriptors are open, %d were the first time", got, files)
		}
	}
	if want := uint64(3 * n * (releasedBytes + releasedHTTP2)); set.Released() != want {
		t.Errorf("%d bytes were released, want %d", set.Released(), want)
	}
	for _, a := range all {
		a.Close()
	}
	<-set.Empty()
}

// TestHTTP2DormantFrames: a dormant connection answers a PING, also one in parts, and is dormant again some seconds later.
func TestHTTP2DormantFrames(t *testing.T) {
	set, addr := servedBy(t, false, nil, parksSoon)
	a := framesAskerOf(t, addr)
	a.ask()
	restHTTP2(t, set, 1)
	ping := []byte("\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678")
	for _, cut := range []int{0, 5, 12} {
		a.Write(ping[:cut])
		if cut > 0 {
			testkit.Eventually(t, "woken", func() bool { return dormantCount(set) == 0 })
		}
		a.Write(ping[cut:])
		if f := a.until(xhttp2.FramePing).(*xhttp2.PingFrame); !f.IsAck() || string(f.Data[:]) != "12345678" {
			t.Errorf("got %v", f)
		}
		parkedHTTP2(t, set, 1)
		later(set, dormantAfter-parkAfter)
		if dormantCount(set) != 0 {
			t.Error("dormant soon after a frame")
		}
		restHTTP2(t, set, 1)
	}
	a.ask()
}

// TestHTTP2DormantEnds: whatever ends a dormant connection of HTTP/2, nothing is left, and a client that is still there gets GOAWAY unless the connection is cut.
func TestHTTP2DormantEnds(t *testing.T) {
	for name, end := range map[string]func(*Set, *framesAsker){
		"client":     func(_ *Set, a *framesAsker) { a.Close() },
		"half-close": func(_ *Set, a *framesAsker) { a.CloseWrite() },
		"reset":      func(_ *Set, a *framesAsker) { a.SetLinger(0); a.Close() },
		"cut":        func(set *Set, _ *framesAsker) { set.Cut() },
		"drain": func(set *Set, a *framesAsker) {
			set.engine.Draining.Store(true)
			later(set, 0)
			a.goneWithGoAway()
		},
		"drain, with a request": func(set *Set, a *framesAsker) {
			set.engine.Draining.Store(true)
			a.ask()
			later(set, 0)
			a.goneWithGoAway()
		},
		"memory is scarce": func(set *Set, a *framesAsker) {
			set.CloseIdle()
			a.goneWithGoAway()
		},
		"room for others": func(set *Set, a *framesAsker) {
			if !set.makeRoom() {
				a.t.Error("no room was made")
			}
			a.goneWithGoAway()
		},
	} {
		t.Run(name, func(t *testing.T) {
			set, addr := servedBy(t, false, nil, parksSoon, func(s *Set) { s.Limit(ConnectionLimits{Total: scarce}, discard) })
			a := framesAskerOf(t, addr)
			a.ask()
			restHTTP2(t, set, 1)
			allTaken(t, set)
			end(set, a)
			<-set.Empty()
			if set.connections.open.Load() != 0 || set.connections.ending.Load() != 0 {
				t.Error("it still counts")
			}
		})
	}
}

// TestHTTP2DormantIdle: a dormant connection of HTTP/2 ends when its idle time is over, and not before by its own clock.
func TestHTTP2DormantIdle(t *testing.T) {
	const idle = 3 * time.Second
	set, addr := servedBy(t, false, nil, parksSoon, func(s *Set) { s.timeouts.Idle = idle })
	a := framesAskerOf(t, addr)
	a.ask()
	began := time.Now()
	for _, over := range []bool{false, true} {
		parkedHTTP2(t, set, 1)
		set.Each(func(c *Conn) {
			if c.claim() {
				go c.goDormant() // long before it is due, but with most of its idle time left
			}
		})
		testkit.Eventually(t, "dormant", func() bool { return dormantCount(set) == 1 })
		if over {
			time.Sleep(time.Until(began.Add(idle)))
		}
		later(set, idle)
	}
	a.goneWithGoAway()
	if after := time.Since(began); after < idle {
		t.Errorf("the connection has ended after %v", after)
	}
	<-set.Empty()
}

// TestHTTP2DormantCut: a connection that is cut while it becomes dormant ends.
func TestHTTP2DormantCut(t *testing.T) {
	set, addr := servedBy(t, false, nil, parksSoon)
	a := framesAskerOf(t, addr)
	a.ask()
	parkedHTTP2(t, set, 1)
	var c *Conn
	set.Each(func(one *Conn) { c = one })
	if !c.claim() {
		t.Fatal("another goroutine has claimed it")
	}
	c.tcp.Close() // so that the descriptor cannot be duplicated
	if !c.goDormant() {
		t.Error("the system lacks resources")
	}
	<-set.Empty()
}

// TestHTTP2DormantRaces: requests, the sweeper, and ends by the client meet connections of HTTP/2 at any moment of becoming dormant and of being woken.
// Each request is answered, unless idle connections are closed because memory is scarce, and nothing is left.
func TestHTTP2DormantRaces(t *testing.T) {
	for name, scarce := range map[string]bool{"sweeper": false, "scarce memory": true} {
		t.Run(name, func(t *testing.T) { meetDormantHTTP2(t, scarce) })
	}
}

func meetDormantHTTP2(t *testing.T, scarce bool) {
	set, addr := servedBy(t, false, nil, parksSoon, func(s *Set) { // whose clock goes so fast that a new connection would have no time to begin
		s.timeouts.Head, s.timeouts.Idle, s.timeouts.Handshake = 1000*time.Hour, 1000*time.Hour, 1000*time.Hour
	})
	files := openFiles(t)
	stop := make(chan struct{})
	var sweeper sync.WaitGroup
	sweeper.Go(func() {
		for now := set.engine.Now(); ; now += 2500 { // what is parked is soon dormant
			select {
			case <-stop:
				return
			default:
			}
			set.engine.Clock.Store(now)
			set.Sweep(now)
			if scarce && rand.IntN(200) == 0 {
				set.CloseIdle()
			}
			time.Sleep(50 * time.Microsecond)
		}
	})
	var clients sync.WaitGroup
	for k := range 8 {
		clients.Go(func() {
			for i := range 30 {
				a := http2AskerOf(t, addr, false)
				for n := range 8 {
					if err := a.tryAsk(); err != nil && !scarce {
						t.Error(err)
					}
					time.Sleep(time.Duration((i+n)%7) * 600 * time.Microsecond)
				}
				a.end(func(tcp *net.TCPConn) {
					switch (k + i) % 3 {
					case 0:
						tcp.SetLinger(0)
					case 1:
						tcp.CloseWrite()
					}
				})
			}
		})
	}
	clients.Wait()
	close(stop)
	sweeper.Wait()
	<-set.Empty()
	if set.Released() < 100*releasedHTTP2 {
		t.Error("few connections were dormant")
	}
	if n := set.connections.open.Load(); n != 0 {
		t.Errorf("%d connections still count", n)
	}
	if got := openFiles(t); got > files+4 { // the two sets of epoll, with a wake each
		t.Errorf("%d descriptors are open, %d were before", got, files)
	}
}

// TestHTTP2DormantUnsent: a client that is still receiving responses loses none if its dormant connection is ended to make room.
func TestHTTP2DormantUnsent(t *testing.T) {
	set, addr := servedBy(t, false, nil, parksSoon)
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testkit.Patience))
	a := framesAskerOn(t, conn.(*net.TCPConn))
	const requests = 200
	for range requests {
		a.send()
		time.Sleep(time.Millisecond) // so that the kernel holds many segments
	}
	restHTTP2(t, set, 1)
	if set.CloseIdle(); dormantCount(set) != 1 {
		t.Error("the connection is woken although it would not end")
	}
	set.engine.Clock.Add(set.timeouts.WriteIdle.Milliseconds()) // but not that of package http2
	set.CloseIdle()
	testkit.Eventually(t, "woken", func() bool { return dormantCount(set) == 0 })
	a.WritePing(false, [8]byte{1}) // would be answered by a reset if the connection were closed
	for answered := 0; answered < requests; {
		if f := a.until(xhttp2.FrameData); f.Header().Flags.Has(xhttp2.FlagDataEndStream) {
			answered++
		}
	}
}

// TestHTTP2DormantEndSlowly: when all connections are to end at once, a sweep wakes a limited number.
func TestHTTP2DormantEndSlowly(t *testing.T) {
	set, _ := servedBy(t, false, nil)
	l := &set.dormants
	const plain, more = 3, 10
	for i := range maxWoken + plain + more {
		d := &dormant{timeouts: &set.timeouts}
		if i%500 != 0 {
			d.http2 = &http2.Dormant{}
		}
		l.ordered.add(d)
	}
	defer func() { l.ordered = dormantList{} }()
	for i, want := range []int{maxWoken + plain, more, 0} {
		if due := l.due(set, sweepTimes{idleEnd: 1}); len(due) != want {
			t.Errorf("sweep %d ends %d connections, want %d", i, len(due), want)
		}
	}
}

// TestHTTP2DormantLarge: when memory is scarce, dormant connections whose clients have filled the dynamic table are ended as early as
// connections that are not dormant.
func TestHTTP2DormantLarge(t *testing.T) {
	set, addr := servedBy(t, false, nil, parksSoon)
	small, large := framesAskerOf(t, addr), framesAskerOf(t, addr)
	small.ask()
	large.ask([2]string{"x-large", strings.Repeat("v", 2000)})
	restHTTP2(t, set, 2)
	allTaken(t, set)
	busy := framesAskerOf(t, addr)
	busy.ask()
	set.CloseIdle()
	large.goneWithGoAway()
	testkit.Eventually(t, "one is left", func() bool { return dormantCount(set) == 1 })
	small.ask()
}
