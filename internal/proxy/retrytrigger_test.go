package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestRetryTriggersSendAgain: a rule's triggers have a request of any method sent again that the backend may have processed, from its first byte; others, and those of a
// failure that has not happened, do not. Both hold for the protocols of backends.
func TestRetryTriggersSendAgain(t *testing.T) {
	t.Parallel()
	const post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
	for trigger, again := range map[config.RetryTrigger]bool{
		config.RetryTrigger_RETRY_TRIGGER_5XX:                  true,
		config.RetryTrigger_RETRY_TRIGGER_RESET:                true,
		config.RetryTrigger_RETRY_TRIGGER_GATEWAY_ERROR:        true,
		config.RetryTrigger_RETRY_TRIGGER_CONNECT_FAILURE:      false,
		config.RetryTrigger_RETRY_TRIGGER_RESET_BEFORE_REQUEST: false,
		config.RetryTrigger_RETRY_TRIGGER_RETRIABLE_4XX:        false,
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/HTTP2 %v", trigger, h2), func(t *testing.T) {
				t.Parallel()
				b := &breaking{how: "reset"}
				g := startGateway(t, Timeouts{})
				retry := func(r *config.Rule) {
					r.Retry = &config.Retry{Attempts: 2, BackoffNanos: int64(time.Millisecond), Triggers: []config.RetryTrigger{trigger}}
				}
				if h2 {
					g.serveH2C(frameBackend(t, nil, b.http2), retry)
				} else {
					g.serve(rawBackend(t, b.http1), retry)
				}
				got := g.roundTrip(post)
				want := int64(1)
				if again {
					want = 3
				}
				if !strings.HasPrefix(got, "HTTP/1.1 502 ") || b.seen.Load() != want {
					t.Errorf("the backend got it %d times, want %d; %.60q", b.seen.Load(), want, got)
				}
			})
		}
	}
}

// TestRetryTriggerOfGRPC: a call that fails at once is made again by its grpc-status, and the response of the last attempt is relayed.
func TestRetryTriggerOfGRPC(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	addr, _ := h2cBackend(t, 0, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		code := "14"
		if calls.Add(1) == 3 {
			code = "5"
		}
		w.Header().Set("Grpc-Status", code)
	})
	g := startGateway(t, Timeouts{})
	g.serveH2C(addr, func(r *config.Rule) {
		r.Retry = &config.Retry{Attempts: 5, BackoffNanos: int64(time.Millisecond), Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_GRPC_UNAVAILABLE}}
	})
	got := g.roundTrip("POST /s/M HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	if calls.Load() != 3 || !strings.Contains(got, "Grpc-Status: 5\r\n") && !strings.Contains(got, "grpc-status: 5\r\n") {
		t.Errorf("%d calls, %q", calls.Load(), got)
	}
}

// TestPerTryTimeout: an attempt without a response is given up for another, and the last one ends in 504; a response that has begun is not cut off.
func TestPerTryTimeout(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		for _, answers := range []bool{false, true} {
			t.Run(fmt.Sprintf("HTTP2 %v/answers %v", h2, answers), func(t *testing.T) {
				t.Parallel()
				checkLeaks(t)
				var seen atomic.Int64
				begun, goOn := make(chan struct{}, 1), make(chan struct{})
				handle := func(w http.ResponseWriter, r *http.Request) {
					if n := seen.Add(1); !answers || n < 3 {
						<-r.Context().Done()
						return
					}
					w.Header().Set("Content-Length", "4")
					io.WriteString(w, "he")
					w.(http.Flusher).Flush()
					begun <- struct{}{}
					<-goOn
					io.WriteString(w, "re")
				}
				const try = 50 * time.Millisecond
				g := startGateway(t, Timeouts{})
				retry := func(r *config.Rule) {
					r.Retry = &config.Retry{Attempts: 2, BackoffNanos: int64(time.Millisecond), PerTryTimeoutNanos: int64(try),
						Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_RESET}}
					if answers {
						r.Retry.Attempts, r.Retry.PerTryTimeoutNanos = 16, int64(time.Second) // a busy machine may take longer than 50 ms
					}
				}
				if h2 {
					addr, _ := h2cBackend(t, 0, handle)
					g.serveH2C(addr, retry)
				} else {
					g.serve(httpBackend(t, handle), retry)
				}
				c := g.dial()
				io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
				if !answers {
					got, _ := io.ReadAll(c)
					if !strings.HasPrefix(string(got), "HTTP/1.1 504 ") || seen.Load() > 3 {
						t.Errorf("%d attempts, %.60q", seen.Load(), got)
					}
					if r := g.reasonsLogged(1); r[0] != "backend_timeout" {
						t.Errorf("logged %q", r)
					}
					return
				}
				<-begun
				at := time.Now()
				for time.Since(at) < 1100*time.Millisecond { // so that the timeout of the try passes
					time.Sleep(try)
				}
				close(goOn)
				got, err := io.ReadAll(c)
				if err != nil || !strings.HasSuffix(string(got), "\r\n\r\nhere") {
					t.Errorf("%.200q, %v", got, err)
				}
			})
		}
	}
}

