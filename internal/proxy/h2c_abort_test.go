package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestH2CClientVanishes ends the client at every moment of a request: the stream is reset, and the
// connection serves the next request.
func TestH2CClientVanishes(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	for _, tc := range []struct{ name, sent, reply string }{
		{"waiting for the response", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", ""},
		{"within a body with a length", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc", ""},
		{"within a chunked body", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", ""},
		{"within the response body", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", "part"},
		{"within upload and response", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc", "part"},
	} {
		for _, how := range []string{"close", "reset", "half-close"} {
			t.Run(tc.name+"/"+how, func(t *testing.T) {
				t.Parallel()
				began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
				addr, conns := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/next" {
						return
					}
					if tc.reply != "" {
						io.WriteString(w, tc.reply)
						w.(http.Flusher).Flush()
					}
					began <- struct{}{}
					<-r.Context().Done()
					ended <- struct{}{}
				})
				g := startGateway(t, Timeouts{})
				g.serveH2C(addr, nil)
				c := g.dial().(*net.TCPConn)
				io.WriteString(c, tc.sent)
				<-began
				if tc.reply != "" {
					readHead(bufio.NewReader(c))
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
				select {
				case <-ended:
				case <-time.After(testkit.Patience):
					t.Fatal("the backend still works for nobody")
				}
				if got := g.roundTrip("GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
					t.Error(got)
				}
				if n := conns.Load(); n != 1 {
					t.Errorf("%d connections, want one", n)
				}
				r := g.reasonsLogged(2)
				if slices.Sort(r); r[0] != "client_closed" || r[1] != "ok" {
					t.Errorf("logged %q", r)
				}
			})
		}
	}
}

// TestH2CBackendDies ends the backend, or a stream of it, at every moment of a request.
func TestH2CBackendDies(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	const get = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	const post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\nConnection: close\r\n\r\nabc"
	ok := []string{":status", "200"}
	for _, tc := range []struct {
		name, request string
		do            func(f *framePeer, stream uint32)
		want, reason  string
	}{
		{"at once", get, func(f *framePeer, _ uint32) { f.c.Close() }, "HTTP/1.1 502 ", "upstream_reset"},
		{"stream at once", get, func(f *framePeer, s uint32) { f.WriteRSTStream(s, http2.ErrCodeInternal) }, "HTTP/1.1 502 ", "upstream_reset"},
		{"with an error of the connection", get, func(f *framePeer, s uint32) {
			f.WriteGoAway(s, http2.ErrCodeProtocol, nil)
			f.c.Close()
		}, "HTTP/1.1 502 ", "upstream_reset"},
		{"within the head", get, func(f *framePeer, s uint32) {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: s, BlockFragment: []byte{0x88}})
			f.c.Close()
		}, "HTTP/1.1 502 ", "upstream_reset"},
		{"behind an interim response", get, func(f *framePeer, s uint32) {
			f.head(s, false, ":status", "103")
			f.WriteRSTStream(s, http2.ErrCodeInternal)
		}, "", "upstream_reset"},
		{"behind the head", get, func(f *framePeer, s uint32) {
			f.head(s, false, ok...)
			f.WriteRSTStream(s, http2.ErrCodeInternal)
		}, "", "upstream_truncated upstream_reset"},
		{"within the body", get, func(f *framePeer, s uint32) {
			f.head(s, false, append(ok, "content-length", "9")...)
			f.WriteData(s, false, []byte("abc"))
			f.c.Close()
		}, "", "upstream_truncated upstream_reset"},
		{"with a body too short", get, func(f *framePeer, s uint32) {
			f.head(s, false, append(ok, "content-length", "9")...)
			f.WriteData(s, true, []byte("abc"))
		}, "", "upstream_malformed upstream_truncated"},
		{"with a body too long", get, func(f *framePeer, s uint32) {
			f.head(s, false, append(ok, "content-length", "2")...)
			f.WriteData(s, true, []byte("abc"))
		}, "", "upstream_malformed upstream_truncated"},
		{"without a status", get, func(f *framePeer, s uint32) { f.head(s, true, "server", "x") }, "HTTP/1.1 502 ", "upstream_malformed"},
		{"with a field of HTTP/1.1", get, func(f *framePeer, s uint32) { f.head(s, true, append(ok, "transfer-encoding", "chunked")...) },
			"HTTP/1.1 502 ", "upstream_malformed"},
		{"with a line break in a value", get, func(f *framePeer, s uint32) { f.head(s, true, append(ok, "x-a", "b\r\nx-c: d")...) },
			"HTTP/1.1 502 ", "upstream_malformed"},
		{"with a switch of protocols", get, func(f *framePeer, s uint32) { f.head(s, false, ":status", "101") }, "HTTP/1.1 502 ", "upstream_malformed"},
		{"interim responses without end", get, func(f *framePeer, s uint32) {
			for f.head(s, false, ":status", "103") == nil {
			}
		}, "", "upstream_malformed upstream_reset"},
		{"within an upload", post, func(f *framePeer, s uint32) { f.WriteRSTStream(s, http2.ErrCodeInternal) }, "HTTP/1.1 502 ", "upstream_reset"},
		{"within an upload, with an answer", post, func(f *framePeer, s uint32) {
			f.head(s, true, ":status", "413")
			f.WriteRSTStream(s, http2.ErrCodeNo)
		}, "HTTP/1.1 413 ", "ok"},
		{"within an upload, with an answer and no reset", post, func(f *framePeer, s uint32) { f.head(s, true, ":status", "413") }, "HTTP/1.1 413 ", "ok"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			addr := rawFrames(t, nil, func(f *framePeer) {
				f.serve(func(stream uint32) bool { tc.do(f, stream); return false }, nil)
			})
			g := startGateway(t, Timeouts{Linger: 100 * time.Millisecond})
			g.serveH2C(addr, nil)
			got := g.roundTrip(tc.request)
			if !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			r := g.reasonsLogged(1)[0]
			if !strings.Contains(tc.reason, r) {
				t.Errorf("logged %q, want %q", r, tc.reason)
			}
			// Whether the head is seen before what follows is a matter of time.
			if begun := strings.Contains(got, "HTTP/1.1 200 "); begun != (r == "upstream_truncated") && r != "ok" {
				t.Errorf("logged %q for %q", r, got)
			}
		})
	}
}

