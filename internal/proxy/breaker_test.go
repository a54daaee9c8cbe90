package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// trafficOf is the Backend of serve as a policy has it.
func trafficOf(protocol config.BackendProtocol, traffic *config.BackendTraffic) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "Service/default/b/80", Protocol: protocol, Traffic: traffic}}}
}

func breakerOf(c *config.CircuitBreaker) *config.BackendTraffic {
	return &config.BackendTraffic{CircuitBreaker: c}
}

// uncounted waits until the backend of serve has nothing under way that its breaker counts, idle connections apart.
func (g *gateway) uncounted() {
	g.t.Helper()
	b := g.upstreams.Get("Service/default/b/80")
	g.eventually("nothing is under way", func() bool {
		for _, s := range b.BreakerStats() {
			if w := s.Limit.String(); s.Now != 0 && w != "connections" && w != "endpoint_connections" {
				return false
			}
		}
		s := b.Stats()
		return s.InFlight == 0 && s.Open == s.Idle && s.Waiting == 0
	})
}

// TestBreakerOverflow: what does not pass a breaker is answered 503, is told that it is a matter of load, is counted by the limit, and has left nothing counted; requests that pass
// are as always.
func TestBreakerOverflow(t *testing.T) {
	t.Parallel()
	for limit, c := range map[string]*config.CircuitBreaker{
		"requests":             {MaxParallelRequests: proto.Uint32(1)},
		"pending_requests":     {MaxConnections: proto.Uint32(1), MaxPendingRequests: proto.Uint32(0)},
		"connections":          {MaxConnections: proto.Uint32(0)},
		"endpoint_connections": {MaxConnectionsPerEndpoint: proto.Uint32(0)},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/HTTP2 %v", limit, h2), func(t *testing.T) {
				t.Parallel()
				checkLeaks(t)
				held, goOn := make(chan struct{}, 1), make(chan struct{})
				handle := func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/held" {
						held <- struct{}{}
						<-goOn
					}
				}
				g := startGateway(t, Timeouts{})
				protocol := config.BackendProtocol_BACKEND_PROTOCOL_HTTP
				if h2 {
					protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
					addr, _ := h2cBackend(t, 0, handle)
					g.serveH2C(addr, nil)
				} else {
					g.serve(httpBackend(t, handle), nil)
				}
				if limit == "requests" {
					g.apply([]*config.Resource{trafficOf(protocol, breakerOf(c))})
					first := g.dial()
					io.WriteString(first, "GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
					<-held
					defer func() {
						close(goOn)
						if resp, err := http.ReadResponse(bufio.NewReader(first), nil); err != nil || resp.StatusCode != 200 {
							t.Errorf("the request that passed: %v, %v", resp, err)
						}
						g.uncounted()
						if status, err := get(g.dial()); status != 200 || err != nil {
							t.Errorf("a request after it: %d, %v", status, err)
						}
					}()
				} else {
					g.apply([]*config.Resource{trafficOf(protocol, breakerOf(c))})
				}
				got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
				if !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "\r\nX-Envoy-Overloaded: true\r\n") || !strings.Contains(got, "circuit_breaker_open") {
					t.Errorf("got %q", got)
				}
				if r := g.reasonsLogged(1); r[0] != "circuit_breaker_open" {
					t.Errorf("logged %q", r)
				}
				if n := g.counted("moongate_upstream_circuit_breaker_overflows_total", "limit", limit); n != 1 {
					t.Errorf("%v overflows are counted", n)
				}
				if n := g.counted("moongate_upstream_circuit_breaker_open", "limit", limit); n != 1 {
					t.Errorf("the breaker is open: %v", n)
				}
			})
		}
	}
}

// TestBreakerGRPC: a call that does not pass is unavailable.
func TestBreakerGRPC(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	cc := g.grpcPair()
	g.apply([]*config.Resource{trafficOf(config.BackendProtocol_BACKEND_PROTOCOL_H2C, breakerOf(&config.CircuitBreaker{MaxParallelRequests: proto.Uint32(0)}))})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	err := cc.Invoke(ctx, "/test.Echo/Echo", wrapperspb.Bytes(nil), &wrapperspb.BytesValue{}, grpc.WaitForReady(true))
	if s := status.Convert(err); s.Code() != codes.Unavailable || !strings.Contains(s.Message(), "circuit_breaker_open") {
		t.Error(err)
	}
}

