package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/proxyprotocol"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// toldConn is a connection whose PROXY header was read.
type toldConn struct {
	net.Conn
	r           io.Reader
	client      netip.AddrPort
	destination netip.AddrPort
}

func (c *toldConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// toldListener is a server's end of connections that begin with a PROXY header of a version, and counts them.
type toldListener struct {
	net.Listener
	t     testing.TB
	start string // of the header
	conns atomic.Int64
}

func (l *toldListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.conns.Add(1)
	told, err := l.told(c)
	if err != nil {
		l.t.Errorf("a connection begins with no PROXY header: %v", err)
	}
	return told, nil
}

func (l *toldListener) told(c net.Conn) (*toldConn, error) {
	told := &toldConn{Conn: c, r: c}
	r := bufio.NewReader(c)
	told.r = r
	for n := 1; ; n++ {
		b, err := r.Peek(n)
		if err != nil {
			return told, err
		}
		named, used, err := proxyprotocol.Parse(b)
		if err == proxyprotocol.ErrIncomplete {
			continue
		}
		if err != nil || !strings.HasPrefix(string(b), l.start) {
			return told, fmt.Errorf("%q: %w", b, err)
		}
		told.client, told.destination = named.Client, named.Destination
		r.Discard(used)
		return told, nil
	}
}

type toldKey struct{}

// toldBackend answers with whose connection it was told that it gets, by HTTP/1.1 and HTTP/2 in the clear.
func toldBackend(t testing.TB, version config.ProxyHeader) (addr string, l *toldListener) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = &toldListener{Listener: inner, t: t, start: map[config.ProxyHeader]string{config.ProxyHeader_PROXY_HEADER_V1: "PROXY ", config.ProxyHeader_PROXY_HEADER_V2: "\r\n\r\n\x00\r\nQUIT\n"}[version]}
	s := &http.Server{Protocols: new(http.Protocols),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, toldKey{}, c.(*toldConn).client)
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%v", r.Context().Value(toldKey{}))
		})}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	go s.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { s.Close() })
	return inner.Addr().String(), l
}

func connectionsAs(c *config.BackendConnections) *config.BackendTraffic {
	return &config.BackendTraffic{Connections: c}
}

// TestProxyHeader: a backend is told whose connection it gets, and no request comes by another client's, however many clients send theirs at the same time; a client has its
// own connection, which is used again.
func TestProxyHeader(t *testing.T) {
	t.Parallel()
	for _, version := range []config.ProxyHeader{config.ProxyHeader_PROXY_HEADER_V1, config.ProxyHeader_PROXY_HEADER_V2} {
		for _, client2 := range []bool{false, true} {
			for _, backend2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/client HTTP2 %v/backend HTTP2 %v", version, client2, backend2), func(t *testing.T) {
					t.Parallel()
					checkLeaks(t)
					addr, l := toldBackend(t, version)
					g := startGatewayWith(t, Options{Upstream: upstream.Options{IdleTimeout: time.Hour}})
					protocol := config.BackendProtocol_BACKEND_PROTOCOL_HTTP
					if backend2 {
						protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
					}
					g.serve(addr, nil)
					g.apply([]*config.Resource{trafficOf(protocol, &config.BackendTraffic{
						Connections:    &config.BackendConnections{ProxyHeader: version},
						CircuitBreaker: &config.CircuitBreaker{MaxConnections: proto.Uint32(100), MaxPendingRequests: proto.Uint32(100), MaxParallelRequests: proto.Uint32(100)},
					})})
					const clients, requests = 8, 20
					var all sync.WaitGroup
					var conns []net.Conn
					for range clients {
						c := g.dial()
						conns = append(conns, c)
						want := c.LocalAddr().String()
						all.Go(func() {
							r := bufio.NewReader(c)
							ask := func() (*http.Response, error) {
								io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
								return http.ReadResponse(r, nil)
							}
							if client2 {
								cc, err := http2Over(c)
								if err != nil {
									t.Error(err)
									return
								}
								defer cc.Close()
								ask = func() (*http.Response, error) {
									req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://h/", nil)
									return cc.RoundTrip(req)
								}
							}
							for range requests {
								resp, err := ask()
								if err != nil {
									t.Error(err)
									return
								}
								got, err := io.ReadAll(resp.Body)
								if string(got) != want || err != nil {
									t.Errorf("%d: a request of %s came as that of %q, %v", resp.StatusCode, want, got, err)
								}
							}
						})
					}
					all.Wait()
					// A connection may not be back yet when the next request comes.
					if n := l.conns.Load(); n < clients || n >= clients*requests/2 {
						t.Errorf("%d connections for %d clients", n, clients)
					}
					g.uncounted()
					for _, c := range conns {
						c.Close()
					}
					g.eventually("what was kept for the clients is closed", func() bool { return g.upstreams.Get("Service/default/b/80").Stats().Open == 0 })
				})
			}
		}
	}
}

