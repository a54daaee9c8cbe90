//go:build linux

package load

import (
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/test/bench/epoll"
	"github.com/moongate-dev/moongate/test/bench/origin"
)

func startOrigin(t *testing.T) netip.AddrPort { return startServer(t, (*origin.Server).HTTP1) }

func startServer(t *testing.T, serve func(s *origin.Server, listener int) error) netip.AddrPort {
	t.Helper()
	listener, addr, err := epoll.Listen()
	if err != nil {
		t.Fatal(err)
	}
	server, err := origin.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve(server, listener); err != nil {
		t.Fatal(err)
	}
	go server.Serve()
	return addr
}

// spec is a short run; check lengthens it where the machine is slow.
func spec(addr netip.AddrPort, request string, size int) *Spec {
	return &Spec{
		Address: addr, Request: []byte(request), BodySize: size, Connections: 8,
		Warmup: 20 * time.Millisecond, Window: 100 * time.Millisecond,
		Proxy: []int{os.Getpid()},
	}
}

func check(t *testing.T, s *Spec) {
	t.Helper()
	r, err := Run(s)
	for err != nil && strings.HasPrefix(err.Error(), "no request was answered") && s.Window < time.Minute {
		s.Window *= 4
		r, err = Run(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.Errors != 0 || r.Requests == 0 || r.Window < s.Window || r.Max == 0 || r.P50 > r.P99 || r.P99 > r.Max {
		t.Errorf("result %+v", r)
	}
}

func TestKeepAlive(t *testing.T) {
	addr := startOrigin(t)
	body := strings.Repeat("x", 16<<10)
	t.Run("small", func(t *testing.T) {
		check(t, spec(addr, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", origin.SmallBody))
	})
	t.Run("big", func(t *testing.T) {
		check(t, spec(addr, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n", origin.BigBody))
	})
	t.Run("upload", func(t *testing.T) {
		check(t, spec(addr, "POST / HTTP/1.1\r\nContent-Length: 16384\r\n\r\n"+body, origin.SmallBody))
	})
}

func handler(size int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, strings.Repeat("x", size))
	})
}

func address(t *testing.T, s *httptest.Server) netip.AddrPort {
	t.Helper()
	t.Cleanup(s.Close)
	addr, err := netip.ParseAddrPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func TestConnectionPerRequest(t *testing.T) {
	s := spec(address(t, httptest.NewServer(handler(1000))), "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 1000)
	s.PerRequest = true
	check(t, s)
}

func TestTLS(t *testing.T) {
	addr := address(t, httptest.NewTLSServer(handler(40_000)))
	request := "GET / HTTP/1.1\r\nHost: h\r\n"
	t.Run("keep-alive", func(t *testing.T) {
		s := spec(addr, request+"\r\n", 40_000)
		s.ServerName = "h"
		// net/http would choose chunks for this size.
		s.Address = address(t, httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "40000")
			io.WriteString(w, strings.Repeat("x", 40_000))
		})))
		check(t, s)
	})
	t.Run("per request", func(t *testing.T) {
		s := spec(address(t, httptest.NewTLSServer(handler(1000))), request+"Connection: close\r\n\r\n", 1000)
		s.ServerName, s.PerRequest = "h", true
		check(t, s)
	})
}

// answer serves each connection of a listener with the same bytes for every
// request, then closes where it is told to.
func answer(t *testing.T, text string, closing bool) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 4096)
				for {
					if _, err := c.Read(buf); err != nil {
						return
					}
					io.WriteString(c, text)
					if closing { // in order: bytes that nobody reads would make it a reset
						c.(*net.TCPConn).CloseWrite()
						io.Copy(io.Discard, c)
						return
					}
				}
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

func TestErrorsEndTheRun(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		closing          bool
	}{
		{"status", "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno", "503", false},
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "want 2 bytes", false},
		{"no length", "HTTP/1.1 200 OK\r\n\r\nab", "no Content-Length", false},
		{"too much", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", "behind the end", false},
		{"large head", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 5000), "larger than", false},
		{"closed early", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", "closed after", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := spec(answer(t, c.text, c.closing), "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 2)
			s.Warmup = time.Minute // until the errors end it
			if _, err := Run(s); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
		})
	}
}

// opening is a request for a WebSocket.
const opening = "GET /socket HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

func TestWebSocket(t *testing.T) {
	s := spec(startOrigin(t), opening, 100)
	s.Exchange, s.Message = WebSocket, []byte(strings.Repeat("x", 100))
	check(t, s)
	s.Request = []byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if _, err := Run(s); err == nil || !strings.Contains(err.Error(), "want 101") {
		t.Errorf("a server that does not switch: error %v", err)
	}
}