// TestBreakerRetries: a retry that does not pass is not made, and the response at hand is relayed.
func TestBreakerRetries(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var seen atomic.Int64
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		seen.Add(1)
		w.WriteHeader(503)
	}), func(r *config.Rule) {
		r.Retry = &config.Retry{Attempts: 2, BackoffNanos: int64(time.Millisecond), Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_5XX}}
	})
	for i, c := range []struct {
		breaker *config.CircuitBreaker
		want    int64
	}{
		{&config.CircuitBreaker{MaxParallelRetries: proto.Uint32(0)}, 1},
		{&config.CircuitBreaker{MaxParallelRetries: proto.Uint32(1)}, 3},
		{&config.CircuitBreaker{MaxParallelRetries: proto.Uint32(5), RetryBudget: &config.ParallelRetryBudget{Numerator: 99, Denominator: 100}}, 1},
		{&config.CircuitBreaker{RetryBudget: &config.ParallelRetryBudget{Numerator: 1, Denominator: 100, MinRetryConcurrency: 1}}, 3},
	} {
		g.apply([]*config.Resource{trafficOf(0, breakerOf(c.breaker))})
		seen.Store(0)
		if status, err := get(g.dial()); status != 503 || err != nil || seen.Load() != c.want {
			t.Errorf("%v: %d, %v after %d attempts, want %d", c.breaker, status, err, seen.Load(), c.want)
		}
		if r := g.reasonsLogged(i + 1); r[i] != "retries_exhausted" {
			t.Errorf("logged %q", r)
		}
		g.uncounted()
	}
}

// TestBreakerRetriesEnd: a retry is under way until its response comes, and not for as long as that is relayed.
func TestBreakerRetriesEnd(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var failing atomic.Bool
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if failing.CompareAndSwap(true, false) {
			w.WriteHeader(503)
			return
		}
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		if r.URL.Path == "/stream" {
			<-r.Context().Done()
		}
	}), func(r *config.Rule) {
		r.Retry = &config.Retry{Attempts: 1, BackoffNanos: int64(time.Millisecond), Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_5XX}}
	})
	g.apply([]*config.Resource{trafficOf(0, breakerOf(&config.CircuitBreaker{MaxParallelRetries: proto.Uint32(1)}))})
	failing.Store(true)
	c := g.dial()
	fmt.Fprint(c, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n")
	stream, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || stream.StatusCode != 200 {
		t.Fatal(stream, err)
	}
	for range 2 {
		failing.Store(true)
		if status, err := get(g.dial()); status != 200 || err != nil {
			t.Errorf("beside the stream: %d, %v", status, err)
		}
	}
	c.Close()
	g.uncounted()
}

// TestBreakerTunnels: a tunnel has its connection to the end, and a WebSocket is a request besides; when they end, by either side, nothing is counted any more.
func TestBreakerTunnels(t *testing.T) {
	t.Parallel()
	limits := breakerOf(&config.CircuitBreaker{MaxConnections: proto.Uint32(1), MaxParallelRequests: proto.Uint32(1), MaxPendingRequests: proto.Uint32(1)})
	for _, ends := range []string{"client", "backend"} {
		t.Run("WebSocket/"+ends, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			addr, accepted := switching(t)
			g := startGateway(t, Timeouts{})
			g.serveWebSocket(addr, nil)
			g.apply([]*config.Resource{trafficOf(config.BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET, limits)})
			c, r, b := g.upgraded(accepted)
			passes(t, c, b)
			if status, err := get(g.dial()); status != 503 || err != nil {
				t.Errorf("a request beside it: %d, %v", status, err)
			}
			endTunnel(ends, c, b, r)
			g.uncounted()
		})
		t.Run("TCP/"+ends, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			conns := make(chan *net.TCPConn, 1)
			done := make(chan struct{})
			defer close(done)
			addr := rawBackend(t, func(c net.Conn, _ *bufio.Reader) {
				conns <- c.(*net.TCPConn)
				<-done
			})
			g := startGateway(t, Timeouts{})
			g.apply(append(backend("Service/default/b/80", addr), g.tcpListener("tcp"),
				l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: "Service/default/b/80", Weight: 1}), trafficOf(0, limits)))
			c := g.dial()
			b := <-conns
			passes(t, c, b)
			endTunnel(ends, c, b, bufio.NewReader(c))
			g.uncounted()
		})
	}
}

