package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/client"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestMemoryIsScarce: near the limit connections that idle end, then what is new is refused, while a connection that is
// used remains; with less in use all is as before.
func TestMemoryIsScarce(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var used atomic.Uint64
	log := &testkit.Log{}
	g := startGatewayWith(t, Options{Metrics: observe.NewMetrics(observe.MetricsOptions{}), Logger: slog.New(slog.NewTextHandler(log, nil)),
		MemoryLimit: 1000, memoryUsed: used.Load})
	g.serve(cannedBackend(t, cannedResponse(2), 0), nil)
	for range 3 {
		g.dial() // and says nothing
	}
	asked := g.rawHTTP2()
	asked.head(1, true, request2("GET", "/")...)
	asked.fr.WriteSettingsAck()
	if said := asked.outcome(1); said != "200 end" {
		t.Fatalf("by HTTP/2: %s", said)
	}
	g.eventually("connections", func() bool { return g.counted(activeConnections) == 4 })
	used.Store(820)
	g.eventually("connections that idle are closed", func() bool { return g.counted(activeConnections) == 0 })
	if said := asked.outcome(3); said != "goaway closed" {
		t.Errorf("an idle connection of HTTP/2 ended by %q", said)
	}
	c := g.dial()
	if status, err := get(c); status != 200 || err != nil {
		t.Fatalf("%d, %v with 82 %% in use", status, err)
	}
	used.Store(950)
	g.eventually("a request on a connection that was there is refused", func() bool {
		status, err := get(c)
		if err != nil || status != 200 && status != 503 {
			t.Fatalf("%d, %v", status, err)
		}
		return status == 503
	})
	g.eventually("the refusal is counted", func() bool {
		return g.counted("moongate_memory_scarce") == 1 && g.counted("moongate_requests_total", "reason", "overloaded", "code", "503") == 1
	})
	g.crowd(1)
	g.eventually("a new connection is refused", func() bool { return g.counted(refusedConnections, "limit", "memory") >= 1 })
	used.Store(870)
	if n := g.counted("moongate_memory_scarce"); n != 1 {
		t.Error("the refusal ends too soon")
	}
	used.Store(500)
	g.eventually("memory is not scarce any more", func() bool { return g.counted("moongate_memory_scarce") == 0 })
	if status, err := get(g.dial()); status != 200 || err != nil {
		t.Errorf("%d, %v with enough memory", status, err)
	}
	if strings.Count(log.String(), "memory is scarce") != 1 {
		t.Errorf("logged:\n%s", log)
	}
}

// TestMemoryInUse: what the runtime says is in use follows what the program holds.
func TestMemoryInUse(t *testing.T) {
	m := newMemory(1, nil, &buffer.Budget{})
	runtime.GC()
	before := m.used()
	held := make([]byte, 64<<20)
	runtime.GC()
	if grown := int64(m.used()) - int64(before); grown < 32<<20 || grown > 256<<20 {
		t.Errorf("64 MiB more are held, %d bytes more are in use", grown)
	}
	runtime.KeepAlive(held)
}

