package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// h2cBackend answers by HTTP/2 with prior knowledge, takes so many streams on a connection (0: as many as is usual), and counts the connections that are made to it.
func h2cBackend(t testing.TB, streams int, h http.HandlerFunc) (addr string, conns *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	conns = &atomic.Int64{}
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String(), conns
}

// serveH2C is serve with a backend that speaks HTTP/2 by prior knowledge.
func (g *gateway) serveH2C(addr string, change func(*config.Rule)) {
	g.t.Helper()
	g.serve(addr, change)
	g.apply([]*config.Resource{h2c("Service/default/b/80")})
}

func h2c(key string) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Protocol: config.BackendProtocol_BACKEND_PROTOCOL_H2C}}}
}

// TestH2CBackend has clients of both protocols speak to a backend by HTTP/2.
func TestH2CBackend(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	type seen struct {
		proto, method, uri, host, body string
		length                         int64
		header, trailer                http.Header
	}
	heard := make(chan seen, 1)
	addr, conns := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("%s: %v", r.URL, err)
		}
		heard <- seen{r.Proto, r.Method, r.RequestURI, r.Host, string(b), r.ContentLength, r.Header, r.Trailer}
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(204)
		case "/304":
			w.Header().Set("Etag", `"a"`)
			w.WriteHeader(304)
		case "/hints":
			w.Header().Set("Link", "</a.css>")
			w.WriteHeader(103)
			w.WriteHeader(200)
			io.WriteString(w, "ok")
		case "/stream":
			for range 3 {
				io.WriteString(w, "part")
				w.(http.Flusher).Flush()
			}
			w.Header().Set(http.TrailerPrefix+"X-Sum", "3")
		case "/large":
			w.Write(bytes.Repeat([]byte("a"), 1<<20))
		case "/empty":
			w.Header().Set(http.TrailerPrefix+"X-Sum", "0")
		default:
			w.Header().Set("X-A", "b")
			io.WriteString(w, "ok")
		}
	})
	g := startGateway(t, Timeouts{})
	g.serveH2C(addr, nil)

	for _, tc := range []struct {
		name, raw string // the request
		want      string // of the answer, in which there is only this
		sees      func(seen) error
	}{
		{name: "GET", raw: "GET /a/../b?c=d HTTP/1.1\r\nHost: example.org\r\nX-Hop: 1\r\nConnection: X-Hop, close\r\nTE: trailers\r\n\r\n",
			want: "HTTP/1.1 200 OK\r\nx-a: b\r\n",
			sees: func(s seen) error {
				if s.proto != "HTTP/2.0" || s.method != "GET" || s.uri != "/b?c=d" || s.host != "example.org" || s.header.Get("X-Hop") != "" ||
					s.header.Get("X-Forwarded-Host") != "example.org" || s.length != 0 {
					return fmt.Errorf("%+v", s)
				}
				return nil
			}},
		{name: "HTTP/1.0", raw: "GET / HTTP/1.0\r\nHost: h\r\n\r\n", want: "\r\n\r\nok"},
		{name: "HTTP/1.0 stream", raw: "GET /stream HTTP/1.0\r\nHost: h\r\n\r\n", want: "\r\n\r\npartpartpart"},
		{name: "HEAD", raw: "HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", want: "HTTP/1.1 200 OK\r\n"},
		{name: "204", raw: "GET /204 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", want: "HTTP/1.1 204 No Content\r\n"},
		{name: "304", raw: "GET /304 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", want: "HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n"},
		{name: "hints", raw: "GET /hints HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", want: "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\n"},
		{name: "trailers", raw: "GET /stream HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n", want: "\r\n0\r\nx-sum: 3\r\n\r\n"},
		{name: "empty with trailers", raw: "GET /empty HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", want: "HTTP/1.1 200 OK\r\n"},
		{name: "large", raw: "GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", want: strings.Repeat("a", 10000)},
		{name: "POST", raw: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello", want: "HTTP/1.1 200 OK\r\n",
			sees: func(s seen) error {
				if s.body != "hello" || s.length != 5 {
					return fmt.Errorf("%+v", s)
				}
				return nil
			}},
		{name: "POST without a body", raw: "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", want: "HTTP/1.1 200 OK\r\n",
			sees: func(s seen) error {
				if s.body != "" || s.length != 0 {
					return fmt.Errorf("%+v", s)
				}
				return nil
			}},
		{name: "chunks and trailers", raw: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Part\r\nConnection: close\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\nX-Part: 2\r\n\r\n", want: "HTTP/1.1 200 OK\r\n",
			sees: func(s seen) error {
				if s.body != "hello!" || s.length != -1 || s.trailer.Get("X-Part") != "2" {
					return fmt.Errorf("%+v", s)
				}
				return nil
			}},
		{name: "long chunks", raw: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n40000\r\n" + strings.Repeat("b", 0x40000) + "\r\n0\r\n\r\n", want: "HTTP/1.1 200 OK\r\n",
			sees: func(s seen) error {
				if s.body != strings.Repeat("b", 0x40000) {
					return fmt.Errorf("%d bytes", len(s.body))
				}
				return nil
			}},
		{name: "long body", raw: "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\nConnection: close\r\n\r\n" + strings.Repeat("c", 300000), want: "HTTP/1.1 200 OK\r\n",
			sees: func(s seen) error {
				if s.body != strings.Repeat("c", 300000) || s.length != 300000 {
					return fmt.Errorf("%d bytes", len(s.body))
				}
				return nil
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := g.roundTrip(tc.raw)
			if !strings.Contains(got, tc.want) {
				t.Errorf("got %.300q, want %.100q in it", got, tc.want)
			}
			if tc.sees == nil {
				<-heard
			} else if err := tc.sees(<-heard); err != nil {
				t.Errorf("the backend saw %.1000v", err)
			}
		})
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
	for i, r := range g.reasonsLogged(15) {
		if r != "ok" {
			t.Errorf("request %d: logged %q", i, r)
		}
	}
}

// TestHeadTooLargeForBackend: a request with a head that the backend says it does not take is refused, and its connection goes on with the requests of others.
func TestHeadTooLargeForBackend(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	l := listenLocally(t)
	begun, release := make(chan struct{}), make(chan struct{})
	var conns atomic.Int64
	s := &http.Server{MaxHeaderBytes: 4 << 10, Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			begun <- struct{}{}
			<-release
		}
	}), ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}}
	s.Protocols.SetUnencryptedHTTP2(true)
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	g := startGateway(t, Timeouts{})
	g.serveH2C(l.Addr().String(), nil)
	ask := func(path, value string) string {
		r, err := http.NewRequest("POST", "http://"+g.addr()+path, nil)
		if err != nil {
			return err.Error()
		}
		r.Header.Set("X-Long", value)
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		return resp.Status
	}
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	slow := make(chan string, 1)
	go func() { slow <- ask("/slow", "") }()
	<-begun
	if got := ask("/", strings.Repeat("v", 12<<10)); got != "431 Request Header Fields Too Large" {
		t.Errorf("a large head: %s", got)
	}
	if got := ask("/", strings.Repeat("v", 1<<10)); got != "200 OK" {
		t.Errorf("a smaller one: %s", got)
	}
	close(release)
	if got := <-slow; got != "200 OK" || conns.Load() != 1 {
		t.Errorf("the request beside: %s, on %d connections", got, conns.Load())
	}
	if reasons := g.reasonsLogged(3); !slices.Contains(reasons, "head_too_large") {
		t.Errorf("logged %q", reasons)
	}
}