// endTunnel has one side break a tunnel off, and the other see it.
func endTunnel(ends string, c net.Conn, b *net.TCPConn, r io.Reader) {
	b.SetDeadline(time.Now().Add(testkit.Patience))
	if strings.HasPrefix(ends, "client") {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
		io.Copy(io.Discard, b)
		b.Close()
	} else {
		b.SetLinger(0)
		b.Close()
		io.Copy(io.Discard, r)
	}
}

// TestBreakerStress: clients by HTTP/1.1 and HTTP/2 come, leave in the middle, are copied, are retried and open WebSockets, backends answer, break off and refuse, and the configuration changes all the
// while; in the end nothing is counted.
func TestBreakerStress(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	stop := make(chan struct{})
	handle := func(w http.ResponseWriter, r *http.Request) {
		switch rand.IntN(6) {
		case 0:
			w.WriteHeader(503)
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			io.WriteString(w, "some")
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond):
			}
		default:
			io.Copy(w, r.Body)
		}
	}
	h1 := httpBackend(t, handle)
	h2addr, _ := h2cBackend(t, 4, handle)
	g := startGateway(t, Timeouts{})
	limits := func() *config.CircuitBreaker {
		return &config.CircuitBreaker{MaxConnections: proto.Uint32(uint32(1 + rand.IntN(4))), MaxPendingRequests: proto.Uint32(uint32(rand.IntN(8))),
			MaxParallelRequests: proto.Uint32(uint32(4 + rand.IntN(8))), MaxParallelRetries: proto.Uint32(1), MaxRequestsPerConnection: uint32(rand.IntN(4)),
			MaxConnectionsPerEndpoint: proto.Uint32(uint32(1 + rand.IntN(3)))}
	}
	rule := func(r *config.Rule) {
		mirrorTo(t, "Service/default/b/80")(r)
		r.Retry = &config.Retry{Attempts: 2, BackoffNanos: int64(time.Millisecond), Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_5XX}}
		r.RequestTimeoutNanos = int64(time.Second)
	}
	g.serve(h1, rule)
	var clients sync.WaitGroup
	var answered atomic.Int64
	for i := range 12 {
		clients.Go(func() {
			for n := range 40 {
				c := g.dialQuietly()
				if c == nil {
					return
				}
				if i%2 == 0 {
					fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello")
				} else if cc, err := http2Over(c); err == nil {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(200))*time.Millisecond)
					req, _ := http.NewRequestWithContext(ctx, "PUT", "http://h/", strings.NewReader("hello"))
					if resp, err := cc.RoundTrip(req); err == nil {
						answered.Add(1)
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					cancel()
				}
				if i%2 == 0 && n%3 > 0 {
					if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
						answered.Add(1)
						io.Copy(io.Discard, resp.Body)
					}
				}
				c.Close()
			}
		})
	}
	var edits sync.WaitGroup
	edits.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			protocol, addr := config.BackendProtocol_BACKEND_PROTOCOL_HTTP, h1
			if i/8%2 == 1 {
				protocol, addr = config.BackendProtocol_BACKEND_PROTOCOL_H2C, h2addr
			}
			traffic := breakerOf(limits())
			if i%5 == 4 {
				traffic = nil
			}
			g.apply([]*config.Resource{trafficOf(protocol, traffic), backend("Service/default/b/80", addr)[1]})
			time.Sleep(5 * time.Millisecond)
		}
	})
	clients.Wait()
	close(stop)
	edits.Wait()
	if answered.Load() == 0 {
		t.Error("no request was answered")
	}
	g.apply([]*config.Resource{trafficOf(0, breakerOf(&config.CircuitBreaker{MaxConnections: proto.Uint32(9), MaxPendingRequests: proto.Uint32(9),
		MaxParallelRequests: proto.Uint32(9), MaxParallelRetries: proto.Uint32(9)}))})
	g.eventually("copies have ended", func() bool { return g.engine.Mirrors() == 0 })
	g.uncounted()
}

