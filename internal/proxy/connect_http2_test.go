package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// connectBy sends a CONNECT by HTTP/2 that has no :protocol.
func (p *connectPeer) connectBy(authority string, fields ...string) *streamTunnel {
	p.t.Helper()
	return p.open(false, append([]string{":method", "CONNECT", ":authority", authority}, fields...)...)
}

// TestConnectHTTP2: a stream is a tunnel, beside others, in the clear and over TLS, to a backend that is joined or one that is asked by HTTP/1.1.
func TestConnectHTTP2(t *testing.T) {
	t.Parallel()
	for _, sni := range []string{"", "example.org"} {
		for _, how := range []*config.Upgrade{connectHere, connectToBackend} {
			t.Run(fmt.Sprintf("SNI %s, terminated %v", sni, how.Terminate), func(t *testing.T) {
				t.Parallel()
				checkLeaks(t)
				accepted, done := make(chan *net.TCPConn, 4), make(chan struct{})
				addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
					if !how.Terminate {
						head, err := readHead(r)
						if err != nil || !strings.HasPrefix(head, "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n") {
							t.Errorf("the backend gets %q, %v", head, err)
						}
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\n\r\n")
					}
					accepted <- c.(*net.TCPConn)
					<-done
				})
				t.Cleanup(func() { close(done) })
				g := startGateway(t, Timeouts{})
				g.serve(addr, switchingTo(how))
				if sni != "" {
					g.apply([]*config.Resource{certificate(t, "c", newECDSA(t), "*.org"), g.httpsListener("http", "", "c")})
				}
				p := g.connectPeer(sni)
				c := p.connectBy("example.org:443")
				if c.status() != "200" || c.Header.Get("content-length") != "" || c.Header.Get("date") == "" {
					t.Fatal(c.Header)
				}
				backend := <-accepted
				want := make([]byte, 3<<20) // more than all windows
				rand.Read(want)
				var moves sync.WaitGroup
				moves.Go(func() { io.Copy(c, bytes.NewReader(want)); c.CloseWrite() })
				moves.Go(func() {
					if got, err := io.ReadAll(backend); err != nil || !bytes.Equal(got, want) {
						t.Errorf("the backend got %d bytes, %v", len(got), err)
					}
					backend.Write(want) // after the client's END_STREAM
					backend.CloseWrite()
				})
				if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
					t.Errorf("the client got %d bytes, %v", len(got), err)
				}
				moves.Wait()
				g.reasonsLogged(1)
				for _, part := range []string{`"reason":"upgraded"`, `"method":"CONNECT"`, `"response_code":200`, `"protocol":"HTTP/2.0"`, `"path":"example.org:443"`,
					fmt.Sprintf(`"bytes_received":%d`, len(want)), fmt.Sprintf(`"bytes_sent":%d`, len(want))} {
					if !strings.Contains(g.log.String(), part) {
						t.Errorf("no %s in %s", part, g.log.String())
					}
				}
			})
		}
	}
}

