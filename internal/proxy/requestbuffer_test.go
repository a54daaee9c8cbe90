//lint:file-ignore SA1019 x/net's client takes a connection that the test has made itself

package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func withBuffer(limit uint32) func(*config.Rule) {
	return func(r *config.Rule) { r.Traffic = &config.RuleTraffic{RequestBufferBytes: limit} }
}

// seenRequest is what a backend has seen of a request.
type seenRequest struct {
	length int64
	expect string
	body   string
}

// TestRequestBuffer: the backend hears of a request when all of its body is there, and is told the length of it; a body that is too long is answered 413 and no backend hears of it.
func TestRequestBuffer(t *testing.T) {
	t.Parallel()
	const limit = 200 << 10
	long, longer := strings.Repeat("a", limit), strings.Repeat("a", limit+1)
	for _, backend2 := range []bool{false, true} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("backend HTTP2 %v/plain %v", backend2, plain), func(t *testing.T) {
				t.Parallel()
				checkLeaks(t)
				seen := make(chan seenRequest, 10)
				handle := func(w http.ResponseWriter, r *http.Request) {
					b, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					seen <- seenRequest{r.ContentLength, r.Header.Get("Expect"), string(b)}
				}
				g := startGatewayWith(t, Options{PlainIO: plain})
				if backend2 {
					addr, _ := h2cBackend(t, 0, handle)
					g.serveH2C(addr, withBuffer(limit))
				} else {
					g.serve(httpBackend(t, handle), withBuffer(limit))
				}
				for _, c := range []struct {
					name, head string
					parts      []string // of the body, each of them written when the one before must have arrived
					status     int
					body       string // that the backend has seen
				}{
					{"none", "GET / HTTP/1.1\r\n", nil, 200, ""},
					{"at once", "POST / HTTP/1.1\r\nContent-Length: 2\r\n", []string{"ab"}, 200, "ab"},
					{"in parts", "POST / HTTP/1.1\r\nContent-Length: 4\r\n", []string{"ab", "cd"}, 200, "abcd"},
					{"chunked", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", []string{"2\r\nab\r\n", "2\r\ncd\r\n", "0\r\n\r\n"}, 200, "abcd"},
					{"chunked and empty", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", []string{"0\r\n", "\r\n"}, 200, ""},
					{"as long as it may be", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", []string{fmt.Sprintf("%x\r\n", limit), long, "\r\n0\r\n\r\n"}, 200, long},
					{"too long by its length", fmt.Sprintf("POST / HTTP/1.1\r\nContent-Length: %d\r\n", limit+1), nil, 413, ""},
					{"too long, and waits for 100", fmt.Sprintf("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n", limit+1), nil, 413, ""},
					{"too long and chunked", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", []string{fmt.Sprintf("%x\r\n", limit+1) + longer}, 413, ""},
				} {
					conn := g.dial()
					r := bufio.NewReader(conn)
					io.WriteString(conn, c.head+"Host: h\r\n\r\n")
					for _, p := range c.parts {
						select {
						case s := <-seen:
							t.Errorf("%s: the backend has heard of the request before its end: %.30q", c.name, s.body)
						case <-time.After(20 * time.Millisecond): // less shows less, and fails nothing
						}
						io.WriteString(conn, p)
					}
					resp, err := http.ReadResponse(r, nil)
					if err != nil || resp.StatusCode != c.status {
						t.Errorf("%s: %v, %v", c.name, resp, err)
						continue
					}
					if c.status == 413 {
						select {
						case s := <-seen:
							t.Errorf("%s: the backend has heard of it: %.30q", c.name, s.body)
						default:
						}
						continue
					}
					if s := <-seen; s.body != c.body || s.length != int64(len(c.body)) {
						t.Errorf("%s: the backend has got %d bytes with length %d, want %d", c.name, len(s.body), s.length, len(c.body))
					}
				}
				testkit.Eventually(t, "three are refused", func() bool { return g.log.Count(`"reason":"body_too_large"`) == 3 })
				// A client that waits for 100 is told by the gateway.
				conn := g.dial()
				r := bufio.NewReader(conn)
				io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
				if head, err := readHead(r); err != nil || !strings.HasPrefix(head, "HTTP/1.1 100 ") {
					t.Fatalf("%q, %v", head, err)
				}
				io.WriteString(conn, "ab")
				if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 200 {
					t.Errorf("%v, %v", resp, err)
				}
				if s := <-seen; s.body != "ab" || s.expect != "" {
					t.Errorf("the backend has got %+v", s)
				}
			})
		}
	}
}

// TestRequestBufferHTTP2: so it is by streams, also of several clients at once, and their fields behind the body arrive.
func TestRequestBufferHTTP2(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const limit = 1 << 20
	var asked atomic.Int64
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		b, err := io.ReadAll(r.Body)
		fmt.Fprint(w, len(b), err, r.Trailer.Get("X-Sum"))
	}), withBuffer(limit))
	cc := g.http2Client("")
	var wg sync.WaitGroup
	for _, size := range []int{1, 70 << 10, 500 << 10, limit, limit + 1} {
		wg.Go(func() {
			body, w := io.Pipe()
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://h/", body)
			req.Trailer = http.Header{"X-Sum": {"7"}}
			go func() {
				io.WriteString(w, strings.Repeat("b", size/2))
				io.WriteString(w, strings.Repeat("b", size-size/2))
				w.Close()
			}()
			resp, err := cc.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			if size > limit {
				if resp.StatusCode != 413 {
					t.Errorf("%d bytes: %d", size, resp.StatusCode)
				}
			} else if want := fmt.Sprint(size, nil, "7"); string(b) != want {
				t.Errorf("%d bytes: %q, want %q", size, b, want)
			}
		})
	}
	wg.Wait()
	if n := asked.Load(); n != 4 {
		t.Errorf("the backend was asked %d times", n)
	}
}

