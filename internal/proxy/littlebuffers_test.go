package proxy

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
)

// TestLittleBuffers: while memory is short heads and bodies of any size pass as ever, by all protocols.
func TestLittleBuffers(t *testing.T) {
	const part = buffer.LittleSize - buffer.Headroom - buffer.Tailroom
	body := pattern(1 << 20)
	backend := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head, _ := strconv.Atoi(r.URL.Query().Get("head"))
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		if r.URL.Query().Get("hint") != "" {
			w.Header().Set("Link", "<"+strings.Repeat("y", part/2)+">")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
		}
		w.Header().Set("X-Large", strings.Repeat("x", head))
		if r.URL.Query().Get("chunked") != "" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
		} else {
			w.Header().Set("Content-Length", strconv.Itoa(n))
		}
		w.Write(body[:n])
	})
	for name, serve := range map[string]func(*gateway){
		"HTTP/1.1": func(g *gateway) { g.serve(httpBackend(t, backend), nil) },
		"HTTP/2":   func(g *gateway) { addr, _ := h2cBackend(t, 100, backend); g.serveH2C(addr, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, Timeouts{})
			serve(g)
			g.engine.Budget.Set(1<<40, 1<<41) // always short, never exhausted
			for _, head := range []int{0, part / 2, part - 200, part, 3 * part} {
				for range 3 {
					runtime.GC() // the pools have none left
				}
				before := g.engine.Budget.Spent()
				for _, n := range []int{0, 1, part - 100, part, part + 1, 1 << 20} {
					for _, more := range []string{"", "&chunked=1", "&hint=1"} {
						query := fmt.Sprintf("/?head=%d&n=%d%s", head, n, more)
						resp, err := http.Get("http://" + g.addr() + query)
						if err != nil {
							t.Fatalf("%s: %v", query, err)
						}
						got, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						if err != nil || resp.StatusCode != 200 || !bytes.Equal(got, body[:n]) || len(resp.Header.Get("X-Large")) != head {
							t.Fatalf("%s: %d, %v, %d bytes, X-Large of %d", query, resp.StatusCode, err, len(got), len(resp.Header.Get("X-Large")))
						}
					}
				}
				if g.engine.Budget.Spent() == before {
					t.Error("no little buffer was made")
				}
			}
		})
	}
}

// TestLittleBuffersCountAsSuch: where memory is scarce, who holds a little buffer is not taken for one who holds a large one, by all protocols.
func TestLittleBuffersCountAsSuch(t *testing.T) {
	checkLeaks(t)
	const size = 32 << 20             // more than sockets hold
	const heldUpFor = 5 * time.Second // those that are ended
	start := func(rule func(*config.Rule)) *gateway {
		g := startGateway(t, Timeouts{})
		g.serve(cannedBackend(t, cannedResponse(size), 0), rule)
		g.engine.Budget.Set(1<<40, 1<<41) // always short, never exhausted
		return g
	}
	paced, stuck := start(withBandwidth(&config.BandwidthLimit{ResponseBytesPerSecond: 8 << 10})), start(nil)
	for range 3 {
		runtime.GC() // the pools have none left
	}
	for _, g := range []*gateway{paced, stuck} {
		c := g.dial()
		defer c.Close()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		r := g.rawHTTP2()
		r.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: math.MaxInt32})
		r.fr.WriteWindowUpdate(0, math.MaxInt32-1<<16)
		r.head(1, true, request2("GET", "/")...)
	}
	const each = buffer.LittleSize + exchange.Cost
	stuck.eventuallyStuck(2, heldUpFor)
	stuck.stopSweeping()
	stuck.clients.EndStuckResponses(1) // a first look
	if n, freed := stuck.clients.EndStuckResponses(1 << 40); n != 2 || freed != 2*each {
		t.Errorf("%d responses that clients do not take have had %d bytes, want %d", n, freed, 2*each)
	}
	n, freed := 0, uint64(0)
	paced.eventually("both are held up", func() bool { // but for the moment in which they send
		more, bytes := paced.engine.EndPaced(1 << 40)
		n, freed = n+more, freed+bytes
		return n == 2
	})
	if freed != 2*each {
		t.Errorf("responses that bandwidth limits hold up have had %d bytes, want %d", freed, 2*each)
	}
}
