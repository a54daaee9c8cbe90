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

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestRetryFindsNoOtherEndpoint: the last endpoint answers with a status that is retried, and goes before it can be asked again, as at
// the end of a rollout. That is no fault of the gateway's own.
func TestRetryFindsNoOtherEndpoint(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		g.apply(backend("Service/default/b/80")[1:])
		w.WriteHeader(503)
	}), func(r *config.Rule) {
		r.Retry = &config.Retry{Attempts: 2, Codes: []uint32{503}, BackoffNanos: int64(100 * time.Millisecond)}
	})
	if status, err := get(g.dial()); status != 503 || err != nil {
		t.Errorf("got %d, %v", status, err)
	}
	if r := g.reasonsLogged(1); r[0] != "no_endpoints" {
		t.Errorf("logged %q", r)
	}
}

// TestRetryThatIsTooLate: a wait that timeouts.request would end does not begin, so the client gets the response that is there, and not 504 in its place.
func TestRetryThatIsTooLate(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }), func(r *config.Rule) {
		r.RequestTimeoutNanos = int64(time.Minute)
		r.Retry = &config.Retry{Attempts: 2, Codes: []uint32{503}, BackoffNanos: int64(time.Hour)}
	})
	if status, err := get(g.dial()); status != 503 || err != nil {
		t.Errorf("got %d, %v", status, err)
	}
	if r := g.reasonsLogged(1); r[0] != "retries_exhausted" {
		t.Errorf("logged %q", r)
	}
}

// breaking is a backend that breaks off every request but the first good ones, and counts those whose heads it has seen.
type breaking struct {
	good, seen atomic.Int64
	how        string
	afterHead  bool // nothing of a body was read
	interim    bool // a good response by HTTP/2 comes after a 103
}

// wanted reports whether a request is one to answer well.
func (b *breaking) wanted() bool {
	if b.good.Add(-1) >= 0 {
		return true
	}
	b.seen.Add(1)
	return false
}

func (b *breaking) http1(c net.Conn, r *bufio.Reader) {
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if b.wanted() {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			continue
		}
		if !b.afterHead {
			io.Copy(io.Discard, req.Body)
		}
		switch b.how {
		case "reset":
			c.(*net.TCPConn).SetLinger(0)
		case "half a response head":
			io.WriteString(c, "HTTP/1.1 200 O")
		}
		return
	}
}

func (b *breaking) http2(_ int, f *framePeer) {
	broken := func(stream uint32) {
		switch b.how {
		case "reset":
			f.c.(*net.TCPConn).SetLinger(0)
			f.c.Close()
		case "close":
			f.c.Close()
		case "GOAWAY that includes it":
			f.WriteGoAway(stream, http2.ErrCodeNo, nil)
			f.c.Close()
		case "response head, RST_STREAM":
			f.head(stream, false, ":status", "200")
			f.WriteRSTStream(stream, http2.ErrCodeInternal)
		case "response head, close":
			f.head(stream, false, ":status", "200")
			f.c.Close()
		case "RST_STREAM INTERNAL_ERROR":
			f.WriteRSTStream(stream, http2.ErrCodeInternal)
		case "RST_STREAM CANCEL":
			f.WriteRSTStream(stream, http2.ErrCodeCancel)
		}
	}
	good := map[uint32]bool{}
	f.serve(func(stream uint32) bool {
		if good[stream] = b.wanted(); !good[stream] && b.afterHead {
			broken(stream)
			return false
		}
		return true
	}, func(stream uint32, _ string) {
		if good[stream] {
			if b.interim {
				f.head(stream, false, ":status", "103")
			}
			f.answer(stream, "")
		} else {
			broken(stream)
		}
	})
}