// TestRequestBufferRetries: a request whose body was buffered is sent again, whatever else is kept of bodies.
func TestRequestBufferRetries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		h2           bool
		limit, other uint32 // other is how much is kept of bodies that are not buffered; 0 means the default
		size         int
	}{
		{false, 1 << 20, 0, 700 << 10}, {true, 1 << 20, 0, 700 << 10}, {false, 64 << 10, 1 << 10, 10 << 10}, {true, 64 << 10, 1 << 10, 10 << 10},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			body := strings.Repeat("b", c.size)
			var attempts atomic.Int64
			handle := func(w http.ResponseWriter, r *http.Request) {
				if b, err := io.ReadAll(r.Body); err != nil || string(b) != body {
					t.Errorf("%d bytes, %v", len(b), err)
				}
				if attempts.Add(1) < 3 {
					w.WriteHeader(503)
				}
			}
			g := startGateway(t, Timeouts{})
			rule := func(r *config.Rule) {
				withBuffer(c.limit)(r)
				r.Traffic.BufferLimitBytes = c.other
				r.Retry = &config.Retry{Attempts: 2, Codes: []uint32{503}, BackoffNanos: int64(time.Millisecond)}
			}
			if c.h2 {
				addr, _ := h2cBackend(t, 0, handle)
				g.serveH2C(addr, rule)
			} else {
				g.serve(httpBackend(t, handle), rule)
			}
			got := g.roundTrip(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body))
			if !strings.HasPrefix(got, "HTTP/1.1 200 ") || attempts.Load() != 3 {
				t.Errorf("%d attempts, %.60q", attempts.Load(), got)
			}
		})
	}
}