// TestConnectHTTP2Guards: what opens no tunnel has an answer that says so, what stands behind it is nobody's, and the connection goes on.
func TestConnectHTTP2Guards(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		authority string
		fields    []string
		rule      func(*config.Rule)
		response  string // of a backend that is asked
		status    int
		reason    string
	}{
		"no policy":       {status: 501, reason: "not_implemented"},
		"not in the list": {rule: switchingTo(toWebSocket), status: 501, reason: "not_implemented"},
		"refused":         {rule: switchingTo(connectToBackend), response: "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", status: 403, reason: "ok"},
		"with a length":   {rule: switchingTo(connectHere), fields: []string{"content-length", "4"}, status: 400, reason: "bad_request"},
		"without a port":  {authority: "h", rule: switchingTo(connectHere), status: 400, reason: "bad_request"},
		"empty port":      {authority: "h:", rule: switchingTo(connectHere), status: 400, reason: "bad_request"},
		"with a path":     {authority: "h:443/x", rule: switchingTo(connectHere), status: 400, reason: "bad_request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				for {
					head, err := readHead(r)
					switch {
					case err != nil:
						return
					case strings.HasPrefix(head, "GET /next "):
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n/next")
					case tc.response != "" && strings.HasPrefix(head, "CONNECT "):
						io.WriteString(c, tc.response)
					default:
						t.Errorf("the backend hears %q", head)
						return
					}
				}
			})
			g := startGateway(t, Timeouts{})
			g.serve(addr, tc.rule)
			p := g.connectPeer("")
			if tc.authority == "" {
				tc.authority = "h:443"
			}
			c := p.connectBy(tc.authority, tc.fields...)
			io.WriteString(c, "GET /evil HTTP/1.1\r\nHost: h\r\n\r\n")
			c.CloseWrite()
			if c.status() != strconv.Itoa(tc.status) {
				t.Errorf("%v, want %d", c.Header, tc.status)
			}
			if words := g.reasonsLogged(1); words[0] != tc.reason {
				t.Errorf("logged as %v, want %s", words, tc.reason)
			}
			if got := p.get("/next"); got != "200 /next <nil>" {
				t.Errorf("the next request: %s", got)
			}
		})
	}
}

// TestConnectHTTP2Ends: what one side breaks off is broken off to the other, an edit changes nothing, and a drain ends it last.
func TestConnectHTTP2Ends(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, accepted := tunnelBackend(t)
	g := startGateway(t, Timeouts{})
	g.serve(addr, switchingTo(connectHere))
	p := g.connectPeer("")
	logged := 0
	ends := func(want string) {
		t.Helper()
		logged++
		if words := g.reasonsLogged(logged); words[logged-1] != want {
			t.Errorf("logged as %v, want %s", words, want)
		}
	}
	open := func() (*streamTunnel, *net.TCPConn) {
		t.Helper()
		c := p.connectBy("h:443")
		b := <-accepted
		passes(t, c, b)
		passes(t, b, c)
		return c, b
	}
	c, b := open()
	c.Reset()
	if _, err := io.ReadAll(b); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the backend read up to %v", err)
	}
	ends("client_closed")
	c, b = open()
	b.SetLinger(0)
	b.Close()
	var reset http2.StreamError
	if _, err := io.ReadAll(c); !errors.As(err, &reset) || reset.Code != http2.ErrCodeConnect {
		t.Errorf("the client read up to %v", err)
	}
	ends("upstream_truncated")
	c, b = open()
	g.serve(addr, nil)
	passes(t, c, b)
	passes(t, b, c)
	if other := p.connectBy("h:443"); other.status() != "501" {
		t.Errorf("after the edit: %v", other.Header)
	}
	ends("not_implemented")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := g.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the tunnel was cut before its time: %v", err)
	}
	if _, err := io.ReadAll(b); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the backend read up to %v", err)
	}
	ends("shutting_down")
}

// TestExtendedConnectOfList: a client of HTTP/2 may ask for any protocol that the rule has in its list.
func TestExtendedConnectOfList(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	accepted, done := make(chan *net.TCPConn, 4), make(chan struct{})
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		head, err := readHead(r)
		if err != nil || !strings.Contains(head, "Upgrade: echo\r\n") || strings.Contains(head, "Sec-WebSocket-Key") {
			t.Errorf("the backend gets %q, %v", head, err)
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		accepted <- c.(*net.TCPConn)
		<-done
	})
	t.Cleanup(func() { close(done) })
	g := startGateway(t, Timeouts{})
	g.serve(addr, switchingTo(&config.Upgrade{Type: "echo"}))
	p := g.connectPeer("")
	c := p.connect("echo", "http://h/exec")
	if c.status() != "200" {
		t.Fatal(c.Header)
	}
	b := <-accepted
	passes(t, c, b)
	passes(t, b, c)
	if other := p.connect("websocket", "http://h/chat"); other.status() != "501" {
		t.Errorf("a protocol that the list has not: %v", other.Header)
	}
}

