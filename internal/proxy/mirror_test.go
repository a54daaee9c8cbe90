package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

const mirrorKey = "Service/default/mirror/80"

// mirrorTo makes the rule send copies to the backends of these keys.
func mirrorTo(t testing.TB, keys ...string) func(*config.Rule) {
	return func(r *config.Rule) {
		for _, k := range keys {
			r.Filters = append(r.Filters, filterOf(t, &config.RequestMirror{Backend: k, Numerator: 1, Denominator: 1}))
		}
	}
}

// copyOf is what a mirror got.
type copyOf struct {
	method, path, host, header string
	body                       []byte
	trailer                    string
	err                        error
}

func mirrorBackend(t testing.TB, got chan copyOf) string {
	return httpBackend(t, mirrorHandler(got))
}

func mirrorH2CBackend(t testing.TB, got chan copyOf) string {
	addr, _ := h2cBackend(t, 0, mirrorHandler(got))
	return addr
}

func mirrorHandler(got chan copyOf) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		got <- copyOf{r.Method, r.URL.String(), r.Host, r.Header.Get("X-Test"), b, r.Trailer.Get("X-Sum"), err}
		w.WriteHeader(503) // of no interest to anyone
	}
}

// echo answers with the request's body.
func echo(t testing.TB) string {
	return httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	})
}

// post sends a request with a body, as chunks where chunk > 0, slowly where pause > 0.
func post(c net.Conn, body []byte, chunk int, pause time.Duration) {
	const head = "POST /copy?q=1 HTTP/1.1\r\nHost: h.example\r\nX-Test: yes\r\nTrailer: X-Sum\r\n"
	if chunk == 0 {
		fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n", head, len(body))
		c.Write(body)
		return
	}
	io.WriteString(c, head+"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
	for len(body) > 0 {
		n := min(chunk, len(body))
		fmt.Fprintf(c, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
		time.Sleep(pause)
	}
	io.WriteString(c, "0\r\nX-Sum: 7\r\n\r\n")
}

func TestMirrorIsWhole(t *testing.T) {
	t.Run("HTTP1", func(t *testing.T) { testMirrorIsWhole(t, mirrorBackend, nil) })
	t.Run("H2C", func(t *testing.T) { testMirrorIsWhole(t, mirrorH2CBackend, h2c(mirrorKey)) })
}

// testMirrorIsWhole sends bodies of all kinds to a mirror; change is applied behind its Backend.
func testMirrorIsWhole(t *testing.T, mirror func(testing.TB, chan copyOf) string, change *config.Resource) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 12<<10) // 192 KiB
	for _, tc := range []struct {
		name        string
		size, chunk int
		pause       time.Duration
	}{
		{name: "none"},
		{name: "with its head", size: 100},
		{name: "streamed with a length", size: len(body)},
		{name: "chunked", size: len(body), chunk: 10000},
		{name: "slowly in small chunks", size: 2000, chunk: 100, pause: time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkLeaks(t)
			got := make(chan copyOf, 4)
			g := startGateway(t, Timeouts{})
			g.apply(backend(mirrorKey, mirror(t, got)))
			if change != nil {
				g.apply([]*config.Resource{change})
			}
			g.serve(echo(t), mirrorTo(t, mirrorKey))
			c := g.dial()
			r := bufio.NewReader(c)
			for range 2 { // the second goes by the connections of the first
				go post(c, body[:tc.size], tc.chunk, tc.pause)
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || !bytes.Equal(b, body[:tc.size]) {
					t.Errorf("the client got %s, %d bytes, %v", resp.Status, len(b), err)
				}
				m := <-got
				if m.method+m.path+m.host+m.header != "POST/copy?q=1h.exampleyes" || m.err != nil || !bytes.Equal(m.body, body[:tc.size]) {
					t.Errorf("the mirror got %s %s %s %s, %d bytes, %v", m.method, m.path, m.host, m.header, len(m.body), m.err)
				}
				if tc.chunk > 0 && m.trailer != "7" {
					t.Errorf("the mirror got the trailer %q", m.trailer)
				}
			}
		})
	}
}

