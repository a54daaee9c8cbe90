package proxy

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
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
	m := newMemory(1, nil)
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

// TestMemoryEndsTunnels: at the part of the limit where what is new is refused, tunnels end that were unused for a while, and are logged as such.
func TestMemoryEndsTunnels(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var used atomic.Uint64
	addr, accepted := switching(t)
	g := startGatewayWith(t, Options{MemoryLimit: 1000, memoryUsed: used.Load})
	g.serveWebSocket(addr, nil)
	g.stopOnce.Do(func() { close(g.stop) }) // the test sweeps from here on
	_, _, unused := g.upgraded(accepted)
	now := time.Now().Add(2 * time.Minute)
	g.sweepAt(now, false)
	client, r, recent := g.upgraded(accepted)
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