// TestRequestBufferEnds: a body that does not come ends the request by what bounds it, without a backend.
func TestRequestBufferEnds(t *testing.T) {
	t.Parallel()
	for reason, c := range map[string]struct {
		status int // 0: none
		change func(*config.Rule)
		end    func(*gateway, io.Closer)
	}{
		"request_timeout":          {504, func(r *config.Rule) { r.RequestTimeoutNanos = int64(200 * time.Millisecond) }, nil},
		"stream_idle":              {504, func(r *config.Rule) { r.Traffic.StreamIdleTimeoutNanos = int64(200 * time.Millisecond) }, nil},
		"stream_duration_exceeded": {504, func(r *config.Rule) { r.Traffic.MaxStreamDurationNanos = int64(200 * time.Millisecond) }, nil},
		"client_closed":            {0, nil, func(_ *gateway, c io.Closer) { c.Close() }},
		"shutting_down": {0, nil, func(g *gateway, _ io.Closer) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			g.Shutdown(ctx)
		}},
		"overloaded": {503, nil, func(g *gateway, c io.Closer) {
			g.engine.Overloaded.Store(true)
			io.WriteString(c.(io.Writer), "b")
		}},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			g.serve(refusedAddr(t), func(r *config.Rule) {
				withBuffer(100)(r)
				if c.change != nil {
					c.change(r)
				}
			})
			conn := g.dial()
			io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na")
			if c.end != nil {
				testkit.Eventually(t, "the body is waited for", func() bool { return strings.Contains(fmt.Sprint(stacksOf(t)), "exchange.(*Exchange).bufferRequest") })
				c.end(g, conn)
			}
			var status int
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				status = resp.StatusCode
			}
			if r := g.reasonsLogged(1); r[0] != reason || status != c.status {
				t.Errorf("logged %q, got %d; want %s, %d", r, status, reason, c.status)
			}
		})
	}
}

// TestRequestBufferSwitchesNothing: a request to switch protocols is forwarded without that wish, and an extended CONNECT is refused.
func TestRequestBufferSwitchesNothing(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serveWebSocket(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if v := r.Header.Get("Upgrade"); v != "" {
			t.Errorf("the backend is asked for %q", v)
		}
		w.WriteHeader(299)
	}), withBuffer(100))
	got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if r := g.reasonsLogged(1); !strings.HasPrefix(got, "HTTP/1.1 299 ") || r[0] != "upgrade_ignored" {
		t.Errorf("%.60q, logged %q", got, r)
	}
}

// TestRequestBufferEndsByHTTP2: uploads that go on and on are answered when their time is over, whatever is read of them at that moment.
func TestRequestBufferEndsByHTTP2(t *testing.T) {
	t.Parallel()
	for reason, change := range map[string]func(*config.Rule){
		"request_timeout":          func(r *config.Rule) { r.RequestTimeoutNanos = int64(500 * time.Millisecond) },
		"stream_duration_exceeded": func(r *config.Rule) { r.Traffic.MaxStreamDurationNanos = int64(500 * time.Millisecond) },
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			const uploads = 50
			g := startGateway(t, Timeouts{})
			g.serve(refusedAddr(t), func(r *config.Rule) {
				withBuffer(1 << 20)(r)
				change(r)
			})
			client := g.http2Client("")
			var wg sync.WaitGroup
			for range uploads {
				body, w := io.Pipe()
				wg.Go(func() {
					defer body.Close()
					resp, err := client.RoundTrip(g.newRequest(t, "POST", body))
					if err != nil {
						t.Error(err)
						return
					}
					if resp.Body.Close(); resp.StatusCode != 504 {
						t.Errorf("got %d", resp.StatusCode)
					}
				})
				wg.Go(func() {
					for {
						if _, err := io.WriteString(w, "b"); err != nil {
							return
						}
					}
				})
			}
			wg.Wait()
			for _, r := range g.reasonsLogged(uploads) {
				if r != reason {
					t.Errorf("logged %q", r)
				}
			}
		})
	}
}