// TestMemoryRunsOut: near the limit a connection that holds much of request bodies ends, and one that holds little remains.
func TestMemoryRunsOut(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const limit = 1 << 30
	var used atomic.Uint64
	release := make(chan struct{})
	g := startGatewayWith(t, Options{Metrics: observe.NewMetrics(observe.MetricsOptions{}), MemoryLimit: limit, memoryUsed: used.Load})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		io.WriteString(w, "hello")
	}), nil)
	upload := func(streams int) *rawHTTP2 {
		r := g.rawHTTP2()
		r.fr.WriteSettingsAck()
		for i := range streams {
			id := uint32(2*i + 1)
			r.head(id, false, request2("POST", "/")...)
			for range 4 {
				r.fr.WriteData(id, false, make([]byte, 10_000))
			}
		}
		return r
	}
	large, small := upload(40), upload(1)
	g.eventually("what they hold", func() bool {
		held := 0
		g.clients.Each(func(c *client.Conn) { held += c.Held() })
		return held == 41*40_000
	})
	used.Store(limit / 100 * 96)
	large.c.SetDeadline(time.Now().Add(20 * time.Second))
	for {
		if _, err := large.fr.ReadFrame(); err != nil {
			if isTimeout(err) {
				t.Fatal("the connection that holds most does not end")
			}
			break
		}
	}
	used.Store(0)
	g.eventually("memory is not scarce any more", func() bool { return g.counted("moongate_memory_scarce") == 0 })
	small.fr.WriteData(1, true, nil)
	close(release)
	if said := small.outcome(1); said != "200 end" {
		t.Errorf("the other connection: %s", said)
	}
	reasons := make(map[string]int)
	for _, r := range g.reasonsLogged(41) {
		reasons[r]++
	}
	if reasons["overloaded"] != 40 || reasons["ok"] != 1 {
		t.Errorf("logged %v", reasons)
	}
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// idleTunnel is upgraded, and returns when the gateway waits for what either side sends: the test may let the clock jump.
func (g *gateway) idleTunnel(accepted <-chan *net.TCPConn) (c net.Conn, r *bufio.Reader, backend *net.TCPConn) {
	g.t.Helper()
	c, r, backend = g.upgraded(accepted)
	io.WriteString(backend, "x")
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		g.t.Fatal(err)
	}
	g.eventually("the byte counts as taken", func() bool { return g.held() == 0 })
	return c, r, backend
}

// held is how many bytes all connections of clients hold.
func (g *gateway) held() (bytes int) {
	g.clients.Each(func(c *client.Conn) { bytes += c.Held() })
	return bytes
}

// sweeper has the test sweep instead of the gateway, and collections end when it says so.
type sweeper struct {
	g      *gateway
	log    testkit.Log
	now    time.Time
	used   atomic.Uint64 // in percent
	cycles uint64
}

// startSweeper starts a gateway for tunnels to a WebSocket server, whose connections come by accepted.
func startSweeper(t *testing.T) (s *sweeper, accepted <-chan *net.TCPConn) {
	t.Helper()
	s = &sweeper{now: time.Now()}
	addr, accepted := switching(t)
	s.g = startGatewayWith(t, Options{Logger: slog.New(slog.NewTextHandler(&s.log, nil)), MemoryLimit: 1 << 30, memoryUsed: func() uint64 { return s.used.Load() * (1 << 30 / 100) }})
	s.g.serveWebSocket(addr, nil)
	s.g.stopSweeping()
	s.g.memory.cycles = func() uint64 { return s.cycles }
	return s, accepted
}

// sweep sweeps with so many percent of memory in use, long enough after the last time to know what came of that.
func (s *sweeper) sweep(percent uint64) {
	s.g.t.Helper()
	s.used.Store(percent)
	s.now = s.now.Add(settleCycles * collectEvery)
	s.cycles += settleCycles
	s.g.sweepAt(s.now, false)
	s.g.eventually("the collection has ended", func() bool { return !s.g.memory.collecting.Load() })
}

// TestMemoryEndsStuckTunnels: where memory is scarce tunnels end that hold what a side of them does not take, however small a part of it is taken now
// and then, and not those that hold nothing.
func TestMemoryEndsStuckTunnels(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	s, accepted := startSweeper(t)
	quiet, r, idle := s.g.idleTunnel(accepted)
	defer quiet.Close()
	s.now = s.now.Add(10 * time.Minute)
	s.g.sweepAt(s.now, false)
	slow, _, sender := s.g.idleTunnel(accepted)
	defer slow.Close()
	sender.SetDeadline(time.Now().Add(testkit.Patience))
	var sent atomic.Int64
	ended := make(chan error, 1)
	go func() {
		for {
			n, err := sender.Write(make([]byte, 1000))
			if sent.Add(int64(n)); err != nil {
				ended <- err
				return
			}
		}
	}()
	last, since := int64(0), time.Now()
	s.g.eventually("the sender is held up", func() bool {
		if n := sent.Load(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})
	if held := s.g.held(); held != buffer.Size {
		t.Errorf("%d bytes are held, want a buffer", held)
	}
	s.now = s.now.Add(30 * time.Second) // less than a minute
	s.sweep(91)
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the slow tunnel ended by %v, want a reset", err)
	}
	idle.SetDeadline(time.Now().Add(testkit.Patience))
	io.WriteString(idle, "x")
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		t.Errorf("the idle tunnel ended by %v", err)
	}
	if words := s.g.reasonsLogged(1); words[0] != "overloaded" {
		t.Errorf("logged as %v", words)
	}
}