// mirrorPatience is more than an unhindered request takes on the slowest machine, and less than the 30 s after which a copy
// is given up.
const mirrorPatience = testkit.Patience

// TestMirrorFails: whatever a mirror does, the request does not feel it.
func TestMirrorFails(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte("x"), 4<<20) // more than waits for a mirror
	for name, mirror := range map[string]func(t *testing.T) string{
		"silent": func(t *testing.T) string {
			return rawBackend(t, func(c net.Conn, r *bufio.Reader) { time.Sleep(50 * time.Millisecond); io.Copy(io.Discard, r) })
		},
		"reads nothing": func(t *testing.T) string {
			over := make(chan struct{})
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				c.(*net.TCPConn).SetReadBuffer(1 << 10)
				<-over
			})
			t.Cleanup(func() { close(over) })
			return addr
		},
		"dead": func(t *testing.T) string { return fmt.Sprintf("127.0.0.1:%d", freePort(t)) },
		"resets": func(t *testing.T) string {
			return rawBackend(t, func(c net.Conn, r *bufio.Reader) { c.(*net.TCPConn).SetLinger(0) })
		},
		"malformed": func(t *testing.T) string {
			return rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n???")
				io.Copy(io.Discard, r)
			})
		},
		"endless": func(t *testing.T) string {
			return rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				for _, err := io.WriteString(c, "HTTP/1.1 103 Early\r\n\r\n"); err == nil; _, err = io.WriteString(c, "HTTP/1.1 103 Early\r\n\r\n") {
					time.Sleep(time.Millisecond)
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			g.apply(backend(mirrorKey, mirror(t)))
			g.serve(echo(t), mirrorTo(t, mirrorKey))
			c := g.dial()
			r := bufio.NewReader(c)
			for _, size := range []int{0, 100, len(body)} {
				start := time.Now()
				go post(c, body[:size], 0, 0)
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				if took := time.Since(start); err != nil || resp.StatusCode != 200 || len(b) != size || took > mirrorPatience {
					t.Errorf("%s, %d of %d bytes after %v, %v", resp.Status, len(b), size, took, err)
				}
			}
		})
	}
}

// TestMirrorCut: a request that breaks off does not arrive at the mirror as if it were whole.
func TestMirrorCut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, sent string }{
		{"chunked", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"},
		{"with a length", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabcde"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkLeaks(t)
			got := make(chan copyOf, 1)
			g := startGateway(t, Timeouts{})
			g.apply(backend(mirrorKey, mirrorBackend(t, got)))
			g.serve(echo(t), mirrorTo(t, mirrorKey))
			c := g.dial()
			io.WriteString(c, tc.sent)
			time.Sleep(50 * time.Millisecond)
			c.Close()
			if m := <-got; m.err == nil {
				t.Errorf("the mirror got a whole request with the body %q", m.body)
			}
			for deadline := time.Now().Add(2 * time.Second); g.engine.Mirrors() > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the copy goes on")
				}
			}
		})
	}
}

// TestSeveralMirrors: each mirror filter has its own copy; a share is a share.
func TestSeveralMirrors(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const requests = 1000
	var all, half, none atomic.Int64
	count := func(n *atomic.Int64) string {
		return httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1); r.Header.Get("X-Forwarded-For") == "" {
				t.Error("a copy without provenance")
			}
		})
	}
	g := startGateway(t, Timeouts{})
	g.apply(append(append(backend("Service/m/all/1", count(&all)), backend("Service/m/half/1", count(&half))...), backend("Service/m/none/1", count(&none))...))
	g.serve(cannedBackend(t, cannedResponse(2), 0), func(r *config.Rule) {
		mirrorTo(t, "Service/m/all/1")(r)
		r.Filters = append(r.Filters,
			filterOf(t, &config.RequestMirror{Backend: "Service/m/half/1", Numerator: 50, Denominator: 100}),
			filterOf(t, &config.RequestMirror{Backend: "Service/m/none/1", Numerator: 0, Denominator: 100}))
	})
	c := g.dial()
	r := bufio.NewReader(c)
	for range requests {
		if got := statusOf(t, c, r, "h", "/"); got != "200" {
			t.Fatal(got)
		}
		for g.engine.Mirrors() > 100 { // more would be dropped
			time.Sleep(time.Millisecond)
		}
	}
	for deadline := time.Now().Add(testkit.Patience); g.engine.Mirrors() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	// 50 % of 1000 has a standard deviation of 15.8: six of them.
	if a, h, n := all.Load(), half.Load(), none.Load(); a != requests || h < 405 || h > 595 || n != 0 {
		t.Errorf("copies: %d of 100 %%, %d of 50 %%, %d of 0 %%", a, h, n)
	}
}