// TestH2CNotSpoken: a backend that does not speak HTTP/2 although it should.
func TestH2CNotSpoken(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serveH2C(httpBackend(t, func(http.ResponseWriter, *http.Request) {}), nil)
	if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 502 ") {
		t.Errorf("got %q", got)
	}
	if r := g.reasonsLogged(1); r[0] != "upstream_malformed" && r[0] != "upstream_reset" {
		t.Errorf("logged %q", r[0])
	}
}

// TestH2CDeadIdleConnection has a backend close its connection behind each response: the next
// request makes a new one, whatever its method.
func TestH2CDeadIdleConnection(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			addr := rawFrames(t, nil, func(f *framePeer) {
				f.serve(func(stream uint32) bool {
					f.answer(stream, "ok")
					if method == "POST" {
						f.WriteGoAway(stream, http2.ErrCodeNo, nil)
					}
					f.c.(*net.TCPConn).CloseWrite()
					return false
				}, nil)
			})
			g := startGateway(t, Timeouts{})
			g.serveH2C(addr, nil)
			c := g.dial()
			r := bufio.NewReader(c)
			for i := range 20 {
				io.WriteString(c, method+" / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
				resp, err := http.ReadResponse(r, nil)
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("request %d: %+v %v", i, resp, err)
				}
				io.Copy(io.Discard, resp.Body)
			}
		})
	}
}

func TestH2CTimeouts(t *testing.T) {
	checkLeaks(t)
	silent := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	dribbling := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			io.WriteString(w, "x")
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	}
	const get = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	for _, tc := range []struct {
		name         string
		backend      http.HandlerFunc
		request      string
		rule         func(*config.Rule)
		want, reason string
	}{
		{"request", silent, get, func(r *config.Rule) { r.RequestTimeoutNanos = 2e8 }, "HTTP/1.1 504 ", "request_timeout"},
		{"backendRequest", silent, get, func(r *config.Rule) { r.BackendRequestTimeoutNanos, r.RequestTimeoutNanos = 2e8, 5e9 }, "HTTP/1.1 504 ", "backend_timeout"},
		{"request, within an upload", silent, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc", func(r *config.Rule) { r.RequestTimeoutNanos = 2e8 }, "HTTP/1.1 504 ", "request_timeout"},
		{"request, within the response", dribbling, get, func(r *config.Rule) { r.RequestTimeoutNanos = 3e8 }, "HTTP/1.1 200 ", "request_timeout"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{}, 1)
			addr, _ := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) {
				tc.backend(w, r)
				ended <- struct{}{}
			})
			g := startGateway(t, Timeouts{Linger: 100 * time.Millisecond})
			g.serveH2C(addr, tc.rule)
			if got := g.roundTrip(tc.request); !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if r := g.reasonsLogged(1); r[0] != tc.reason {
				t.Errorf("logged %q, want %q", r[0], tc.reason)
			}
			<-ended // the stream is reset, so that the backend stops
		})
	}
}

