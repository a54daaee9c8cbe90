package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestStreamLimits: a stream through which nothing moves, or that takes too long, is answered 504 before a response, and breaks off behind it, by all protocols.
func TestStreamLimits(t *testing.T) {
	t.Parallel()
	for reason, traffic := range map[string]*config.RuleTraffic{
		"stream_idle":              {StreamIdleTimeoutNanos: int64(300 * time.Millisecond)},
		"stream_duration_exceeded": {MaxStreamDurationNanos: int64(300 * time.Millisecond)},
	} {
		for _, client2 := range []bool{false, true} {
			for _, backend2 := range []bool{false, true} {
				for _, begun := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/client HTTP2 %v/backend HTTP2 %v/begun %v", reason, client2, backend2, begun), func(t *testing.T) {
						t.Parallel()
						checkLeaks(t)
						handle := func(w http.ResponseWriter, r *http.Request) {
							if begun {
								io.WriteString(w, "first")
								w.(http.Flusher).Flush()
							}
							<-r.Context().Done()
						}
						g := startGateway(t, Timeouts{})
						limit := func(r *config.Rule) { r.Traffic = traffic }
						if backend2 {
							addr, _ := h2cBackend(t, 0, handle)
							g.serveH2C(addr, limit)
						} else {
							g.serve(httpBackend(t, handle), limit)
						}
						var status int
						var err error
						if client2 {
							req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://h/", nil)
							var resp *http.Response
							if resp, err = g.http2Client("").RoundTrip(req); err == nil {
								status = resp.StatusCode
								_, err = io.Copy(io.Discard, resp.Body)
								resp.Body.Close()
							}
						} else {
							status, err = get(g.dial())
						}
						// A machine that is busy may take so long that no response has begun.
						if broke := status == 200 && err != nil; !broke && (status != 504 || err != nil) || !begun && broke {
							t.Errorf("got %d, %v", status, err)
						}
						if r := g.reasonsLogged(1); r[0] != reason {
							t.Errorf("logged %q", r)
						}
						if b := g.upstreams.Get("Service/default/b/80"); b.Stats().InFlight != 0 {
							t.Error("the request is counted still")
						}
					})
				}
			}
		}
	}
}

// TestStreamLimitsOfTunnels: a WebSocket through which nothing moves, or that takes too long, is reset on both sides, also while it is suspended; by HTTP/2 too.
func TestStreamLimitsOfTunnels(t *testing.T) {
	t.Parallel()
	for reason, traffic := range map[string]*config.RuleTraffic{
		"stream_idle":              {StreamIdleTimeoutNanos: int64(2500 * time.Millisecond)}, // a tunnel is suspended after a second
		"stream_duration_exceeded": {MaxStreamDurationNanos: int64(2500 * time.Millisecond)},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			addr, accepted := switching(t)
			g := startGateway(t, Timeouts{})
			g.serveWebSocket(addr, func(r *config.Rule) { r.Traffic = traffic })
			c, r, b := g.upgraded(accepted)
			b.SetDeadline(time.Now().Add(testkit.Patience))
			for who, end := range map[string]io.Reader{"client": r, "backend": b} {
				if _, err := end.Read(make([]byte, 1)); err == nil || err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the %s's connection ended by %v, want a reset", who, err)
				}
			}
			c.Close()
			if r := g.reasonsLogged(1); r[0] != reason {
				t.Errorf("logged %q", r)
			}
		})
	}
}