// TestSlowMirrorStarvesNobody: a mirror that answers nothing has its copies dropped before the others' are, and that
// is counted for it.
func TestSlowMirrorStarvesNobody(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const slow, fast, requests = "Service/m/slow/1", "Service/m/fast/1", 100
	var copies atomic.Int64
	g := startGateway(t, Timeouts{})
	g.apply(append(append(backend("Service/default/b/80", cannedBackend(t, cannedResponse(2), 0)),
		backend(slow, rawBackend(t, func(c net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) }))...),
		backend(fast, httpBackend(t, func(http.ResponseWriter, *http.Request) { copies.Add(1) }))...))
	to := func(mirror string) *config.Rule {
		r := anyRule()
		mirrorTo(t, mirror)(r)
		return r
	}
	g.apply([]*config.Resource{g.httpListener("http", ""),
		routeOf("slow", "default/gw/http", "slow.example", to(slow)), routeOf("fast", "default/gw/http", "fast.example", to(fast))})
	c := g.dial()
	r := bufio.NewReader(c)
	for range 600 {
		if got := statusOf(t, c, r, "slow.example", "/"); got != "200" {
			t.Fatal(got)
		}
	}
	underWay := g.engine.Mirrors()
	if underWay < 100 {
		t.Errorf("%d copies to the only mirror under way", underWay)
	}
	for i := range int64(requests) {
		if got := statusOf(t, c, r, "fast.example", "/"); got != "200" {
			t.Fatal(got)
		}
		g.eventually("a copy to a mirror that is not slow", func() bool { return copies.Load() > i })
	}
	const dropped = "moongate_upstream_mirror_copies_dropped_total"
	// On a busy machine some have come to the end of their time meanwhile.
	g.eventually("each copy is dropped or under way", func() bool {
		return g.counted(dropped, "backend", slow, "reason", "overloaded")+g.counted(dropped, "backend", slow, "reason", "failed")+float64(g.engine.Mirrors()) == 600
	})
	if n := g.counted(dropped, "backend", fast); n != 0 {
		t.Errorf("%v copies to the fast mirror dropped", n)
	}
}

// TestWeights: traffic is divided by the weights, the share of an invalid backendRef included.
func TestWeights(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const requests = 4000
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/w/a/1", namedBackend(t, "a")), backend("Service/w/z/1", namedBackend(t, "z"))...))
	g.serve(namedBackend(t, "b"), func(r *config.Rule) {
		r.BackendRefs[0].Weight = 3
		r.BackendRefs = append(r.BackendRefs,
			&config.BackendRef{Backend: "Service/w/z/1", Weight: 0},
			&config.BackendRef{Backend: "Service/w/a/1", Weight: 6},
			&config.BackendRef{Weight: 1, Failure: &config.Failure{Status: 500, Reason: "backend_invalid"}})
	})
	c := g.dial()
	r := bufio.NewReader(c)
	got := map[string]int{}
	for range requests {
		c.SetDeadline(time.Now().Add(testkit.Patience)) // of each
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		got[strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-Backend")))]++
	}
	// Six standard deviations, sqrt(n p (1-p)) each.
	for what, bounds := range map[string][2]int{"200 b": {1026, 1374}, "200 a": {2214, 2586}, "500": {286, 514}, "200 z": {0, 0}} {
		if n := got[what]; n < bounds[0] || n > bounds[1] {
			t.Errorf("%s: %d of %d, want %d to %d", what, n, requests, bounds[0], bounds[1])
		}
	}
}
