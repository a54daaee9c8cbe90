package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// keeping is a gateway with a memory limit of which used bytes are in use.
func keeping(t *testing.T, limit int64, used *atomic.Uint64, addr string, change func(*config.Rule)) *gateway {
	g := startGatewayWith(t, Options{MemoryLimit: limit, memoryUsed: used.Load})
	g.serve(addr, change)
	return g
}

// beginUpload sends the head of a request and the first n bytes of its body of length bytes, on a connection of its own.
func (g *gateway) beginUpload(n, length int) (net.Conn, *bufio.Reader) {
	g.t.Helper()
	c := g.dial()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", length, strings.Repeat("b", n))
	return c, bufio.NewReader(c)
}

// TestRequestBufferIsBounded: all bodies that are read whole have no more memory together than a part of the limit, and one of them no more than a share of that, so that what goes
// beyond ends; what they have is counted for their connections, and given back.
func TestRequestBufferIsBounded(t *testing.T) {
	t.Parallel()
	for name, rule := range readWhole {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testBounded(t, rule)
		})
	}
}

// readWhole are rules for which bodies are read whole.
var readWhole = map[string]func(*config.Rule){
	"request buffer": withBuffer(1 << 30),
	"external auth":  withForwardedBody(1 << 30),
}

// withForwardedBody has the backend itself be asked whether requests may go on, with bodies of up to limit bytes.
func withForwardedBody(limit int64) func(*config.Rule) {
	return func(r *config.Rule) {
		auth, err := anypb.New(&config.ExternalAuth{Backend: r.BackendRefs[0].Backend, MaxBodyBytes: limit})
		if err != nil {
			panic(err)
		}
		r.Filters = append(r.Filters, auth)
	}
}

func testBounded(t *testing.T, rule func(*config.Rule)) {
	checkLeaks(t)
	const most, size = 4 << 20, 600 << 10
	var used atomic.Uint64
	g := keeping(t, keptPart*most, &used, httpBackend(t, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }), rule)
	for name, request := range map[string]string{
		"by its length": fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", most/4+1),
		"chunked":       fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", most/4+1, strings.Repeat("b", most/4+1)),
	} {
		c := g.dial()
		io.WriteString(c, request)
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 413 {
			t.Errorf("a body larger than its share, %s: %v, %v", name, resp, err)
		}
	}
	type upload struct {
		c net.Conn
		r *bufio.Reader
	}
	var all []upload
	for i := range most / size {
		c, r := g.beginUpload(size-1, size)
		all = append(all, upload{c, r})
		g.eventually("what the connections hold", func() bool { return g.held() >= (i+1)*(size-1) && g.engine.Kept() == int64(g.held()) })
	}
	_, refused := g.beginUpload(size-1, size)
	if resp, err := http.ReadResponse(refused, nil); err != nil || resp.StatusCode != 503 {
		t.Errorf("one too many: %v, %v", resp, err)
	}
	small, smallResponse := g.beginUpload(100<<10, 100<<10+1) // what any request may have is not refused for others
	io.WriteString(small, "b")
	if resp, err := http.ReadResponse(smallResponse, nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("a small one: %v, %v", resp, err)
	}
	for _, u := range all {
		io.WriteString(u.c, "b")
		if resp, err := http.ReadResponse(u.r, nil); err != nil || resp.StatusCode != 200 {
			t.Errorf("one that was there before: %v, %v", resp, err)
		}
	}
	g.eventually("all is given back", func() bool { return g.held() == 0 && g.engine.Kept() == 0 })
	reasons := map[string]int{}
	for _, r := range g.reasonsLogged(4 + len(all)) {
		reasons[r]++
	}
	if reasons["body_too_large"] != 2 || reasons["overloaded"] != 1 || reasons["ok"] != 1+len(all) {
		t.Errorf("logged %v", reasons)
	}
}

// TestScarceMemoryEndsRequestBuffer: a request whose body is being read whole ends as soon as memory is scarce, and its memory is given back, though nothing more comes of it.
func TestScarceMemoryEndsRequestBuffer(t *testing.T) {
	t.Parallel()
	for name, rule := range readWhole {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testScarce(t, rule)
		})
	}
}