// TestH2CSlowReader: a client that takes nothing holds back the backend on its stream alone, and is cut in the end.
func TestH2CSlowReader(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	var sent atomic.Int64
	addr, conns := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/small" {
			io.WriteString(w, "ok")
			return
		}
		part := make([]byte, 16<<10)
		for r.Context().Err() == nil {
			if _, err := w.Write(part); err != nil {
				return
			}
			sent.Add(int64(len(part)))
		}
	})
	g := startGateway(t, Timeouts{WriteIdle: time.Second})
	g.serveH2C(addr, nil)
	c := g.dial()
	c.(*net.TCPConn).SetReadBuffer(4 << 10)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	for range 50 { // others are served beside it
		if got := g.roundTrip("GET /small HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\nok") && !strings.Contains(got, "ok") {
			t.Fatal(got)
		}
	}
	words := g.reasonsLogged(51)
	if slices.Sort(words); words[0] != "client_timeout" || words[1] != "ok" {
		t.Errorf("logged %q", words)
	}
	// What sockets hold is beside the window of the stream and the buffers between.
	if n := sent.Load(); n > 16<<20 {
		t.Errorf("the backend sent %d bytes to nobody", n)
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
}

// TestH2CEndpointLeaves: a stream on an endpoint that leaves the configuration ends in its own time, and the
// connection with it.
func TestH2CEndpointLeaves(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	asked, answer, closed := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	addr := rawFrames(t, nil, func(f *framePeer) {
		f.serve(func(stream uint32) bool {
			f.head(stream, false, ":status", "200")
			asked <- struct{}{}
			go func() {
				<-answer
				f.WriteData(stream, true, []byte("ok"))
			}()
			return false
		}, nil)
		close(closed)
	})
	g := startGateway(t, Timeouts{})
	g.serveH2C(addr, nil)
	done := make(chan string, 1)
	go func() { done <- g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n") }()
	<-asked
	other, _ := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "other") })
	g.apply(backend("Service/default/b/80", other)[1:])
	if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.Contains(got, "other") {
		t.Errorf("got %q from the endpoint that is left", got)
	}
	select {
	case <-closed:
		t.Error("the connection was closed while it was in use")
	default:
	}
	close(answer)
	if got := <-done; !strings.Contains(got, "ok") {
		t.Errorf("got %q", got)
	}
	<-closed
}

// TestH2CProtocolChanges: what is spoken follows the configuration at once.
func TestH2CProtocolChanges(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })}
	s.Protocols.SetUnencryptedHTTP2(true)
	s.Protocols.SetHTTP1(true)
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	g := startGateway(t, Timeouts{})
	g.serve(l.Addr().String(), nil)
	for i := range 6 {
		want := "HTTP/1.1"
		if i%2 == 1 {
			want = "HTTP/2.0"
			g.apply([]*config.Resource{h2c("Service/default/b/80")})
		} else {
			g.apply(backend("Service/default/b/80", l.Addr().String())[:1])
		}
		if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.Contains(got, want+"") || !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Errorf("got %q, want %s", got, want)
		}
	}
}

// TestH2CShutdown: a stream in flight ends in order, then the connection to the backend does.
func TestH2CShutdown(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	addr, _ := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-answer
		fmt.Fprint(w, "late")
	})
	g := startGateway(t, Timeouts{})
	g.serveH2C(addr, nil)
	got := make(chan string, 1)
	go func() { got <- g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\n\r\n") }()
	<-asked
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		done <- g.Shutdown(ctx)
	}()
	time.AfterFunc(50*time.Millisecond, func() { close(answer) })
	if s := <-got; !strings.Contains(s, "late") || !strings.Contains(s, "Connection: close") {
		t.Errorf("got %q", s)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
