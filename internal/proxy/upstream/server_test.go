package upstream

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

const key = "Service/default/app/80"

// server is on a loopback port; that of listen echoes whatever it reads.
type server struct {
	net.Listener
	handle func(net.Conn)
	mu     sync.Mutex
	conns  []net.Conn
	ended  bool // stop has closed conns
	done   sync.WaitGroup
}

func listen(t testing.TB) *server { t.Helper(); return listenTo(t, echoAll) }

// listenTo is a server that has handle serve each connection, and closes it then.
func listenTo(t testing.TB, handle func(net.Conn)) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l, handle: handle}
	s.done.Go(s.serve)
	t.Cleanup(s.stop)
	return s
}

func (s *server) serve() {
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		if s.ended {
			c.Close()
		}
		s.mu.Unlock()
		s.done.Go(func() {
			defer c.Close()
			s.handle(c)
		})
	}
}

// silent is a server that says nothing, so that connections by HTTP/2 stay as they are.
func silent(t testing.TB) *server {
	t.Helper()
	return listenTo(t, func(c net.Conn) { io.Copy(io.Discard, c) }) //nolint:errcheck // whatever ends it
}

func echoAll(c net.Conn) {
	buf := make([]byte, 64)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// accepted waits until the server has n connections and returns them.
func (s *server) accepted(t testing.TB, n int) []net.Conn {
	t.Helper()
	var conns []net.Conn
	testkit.Eventually(t, "connections are accepted", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		conns = append([]net.Conn(nil), s.conns...)
		return len(conns) >= n
	})
	return conns
}

func (s *server) stop() {
	s.Close()
	s.mu.Lock()
	s.ended = true
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
}

func (s *server) addrPort() netip.AddrPort { return s.Addr().(*net.TCPAddr).AddrPort() }

func backendResource(key string) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Namespace: "default", Name: "app", Port: 80}}}
}

func endpoint(a netip.AddrPort) *config.Endpoint {
	return &config.Endpoint{Address: a.Addr().String(), Port: uint32(a.Port())}
}

func terminating(a netip.AddrPort) *config.Endpoint {
	e := endpoint(a)
	e.Terminating = true
	return e
}

func endpointsResource(key string, list ...*config.Endpoint) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: key, Endpoints: list}}}
}

func apply(t testing.TB, s *Set, upserts ...*config.Resource) {
	t.Helper()
	if err := s.Apply(upserts, nil); err != nil {
		t.Fatal(err)
	}
}

// newSet is a Set with one backend that has these endpoints.
func newSet(t testing.TB, o Options, list ...*config.Endpoint) (*Set, *Backend) {
	t.Helper()
	s := NewSet(o)
	t.Cleanup(s.Close)
	apply(t, s, backendResource(key), endpointsResource(key, list...))
	return s, s.Get(key)
}

func dial(t testing.TB, e *Endpoint) *Conn {
	t.Helper()
	c, err := e.Dial(context.Background(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// echo sends a byte and waits for its return.
func echo(c net.Conn) error {
	var b [1]byte
	if _, err := c.Write([]byte{'x'}); err != nil {
		return err
	}
	_, err := c.Read(b[:])
	return err
}

// address makes up an endpoint that nobody dials.
func address(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 8080)
}