// TestMemoryEndsStuckResponses: where memory is scarce connections end whose clients have not taken anything of a response for a while, so far as that is
// needed, and not one that takes a little of it. The client sees that its body is not whole, also where it has no length.
func TestMemoryEndsStuckResponses(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const size = 32 << 20 // more than sockets hold
	const stuckAtLeast = 5 * time.Second
	const limit, all, ended = 4 << 20, 6, 4 // of 80 KiB each, where 7 % of the limit are too much
	for name, test := range map[string]struct{ request, head string }{
		"HTTP/1.1": {"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", fmt.Sprintf("Content-Length: %d\r\n", size)},
		"HTTP/1.0": {"GET / HTTP/1.0\r\nHost: h\r\n\r\n", "Connection: close\r\n"}, // ends with the connection
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var used atomic.Uint64
			var log testkit.Log
			g := startGatewayWith(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), MemoryLimit: limit, memoryUsed: used.Load})
			g.serve(rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				if _, err := readHead(r); err == nil {
					io.WriteString(c, "HTTP/1.1 200 OK\r\n"+test.head+"\r\n")
					c.Write(make([]byte, size))
				}
			}), nil)
			ask := func() net.Conn {
				c := g.dial()
				io.WriteString(c, test.request)
				return c
			}
			slow := ask() // the first that is stuck
			g.eventuallyStuck(1, 0)
			var clients [all]net.Conn
			for i := range clients {
				clients[i] = ask()
			}
			g.eventuallyStuck(all+1, stuckAtLeast)
			g.stopSweeping()
			now := time.Now()
			sweep := func() {
				now = now.Add(collectEvery)
				g.sweepAt(now, false)
				g.eventually("the collection has ended", func() bool { return !g.memory.collecting.Load() })
			}
			used.Store(limit / 100 * 92)
			sweep()
			if text := g.log.String(); text != "" {
				t.Errorf("ended before it has shown that nothing is taken: %s", text)
			}
			taken, err := io.CopyN(io.Discard, slow, 512<<10)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond) // what was taken is acknowledged, or it will be ended
			sweep()
			for _, reason := range g.reasonsLogged(ended) {
				if reason != "overloaded" {
					t.Errorf("logged as %s", reason)
				}
			}
			if !strings.Contains(log.String(), "do not take their responses") {
				t.Errorf("the log does not say what was ended: %s", &log)
			}
			resets := 0
			for _, c := range clients {
				c.SetReadDeadline(time.Now().Add(testkit.Patience))
				n, err := io.Copy(io.Discard, c)
				switch {
				case errors.Is(err, syscall.ECONNRESET):
					resets++
				case err != nil || n < size:
					t.Errorf("%d bytes, %v: the end of a body that is not whole does not show", n, err)
				}
			}
			if resets != ended {
				t.Errorf("%d connections were reset, want %d", resets, ended)
			}
			slow.SetReadDeadline(time.Now().Add(testkit.Patience))
			if n, err := io.Copy(io.Discard, slow); taken+n < size || err != nil {
				t.Errorf("the client that takes a little: %d bytes, %v", taken+n, err)
			}
		})
	}
}

// TestEndUntil: kinds share what is to be freed, and none is asked when it has been.
func TestEndUntil(t *testing.T) {
	const each = 1000
	for _, c := range []struct {
		excess uint64
		ends   [3]int
		asked  []uint64
	}{
		{5 * each, [3]int{2, 0, 3}, []uint64{5 * each, 3 * each, 3 * each}},
		{5 * each, [3]int{2, 3, 1}, []uint64{5 * each, 3 * each}},
		{1, [3]int{1, 1, 1}, []uint64{1}},
		{1, [3]int{}, []uint64{1, 1, 1}},
	} {
		var asked []uint64
		var kinds []holding
		for _, n := range c.ends {
			kinds = append(kinds, holding{"kind", func(bytes uint64) (int, uint64) {
				asked = append(asked, bytes)
				return n, uint64(n) * each
			}})
		}
		reported := 0
		ended := endUntil(c.excess, kinds, func(_ string, n int) { reported += n })
		if !slices.Equal(asked, c.asked) || ended != (c.ends != [3]int{}) || ended != (reported > 0) {
			t.Errorf("%d bytes, %v: asked for %d, ended %v, %d reported", c.excess, c.ends, asked, ended, reported)
		}
	}
}