// TestConnectUnderLimits: the stream timeouts of the policy hold for tunnels, and the circuit breaker counts them.
func TestConnectUnderLimits(t *testing.T) {
	t.Parallel()
	t.Run("idle", func(t *testing.T) {
		checkLeaks(t)
		addr, accepted := tunnelBackend(t)
		g := startGateway(t, Timeouts{})
		g.serve(addr, func(r *config.Rule) {
			switchingTo(connectHere)(r)
			r.Traffic.StreamIdleTimeoutNanos = int64(300 * time.Millisecond)
		})
		c := g.dial()
		connected(t, c, "")
		b := <-accepted
		if _, err := io.ReadAll(b); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the backend read up to %v", err)
		}
		if words := g.reasonsLogged(1); words[0] != "stream_idle" {
			t.Errorf("logged as %v", words)
		}
	})
	t.Run("breaker", func(t *testing.T) {
		checkLeaks(t)
		addr, accepted := tunnelBackend(t)
		g := startGateway(t, Timeouts{})
		g.serve(addr, switchingTo(connectHere))
		g.apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "Service/default/b/80",
			Traffic: &config.BackendTraffic{CircuitBreaker: &config.CircuitBreaker{MaxParallelRequests: new(uint32(1))}}}}}})
		c := g.dial()
		connected(t, c, "")
		b := <-accepted
		if got := g.roundTrip(connectRequest); !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "circuit_breaker_open") {
			t.Errorf("a second tunnel: %q", got)
		}
		c.Close()
		b.Close()
		testkit.Eventually(t, "there is room for another tunnel", func() bool {
			c := g.dial()
			defer c.Close()
			_, head := connected(t, c, "")
			return strings.HasPrefix(head, "HTTP/1.1 200 ")
		})
	})
}

// h2Tunnels is a backend in HTTP/2 alone that answers each CONNECT with the status, and what comes then with itself.
func h2Tunnels(t testing.TB, status int, fields http.Header) string {
	addr, _ := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			io.WriteString(w, "/next")
			return
		}
		if r.Method != "CONNECT" || r.Host != "h:443" {
			t.Errorf("the backend gets %s %s", r.Method, r.Host)
		}
		for name, values := range fields {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		c := http.NewResponseController(w)
		c.Flush()
		if status >= 300 {
			return
		}
		for buf := make([]byte, 32<<10); ; {
			n, err := r.Body.Read(buf)
			w.Write(buf[:n])
			c.Flush()
			if err == io.EOF {
				io.WriteString(w, "end") // after the client's
				return
			}
			if err != nil {
				panic(http.ErrAbortHandler)
			}
		}
	})
	return addr
}

