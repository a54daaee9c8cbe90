package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// descriptors is how many files and sockets the process has open. Pipes are not counted: package splice keeps
// those that were used to the end, and its tests hold it to closing the others.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Logf("descriptors are not counted here: %v", err)
		return 0
	}
	n := 0
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

// checkDescriptors fails the test if descriptors are left over at its end. Call it first, in a test that does not run beside others: they are
// the process's.
func checkDescriptors(t *testing.T) {
	t.Helper()
	before := descriptors(t)
	t.Cleanup(func() {
		for deadline := time.Now().Add(testkit.Patience); descriptors(t) > before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d descriptors, %d before", descriptors(t), before)
			}
		}
	})
}

// moments of a request at which somebody dies. The client sends up to at, the backend waits
// for what belongs to that moment.
var clientMoments = []struct {
	name, sent string
	// reply is what the backend sends before it waits to be cancelled; "" sends nothing.
	reply string
	// reaches tells that the backend hears of the request.
	reaches bool
}{
	{name: "before the first byte", sent: ""},
	{name: "within the head", sent: "GET / HTTP/1.1\r\nHo"},
	{name: "waiting for the response", sent: "GET / HTTP/1.1\r\nHost: h\r\n\r\n", reaches: true},
	{name: "within a body with a length", sent: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc", reaches: true},
	{name: "within a chunked body", sent: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", reaches: true},
	{name: "behind a chunk", sent: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", reaches: true},
	{name: "within the response head", sent: "GET / HTTP/1.1\r\nHost: h\r\n\r\n", reply: "HTTP/1.1 200 OK\r\nConte", reaches: true},
	{name: "within the response body", sent: "GET / HTTP/1.1\r\nHost: h\r\n\r\n", reply: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", reaches: true},
	{name: "within a stream", sent: "GET / HTTP/1.1\r\nHost: h\r\n\r\n", reply: "HTTP/1.1 200 OK\r\n\r\ndata: 1\n\n", reaches: true},
	{name: "within upload and response", sent: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc", reply: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", reaches: true},
}

// TestClientVanishes ends the client at every moment of a request, by FIN and by RST: the request
// at the backend is cancelled and nothing is left.
func TestClientVanishes(t *testing.T) {
	for _, tc := range clientMoments {
		for _, how := range []string{"close", "reset", "half-close"} {
			t.Run(tc.name+"/"+how, func(t *testing.T) {
				t.Parallel()
				cancelled := make(chan struct{}, 1)
				addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
					if _, err := readHead(r); err != nil {
						return
					}
					io.WriteString(c, tc.reply)
					io.Copy(io.Discard, r)
					cancelled <- struct{}{}
				})
				g := startGateway(t, Timeouts{})
				g.serve(addr, nil)
				c := g.dial().(*net.TCPConn)
				io.WriteString(c, tc.sent)
				if strings.Contains(tc.reply, "\r\n\r\n") {
					readHead(bufio.NewReader(c))
				} else {
					time.Sleep(50 * time.Millisecond)
				}
				switch how {
				case "reset":
					c.SetLinger(0)
					c.Close()
				case "close":
					c.Close()
				default:
					c.CloseWrite()
				}
				if !tc.reaches {
					return
				}
				select {
				case <-cancelled:
				case <-time.After(testkit.Patience):
					t.Fatal("the backend still works for nobody")
				}
				if r := g.reasonsLogged(1); r[0] != "client_closed" {
					t.Errorf("logged %q, want client_closed", r[0])
				}
			})
		}
	}
}

// TestNothingLeaks runs all of the above, then looks for goroutines and descriptors.
func TestNothingLeaks(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	t.Run("clients", TestClientVanishes)
	t.Run("backends", TestBackendDies)
}

// TestBackendDies ends the backend at every moment of a request.
func TestBackendDies(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	for _, tc := range []struct {
		name, request string
		reply         string
		reset         bool
		want, reason  string
	}{
		{"at once", get, "", false, "HTTP/1.1 502 ", "upstream_reset"},
		{"at once, by reset", get, "", true, "HTTP/1.1 502 ", "upstream_reset"},
		{"within the head", get, "HTTP/1.1 200 O", false, "HTTP/1.1 502 ", "upstream_reset"},
		{"within an interim response", get, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP", false, "HTTP/1.1 103 ", "upstream_reset"},
		{"within the body", get, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", false, "HTTP/1.1 200 ", "upstream_truncated"},
		{"within the body, by reset", get, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", true, "HTTP/1.1 200 ", "upstream_truncated"},
		{"within an upload", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc", "", true, "HTTP/1.1 502 ", "upstream_reset"},
		{"within an upload, with an answer", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc", "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", false, "HTTP/1.1 413 ", "ok"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				readHead(r)
				io.WriteString(c, tc.reply)
				if tc.reset {
					time.Sleep(20 * time.Millisecond) // a reset overtakes what was sent
					c.(*net.TCPConn).SetLinger(0)
				}
			})
			g := startGateway(t, Timeouts{Linger: 100 * time.Millisecond})
			g.serve(addr, nil)
			if got := g.roundTrip(tc.request); !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if r := g.reasonsLogged(1); r[0] != tc.reason {
				t.Errorf("logged %q, want %q", r[0], tc.reason)
			}
		})
	}
}

// TestDeadIdleConnection has a backend that closes each connection right behind its second response head
// would be due: idempotent requests are repeated on a new connection, others are not lost either.
func TestDeadIdleConnection(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				if _, err := readHead(r); err == nil {
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			})
			g := startGateway(t, Timeouts{})
			g.serve(addr, nil)
			c := g.dial()
			r := bufio.NewReader(c)
			for i := range 20 {
				io.WriteString(c, method+" / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
				if head, err := readHead(r); err != nil || !strings.HasPrefix(head, "HTTP/1.1 200 ") {
					t.Fatalf("request %d: %q %v", i, head, err)
				}
				if method == "POST" {
					time.Sleep(5 * time.Millisecond) // the close must be there to be seen
				}
			}
		})
	}
}