func testScarce(t *testing.T, rule func(*config.Rule)) {
	checkLeaks(t)
	const size = 400 << 10
	var used atomic.Uint64
	g := keeping(t, 1<<30, &used, refusedAddr(t), rule)
	_, r := g.beginUpload(size, size+1)
	second := make(chan int, 1)
	body, w := io.Pipe()
	defer w.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		resp, err := g.http2Client("").RoundTrip(g.newRequest(t, "POST", body))
		if err != nil {
			t.Error(err)
			second <- 0
			return
		}
		resp.Body.Close()
		second <- resp.StatusCode
	})
	wg.Go(func() { w.Write(make([]byte, size)) })
	g.eventually("both are held", func() bool { return g.engine.Kept() >= 2*size })
	used.Store(1 << 30 / 100 * 92)
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 503 {
		t.Errorf("by HTTP/1.1: %v, %v", resp, err)
	}
	if status := <-second; status != 503 {
		t.Errorf("by HTTP/2: %d", status)
	}
	g.eventually("all is given back", func() bool { return g.held() == 0 && g.engine.Kept() == 0 })
	for _, reason := range g.reasonsLogged(2) {
		if reason != "overloaded" {
			t.Errorf("logged %q", reason)
		}
	}
}

// TestScarceMemoryForgetsSentBodies: what was sent of a body, and is kept to be sent again, is given back as soon as memory is scarce, and the request goes on.
func TestScarceMemoryForgetsSentBodies(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]func(*config.Rule){
		"request buffer": withBuffer(4 << 20),
		"buffer limit":   func(r *config.Rule) { r.Traffic = &config.RuleTraffic{BufferLimitBytes: 4 << 20} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
				const size = 1 << 20
				read, answer := make(chan struct{}), make(chan struct{})
				handle := func(w http.ResponseWriter, r *http.Request) {
					if n, err := io.Copy(io.Discard, r.Body); n != size || err != nil {
						t.Errorf("%d bytes, %v", n, err)
					}
					close(read)
					<-answer
				}
				addr := ""
				if backend2 {
					addr, _ = h2cBackend(t, 0, handle)
				} else {
					addr = httpBackend(t, handle)
				}
				var used atomic.Uint64
				g := startGatewayWith(t, Options{MemoryLimit: 1 << 30, memoryUsed: used.Load})
				if backend2 {
					g.serveH2C(addr, rule)
				} else {
					g.serve(addr, rule)
				}
				client, status := g.client(client2), make(chan int, 1)
				go func() {
					resp, err := client.RoundTrip(g.newRequest(t, "POST", strings.NewReader(strings.Repeat("b", size))))
					if err != nil {
						t.Error(err)
						status <- 0
						return
					}
					resp.Body.Close()
					status <- resp.StatusCode
				}()
				<-read
				if kept := g.engine.Kept(); kept < size {
					t.Errorf("%d bytes are kept", kept)
				}
				used.Store(1 << 30 / 100 * 92)
				g.eventually("it is given back", func() bool { return g.engine.Kept() == 0 })
				close(answer)
				if got := <-status; got != 200 {
					t.Errorf("it ended with %d", got)
				}
				g.eventually("nothing is held", func() bool { return g.held() == 0 })
			})
		})
	}
}

// TestLargestBufferIsCut: where memory runs out, a connection of HTTP/1.1 ends that holds much of a body which its backend does not take.
func TestLargestBufferIsCut(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const size = 24 << 20 // more than sockets hold
	var used atomic.Uint64
	stalled := make(chan struct{})
	g := keeping(t, 1<<30, &used, rawBackend(t, func(_ net.Conn, r *bufio.Reader) {
		readHead(r)
		<-stalled
	}), withBuffer(size))
	defer close(stalled)
	c, _ := g.beginUpload(size, size)
	g.eventually("it is being sent", func() bool { return g.upstreams.Get("Service/default/b/80").Stats().InFlight == 1 && g.held() >= size })
	used.Store(1 << 30 / 100 * 96)
	c.SetDeadline(time.Now().Add(testkit.Patience))
	if _, err := io.ReadAll(c); isTimeout(err) {
		t.Error("the connection does not end")
	}
	if r := g.reasonsLogged(1); r[0] != "overloaded" {
		t.Errorf("logged %q", r)
	}
	g.eventually("all is given back", func() bool { return g.engine.Kept() == 0 })
}
