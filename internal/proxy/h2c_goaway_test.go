package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestBackendGoesAway has a backend say GOAWAY with every 50th response, and close when it has answered
// what it took: no request fails, whatever its method and its body.
func TestBackendGoesAway(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var served atomic.Int64
	addr, conns := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			t.Errorf("%s: %v", r.Method, err)
		}
		if served.Add(1)%50 == 0 {
			w.Header().Set("Connection", "close") // which net/http's server does by GOAWAY
		}
		fmt.Fprint(w, n)
	})
	g := startGateway(t, Timeouts{})
	g.serveH2C(addr, nil)
	body := bytes.Repeat([]byte("b"), 64<<10) // more is not kept to be sent again
	var work sync.WaitGroup
	const workers, each = 16, 100
	for worker := range workers {
		work.Go(func() {
			c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}, Timeout: 20 * time.Second}
			defer c.CloseIdleConnections()
			for i := range each {
				size := []int{0, 100, len(body)}[(worker+i)%3]
				var req *http.Request
				switch worker % 3 {
				case 0:
					size = 0
					req, _ = http.NewRequest("GET", "http://"+g.addr()+"/", nil)
				case 1:
					req, _ = http.NewRequest("POST", "http://"+g.addr()+"/", bytes.NewReader(body[:size]))
				default: // chunked
					req, _ = http.NewRequest("POST", "http://"+g.addr()+"/", io.MultiReader(bytes.NewReader(body[:size])))
				}
				resp, err := c.Do(req)
				if err != nil {
					t.Errorf("request %d of worker %d: %v", i, worker, err)
					return
				}
				b, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 || string(b) != fmt.Sprint(size) {
					t.Errorf("request %d of worker %d: %d %q %v, want %d", i, worker, resp.StatusCode, b, err, size)
				}
			}
		})
	}
	work.Wait()
	if n := served.Load(); n < workers*each {
		t.Errorf("the backend served %d requests of %d", n, workers*each)
	}
	t.Logf("%d connections", conns.Load())
	if n := conns.Load(); n < 10 || n > 200 {
		t.Errorf("%d connections for %d requests of which every 50th ended one", n, workers*each)
	}
}

// frameBackend runs handle for each HTTP/2 connection, behind the exchange of SETTINGS.
func frameBackend(t testing.TB, settings []http2.Setting, handle func(n int, f *framePeer)) string {
	var count atomic.Int64
	return rawFrames(t, settings, func(f *framePeer) { handle(int(count.Add(1)), f) })
}

// TestRefusedIsReplayed has a backend refuse streams, by RST_STREAM or by GOAWAY with a lower stream, before it has
// read anything of the body: the request is sent again, with all of its body, whatever its method.
func TestRefusedIsReplayed(t *testing.T) {
	t.Parallel()
	refuse := map[string]func(f *framePeer, stream uint32){
		"REFUSED_STREAM": func(f *framePeer, stream uint32) { f.WriteRSTStream(stream, http2.ErrCodeRefusedStream) },
		"GOAWAY":         func(f *framePeer, stream uint32) { f.WriteGoAway(0, http2.ErrCodeNo, nil) },
	}
	requests := map[string]string{
		"GET":           "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		"POST":          "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
		"streamed POST": "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
		"with trailers": "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\nX-A: b\r\n\r\n",
	}
	for how, refusal := range refuse {
		for name, request := range requests {
			t.Run(how+"/"+name, func(t *testing.T) {
				checkLeaks(t)
				bodies := make(chan string, 10)
				var streams atomic.Int64
				addr := frameBackend(t, nil, func(n int, f *framePeer) {
					f.serve(func(stream uint32) bool {
						if streams.Add(1) <= 2 {
							refusal(f, stream)
							return false
						}
						return true
					}, func(stream uint32, body string) {
						bodies <- body
						f.answer(stream, "ok")
					})
				})
				g := startGateway(t, Timeouts{})
				g.serveH2C(addr, nil)
				got := g.roundTrip(request)
				if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(got, "ok") {
					t.Errorf("got %q", got)
				}
				want := ""
				if name != "GET" {
					want = "hello"
				}
				select {
				case b := <-bodies:
					if b != want {
						t.Errorf("the backend got %q, want %q", b, want)
					}
				default:
					t.Error("the backend has not served it")
				}
				if r := g.reasonsLogged(1); r[0] != "ok" {
					t.Errorf("logged %q", r[0])
				}
			})
		}
	}
}

