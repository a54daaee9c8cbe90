package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// pattern is n bytes of which no two neighbourhoods are alike.
func pattern(n int) []byte {
	b := make([]byte, 0, n+8)
	for i := 0; len(b) < n; i++ {
		b = strconv.AppendInt(b, int64(i), 36)
		b = append(b, ' ')
	}
	return b[:n]
}

// largePart is how much of a response one read may bring.
const largePart = buffer.Size - buffer.Tailroom - buffer.Headroom

// TestLargeResponses: bodies around the sizes at which they go another way arrive as they were
// sent, again and again on the same connections, however the backend cuts them.
func TestLargeResponses(t *testing.T) {
	sizes := []int{largePart - 200, largePart, buffer.Size, 1, 24 << 10, 64 << 10, 79 << 10, 100, 3 << 20, 0, 300 << 10}
	body := pattern(3 << 20)
	addr := httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		cut, _ := strconv.Atoi(r.URL.Query().Get("cut"))
		w.Header().Set("Content-Length", strconv.Itoa(n))
		if cut > 0 && cut < n {
			w.Write(body[:cut])
			w.(http.Flusher).Flush()
			w.Write(body[cut:n])
			return
		}
		w.Write(body[:n])
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	c := g.dial()
	r := bufio.NewReader(c)
	for round := range 3 {
		for _, n := range sizes {
			for _, cut := range []int{0, 1, 2000, 30_000} {
				fmt.Fprintf(c, "GET /?n=%d&cut=%d HTTP/1.1\r\nHost: h\r\n\r\n", n, cut)
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatalf("round %d, %d bytes cut at %d: %v", round, n, cut, err)
				}
				got, err := io.ReadAll(resp.Body)
				if err != nil || !bytes.Equal(got, body[:n]) {
					t.Fatalf("round %d, %d bytes cut at %d: %d bytes, equal %v, %v", round, n, cut, len(got), bytes.Equal(got, body[:n]), err)
				}
			}
		}
	}
}

// TestLargeResponseSlowClient: a client that reads in small steps gets everything, and the backend is held
// up meanwhile instead of the gateway holding the body.
func TestLargeResponseSlowClient(t *testing.T) {
	const size = 32 << 20
	sent := make(chan int64, 1)
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err != nil {
			return
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
		c.SetWriteDeadline(time.Now().Add(time.Second))
		var total int64
		chunk := make([]byte, 64<<10)
		for total < size {
			n, err := c.Write(chunk[:min(len(chunk), int(size-total))])
			if total += int64(n); err != nil {
				break
			}
		}
		sent <- total
		c.SetWriteDeadline(time.Now().Add(testkit.Patience))
		for total < size {
			n, err := c.Write(chunk[:min(len(chunk), int(size-total))])
			if total += int64(n); err != nil {
				return
			}
		}
		io.Copy(io.Discard, r)
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	c := g.dial()
	c.(*net.TCPConn).SetReadBuffer(16 << 10)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if n := <-sent; n >= size {
		t.Errorf("the backend could send all of %d bytes to a client that reads nothing", size)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Errorf("%d of %d bytes, %v", n, size, err)
	}
}

// TestLargeResponseEnds: whoever breaks off a large response, the other side sees it, and nothing is left.
func TestLargeResponseEnds(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	const size = 8 << 20
	start := func(t *testing.T, timeouts Timeouts, change func(*config.Rule), after func(c net.Conn, r *bufio.Reader)) (*gateway, net.Conn) {
		addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
			if _, err := readHead(r); err != nil {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
			c.Write(make([]byte, 100<<10))
			after(c, r)
		})
		g := startGateway(t, timeouts)
		g.serve(addr, change)
		c := g.dial()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		return g, c
	}
	wait := func(c net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) }
	part := func(t *testing.T, c net.Conn, n int64) {
		if _, err := io.CopyN(io.Discard, c, n); err != nil {
			t.Fatal(err)
		}
	}
	wantReason := func(t *testing.T, g *gateway, want string) {
		if got := g.reasonsLogged(1); got[0] != want {
			t.Errorf("reason %s, want %s", got[0], want)
		}
	}
	t.Run("backend closes", func(t *testing.T) {
		g, c := start(t, Timeouts{}, nil, func(net.Conn, *bufio.Reader) {})
		if n, err := io.Copy(io.Discard, c); n < 100<<10 || n >= size || err != nil {
			t.Errorf("%d bytes, %v; want what the backend sent, and the end", n, err)
		}
		wantReason(t, g, "upstream_truncated")
	})
	t.Run("backend resets", func(t *testing.T) {
		g, c := start(t, Timeouts{}, nil, func(c net.Conn, _ *bufio.Reader) { c.(*net.TCPConn).SetLinger(0) })
		io.Copy(io.Discard, c)
		wantReason(t, g, "upstream_truncated")
	})
	t.Run("client leaves while the backend waits", func(t *testing.T) {
		g, c := start(t, Timeouts{}, nil, wait)
		part(t, c, 100<<10)
		c.Close()
		wantReason(t, g, "client_closed")
	})
	t.Run("client leaves while it is sent to", func(t *testing.T) {
		g, c := start(t, Timeouts{}, nil, func(c net.Conn, r *bufio.Reader) { c.Write(make([]byte, size)) })
		part(t, c, 200<<10)
		c.Close()
		wantReason(t, g, "client_closed")
	})
	t.Run("client takes nothing", func(t *testing.T) {
		g, c := start(t, Timeouts{WriteIdle: 300 * time.Millisecond}, nil, func(c net.Conn, r *bufio.Reader) {
			c.Write(make([]byte, size-100<<10))
			wait(c, r)
		})
		c.(*net.TCPConn).SetReadBuffer(16 << 10)
		wantReason(t, g, "client_timeout")
	})
	t.Run("the rule's time is over", func(t *testing.T) {
		g, c := start(t, Timeouts{}, func(r *config.Rule) { r.RequestTimeoutNanos = int64(300 * time.Millisecond) }, wait)
		if n, err := io.Copy(io.Discard, c); n >= size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		wantReason(t, g, "request_timeout")
	})
}

// TestLargestResponse: a backend may announce the longest body that can be told, and what it sends of it arrives.
func TestLargestResponse(t *testing.T) {
	const part = 200 << 10
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err != nil {
			return
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", math.MaxInt64)
		c.Write(pattern(part))
		io.Copy(io.Discard, r)
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	c := g.dial()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := make([]byte, part); resp.ContentLength != math.MaxInt64 {
		t.Errorf("Content-Length %d", resp.ContentLength)
	} else if _, err := io.ReadFull(resp.Body, got); err != nil || !bytes.Equal(got, pattern(part)) {
		t.Errorf("what has come differs from what was sent, %v", err)
	}
	c.Close()
	if got := g.reasonsLogged(1); got[0] != "client_closed" {
		t.Errorf("reason %s", got[0])
	}
}

// TestLargeResponseSurplus: what a backend sends behind a response is not taken for the next one.
func TestLargeResponseSurplus(t *testing.T) {
	body := strings.Repeat("x", 200<<10)
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", len(body), body)
		}
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	for range 5 {
		resp, err := http.Get("http://" + g.addr())
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(got) != body {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
}
