package proxy

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestShedSparesDownloads: to a client that takes its response slowly, and sends meanwhile as HTTP/2 does, the connection does not idle
// though no stream is left.
func TestShedSparesDownloads(t *testing.T) {
	const size = 1 << 20 // which the kernel takes, and a client that does not read does not
	g := startGateway(t, Timeouts{})
	g.serve(cannedBackend(t, cannedResponse(size), 0), nil)
	r := g.rawHTTP2()
	r.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 4 * size})
	r.fr.WriteWindowUpdate(0, 4*size)
	r.head(1, true, request2("GET", "/")...)
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		g.clients.CloseIdle()
	}
	r.fr.WritePing(false, [8]byte{1})
	got := 0
	r.c.SetDeadline(time.Now().Add(testkit.Patience))
	for {
		f, err := r.fr.ReadFrame()
		if err != nil {
			t.Fatalf("after %d bytes of %d: %v", got, size, err)
		}
		if d, ok := f.(*http2.DataFrame); ok {
			if got += len(d.Data()); d.StreamEnded() {
				break
			}
		}
	}
	if got != size {
		t.Errorf("%d bytes of %d", got, size)
	}
	r.c.SetDeadline(time.Time{})
	g.eventually("it idles then", func() bool {
		g.clients.CloseIdle()
		return g.counted("moongate_connections_open") == 0
	})
}

// TestHeldBackUploads: an upload that is kept from going on because memory is scarce ends after a while, and not as if its client had been slow.
func TestHeldBackUploads(t *testing.T) {
	const limit = 1 << 30
	var used atomic.Uint64
	g := startGatewayWith(t, Options{Metrics: observe.NewMetrics(observe.MetricsOptions{}), MemoryLimit: limit, memoryUsed: used.Load,
		Timeouts: Timeouts{BodyIdle: 2 * time.Second}})
	g.serve(httpBackend(t, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }), nil)
	r := g.rawHTTP2()
	r.fr.WriteSettingsAck()
	r.head(1, false, request2("POST", "/")...)
	r.fr.WriteData(1, false, make([]byte, 1))
	used.Store(limit / 100 * 92)
	g.eventually("memory is scarce", func() bool { return g.counted("moongate_memory_scarce") == 1 })
	for left := 65535 - 1; left > 0; {
		n := min(left, 16384)
		r.fr.WriteData(1, false, make([]byte, n))
		left -= n
	}
	r.c.SetDeadline(time.Now().Add(testkit.Patience))
	if said := r.outcome(1); said != "503 end" && said != "503 reset" {
		t.Errorf("it ended with %q", said)
	}
}