// dialQuietly is dial where the gateway may refuse.
func (g *gateway) dialQuietly() net.Conn {
	c, err := net.Dial("tcp", g.addr())
	if err != nil {
		return nil
	}
	c.SetDeadline(time.Now().Add(testkit.Patience))
	return c
}

// TestRequestsPerConnection: connections to backends carry as many requests as they may, one after the other and at the same time, and are closed then.
func TestRequestsPerConnection(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP2 %v", h2), func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			var mu sync.Mutex
			carried := map[string]int{}
			handle := func(_ http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				carried[r.RemoteAddr]++
			}
			g := startGateway(t, Timeouts{})
			protocol := config.BackendProtocol_BACKEND_PROTOCOL_HTTP
			if h2 {
				protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
				addr, _ := h2cBackend(t, 0, handle)
				g.serveH2C(addr, nil)
			} else {
				g.serve(httpBackend(t, handle), nil)
			}
			g.apply([]*config.Resource{trafficOf(protocol, breakerOf(&config.CircuitBreaker{MaxRequestsPerConnection: 3}))})
			var clients sync.WaitGroup
			for range 6 {
				c := g.dial()
				clients.Go(func() {
					for range 7 {
						if status, err := get(c); status != 200 || err != nil {
							t.Errorf("got %d, %v", status, err)
						}
					}
				})
			}
			clients.Wait()
			mu.Lock()
			defer mu.Unlock()
			all := 0
			for addr, n := range carried {
				if all += n; n > 3 {
					t.Errorf("a connection from %s has carried %d requests", addr, n)
				}
			}
			if all != 42 {
				t.Errorf("%d requests", all)
			}
			g.eventually("connections that have carried all are closed", func() bool { return g.upstreams.Get("Service/default/b/80").Stats().Open <= 6 })
		})
	}
}

// TestBreakerPanic: an exchange through which a panic passes, also in a retry, is counted no more.
func TestBreakerPanic(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP2 %v", h2), func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			attempts := 0
			handle := func(w http.ResponseWriter, _ *http.Request) {
				if attempts++; attempts%2 == 1 {
					w.WriteHeader(503)
				}
			}
			g := startGateway(t, Timeouts{})
			rule := func(r *config.Rule) {
				r.Retry = &config.Retry{Attempts: 2, BackoffNanos: int64(time.Millisecond), Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_5XX}}
				r.Traffic = &config.RuleTraffic{StreamIdleTimeoutNanos: int64(time.Hour), MaxStreamDurationNanos: int64(time.Hour)}
			}
			protocol := config.BackendProtocol_BACKEND_PROTOCOL_HTTP
			if h2 {
				protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
				addr, _ := h2cBackend(t, 0, handle)
				g.serveH2C(addr, rule)
			} else {
				g.serve(httpBackend(t, handle), rule)
			}
			g.apply([]*config.Resource{trafficOf(protocol, breakerOf(&config.CircuitBreaker{MaxConnections: proto.Uint32(1), MaxPendingRequests: proto.Uint32(1),
				MaxParallelRequests: proto.Uint32(1), MaxParallelRetries: proto.Uint32(1)}))})
			g.panicsIn("response")
			for range 3 {
				c := g.dial()
				io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nX-Panic: 1\r\n\r\n")
				if got, _ := io.ReadAll(c); strings.HasPrefix(string(got), "HTTP/1.1 200") {
					t.Errorf("got %.60q", got)
				}
				g.uncounted()
			}
			if status, err := get(g.dial()); status != 200 || err != nil {
				t.Errorf("the request after them: %d, %v", status, err)
			}
			for i, r := range g.reasonsLogged(4) {
				if want := map[bool]string{true: "internal", false: "ok"}[i < 3]; r != want {
					t.Errorf("request %d is logged as %s, want %s", i, r, want)
				}
			}
		})
	}
}