// TestProxyHeaderOfTunnels: the connection of a layer-4 route begins with the header, and what client and backend send each other follows it.
func TestProxyHeaderOfTunnels(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &toldListener{Listener: inner, t: t, start: "PROXY TCP4 "}
	accepted := make(chan *toldConn, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c.(*toldConn)
		}
	}()
	t.Cleanup(func() { inner.Close() })
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/b/80", inner.Addr().String()), g.tcpListener("tcp"),
		l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: "Service/default/b/80", Weight: 1}),
		trafficOf(0, connectionsAs(&config.BackendConnections{ProxyHeader: config.ProxyHeader_PROXY_HEADER_V1}))))
	for range 2 {
		c := g.dial()
		io.WriteString(c, "message")
		b := <-accepted
		if b.client.String() != c.LocalAddr().String() {
			t.Errorf("the backend is told %v, the client is %v", b.client, c.LocalAddr())
		}
		got := make([]byte, len("message"))
		if _, err := io.ReadFull(b, got); string(got) != "message" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		passes(t, b, c)
		e := g.upstreams.Get("Service/default/b/80").Endpoints()[0]
		who := upstream.For{Client: b.client, Listener: netip.MustParseAddrPort(g.addr())}
		kept := e.At(who)
		c.Close()
		b.Close()
		g.eventually("what was kept for the client is dropped", func() bool { return e.At(who) != kept })
	}
}

// TestProxyHeaderOfTrusted: the client is who trusted proxies say that it is, though one connection of theirs has requests of many.
func TestProxyHeaderOfTrusted(t *testing.T) {
	t.Parallel()
	addr, _ := toldBackend(t, config.ProxyHeader_PROXY_HEADER_V2)
	g := startGateway(t, Timeouts{})
	l := g.httpListener("http", "")
	l.GetListener().TrustedProxies = []string{"127.0.0.0/8"}
	g.apply(append(backend("Service/default/b/80", addr), l, routeOf("r", "default/gw/http", "", anyRule()),
		trafficOf(0, connectionsAs(&config.BackendConnections{ProxyHeader: config.ProxyHeader_PROXY_HEADER_V2}))))
	c := g.dial()
	r := bufio.NewReader(c)
	for i := range 6 {
		client := fmt.Sprintf("192.0.2.%d", i%3)
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: %s\r\n\r\n", client)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != client+":0" || err != nil {
			t.Errorf("a request of %s came as that of %q, %v", client, got, err)
		}
	}
}

// TestProxyHeaderPassedOn: behind a load balancer that sends a PROXY header, a backend is told both of its addresses, by requests and by tunnels.
func TestProxyHeaderPassedOn(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2", "TCP"} {
		for name, header := range map[string]string{"V1": headerV1, "V2": headerV2} {
			t.Run(protocol+"/"+name, func(t *testing.T) {
				t.Parallel()
				inner, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { inner.Close() })
				l := &toldListener{Listener: inner, t: t, start: "PROXY TCP4 "}
				g := startGateway(t, Timeouts{})
				g.apply(append(backend("Service/default/b/80", inner.Addr().String()),
					trafficOf(0, connectionsAs(&config.BackendConnections{ProxyHeader: config.ProxyHeader_PROXY_HEADER_V1}))))
				if protocol == "TCP" {
					g.apply([]*config.Resource{proxied(g.tcpListener("l"), "127.0.0.0/8"),
						l4RouteOf("r", "default/gw/l", &config.BackendRef{Backend: "Service/default/b/80", Weight: 1})})
				} else {
					g.apply([]*config.Resource{proxied(g.httpListener("l", ""), "127.0.0.0/8"), routeOf("r", "default/gw/l", "", anyRule())})
				}
				c := g.dial()
				io.WriteString(c, header)
				if protocol == "HTTP/2" {
					cc, err := http2Over(c)
					if err != nil {
						t.Fatal(err)
					}
					go cc.RoundTrip(httptest.NewRequest("GET", "http://h/", nil)) //nolint:errcheck // the backend does not answer
				} else {
					io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
				}
				b, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				if told := b.(*toldConn); told.client.String() != "192.0.2.1:4660" || told.destination.String() != "10.0.0.1:443" {
					t.Errorf("the backend is told of a connection from %v to %v", told.client, told.destination)
				}
			})
		}
	}
}

