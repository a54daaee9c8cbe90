package proxy

import (
	"bufio"
	"context"
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

// TestInterimFlood: interim responses that together are larger than a buffer are all passed on.
func TestInterimFlood(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const hints = 6
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		for range hints {
			io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("a", 24<<10)+"\r\n\r\n")
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	if n := strings.Count(got, "HTTP/1.1 103 "); n != hints || !strings.HasSuffix(got, "\r\n\r\nok") {
		t.Errorf("%d interim responses, end %q", n, got[max(0, len(got)-100):])
	}
}

// TestRetryFindsNoEndpoint: the endpoint dies with an idle connection and is gone from the
// configuration when the request is to be repeated.
func TestRetryFindsNoEndpoint(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	asked, die := make(chan struct{}), make(chan struct{})
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		if _, err := readHead(r); err == nil {
			close(asked)
			<-die
		}
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	c := g.dial()
	r := bufio.NewReader(c)
	const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	io.WriteString(c, get)
	readHead(r)
	io.WriteString(c, get)
	<-asked
	g.apply(backend("Service/default/b/80")[1:])
	close(die)
	if head, err := readHead(r); err != nil || !strings.HasPrefix(head, "HTTP/1.1 502 ") {
		t.Errorf("%q %v, want 502", head, err)
	}
	if r := g.reasonsLogged(2); r[1] != "upstream_reset" {
		t.Errorf("logged %q", r)
	}
}

// TestStrayResponse: what a backend sends behind its response is nobody's response.
func TestStrayResponse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, method, stray string }{
		{"the body of a response to HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"},
		{"a second response", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"},
		{"a time-out of the idle connection", "GET", "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkLeaks(t)
			strayed := make(chan struct{}, 8)
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				for {
					head, err := readHead(r)
					if err != nil {
						return
					}
					if strings.Contains(head, " /second ") {
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ngood")
						return
					}
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					time.Sleep(30 * time.Millisecond)
					io.WriteString(c, tc.stray)
					time.Sleep(10 * time.Millisecond)
					strayed <- struct{}{}
				}
			})
			g := startGateway(t, Timeouts{})
			g.serve(addr, nil)
			c := g.dial()
			r := bufio.NewReader(c)
			io.WriteString(c, tc.method+" /first HTTP/1.1\r\nHost: h\r\n\r\n")
			readHead(r)
			<-strayed
			io.WriteString(c, "GET /second HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			got, _ := io.ReadAll(r)
			if !strings.HasPrefix(string(got), "HTTP/1.1 200 ") || !strings.HasSuffix(string(got), "\r\n\r\ngood") {
				t.Errorf("the second request was answered %q", got)
			}
		})
	}
}

// TestNominatedTrailer: a field that the backend's Connection names stays on that connection in the
// trailer section as well.
func TestNominatedTrailer(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		time.Sleep(20 * time.Millisecond)
		io.WriteString(c, "5\r\nworld\r\n0\r\nX-Hop: 1\r\nX-End: 2\r\n\r\n")
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n")
	if !strings.HasSuffix(got, "\r\n0\r\nX-End: 2\r\n\r\n") {
		t.Errorf("got %q", got)
	}
}

// TestBackendSpeaksFirst: a response that is there before the request (a 503 of a server that is
// full, say) is found although nothing comes after it.
func TestBackendSpeaksFirst(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		io.WriteString(c, "HTTP/1.1 503 Full\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		io.Copy(io.Discard, r)
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	u, err := g.upstreams.Get("Service/default/b/80").Endpoints()[0].Dial(context.Background(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	time.Sleep(50 * time.Millisecond) // the poller has seen the bytes, and will not tell again
	u.SetDeadline(time.Now().Add(time.Second))
	a := scratch(make([]byte, 1024))
	if n, err := u.WriteRead([]byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), nil, a); err != nil {
		t.Errorf("%q %v", a.Take()[:n], err)
	}
}

// scratch is an upstream.Buffer that is never given back.
type scratch []byte

func (s scratch) Take() []byte { return s }
func (s scratch) Give()        {}

// TestRefusedExpectation: the connection to a backend that has answered without saying that it reads the body, of which all was sent, carries no other request: such a backend
// may take the body for one.
func TestRefusedExpectation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, expect, interim string
		rule                  func(*config.Rule) // the first response is 503 then
		want                  int32
	}{
		{"refused", "Expect: 100-continue\r\n", "", nil, 2},
		{"continued", "Expect: 100-continue\r\n", "HTTP/1.1 100 Continue\r\n\r\n", nil, 1},
		{"none", "", "", nil, 1},
		{"retried", "Expect: 100-continue\r\n", "", func(r *config.Rule) {
			r.Retry = &config.Retry{Attempts: 1, BackoffNanos: 1, Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_5XX}}
		}, 3},
		{"overridden", "Expect: 100-continue\r\n", "", overriding(&config.ResponseOverride{
			Statuses: statuses(503, 503), Body: new("x"), StatusCode: 200,
		}), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var conns, requests atomic.Int32
			g := startGateway(t, Timeouts{})
			g.serve(rawBackend(t, func(nc net.Conn, r *bufio.Reader) {
				conns.Add(1)
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					io.WriteString(nc, c.interim)
					io.Copy(io.Discard, req.Body)
					status := 200
					if requests.Add(1) == 1 && c.rule != nil {
						status = 503
					}
					fmt.Fprintf(nc, "HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n", status)
				}
			}), c.rule)
			post := "POST / HTTP/1.1\r\nHost: h\r\n" + c.expect + "Content-Length: 3\r\nConnection: close\r\n\r\nabc"
			for range 2 {
				if got := g.roundTrip(post); !strings.Contains(got, "HTTP/1.1 200 ") {
					t.Errorf("got %q", got)
				}
				g.eventually("the connection idles, or is closed", func() bool {
					s := g.upstreams.Get("Service/default/b/80").Stats()
					return s.InFlight == 0 && s.Open == s.Idle
				})
			}
			if n := conns.Load(); n != c.want {
				t.Errorf("%d connections, want %d", n, c.want)
			}
		})
	}
}