// TestConnectToHTTP2: a CONNECT is a stream to a backend that speaks HTTP/2, of clients in either version.
func TestConnectToHTTP2(t *testing.T) {
	t.Parallel()
	want := make([]byte, 1<<20) // more than all windows
	rand.Read(want)
	for name, status := range map[string]int{"OK": 200, "another success": 299} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			g.serveH2C(h2Tunnels(t, status, http.Header{"X-A": {"1"}}), switchingTo(connectToBackend))
			pumps := func(w io.Writer, r io.Reader, end func()) {
				t.Helper()
				passes(t, w, r)
				var sender sync.WaitGroup
				sender.Go(func() { w.Write(want); end() })
				got, err := io.ReadAll(r)
				if err != nil || !bytes.Equal(got, append(bytes.Clone(want), "end"...)) {
					t.Errorf("the client got %d bytes, %v", len(got), err)
				}
				sender.Wait()
			}
			c := g.dial()
			r, head := connected(t, c, "")
			if !strings.HasPrefix(head, fmt.Sprintf("HTTP/1.1 %d ", status)) || !strings.Contains(head, "1\r\n") || strings.Contains(head, "Transfer-Encoding") {
				t.Errorf("the head is %q", head)
			}
			pumps(c, r, func() { c.(*net.TCPConn).CloseWrite() })
			p := g.connectPeer("")
			s := p.connectBy("h:443")
			if s.status() != strconv.Itoa(status) {
				t.Error(s.Header)
			}
			pumps(s, s, s.CloseWrite)
			if words := g.reasonsLogged(2); words[0] != "upgraded" || words[1] != "upgraded" {
				t.Errorf("logged as %v", words)
			}
			if got := p.get("/next"); got != "200 /next <nil>" {
				t.Errorf("the next request: %s", got)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		checkLeaks(t)
		g := startGateway(t, Timeouts{})
		g.serveH2C(h2Tunnels(t, 403, nil), switchingTo(connectToBackend))
		if got := g.roundTrip(connectRequest + "GET /evil HTTP/1.1\r\nHost: h\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403 ") || strings.Count(got, "HTTP/1.1 ") != 1 {
			t.Errorf("%q", got)
		}
	})
	t.Run("refused, without a reset", func(t *testing.T) {
		t.Parallel()
		checkLeaks(t)
		g := startGateway(t, Timeouts{})
		ended := make(chan error, 1)
		addr, _ := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(403)
			http.NewResponseController(w).Flush()
			_, err := io.ReadAll(r.Body)
			ended <- err
		})
		g.serveH2C(addr, switchingTo(connectToBackend))
		if got := g.roundTrip(connectRequest); !strings.HasPrefix(got, "HTTP/1.1 403 ") {
			t.Errorf("%q", got)
		}
		if err := <-ended; err != nil {
			t.Errorf("the backend has read its stream up to %v", err)
		}
	})
	t.Run("broken off", func(t *testing.T) {
		t.Parallel()
		checkLeaks(t)
		g := startGateway(t, Timeouts{})
		gone := make(chan struct{})
		addr, _ := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			http.NewResponseController(w).Flush()
			if r.Body.Read(make([]byte, 1)); r.Header.Get("X-Abort") != "" {
				panic(http.ErrAbortHandler)
			}
			<-r.Context().Done()
			close(gone)
		})
		g.serveH2C(addr, switchingTo(connectToBackend))
		c := g.dial()
		io.WriteString(c, "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\nX-Abort: 1\r\n\r\n")
		r := bufio.NewReader(c)
		readHead(r)
		io.WriteString(c, "x")
		if _, err := io.ReadAll(r); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client read up to %v", err)
		}
		c = g.dial()
		connected(t, c, "x")
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
		select {
		case <-gone:
		case <-time.After(testkit.Patience):
			t.Error("the backend's stream goes on")
		}
		if words := g.reasonsLogged(2); words[0] != "upstream_truncated" || words[1] != "client_closed" {
			t.Errorf("logged as %v", words)
		}
	})
}

// TestConnectFrames: a CONNECT to a backend in HTTP/2 has neither :scheme nor :path, does not end its stream, and a Content-Length of the success says nothing of the tunnel.
func TestConnectFrames(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr := rawFrames(t, nil, func(f *framePeer) {
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			f.acknowledge(frame)
			switch frame := frame.(type) {
			case *http2.MetaHeadersFrame:
				got := ""
				for _, field := range frame.PseudoFields() {
					got += field.Name + "=" + field.Value + " "
				}
				if got != ":method=CONNECT :authority=h:443 " || frame.StreamEnded() {
					t.Errorf("the backend gets %s, and the end: %v", got, frame.StreamEnded())
				}
				f.head(frame.StreamID, false, ":status", "200", "content-length", "2")
			case *http2.DataFrame:
				f.WriteData(frame.StreamID, false, frame.Data())
				if frame.StreamEnded() {
					f.WriteData(frame.StreamID, true, nil)
				}
			}
		}
	})
	g := startGateway(t, Timeouts{})
	g.serveH2C(addr, switchingTo(connectToBackend))
	c := g.dial()
	r, head := connected(t, c, "")
	if !strings.HasPrefix(head, "HTTP/1.1 200 ") || strings.Contains(strings.ToLower(head), "content-length") {
		t.Errorf("the client gets %q", head)
	}
	passes(t, c, r)
	passes(t, c, r)
	c.(*net.TCPConn).CloseWrite()
	if b, err := io.ReadAll(r); len(b) > 0 || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if words := g.reasonsLogged(1); words[0] != "upgraded" {
		t.Errorf("logged as %v", words)
	}
}