// TestMayHaveBeenProcessed: however a backend breaks off a request that it has got, on a connection that is new or not, it does not get it a second time
// where the method is not idempotent, though the rule allows retries; where it is, it does, and not more often than the rule says.
func TestMayHaveBeenProcessed(t *testing.T) {
	t.Parallel()
	const (
		body     = "Content-Length: 5\r\n\r\nhello"
		attempts = 2
	)
	requests := map[string]struct {
		text  string
		again bool
	}{
		"GET":              {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", true},
		"PUT":              {"PUT / HTTP/1.1\r\nHost: h\r\n" + body, true},
		"POST":             {"POST / HTTP/1.1\r\nHost: h\r\n" + body, false},
		"POST of nothing":  {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", false},
		"PATCH, streamed":  {"PATCH / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false},
		"half of a POST":   {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello", false},
		"POST of 100 KiB":  {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 102400\r\n\r\n" + strings.Repeat("b", 100<<10), false},
		"unknown and bare": {"REPORT / HTTP/1.1\r\nHost: h\r\n\r\n", false},
	}
	for protocol, ways := range map[string][]string{
		"HTTP/1.1": {"reset", "close", "half a response head"},
		"HTTP/2":   {"reset", "close", "GOAWAY that includes it", "RST_STREAM INTERNAL_ERROR", "RST_STREAM CANCEL"},
	} {
		for _, how := range ways {
			for _, afterHead := range []bool{true, false} {
				for _, reused := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s/%s/after head %v/reused %v", protocol, how, afterHead, reused), func(t *testing.T) {
						t.Parallel()
						for name, request := range requests {
							if name == "half of a POST" && !afterHead {
								continue // the backend would wait for the other half
							}
							b := &breaking{how: how, afterHead: afterHead}
							g := startGateway(t, Timeouts{})
							retry := func(r *config.Rule) {
								r.Retry = &config.Retry{Attempts: attempts, Codes: []uint32{500, 502, 503, 504}, BackoffNanos: int64(time.Millisecond)}
							}
							if protocol == "HTTP/2" {
								g.serveH2C(frameBackend(t, nil, b.http2), retry)
							} else {
								g.serve(rawBackend(t, b.http1), retry)
							}
							if reused {
								b.good.Store(1)
								if status, err := get(g.dial()); status != 200 || err != nil {
									t.Fatalf("the request before: %d, %v", status, err)
								}
							}
							c := g.dial()
							go io.WriteString(c, request.text)
							resp, err := http.ReadResponse(bufio.NewReader(c), nil)
							if err != nil || resp.StatusCode != http.StatusBadGateway {
								t.Errorf("%s: %+v, %v, want 502", name, resp, err)
							}
							if n := b.seen.Load(); n < 1 || n > 1+attempts || (n > 1) != request.again {
								t.Errorf("%s: the backend got it %d times", name, n)
							}
						}
					})
				}
			}
		}
	}
}

// TestResetOfStreamIsNoIdleDeath: a stream that the backend resets or has begun to answer has reached it, whatever the connection was used for before. Only where
// a connection that was used breaks without anything is the request sent again that no rule has retried.
func TestResetOfStreamIsNoIdleDeath(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]int64{
		"RST_STREAM INTERNAL_ERROR": 1, "RST_STREAM CANCEL": 1, "response head, RST_STREAM": 1, "response head, close": 1, "close": 2,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := &breaking{how: how, interim: true} // which nothing of is left for the next stream
			b.good.Store(1)
			g := startGateway(t, Timeouts{})
			g.serveH2C(frameBackend(t, nil, b.http2), func(*config.Rule) {})
			if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 103 ") || !strings.Contains(got, "\r\n\r\nHTTP/1.1 200 ") {
				t.Fatalf("the request before: %q", got)
			}
			status, err := get(g.dial())
			if n := b.seen.Load(); n != want {
				t.Errorf("the backend got it %d times, want %d; the client %d, %v", n, want, status, err)
			}
		})
	}
}

// TestStatusAsksForRetry: a response whose status the rule names has the request sent again whatever its method, from its first byte; another
// status, and any where the rule names none, has not. Both hold for the protocols of backends.
func TestStatusAsksForRetry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		codes  []uint32
		status int
		want   int64
	}{
		{"named", []uint32{500, 503}, 503, 3},
		{"not named", []uint32{500, 503}, 502, 1},
		{"none named", nil, 503, 1},
	} {
		for _, method := range []string{"GET", "POST"} {
			for _, h2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/HTTP2 %v", c.name, method, h2), func(t *testing.T) {
					t.Parallel()
					g := startGateway(t, Timeouts{})
					var seen atomic.Int64
					handle := func(w http.ResponseWriter, r *http.Request) {
						if text, err := io.ReadAll(r.Body); err != nil || string(text) != "hello" {
							t.Errorf("attempt came with %q, %v", text, err)
						}
						seen.Add(1)
						w.WriteHeader(c.status)
					}
					retry := func(r *config.Rule) {
						r.Retry = &config.Retry{Attempts: 2, Codes: c.codes, BackoffNanos: int64(time.Millisecond)}
					}
					if h2 {
						addr, _ := h2cBackend(t, 0, handle)
						g.serveH2C(addr, retry)
					} else {
						g.serve(httpBackend(t, handle), retry)
					}
					got := g.roundTrip(method + " / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
					if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", c.status)) || seen.Load() != c.want {
						t.Errorf("%d attempts, %.40q; want %d", seen.Load(), got, c.want)
					}
				})
			}
		}
	}
}