// TestPostIsNotRepeated: what may have been processed is not sent again.
func TestPostIsNotRepeated(t *testing.T) {
	var heads = make(chan string, 10)
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		head, _ := readHead(r)
		heads <- head
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		head, _ = readHead(r) // processed, but never answered
		heads <- head
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	got := g.roundTrip("POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\nPOST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(got, "HTTP/1.1 502 ") {
		t.Errorf("got %q", got)
	}
	if len(heads) != 2 {
		t.Errorf("the backend saw %d requests, want 2", len(heads))
	}
}

// TestConnectFailover: an endpoint that refuses connections is passed over.
func TestConnectFailover(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	dead := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	live := cannedBackend(t, cannedResponse(2), 0)
	g := startGateway(t, Timeouts{})
	g.serve(live, nil)
	g.apply(backend("Service/default/b/80", dead, live)[1:])
	for range 50 {
		if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Fatal(got)
		}
	}
	g.apply(backend("Service/default/b/80", dead)[1:])
	if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 502 ") {
		t.Error(got)
	}
}

func TestTimeouts(t *testing.T) {
	silent := func(t *testing.T) string {
		return rawBackend(t, func(c net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
	}
	dribbling := func(t *testing.T) string {
		return rawBackend(t, func(c net.Conn, r *bufio.Reader) {
			readHead(r)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
			for range 1000 {
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	const get = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	for _, tc := range []struct {
		name         string
		backend      func(*testing.T) string
		request      string
		rule         func(*config.Rule)
		timeouts     Timeouts
		want, reason string
	}{
		{"request", silent, get, func(r *config.Rule) { r.RequestTimeoutNanos = 2e8 }, Timeouts{}, "HTTP/1.1 504 ", "request_timeout"},
		{"backendRequest", silent, get, func(r *config.Rule) { r.BackendRequestTimeoutNanos, r.RequestTimeoutNanos = 2e8, 5e9 }, Timeouts{}, "HTTP/1.1 504 ", "backend_timeout"},
		{"request, within an upload", silent, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc", func(r *config.Rule) { r.RequestTimeoutNanos = 2e8 }, Timeouts{}, "HTTP/1.1 504 ", "request_timeout"},
		{"request, within the response", dribbling, get, func(r *config.Rule) { r.RequestTimeoutNanos = 3e8 }, Timeouts{}, "HTTP/1.1 200 ", "request_timeout"},
		{"head", silent, "GET / HTTP/1.1\r\nHost", nil, Timeouts{Head: time.Millisecond}, "HTTP/1.1 408 ", "client_timeout"},
		{"body", silent, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc", nil, Timeouts{BodyIdle: time.Millisecond}, "HTTP/1.1 408 ", "client_timeout"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.timeouts.Linger = 100 * time.Millisecond
			g := startGateway(t, tc.timeouts)
			g.serve(tc.backend(t), tc.rule)
			if got := g.roundTrip(tc.request); !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if r := g.reasonsLogged(1); r[0] != tc.reason {
				t.Errorf("logged %q, want %q", r[0], tc.reason)
			}
		})
	}
}

// TestSlowReader: a client that takes no byte is cut, and memory for it stays bounded.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
		part := make([]byte, 64<<10)
		for {
			if _, err := c.Write(part); err != nil {
				return
			}
		}
	})
	g := startGateway(t, Timeouts{WriteIdle: 200 * time.Millisecond})
	g.serve(addr, nil)
	c := g.dial()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if r := g.reasonsLogged(1); r[0] != "client_timeout" {
		t.Errorf("logged %q, want client_timeout", r[0])
	}
}

func TestIdleConnectionIsClosed(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{Idle: 100 * time.Millisecond})
	g.serve("127.0.0.1:1", func(r *config.Rule) { r.BackendRefs = nil })
	c := g.dial()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	b, err := io.ReadAll(c) // ends when the gateway closes
	if err != nil || strings.Count(string(b), "HTTP/1.1 ") != 1 {
		t.Errorf("%q %v", b, err)
	}
}

// TestShutdown: a request in flight finishes, an idle connection ends, nothing new is accepted.
func TestShutdown(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err != nil {
			return
		}
		close(asked)
		<-answer
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	c, idle := g.dial(), g.dial()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-asked
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
		defer cancel()
		done <- g.Shutdown(ctx)
	}()
	for { // until nothing is accepted any more
		n, err := net.Dial("tcp", g.addr())
		if err != nil {
			break
		}
		n.Close()
		time.Sleep(5 * time.Millisecond)
	}
	close(answer)
	b, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(b), "Connection: close\r\n") || !strings.HasSuffix(string(b), "ok") {
		t.Errorf("%q %v", b, err)
	}
	if b, err := io.ReadAll(idle); err != nil || len(b) > 0 {
		t.Errorf("idle connection: %q %v", b, err)
	}
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// TestShutdownCuts: what does not end in time is cut.
func TestShutdownCuts(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	asked := make(chan struct{})
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		close(asked)
		io.Copy(io.Discard, r)
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	io.WriteString(g.dial(), "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-asked
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := g.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v, want that something was cut", err)
	}
	if r := g.reasonsLogged(1); r[0] != "shutting_down" {
		t.Errorf("logged %q, want shutting_down", r[0])
	}
}
