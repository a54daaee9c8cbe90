package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/client"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestLimitBeyondBuffer: a limit that no buffer can hold still ends in an answer.
func TestLimitBeyondBuffer(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := &gateway{t: t, port: freePort(t), Proxy: New(Options{Bind: []netip.Addr{loopback}, Limits: http1.Limits{MaxHead: 1 << 20}})}
	t.Cleanup(func() { g.Shutdown(context.Background()) })
	g.serve("127.0.0.1:1", nil)
	if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nA: " + strings.Repeat("a", 200<<10)); !strings.HasPrefix(got, "HTTP/1.1 431 ") {
		t.Errorf("got %q, want 431", got)
	}
}

// TestBlockedSend: a backend that takes no byte of a request is given up when the client leaves.
func TestBlockedSend(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	cancelled := make(chan struct{})
	stuck, given := make(chan struct{}), make(chan struct{})
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		c.(*net.TCPConn).SetReadBuffer(2 << 10)
		for {
			head, err := readHead(r)
			if err != nil {
				return
			}
			if strings.Contains(head, " /stuck ") {
				close(stuck)
				<-given
				io.Copy(io.Discard, r)
				close(cancelled)
				return
			}
			io.CopyN(io.Discard, r, 6000)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	c := g.dial()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6000\r\n\r\n%s", strings.Repeat("a", 6000))
	readHead(bufio.NewReader(c))
	endpoint := g.upstreams.Get("Service/default/b/80").Endpoints()[0]
	u := endpoint.Idle()
	for ; u == nil; u = endpoint.Idle() {
		time.Sleep(time.Millisecond)
	}
	u.Conn.(*net.TCPConn).SetWriteBuffer(4 << 10)
	u.Release()
	fmt.Fprintf(c, "POST /stuck HTTP/1.1\r\nHost: h\r\nContent-Length: 70000\r\n\r\n%s", strings.Repeat("a", 70000))
	<-stuck
	c.Close()
	if r := g.reasonsLogged(2); r[1] != "client_closed" {
		t.Errorf("logged %q", r)
	}
	close(given)
	<-cancelled
}

// TestClosedByUs: when the gateway ends a connection that the client meant to use on, the response
// must not get lost in a reset.
func TestClosedByUs(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	for range 20 {
		g := startGateway(t, Timeouts{})
		release := make(chan struct{})
		g.serve(httpBackendRaw(t, release), nil)
		g.Drain()
		c := g.dial()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		time.Sleep(5 * time.Millisecond)
		io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 4000))
		close(release)
		time.Sleep(20 * time.Millisecond) // a reset would be here by now and take what is unread
		got, err := io.ReadAll(c)
		if err != nil || !strings.HasSuffix(string(got), strings.Repeat("x", 1000)) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		c.Close()
	}
}

// httpBackendRaw answers each request with 1000 bytes once release is closed.
func httpBackendRaw(t testing.TB, release chan struct{}) string {
	return rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			<-release
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"+strings.Repeat("x", 1000))
		}
	})
}

// TestApplyAfterShutdown: configuration that comes late opens nothing.
func TestApplyAfterShutdown(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve("127.0.0.1:1", nil)
	g.Shutdown(context.Background())
	r := g.Apply(&config.Update{Generation: 9, Upserts: []*config.Resource{g.httpListener("http", "")}})
	if r.Listeners["default/gw/http"] == nil {
		t.Error("the listener is said to serve")
	}
	if c, err := net.Dial("tcp", g.addr()); err == nil {
		c.Close()
		t.Error("the port is bound")
	}
}

// TestHalfCloseAtOnce: the end of a client's stream is noticed also when it came with its request,
// before anyone waited for either.
func TestHalfCloseAtOnce(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve("127.0.0.1:1", func(r *config.Rule) { r.BackendRefs = nil })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				c, err := net.Dial("tcp", g.addr())
				if err != nil {
					t.Error(err)
					return
				}
				c.SetDeadline(time.Now().Add(1900 * time.Millisecond))
				io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
				c.(*net.TCPConn).CloseWrite()
				if got, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 500 ") {
					t.Errorf("%q %v", got, err)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
}