// TestRetryOfUnavailable: a gRPC call that fails at once with UNAVAILABLE is made again from its first byte, as often as the rule's retry says, though it names no code; other requests, and calls that
// fail otherwise, are not. The response of the last attempt is relayed.
func TestRetryOfUnavailable(t *testing.T) {
	t.Parallel()
	const call = "application/grpc+proto"
	long := strings.Repeat("b", 100<<10)
	for _, c := range []struct {
		name, contentType, status, last string // last is the status of the third attempt
		attempts                        uint32
		streamed                        bool
		body                            string
		calls                           int64
		reason                          string
	}{
		{"succeeds at last", call, "14", "0", 5, false, "hello", 3, "ok"},
		{"of a stream", call, "14", "0", 5, true, "hello", 3, "ok"},
		{"attempts are used up", call, "14", "14", 2, false, "hello", 3, "retries_exhausted"},
		{"no attempts", call, "14", "14", 0, false, "hello", 1, "ok"},
		{"long", call, "14", "14", 2, true, long, 1, "retry_body_too_large"},
		{"another status", call, "13", "13", 2, false, "hello", 1, "ok"},
		{"no gRPC", "application/json", "14", "14", 2, false, "hello", 1, "ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			var calls atomic.Int64
			addr, _ := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); err != nil || string(body) != c.body {
					t.Errorf("an attempt came with %d bytes, %v", len(body), err)
				}
				w.Header().Set("Content-Type", c.contentType)
				status := c.status
				if calls.Add(1) == 3 {
					status = c.last
				}
				w.Header().Set("Grpc-Status", status)
			})
			g := startGateway(t, Timeouts{})
			g.serveH2C(addr, func(r *config.Rule) {
				r.Retry = &config.Retry{Attempts: c.attempts, Codes: []uint32{500}, BackoffNanos: int64(time.Millisecond)}
			})
			var body io.Reader = strings.NewReader(c.body)
			if c.streamed {
				body = io.MultiReader(body) // of unknown length
			}
			req := g.newRequest(t, "POST", body)
			req.Header = http.Header{"Content-Type": {c.contentType}, "Te": {"trailers"}}
			resp, err := g.http2Client("").RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			want := c.status
			if c.calls == 3 {
				want = c.last
			}
			if got := resp.Header.Get("Grpc-Status"); got != want || calls.Load() != c.calls {
				t.Errorf("%d calls and status %q, want %d and %q", calls.Load(), got, c.calls, want)
			}
			if r := g.reasonsLogged(1); r[0] != c.reason {
				t.Errorf("logged %q, want %s", r, c.reason)
			}
		})
	}
}

// TestNoAttemptsAfterIdle: also where a rule has no attempts a request goes to a new connection when the idle one was closed before anything of the request was sent: that is
// the first time that it is sent.
func TestNoAttemptsAfterIdle(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{
		"GET":           "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		"POST":          "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
		"streamed POST": "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			ends, closed := make(chan struct{}), make(chan struct{}, 10)
			g := startGateway(t, Timeouts{})
			g.serve(rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				io.Copy(io.Discard, req.Body)
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				<-ends
				c.Close()
				closed <- struct{}{}
			}), func(r *config.Rule) { r.Retry = &config.Retry{Codes: []uint32{503}} })
			if status, err := get(g.dial()); status != 200 || err != nil {
				t.Fatalf("the request before: %d, %v", status, err)
			}
			close(ends)
			<-closed
			if got := g.roundTrip(request); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				t.Errorf("got %.60q", got)
			}
		})
	}
}