// Answers to calls are whole, and long calls get back what they send.
func TestCalls(t *testing.T) {
	addr := startServer(t, (*origin.Server).HTTP2)
	request := "POST /s/m HTTP/1.1\r\nHost: h\r\nContent-Type: application/grpc\r\nTE: trailers\r\n\r\n\x00\x00\x00\x00\x64"
	for exchange, mode := range map[Exchange]string{Unary: "u", Streaming: "e"} {
		t.Run(string(exchange), func(t *testing.T) {
			s := spec(addr, request+mode+strings.Repeat("x", 99), 105)
			s.Exchange, s.Streams = exchange, 8
			check(t, s)
		})
	}
	t.Run("without trailers", func(t *testing.T) {
		addr := http2Server(t, false, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			io.WriteString(w, strings.Repeat("x", 105))
		})
		s := spec(addr, request+"u", 105)
		s.Exchange, s.Streams, s.Warmup = Unary, 8, time.Minute // until the errors end it
		if _, err := Run(s); err == nil || !strings.Contains(err.Error(), "without trailers") {
			t.Errorf("error %v", err)
		}
	})
}

// Calls that stay open are held on all streams of all connections.
func TestHoldCalls(t *testing.T) {
	for exchange, mode := range map[Exchange]string{Watch: "w", Streaming: "e"} {
		s := spec(startServer(t, (*origin.Server).HTTP2), "POST /s/m HTTP/1.1\r\nHost: h\r\n\r\n\x00\x00\x00\x00\x02"+mode+"x", 7)
		s.Exchange, s.Connections, s.Streams = exchange, parallel+1, 10
		release := make(chan struct{})
		opened := 0
		if err := Hold(s, func() { opened++; close(release) }, release); err != nil || opened != 1 {
			t.Errorf("%s: error %v, opened called %d times", exchange, err, opened)
		}
	}
}

func TestNothingListens(t *testing.T) {
	if _, err := Run(spec(netip.MustParseAddrPort("127.0.0.1:1"), "x", 1)); err == nil {
		t.Error("no error")
	}
}

func TestHold(t *testing.T) {
	s := spec(startOrigin(t), "GET / HTTP/1.1\r\nHost: h\r\n\r\n", origin.SmallBody)
	s.Connections = 3*parallel + 1 // more than open at once
	release := make(chan struct{})
	opened := 0
	if err := Hold(s, func() { opened++; close(release) }, release); err != nil || opened != 1 {
		t.Errorf("error %v, opened called %d times", err, opened)
	}
}

func TestHoldNoticesAServerThatDoesNotHold(t *testing.T) {
	s := spec(answer(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", true), "GET / HTTP/1.1\r\n\r\n", 2)
	release := make(chan struct{})
	opened := func() { // the answers are here, so each connection is closed or about to be
		time.AfterFunc(time.Second, func() { close(release) })
	}
	if err := Hold(s, opened, release); err == nil {
		t.Error("no error")
	}
}

// TestOpenLoop: no more requests are made than are due, and the time that one waits for a connection is part of its latency.
func TestOpenLoop(t *testing.T) {
	s := spec(startOrigin(t), "GET / HTTP/1.1\r\nHost: h\r\n\r\n", origin.SmallBody)
	s.Rate, s.Window = 200, 500*time.Millisecond
	begun := time.Now()
	r, err := Run(s)
	if err != nil || r.Errors != 0 || r.Requests == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	// What was due before the window and late is answered within it.
	if due := s.Rate * time.Since(begun).Seconds(); float64(r.Requests) > 1.5*due+10 {
		t.Errorf("%d requests where %.0f were due", r.Requests, due)
	}

	const takes = 10 * time.Millisecond
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(takes)
		w.Header()["Date"] = nil // each response is the same
		w.Write(make([]byte, 100))
	}))
	defer slow.Close()
	s = spec(netip.MustParseAddrPort(slow.Listener.Addr().String()), "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 100)
	s.Rate, s.Connections, s.Window = 1000, 1, 300*time.Millisecond
	if r, err = Run(s); err != nil || r.Errors != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if r.Max < 10*takes { // of those that are due only one in ten can be answered
		t.Errorf("the latency is %v at most", r.Max)
	}
}

// The generator's own work per request must not allocate: its garbage collector would
// compete with the origin.
func TestExchangeAllocatesNothing(t *testing.T) {
	l, err := newLoop(spec(startOrigin(t), "GET / HTTP/1.1\r\nHost: h\r\n\r\n", origin.SmallBody))
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for l.requests == 0 {
		if err := l.run(20 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	// Those of the runtime and of other goroutines are counted too, so one run without any is enough: what a request allocates is in each.
	least := math.Inf(1)
	for range 10 {
		least = min(least, testing.AllocsPerRun(1, func() {
			before := l.requests
			for l.requests == before {
				if err := l.run(5 * time.Millisecond); err != nil {
					t.Fatal(err)
				}
			}
		}))
	}
	if least != 0 {
		t.Errorf("%v allocations in 5 ms of requests, want 0", least)
	}
}