// TestRefusedForGood: what is refused again and again fails in the end.
func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var streams atomic.Int64
	addr := frameBackend(t, nil, func(n int, f *framePeer) {
		f.serve(func(stream uint32) bool {
			streams.Add(1)
			f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
			return false
		}, nil)
	})
	g := startGateway(t, Timeouts{})
	g.serveH2C(addr, nil)
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\nConnection: close\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n",
	} {
		streams.Store(0)
		if got := g.roundTrip(request); !strings.HasPrefix(got, "HTTP/1.1 502 ") {
			t.Errorf("got %q", got)
		}
		if n := streams.Load(); n != 4 {
			t.Errorf("sent %d times, want 4", n)
		}
	}
	for _, r := range g.reasonsLogged(3) {
		if r != "upstream_reset" {
			t.Errorf("logged %q", r)
		}
	}
}

// TestRefusedWithRetry: with a rule's retry a request that is refused again and again is sent as often as that allows, and once where it allows nothing, whatever its method.
func TestRefusedWithRetry(t *testing.T) {
	t.Parallel()
	refuse := map[string]func(f *framePeer, stream uint32){
		"REFUSED_STREAM": func(f *framePeer, stream uint32) { f.WriteRSTStream(stream, http2.ErrCodeRefusedStream) },
		"GOAWAY":         func(f *framePeer, stream uint32) { f.WriteGoAway(0, http2.ErrCodeNo, nil) },
	}
	const post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
	for how, refusal := range refuse {
		for name, c := range map[string]struct {
			retry *config.Retry
			sent  int64
		}{
			"no attempts":               {&config.Retry{Codes: []uint32{503}}, 1},
			"one":                       {&config.Retry{Attempts: 1, BackoffNanos: 1}, 2},
			"five":                      {&config.Retry{Attempts: 5, BackoffNanos: 1}, 6},
			"a trigger":                 {&config.Retry{Attempts: 2, BackoffNanos: 1, Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_REFUSED_STREAM}}, 3},
			"another trigger":           {&config.Retry{Attempts: 2, BackoffNanos: 1, Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_RETRIABLE_4XX}}, 3},
			"a trigger and no attempts": {&config.Retry{Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_REFUSED_STREAM}}, 1},
		} {
			t.Run(how+"/"+name, func(t *testing.T) {
				t.Parallel()
				checkLeaks(t)
				var streams atomic.Int64
				addr := frameBackend(t, nil, func(_ int, f *framePeer) {
					f.serve(func(stream uint32) bool {
						streams.Add(1)
						refusal(f, stream)
						return false
					}, nil)
				})
				g := startGateway(t, Timeouts{})
				g.serveH2C(addr, func(r *config.Rule) { r.Retry = c.retry })
				if got := g.roundTrip(post); !strings.HasPrefix(got, "HTTP/1.1 502 ") || streams.Load() != c.sent {
					t.Errorf("sent %d times, want %d; got %q", streams.Load(), c.sent, got)
				}
				if r := g.reasonsLogged(1); r[0] != "upstream_reset" {
					t.Errorf("logged %q", r)
				}
			})
		}
	}
}

// TestStreamLimit: a backend that allows few streams gets as many connections as that takes, and no request
// is refused, not even of the first ones, which come before it has said so.
func TestStreamLimit(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var now, most atomic.Int64
	addr, conns := h2cBackend(t, 10, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(20 * time.Millisecond)
		now.Add(-1)
		io.WriteString(w, "ok")
	})
	g := startGateway(t, Timeouts{})
	g.serveH2C(addr, nil)
	var work sync.WaitGroup
	for range 100 {
		work.Go(func() {
			for range 3 {
				got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
				if !strings.HasPrefix(got, "HTTP/1.1 200 ") {
					t.Errorf("got %q", got)
				}
			}
		})
	}
	work.Wait()
	if n := conns.Load(); n < 2 || n > 40 {
		t.Errorf("%d connections for 100 requests at a time, 10 on each", n)
	}
	t.Logf("%d connections, %d at once", conns.Load(), most.Load())
}