// TestShutdownSeesAll: no connection that is accepted during a shutdown outlives it.
func TestShutdownSeesAll(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	for range 20 {
		g := startGateway(t, Timeouts{})
		g.serve("127.0.0.1:1", nil)
		stop := make(chan struct{})
		dialled := make(chan struct{})
		go func() {
			defer close(dialled)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := net.DialTimeout("tcp", g.addr(), 50*time.Millisecond); err == nil {
					c.Close()
				}
			}
		}()
		time.Sleep(5 * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := g.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		g.clients.Each(func(*client.Conn) { t.Error("a connection is left") })
		close(stop)
		<-dialled
	}
}

// TestApplyWhileDraining: configuration that comes while a proxy drains, as an endpoint that has moved, does not break the connections that it has.
func TestApplyWhileDraining(t *testing.T) {
	t.Parallel()
	for _, released := range []bool{false, true} {
		t.Run(fmt.Sprint(released), func(t *testing.T) {
			t.Parallel()
			begun, goOn := make(chan struct{}), make(chan struct{})
			web := httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					close(begun)
					<-goOn
				}
			})
			g := startGateway(t, Timeouts{})
			g.serve(web, nil)
			slow, kept := g.dial(), g.dial()
			if _, err := speakHTTP(kept); err != nil {
				t.Fatal(err)
			}
			io.WriteString(slow, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
			<-begun
			if released && !g.Release(func(syscall.Conn) bool { return true }) {
				t.Fatal("not released")
			}
			ended := make(chan error)
			go func() { ended <- g.Shutdown(context.Background()) }()
			testkit.Eventually(t, "nothing is accepted", func() bool {
				c, err := net.Dial("tcp", g.addr())
				if err == nil {
					c.Close()
				}
				return err != nil
			})
			g.Apply(&config.Update{Generation: 9, Upserts: []*config.Resource{g.httpListener("http", "")}})
			g.Rebind()
			io.WriteString(kept, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
			if resp, err := http.ReadResponse(bufio.NewReader(kept), nil); err != nil || resp.StatusCode != 200 {
				t.Errorf("a connection that was there: %v %v", resp, err)
			}
			close(goOn)
			if resp, err := http.ReadResponse(bufio.NewReader(slow), nil); err != nil || resp.StatusCode != 200 {
				t.Errorf("a request in flight: %v %v", resp, err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReleaseAsks: where another process lacks a socket nothing is released.
func TestReleaseAsks(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	g.serve(cannedBackend(t, cannedResponse(2), 0), nil)
	lacking := g.Socket("tcp", g.addr())
	if lacking == nil || g.Release(func(s syscall.Conn) bool { return s != lacking }) {
		t.Error("released")
	}
	if status, err := get(g.dial()); status != 200 || err != nil {
		t.Errorf("%d, %v", status, err)
	}
}

// TestReleaseOnce: what has stopped accepting already has nothing to leave to another process.
func TestReleaseOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*gateway) bool{
		"released":  func(g *gateway) bool { return g.Release(func(syscall.Conn) bool { return true }) },
		"shut down": func(g *gateway) bool { return g.Shutdown(context.Background()) == nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, Timeouts{})
			g.serve(cannedBackend(t, cannedResponse(2), 0), nil)
			if !end(g) {
				t.Fatal("it has not ended")
			}
			if g.Release(func(syscall.Conn) bool { return true }) {
				t.Error("released again")
			}
		})
	}
}

// TestEarlyAnswerArrives: a response that has ended before the upload arrives whole, however much the client goes on sending before it reads.
func TestEarlyAnswerArrives(t *testing.T) {
	t.Parallel()
	const size = 60 << 10
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err == nil {
			io.WriteString(c, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", size, strings.Repeat("x", size)))
		}
	})
	g := startGateway(t, Timeouts{Linger: testkit.Patience})
	g.serve(addr, nil)
	small := net.Dialer{Control: func(_, _ string, rc syscall.RawConn) (err error) {
		rc.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10) })
		return err
	}}
	c, err := small.DialContext(t.Context(), "tcp", g.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testkit.Patience))
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 50000000\r\n\r\n")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(make([]byte, 8<<20)); err != nil { // more than is read of what nobody wants, if the response had arrived
		t.Fatalf("the upload: %v", err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || len(b) != size {
		t.Errorf("%d bytes of the response, %v", len(b), err)
	}
}