// TestStreamLimitsOfWatches: a response that is waited for without a goroutine ends by the limits of its rule, and by its client and its backend before them; a breaker counts it to
// the end.
func TestStreamLimitsOfWatches(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		traffic *config.RuleTraffic
		reason  string
	}{
		"idle":     {&config.RuleTraffic{StreamIdleTimeoutNanos: int64(2 * time.Second)}, "stream_idle"},
		"duration": {&config.RuleTraffic{MaxStreamDurationNanos: int64(2 * time.Second)}, "stream_duration_exceeded"},
		"client":   {&config.RuleTraffic{StreamIdleTimeoutNanos: int64(time.Hour), MaxStreamDurationNanos: int64(time.Hour)}, "client_closed"},
		"backend":  {&config.RuleTraffic{StreamIdleTimeoutNanos: int64(time.Hour), MaxStreamDurationNanos: int64(time.Hour)}, "upstream_truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			w, addr := newWatched(t)
			g := startGateway(t, Timeouts{})
			g.serveH2C(addr, func(r *config.Rule) { r.Traffic = c.traffic })
			g.apply([]*config.Resource{trafficOf(config.BackendProtocol_BACKEND_PROTOCOL_H2C, breakerOf(&config.CircuitBreaker{MaxParallelRequests: proto.Uint32(1)}))})
			cc := g.http2Client("")
			resp := g.watches(cc, 1)[0]
			if c.reason == "client_closed" || c.reason == "upstream_truncated" {
				suspended(t)
				if n := g.counted("moongate_upstream_circuit_breaker_open", "limit", "requests"); n != 1 {
					t.Errorf("the limit is reached: %v", n)
				}
			}
			switch name {
			case "client":
				cc.Close()
			case "backend":
				(<-w.peers).c.Close()
			}
			if _, err := io.Copy(io.Discard, resp.Body); err == nil {
				t.Error("the response has ended in order")
			}
			if r := g.reasonsLogged(1); r[0] != c.reason {
				t.Errorf("logged %q, want %s", r, c.reason)
			}
			g.uncounted()
		})
	}
}

// TestStreamIdleOfSlowClient: a client that takes nothing keeps a response from moving.
func TestStreamIdleOfSlowClient(t *testing.T) {
	t.Parallel()
	for _, length := range []string{"Transfer-Encoding: chunked\r\n", "Content-Length: 100000000\r\n"} {
		t.Run(length, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			g.serve(rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				if _, err := readHead(r); err != nil {
					return
				}
				io.WriteString(c, "HTTP/1.1 200 OK\r\n"+length+"\r\n")
				part := "10000\r\n" + strings.Repeat("x", 1<<16) + "\r\n"
				for {
					if _, err := io.WriteString(c, part); err != nil {
						return
					}
				}
			}), func(r *config.Rule) {
				r.Traffic = &config.RuleTraffic{StreamIdleTimeoutNanos: int64(500 * time.Millisecond)}
			})
			io.WriteString(g.dial(), "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			if r := g.reasonsLogged(1); r[0] != "stream_idle" {
				t.Errorf("logged %q", r)
			}
		})
	}
}

// TestBufferLimit: what is kept of a body decides whether the request can be sent again.
func TestBufferLimit(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("b", 300<<10)
	for limit, again := range map[uint32]bool{0: false, 100 << 10: false, 1 << 20: true} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes/HTTP2 %v", limit, h2), func(t *testing.T) {
				t.Parallel()
				checkLeaks(t)
				attempts := 0
				handle := func(w http.ResponseWriter, r *http.Request) {
					if got, err := io.ReadAll(r.Body); err != nil || string(got) != body {
						t.Errorf("an attempt came with %d bytes, %v", len(got), err)
					}
					attempts++
					w.WriteHeader(503)
				}
				g := startGateway(t, Timeouts{})
				rule := func(r *config.Rule) {
					r.Retry = &config.Retry{Attempts: 2, Codes: []uint32{503}, BackoffNanos: int64(time.Millisecond)}
					r.Traffic = &config.RuleTraffic{BufferLimitBytes: limit}
				}
				if h2 {
					addr, _ := h2cBackend(t, 0, handle)
					g.serveH2C(addr, rule)
				} else {
					g.serve(httpBackend(t, handle), rule)
				}
				got := g.roundTrip(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body))
				want, reason := 1, "retry_body_too_large"
				if again {
					want, reason = 3, "retries_exhausted"
				}
				if words := g.reasonsLogged(1); !strings.HasPrefix(got, "HTTP/1.1 503 ") || words[0] != reason || attempts != want {
					t.Errorf("%d attempts, %q, %.30q; want %d and %s", attempts, words, got, want, reason)
				}
			})
		}
	}
}
