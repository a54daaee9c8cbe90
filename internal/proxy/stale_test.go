package proxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
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
	checkLeaks(t)
	const get = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	for range 20 { // what is tried first is drawn by lot
		gone, restarted := newRestartingBackend(t), newRestartingBackend(t)
		g := startGateway(t, Timeouts{})
		g.serve(gone.addr(), nil)
		g.apply(backend("Service/default/b/80", gone.addr(), restarted.addr())[1:])
		for gone.accepted() == 0 || restarted.accepted() == 0 {
			if got := g.talk(get); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				t.Fatal(got)
			}
		}
		gone.l.Close()
		gone.closeConns()
		restarted.closeConns()
		if got := g.talk(get); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Fatalf("got %q", got)
		}
	}
}