// TestProxyHeaderEdit: with an edit in the middle, connections that began otherwise are used no more.
func TestProxyHeaderEdit(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, l := toldBackend(t, config.ProxyHeader_PROXY_HEADER_V1)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(http.ResponseWriter, *http.Request) {}), nil)
	c := g.dial()
	if status, err := get(c); status != 200 || err != nil {
		t.Fatal(status, err)
	}
	g.apply([]*config.Resource{backend("Service/default/b/80", addr)[1], trafficOf(0, connectionsAs(&config.BackendConnections{ProxyHeader: config.ProxyHeader_PROXY_HEADER_V1}))})
	for range 2 {
		if status, err := get(c); status != 200 || err != nil {
			t.Fatal(status, err)
		}
	}
	if n := l.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	g.apply(backend("Service/default/b/80", httpBackend(t, func(http.ResponseWriter, *http.Request) {})))
	if status, err := get(c); status != 200 || err != nil {
		t.Fatal(status, err)
	}
	g.eventually("the connections with a header are closed", func() bool { return g.upstreams.Get("Service/default/b/80").Stats().Open == 1 })
}

// TestClientProtocol: requests come to a backend in the version of HTTP that their clients speak, in the clear and over TLS, where it has both.
func TestClientProtocol(t *testing.T) {
	t.Parallel()
	traffic := connectionsAs(&config.BackendConnections{ClientProtocol: true})
	ask := func(t *testing.T, g *gateway, h2 bool) string {
		t.Helper()
		c := g.dial()
		var resp *http.Response
		var err error
		if h2 {
			cc, failed := http2Over(c)
			if failed != nil {
				t.Fatal(failed)
			}
			defer cc.Close()
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://h/", nil)
			resp, err = cc.RoundTrip(req)
		} else {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			resp, err = http.ReadResponse(bufio.NewReader(c), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		// A response can reach its client before the connection that brought it is idle again.
		g.eventually("idle connections to the backend", func() bool {
			stats := g.upstreams.Get("Service/default/b/80").Stats()
			return stats.InFlight == 0 && stats.Idle == stats.Open
		})
		return string(got)
	}
	t.Run("cleartext", func(t *testing.T) {
		t.Parallel()
		checkLeaks(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })}
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetUnencryptedHTTP2(true)
		go s.Serve(l) //nolint:errcheck // it ends with the test
		t.Cleanup(func() { s.Close() })
		for _, protocol := range []config.BackendProtocol{config.BackendProtocol_BACKEND_PROTOCOL_HTTP, config.BackendProtocol_BACKEND_PROTOCOL_H2C} {
			g := startGateway(t, Timeouts{})
			g.serve(l.Addr().String(), nil)
			g.apply([]*config.Resource{trafficOf(protocol, traffic)})
			for range 2 {
				for h2, want := range map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"} {
					if got := ask(t, g, h2); got != want {
						t.Errorf("%v: a request by %s came by %s", protocol, want, got)
					}
				}
			}
			if n := g.upstreams.Get("Service/default/b/80").Stats().Dialled; n != 2 {
				t.Errorf("%v: %d connections were made, want one for each protocol", protocol, n)
			}
		}
	})
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		checkLeaks(t)
		cert := certificate(t, "c", newECDSA(t), "backend.example")
		for _, speaks := range [][]string{{"h2", "http/1.1"}, {"http/1.1"}} {
			addr, _ := tlsBackend(t, cert, speaks...)
			g := startGateway(t, Timeouts{})
			g.serve(addr, nil)
			b := overTLS("Service/default/b/80", "backend.example", cert.GetCertificate().ChainPem, 0)
			b[0].GetBackend().Traffic = traffic
			g.apply(b)
			for h2, want := range map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"} {
				if len(speaks) == 1 {
					want = "HTTP/1.1"
				}
				if got := ask(t, g, h2); !strings.HasPrefix(got, want+" ") {
					t.Errorf("of %q: by HTTP/2 %v came %s", speaks, h2, got)
				}
			}
		}
	})
}

// TestProxyHeaderOfMirror: the copy of a request comes as its client's.
func TestProxyHeaderOfMirror(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inner.Close() })
	l := &toldListener{Listener: inner, t: t, start: "PROXY TCP4 "}
	told := make(chan netip.AddrPort, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			told <- c.(*toldConn).client
			c.Close()
		}
	}()
	g := startGateway(t, Timeouts{})
	mirror := backend(mirrorKey, inner.Addr().String())
	mirror[0].GetBackend().Traffic = connectionsAs(&config.BackendConnections{ProxyHeader: config.ProxyHeader_PROXY_HEADER_V1})
	g.apply(mirror)
	g.serve(echo(t), mirrorTo(t, mirrorKey))
	c := g.dial()
	if status, err := get(c); status != 200 || err != nil {
		t.Fatal(status, err)
	}
	if got := <-told; got.String() != c.LocalAddr().String() {
		t.Errorf("the mirror is told %v, the client is %v", got, c.LocalAddr())
	}
}