// TestMemoryEndsStuckHTTP2: so do connections by HTTP/2 whose clients do not read, whatever their windows allow, and not one whose stream waits for
// its window.
func TestMemoryEndsStuckHTTP2(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const size = 32 << 20
	const limit, all, ended = 4 << 20, 6, 4 // as above
	var used atomic.Uint64
	g := startGatewayWith(t, Options{MemoryLimit: limit, memoryUsed: used.Load})
	g.serve(cannedBackend(t, cannedResponse(size), 0), nil)
	waiting := g.rawHTTP2()
	waiting.head(1, true, request2("GET", "/")...)
	for range all {
		r := g.rawHTTP2()
		r.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: math.MaxInt32})
		r.fr.WriteWindowUpdate(0, math.MaxInt32-1<<16)
		r.head(1, true, request2("GET", "/")...)
	}
	g.eventuallyStuck(all, 5*time.Second)
	g.stopSweeping()
	now := time.Now()
	used.Store(limit / 100 * 92)
	for range 2 {
		now = now.Add(collectEvery)
		g.sweepAt(now, false)
		g.eventually("the collection has ended", func() bool { return !g.memory.collecting.Load() })
	}
	for _, reason := range g.reasonsLogged(ended) {
		if reason != "overloaded" {
			t.Errorf("logged as %s", reason)
		}
	}
	waiting.fr.WritePing(false, [8]byte{1})
	for waiting.c.SetReadDeadline(time.Now().Add(testkit.Patience)); ; {
		f, err := waiting.fr.ReadFrame()
		if err != nil {
			t.Fatalf("the connection whose stream waits for its window: %v", err)
		}
		if ping, ok := f.(*http2.PingFrame); ok && ping.IsAck() {
			break
		}
	}
}

// TestMemoryEndsStarvedStreams: streams whose responses get no room from their client end where memory is scarce, as many as that takes, and their connections stay, with the
// streams that are served.
func TestMemoryEndsStarvedStreams(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const limit, streams, ended = 4 << 20, 6, 4 // as above
	var used atomic.Uint64
	g := startGatewayWith(t, Options{MemoryLimit: limit, memoryUsed: used.Load})
	g.serve(cannedBackend(t, cannedResponse(1<<20), 0), nil)
	r := g.rawHTTP2()
	r.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	r.fr.WriteSettingsAck()
	for i := range uint32(streams) {
		r.head(2*i+1, true, request2("GET", "/")...)
	}
	for heads := 0; heads < streams; {
		f, err := r.fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if _, is := f.(*http2.MetaHeadersFrame); is {
			heads++
		}
	}
	g.stopSweeping()
	used.Store(limit / 100 * 92)
	resets := make(chan uint32, streams)
	pinged := make(chan bool)
	go func() {
		defer close(pinged)
		for {
			f, err := r.fr.ReadFrame()
			if err != nil {
				t.Error(err)
				return
			}
			switch f := f.(type) {
			case *http2.RSTStreamFrame:
				resets <- f.StreamID
				if f.ErrCode != http2.ErrCodeEnhanceYourCalm {
					t.Errorf("reset with %v", f.ErrCode)
				}
			case *http2.PingFrame:
				if f.IsAck() {
					return
				}
			}
		}
	}()
	g.eventually("streams are ended", func() bool {
		g.sweepAt(time.Now(), false)
		return len(resets) > 0 && !g.memory.collecting.Load()
	})
	for _, reason := range g.reasonsLogged(ended) {
		if reason != "overloaded" {
			t.Errorf("logged as %s", reason)
		}
	}
	r.fr.WritePing(false, [8]byte{1})
	<-pinged
	if n := len(resets); n != ended {
		t.Errorf("%d streams are ended, want %d", n, ended)
	}
}

