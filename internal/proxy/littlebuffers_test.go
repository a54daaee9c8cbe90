package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
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