// TestRequestBufferClientLeavesByHTTP2: whoever ends a stream whose body is awaited, the connection and the gateway go on.
func TestRequestBufferClientLeavesByHTTP2(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		end    func(*gateway, *rawHTTP2)
		goesOn bool
	}{
		"RST_STREAM": {"client_closed", func(_ *gateway, r *rawHTTP2) { r.fr.WriteRSTStream(1, http2.ErrCodeCancel) }, true},
		"close":      {"client_closed", func(_ *gateway, r *rawHTTP2) { r.c.Close() }, false},
		"shutdown": {"shutting_down", func(g *gateway, _ *rawHTTP2) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			g.Shutdown(ctx)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			g.serve(refusedAddr(t), withBuffer(100))
			r := g.rawHTTP2()
			r.head(1, false, request2("POST", "/")...)
			r.fr.WriteData(1, false, []byte("abc"))
			testkit.Eventually(t, "the body is waited for", func() bool { return strings.Contains(fmt.Sprint(stacksOf(t)), "exchange.(*Exchange).bufferRequest") })
			c.end(g, r)
			if got := g.reasonsLogged(1); got[0] != c.reason {
				t.Errorf("logged %q, want %s", got, c.reason)
			}
			if c.goesOn {
				r.head(3, true, request2("GET", "/")...)
				if got := r.outcome(3); got != "502 end" {
					t.Errorf("the next stream: %s", got)
				}
			}
		})
	}
}

// TestRequestBufferMirrors: a mirror is sent what a backend is sent, and as late.
func TestRequestBufferMirrors(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const limit = 600 << 10 // more than waits for a mirror
	lengths := make(chan int64, 10)
	g := startGateway(t, Timeouts{})
	g.apply(backend(mirrorKey, httpBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n != r.ContentLength {
			t.Errorf("the mirror was sent %d bytes of %d: %v", n, r.ContentLength, err)
		}
		lengths <- n
	})))
	g.serve(echo(t), func(r *config.Rule) {
		withBuffer(limit)(r)
		mirrorTo(t, mirrorKey)(r)
	})
	send := func(length string, body io.Reader) string {
		t.Helper()
		c := g.dial()
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n", length)
		io.Copy(c, body) //nolint:errcheck // the gateway may have answered
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.Status[:3]
	}
	long := strings.Repeat("a", limit)
	if got := send(fmt.Sprint("Content-Length: ", limit+1), strings.NewReader("a")); got != "413" {
		t.Errorf("a body that is too long: %s", got)
	}
	if got := send("Transfer-Encoding: chunked", strings.NewReader(fmt.Sprintf("%x\r\n%sa\r\n", limit+1, long))); got != "413" {
		t.Errorf("chunks that are too long: %s", got)
	}
	for _, n := range []int{5, limit} {
		if got := send("Transfer-Encoding: chunked", strings.NewReader(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", n, long[:n]))); got != "200" {
			t.Errorf("%d bytes: %s", n, got)
		}
		if got := <-lengths; got != int64(n) {
			t.Errorf("the mirror was sent %d bytes, want %d", got, n)
		}
	}
	g.eventually("the copies are given back", func() bool { return g.engine.Kept() == 0 })
}

// TestRequestBufferMirrorHangs: copies that wait for a mirror do not take the memory that requests need.
func TestRequestBufferMirrorHangs(t *testing.T) {
	t.Parallel()
	const size = 300 << 10
	g := startGateway(t, Timeouts{})
	g.engine.MaxKept = 4 << 20
	g.apply(backend(mirrorKey, rawBackend(t, func(net.Conn, *bufio.Reader) { <-t.Context().Done() })))
	g.serve(echo(t), func(r *config.Rule) {
		withBuffer(size)(r)
		mirrorTo(t, mirrorKey)(r)
	})
	for range 20 {
		if resp, b := g.request(t, "POST", "/", nil, strings.NewReader(strings.Repeat("a", size))); resp.StatusCode != 200 || len(b) != size {
			t.Fatalf("%s, %d bytes", resp.Status, len(b))
		}
	}
	if dropped := g.counted("moongate_upstream_mirror_copies_dropped_total", "reason", "overloaded"); dropped == 0 {
		t.Error("no copy was dropped")
	}
}