// eventuallyStuck waits until so many clients have not taken a part of a response for so long.
func (g *gateway) eventuallyStuck(want int, least time.Duration) {
	g.t.Helper()
	g.eventually("clients are stuck", func() bool {
		n := 0
		g.clients.Each(func(c *client.Conn) {
			if since, ok := c.WritingSince(); ok && since <= g.engine.Now()-least.Milliseconds() {
				n++
			}
		})
		return n == want
	})
}

// TestMemoryEndsTunnelsInVain: unused tunnels end as long as that lowers what is in use, and no others when it does not, until memory has been enough
// again.
func TestMemoryEndsTunnelsInVain(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	s, accepted := startSweeper(t)
	const each = 16
	for range 4 * each {
		c, _, _ := s.g.idleTunnel(accepted)
		defer c.Close()
	}
	s.now = s.now.Add(2 * time.Minute)
	rounds := 0
	for _, step := range []struct {
		percent uint64
		ends    bool
		why     string
	}{
		{92, true, "the first time"},
		{91, true, "as that has helped"},
		{91, false, "as that has not helped"},
		{90, false, "as others have helped"},
		{84, false, "as there is enough"},
		{92, true, "as there was enough"},
	} {
		s.sweep(step.percent)
		if step.ends {
			rounds++
		}
		if n := strings.Count(s.log.String(), "unused for longest are ended"); n != rounds {
			t.Fatalf("tunnels were ended %d times, want %d: %s", n, rounds, step.why)
		}
		s.g.reasonsLogged(rounds * each)
	}
}

// TestMemoryEndsTunnels: at the part of the limit where what is new is refused, tunnels end that were unused for a while, and are logged as such.
func TestMemoryEndsTunnels(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var used atomic.Uint64
	addr, accepted := switching(t)
	g := startGatewayWith(t, Options{MemoryLimit: 1000, memoryUsed: used.Load})
	g.serveWebSocket(addr, nil)
	g.stopSweeping() // the test sweeps from here on
	_, _, unused := g.idleTunnel(accepted)
	now := time.Now().Add(2 * time.Minute)
	g.sweepAt(now, false)
	client, r, recent := g.idleTunnel(accepted)
	sweep := func(percent uint64) {
		used.Store(10 * percent)
		now = now.Add(collectEvery)
		g.sweepAt(now, false)
		g.eventually("the collection has ended", func() bool { return !g.memory.collecting.Load() })
	}
	sweep(89)
	if g.log.String() != "" {
		t.Errorf("with 89 %% in use: %s", g.log)
	}
	sweep(91)
	unused.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadAll(unused); err == nil {
		t.Error("the connection to the backend was ended in order")
	}
	if words := g.reasonsLogged(1); len(words) != 1 || words[0] != "overloaded" {
		t.Errorf("logged as %v", words)
	}
	io.WriteString(recent, "x")
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		t.Errorf("a tunnel that was in use ended by %v", err)
	}
	client.Close()
	recent.Close()
}

// TestAllot: what was spent since the look before the last collection counts as used, and what came before it does not, which the collection has seen.
func TestAllot(t *testing.T) {
	const limit = 1000
	m := &memory{limit: limit, budget: &buffer.Budget{}}
	for i, step := range []struct {
		spend       int64
		used, cycle uint64
		left        int64 // of the budget
	}{
		{0, 100, 1, 800},
		{300, 100, 1, 500},
		{100, 100, 1, 400},
		{50, 500, 2, 350}, // the collection may have begun at the look before: only 50 are certain to be missing
		{0, 500, 2, 350},
		{0, 540, 3, 360},
		{0, 950, 3, -50},
	} {
		m.budget.Spend(step.spend)
		exhausted := m.allot(step.used, step.cycle)
		if exhausted != (step.left <= 0) || m.budget.Exhausted() != exhausted {
			t.Errorf("step %d: exhausted %v", i, exhausted)
		}
		if step.left <= 0 {
			continue
		}
		m.budget.Spend(step.left - 1)
		if m.budget.Exhausted() {
			t.Errorf("step %d: less than %d are left", i, step.left)
		}
		if m.budget.Spend(1); !m.budget.Exhausted() {
			t.Errorf("step %d: more than %d are left", i, step.left)
		}
		m.budget.Spend(-step.left)
	}
}

