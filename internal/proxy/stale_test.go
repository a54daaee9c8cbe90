package proxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// restartingBackend answers every request, until its connections are closed, or its port too.
type restartingBackend struct {
	l     net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func newRestartingBackend(t *testing.T) *restartingBackend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &restartingBackend{l: l}
	t.Cleanup(func() {
		l.Close()
		b.closeConns()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conns = append(b.conns, c)
			b.mu.Unlock()
			go func() {
				r := bufio.NewReader(c)
				for {
					if _, err := readHead(r); err != nil {
						return
					}
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			}()
		}
	}()
	return b
}

func (b *restartingBackend) addr() string { return b.l.Addr().String() }

// accepted is how many connections there have been.
func (b *restartingBackend) accepted() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.conns)
}

func (b *restartingBackend) closeConns() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		c.Close()
	}
}

// TestStaleUsesUpNoAttempt: an idle connection that has died, on which nothing was sent, leaves a request as many attempts as it had
// before.
func TestStaleUsesUpNoAttempt(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const get = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	for range 20 { // what is tried first is drawn by lot
		gone, restarted := newRestartingBackend(t), newRestartingBackend(t)
		g := startGateway(t, Timeouts{})
		g.serve(gone.addr(), nil)
		g.apply(backend("Service/default/b/80", gone.addr(), restarted.addr())[1:])
		for gone.accepted() == 0 || restarted.accepted() == 0 {
			if got := g.roundTrip(get); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				t.Fatal(got)
			}
		}
		gone.l.Close()
		gone.closeConns()
		restarted.closeConns()
		if got := g.roundTrip(get); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Fatalf("got %q", got)
		}
	}
}

// TestTerminatingIsNotReused: a request that may not be sent again is not sent on a connection which an endpoint that is terminating may be
// closing, while others use it.
func TestTerminatingIsNotReused(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for used := false; ; used = true {
			head, err := readHead(r)
			if err != nil || used && strings.HasPrefix(head, "POST") {
				return // as a server does that is ending
			}
			if _, length, ok := strings.Cut(head, "Content-Length: 3\r\n"); ok && length != "" {
				r.Discard(3)
			}
			if strings.Contains(head, "chunked") {
				for line := ""; line != "0\r\n"; {
					line, _ = r.ReadString('\n')
				}
				r.ReadString('\n')
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	endpoints := backend("Service/default/b/80", addr)[1]
	endpoints.GetEndpoints().Endpoints[0].Terminating = true
	g.apply([]*config.Resource{endpoints})
	for range 3 {
		for _, request := range []string{
			"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
			"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
			"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
			"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		} {
			if got := g.roundTrip(request); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				t.Errorf("%.30q: got %q", request, got)
			}
		}
	}
	if n := g.upstreams.Get("Service/default/b/80").Stats().Dialled; n != 1+6 {
		t.Errorf("%d connections, want one for all requests that may be repeated, and one for each other", n)
	}
}