// TestRetryAfterConnectFailure: with triggers of which none is for that, no other endpoint is asked.
func TestRetryAfterConnectFailure(t *testing.T) {
	t.Parallel()
	good := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	for trigger, want := range map[config.RetryTrigger]string{
		config.RetryTrigger_RETRY_TRIGGER_CONNECT_FAILURE:      "HTTP/1.1 200 ",
		config.RetryTrigger_RETRY_TRIGGER_RESET_BEFORE_REQUEST: "HTTP/1.1 200 ",
		config.RetryTrigger_RETRY_TRIGGER_5XX:                  "HTTP/1.1 200 ",
		config.RetryTrigger_RETRY_TRIGGER_RETRIABLE_4XX:        "HTTP/1.1 502 ",
	} {
		g := startGateway(t, Timeouts{})
		g.serve(refusedAddr(t), func(r *config.Rule) {
			r.Retry = &config.Retry{Attempts: 16, BackoffNanos: int64(time.Second), MaxBackoffNanos: int64(time.Second), Triggers: []config.RetryTrigger{trigger}}
		})
		c := g.dial()
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		if want == "HTTP/1.1 200 " { // the endpoint recovers while the request waits, or has waited
			for g.Proxy.upstreams.Get("Service/default/b/80").Stats().Failures == 0 {
				time.Sleep(time.Millisecond)
			}
			g.apply(backend("Service/default/b/80", good)[1:])
		}
		if got, err := io.ReadAll(c); !strings.HasPrefix(string(got), want) || err != nil {
			t.Errorf("%v: %.60q, %v, want %s", trigger, got, err, want)
		}
	}
}

// TestPerTryTimeoutOfUploads: the timeout of a try does not count what the gateway holds a body up, nor what the backend takes of a long one as long as it takes some, but a backend that
// takes nothing is given up.
func TestPerTryTimeoutOfUploads(t *testing.T) {
	t.Parallel()
	const long = 24 << 20 // more than sockets hold
	perTry := func(timeout time.Duration, buffered, paced bool) func(*config.Rule) {
		return func(r *config.Rule) {
			r.Traffic = &config.RuleTraffic{Policy: "BackendTrafficPolicy default/p"}
			if paced {
				r.Traffic.BandwidthLimit = &config.BandwidthLimit{RequestBytesPerSecond: 1 << 10}
			}
			if buffered {
				r.Traffic.RequestBufferBytes = long
			}
			r.Retry = &config.Retry{Attempts: 0, PerTryTimeoutNanos: int64(timeout)}
		}
	}
	read := func(_ <-chan struct{}, r *http.Request) { io.Copy(io.Discard, r.Body) }
	for _, c := range []struct {
		name   string
		rule   func(*config.Rule)
		size   int
		handle func(ended <-chan struct{}, r *http.Request)
		want   string
	}{
		{"held up", perTry(2*time.Second, false, true), 4 << 10, read, "ok"},
		{"read whole and held up", perTry(2*time.Second, true, true), 4 << 10, read, "ok"},
		{"read whole and taken slowly", perTry(2*time.Second, true, false), long, func(_ <-chan struct{}, r *http.Request) {
			for range 4 {
				time.Sleep(800 * time.Millisecond)
				io.CopyN(io.Discard, r.Body, long/4)
			}
			io.Copy(io.Discard, r.Body)
		}, "ok"},
		{"read whole and not taken", perTry(500*time.Millisecond, true, false), long, func(ended <-chan struct{}, _ *http.Request) { <-ended }, "backend_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
				ended := make(chan struct{})
				defer close(ended)
				g := paced(t, backend2, func(_ http.ResponseWriter, r *http.Request) { c.handle(ended, r) }, c.rule)
				resp, err := g.client(client2).RoundTrip(g.newRequest(t, "POST", strings.NewReader(strings.Repeat("b", c.size))))
				if err == nil {
					resp.Body.Close()
				}
				if r := g.reasonsLogged(1); r[0] != c.want {
					t.Errorf("logged %q, want %s", r, c.want)
				}
			})
		})
	}
}