// TestHeldUpIsBounded: a client that takes its response slowly keeps unused tunnels from being ended only until it is judged itself.
func TestHeldUpIsBounded(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(cannedBackend(t, cannedResponse(32<<20), 0), nil)
	c := g.dial()
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	g.stopSweeping()
	var began int64
	g.eventually("the client is stuck", func() bool {
		now := g.engine.Clock.Add(1)
		time.Sleep(100 * time.Millisecond) // in which the kernel would take more
		g.clients.Each(func(c *client.Conn) { began, _ = c.WritingSince() })
		return began > 0 && began < now
	})
	for d, want := range map[time.Duration]bool{0: false, 2 * time.Second: true, time.Minute: false} {
		g.engine.Clock.Store(began + d.Milliseconds())
		if got := g.clients.HeldUp(); got != want {
			t.Errorf("after %v: %v", d, got)
		}
	}
}

// TestMemoryWaitsForSlowClients: clients that take a little of their responses now and then keep unused tunnels from being ended for a while only.
func TestMemoryWaitsForSlowClients(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	s, accepted := startSweeper(t)
	unused, _, _ := s.g.idleTunnel(accepted)
	defer unused.Close()
	s.now = s.now.Add(2 * time.Minute)
	s.g.sweepAt(s.now, false)
	s.g.serve(cannedBackend(t, cannedResponse(128<<20), 0), nil)
	slow := s.g.dial()
	defer slow.Close()
	io.WriteString(slow, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	const step = settleCycles * collectEvery
	for at := step; ; at += step {
		s.g.eventually("the client takes a little", func() bool {
			slow.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			io.CopyN(io.Discard, slow, 256<<10)
			anew := false
			s.g.clients.Each(func(c *client.Conn) {
				since, ok := c.WritingSince()
				anew = anew || ok && since == s.g.engine.Now()
			})
			return anew
		})
		time.Sleep(200 * time.Millisecond) // until the gateway has filled the room that this made: what it begins to write after the sweep is new
		s.sweep(92)
		if !s.g.clients.HeldUp() {
			t.Fatal("the client does not look slow")
		}
		ended := strings.Contains(s.log.String(), "unused for longest are ended")
		if want := at >= step+client.JudgedFor; ended != want {
			t.Fatalf("%v after memory has become scarce: an unused tunnel is ended: %v", at-step, ended)
		}
		if ended {
			return
		}
	}
}

// TestBudgetIsExhausted: where what was allocated since the last look may have used up the memory, that is logged, and garbage is collected at once, however
// much is known to be in use, unless that is as much as to refuse what is new by itself.
func TestBudgetIsExhausted(t *testing.T) {
	t.Parallel()
	const limit = 1 << 30
	for percent, logs := range map[uint64]bool{50: true, 79: true, 81: true, 86: true, 89: true, 91: false} {
		t.Run(fmt.Sprint(percent, " %"), func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			var log testkit.Log
			g := startGatewayWith(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), MemoryLimit: limit, memoryUsed: func() uint64 { return limit / 100 * percent }})
			g.stopSweeping()
			m := g.memory
			m.budget, m.cycles = &g.engine.Budget, func() uint64 { return 0 }
			m.collected, m.loggedAt = time.Time{}, time.Time{}
			g.engine.Overloaded.Store(false)
			now := time.Now()
			look := func(after time.Duration) (collects bool) {
				before := m.collected
				now = now.Add(after)
				g.watchMemory(now)
				g.eventually("the collection has ended", func() bool { return !m.collecting.Load() })
				return m.collected != before
			}
			look(0)
			m.budget.Spend(limit)
			if collects := look(collectLeast); collects != logs || !g.engine.Refuses() {
				t.Errorf("garbage is collected: %v", collects)
			}
			if logged := strings.Contains(log.String(), "much was allocated at once"); logged != logs {
				t.Errorf("it is logged: %v", logged)
			}
			if look(collectLeast / 2) {
				t.Error("garbage is collected again too soon")
			}
			if collects := look(collectEvery); !collects {
				t.Error("garbage is not collected again")
			}
		})
	}
}
