//lint:file-ignore SA1019 x/net's client takes a connection that the test has made itself

package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// headerV1 and headerV2 name 192.0.2.1:4660 as the client.
const (
	headerV1 = "PROXY TCP4 192.0.2.1 10.0.0.1 4660 443\r\n"
	headerV2 = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\x0a\x00\x00\x01\x12\x34\x01\xbb"
)

// proxied makes a listener's connections begin with a PROXY header.
func proxied(l *config.Resource, trusted ...string) *config.Resource {
	l.GetListener().Connections = &config.Connections{ProxyProtocol: true}
	l.GetListener().TrustedProxies = trusted
	return l
}

// prefixed writes a header in front of the first bytes, in the pieces that cut makes of both.
type prefixed struct {
	net.Conn
	header string
	cut    func(string) []string
}

func (p *prefixed) Write(b []byte) (int, error) {
	if p.header == "" {
		return p.Conn.Write(b)
	}
	for _, piece := range p.cut(p.header + string(b)) {
		if _, err := io.WriteString(p.Conn, piece); err != nil {
			return 0, err
		}
	}
	p.header = ""
	return len(b), nil
}

// cuts are ways for a header and what follows it to come.
var cuts = map[string]func(string) []string{
	"at once": func(s string) []string { return []string{s} },
	"by byte": func(s string) []string { return strings.Split(s, "") },
	"halved":  func(s string) []string { return []string{s[:11], s[11:]} },
}

// speakHTTP asks for a response with the client's address as the backend has it.
func speakHTTP(c net.Conn) (string, error) {
	// A reset is told once: the write that meets it leaves an end of the input to the read.
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"); err != nil {
		return "", err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r.Body)
	return string(b), err
}

func speakHTTP2(c net.Conn) (string, error) {
	t := &http2.Transport{AllowHTTP: true}
	h, err := t.NewClientConn(c)
	if err != nil {
		return "", err
	}
	req, _ := http.NewRequest("GET", "http://a.test/", nil)
	r, err := h.RoundTrip(req)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r.Body)
	return string(b), err
}

// speakTLS is how to speak inside of TLS.
func speakTLS(speak func(net.Conn) (string, error), alpn ...string) func(net.Conn) (string, error) {
	return func(c net.Conn) (string, error) {
		t := tls.Client(c, &tls.Config{ServerName: "a.test", InsecureSkipVerify: true, NextProtos: alpn})
		if err := t.Handshake(); err != nil {
			return "", err
		}
		return speak(t)
	}
}

// speakTCP returns the first line that a backend says behind what it was told.
func speakTCP(c net.Conn) (string, error) {
	io.WriteString(c, "hello\n")
	r := bufio.NewReader(c)
	r.ReadString('\n')
	return r.ReadString('\n')
}

// TestProxyProtocol: whatever is spoken behind a PROXY header, and in whatever pieces it comes, the client is the one in the header and no byte behind
// it is lost.
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	web := httpBackend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("X-Forwarded-For")) })
	const b = "Service/default/b/80"
	for _, tc := range []struct {
		name      string
		resources func(*gateway) []*config.Resource
		speak     func(net.Conn) (string, error)
		want      string
	}{
		{"HTTP", func(g *gateway) []*config.Resource {
			return append(backend(b, web), proxied(g.httpListener("l", ""), "127.0.0.0/8"), routeOf("r", "default/gw/l", "", anyRule()))
		}, speakHTTP, "192.0.2.1"},
		{"HTTP/2", func(g *gateway) []*config.Resource {
			return append(backend(b, web), proxied(g.httpListener("l", ""), "127.0.0.0/8"), routeOf("r", "default/gw/l", "", anyRule()))
		}, speakHTTP2, "192.0.2.1"},
		{"HTTPS", func(g *gateway) []*config.Resource {
			return append(backend(b, web), certificate(t, "k", newECDSA(t), "a.test"), proxied(g.httpsListener("l", "a.test", "k"), "127.0.0.0/8"),
				routeOf("r", "default/gw/l", "a.test", anyRule()))
		}, speakTLS(speakHTTP), "192.0.2.1"},
		{"HTTP/2 over TLS", func(g *gateway) []*config.Resource {
			return append(backend(b, web), certificate(t, "k", newECDSA(t), "a.test"), proxied(g.httpsListener("l", "a.test", "k"), "127.0.0.0/8"),
				routeOf("r", "default/gw/l", "a.test", anyRule()))
		}, speakTLS(speakHTTP2, "h2"), "192.0.2.1"},
		{"TCP", func(g *gateway) []*config.Resource {
			return append(backend(b, greeting(t, "b")), proxied(g.tcpListener("l"), "127.0.0.0/8"), l4RouteOf("r", "default/gw/l", &config.BackendRef{Backend: b, Weight: 1}))
		}, speakTCP, "hello\n"},
		{"TLS", func(g *gateway) []*config.Resource {
			return append(backend(b, greeting(t, "b")), certificate(t, "k", newECDSA(t), "a.test"), proxied(g.tlsListener("l", "a.test", "k"), "127.0.0.0/8"),
				tlsRoute("r", "l", "b", "a.test"))
		}, speakTLS(speakTCP), "hello\n"},
		{"TLS passed through", func(g *gateway) []*config.Resource {
			return append(backend(b+"/passthrough", secureGreeting(t, "a")), proxied(g.passthroughListener("l", "a.test"), "127.0.0.0/8"), passedRoute("r", "l", "b", "a.test"))
		}, speakTLS(speakTCP), "hello\n"},
	} {
		for _, header := range []string{headerV1, headerV2} {
			for how, cut := range cuts {
				for _, plain := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%q/%s/%v", tc.name, header[:5], how, plain), func(t *testing.T) {
						t.Parallel()
						g := startGatewayWith(t, Options{PlainIO: plain})
						g.apply(tc.resources(g))
						c := g.dial()
						got, err := tc.speak(&prefixed{c, header, cut})
						if err != nil || got != tc.want {
							t.Errorf("%q, %v, want %q", got, err, tc.want)
						}
						c.Close()
						g.reasonsLogged(1)
						if !strings.Contains(g.log.String(), `"client_address":"192.0.2.1:4660"`) {
							t.Errorf("logged %s", g.log)
						}
					})
				}
			}
		}
	}
}

// TestProxyProtocolOwnAddress: a header that names no client leaves the connection's own address.
func TestProxyProtocolOwnAddress(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	web := httpBackend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("X-Forwarded-For")) })
	g.apply(append(backend("Service/default/b/80", web), proxied(g.httpListener("l", ""), "127.0.0.1/32"), routeOf("r", "default/gw/l", "", anyRule())))
	for _, header := range []string{"PROXY UNKNOWN\r\n", strings.Replace(headerV2, "\x21\x11", "\x20\x11", 1)} {
		if got, err := speakHTTP(&prefixed{g.dial(), header, cuts["at once"]}); got != "127.0.0.1" || err != nil {
			t.Errorf("%q: %q, %v", header, got, err)
		}
	}
}

// TestProxyProtocolRefused: a connection without a valid header in time, or from anybody else than a trusted proxy, is closed without an answer, and logged
// with the cause. One that sends nothing is not.
func TestProxyProtocolRefused(t *testing.T) {
	t.Parallel()
	web := httpBackend(t, func(http.ResponseWriter, *http.Request) { t.Error("the backend was asked") })
	for _, tc := range []struct {
		name, trusted, sent, cause string
		half                       bool // the client closes its side
	}{
		{"no header", "127.0.0.0/8", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "does not begin with a PROXY header", false},
		{"a wrong header", "127.0.0.0/8", strings.Replace(headerV1, "TCP4", "TCP5", 1), "is malformed", false},
		{"a part of a header", "127.0.0.0/8", headerV2[:20], "did not arrive in time", false},
		{"nothing", "127.0.0.0/8", "", "did not arrive in time", false},
		{"the beginning of a header", "127.0.0.0/8", headerV2[:20], "unexpected EOF", true},
		{"nobody trusted", "192.0.2.0/24", headerV1 + "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "not from one of the trustedProxies", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, Timeouts{Handshake: 300 * time.Millisecond})
			g.apply(append(backend("Service/default/b/80", web), proxied(g.httpListener("l", ""), tc.trusted), routeOf("r", "default/gw/l", "", anyRule())))
			c := g.dial()
			io.WriteString(c, tc.sent)
			if tc.half {
				c.(*net.TCPConn).CloseWrite()
			}
			if b, _ := io.ReadAll(c); len(b) > 0 {
				t.Errorf("answered %q", b)
			}
			if words := g.reasonsLogged(1); words[0] != "proxy_header_invalid" || !strings.Contains(g.log.String(), tc.cause) {
				t.Errorf("logged %s", g.log)
			}
		})
	}
}

// TestProxyProtocolLooksOnly: who only looks whether the port is open is not logged.
func TestProxyProtocolLooksOnly(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	g.apply([]*config.Resource{proxied(g.httpListener("l", ""), "127.0.0.0/8")})
	c := g.dial()
	c.(*net.TCPConn).CloseWrite()
	io.ReadAll(c)
	speakHTTP(&prefixed{g.dial(), headerV1, cuts["at once"]})
	if words := g.reasonsLogged(1); len(words) != 1 || words[0] != "route_not_found" {
		t.Errorf("%v", words)
	}
}

// TestProxyProtocolLimitOfOwn: a connection whose header names no client counts once as its proxy's.
func TestProxyProtocolLimitOfOwn(t *testing.T) {
	t.Parallel()
	const most = 2
	g := startGatewayWith(t, Options{MaxConnectionsPerClient: most})
	g.apply(append(backend("Service/default/b/80", greeting(t, "b")), proxied(g.tcpListener("l"), "127.0.0.0/8"),
		l4RouteOf("r", "default/gw/l", &config.BackendRef{Backend: "Service/default/b/80", Weight: 1})))
	join := func() (net.Conn, error) {
		c := g.dial()
		io.WriteString(c, "PROXY UNKNOWN\r\n")
		_, err := io.ReadFull(c, make([]byte, 2))
		return c, err
	}
	var last net.Conn
	for i := range most {
		var err error
		if last, err = join(); err != nil {
			t.Fatalf("connection %d of %d: %v", i+1, most, err)
		}
	}
	if _, err := join(); err == nil {
		t.Error("a connection beyond the limit")
	}
	last.Close()
	testkit.Eventually(t, "room for one connection more", func() bool { _, err := join(); return err == nil })
	if _, err := join(); err == nil {
		t.Error("a connection beyond the limit after one was refused")
	}
}

// TestProxyProtocolLimit: the limit for one client counts the clients of a proxy one by one, and not the proxy itself.
func TestProxyProtocolLimit(t *testing.T) {
	t.Parallel()
	g := startGatewayWith(t, Options{MaxConnectionsPerClient: 2})
	g.apply(append(backend("Service/default/b/80", greeting(t, "b")), proxied(g.tcpListener("l"), "127.0.0.0/8"),
		l4RouteOf("r", "default/gw/l", &config.BackendRef{Backend: "Service/default/b/80", Weight: 1})))
	join := func(client string) (net.Conn, error) {
		c := g.dial()
		fmt.Fprintf(c, "PROXY TCP4 %s 10.0.0.1 4660 443\r\n", client)
		_, err := io.ReadFull(c, make([]byte, 2))
		return c, err
	}
	var first net.Conn
	for _, client := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2"} {
		c, err := join(client)
		if err != nil {
			t.Fatalf("%s: %v", client, err)
		}
		if first == nil {
			first = c
		}
	}
	if _, err := join("192.0.2.1"); err == nil {
		t.Error("a third connection of one client")
	}
	if _, err := join("192.0.2.3"); err != nil {
		t.Errorf("another client: %v", err)
	}
	first.Close()
	testkit.Eventually(t, "the client has one connection less", func() bool { _, err := join("192.0.2.1"); return err == nil })
}

// TestProxyProtocolDisagreement: of listeners that share a port and want it otherwise, the later by key is not served, and the fault says what to do.
func TestProxyProtocolDisagreement(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	one, other := proxied(g.httpListener("a", "a.test"), "127.0.0.0/8"), g.httpListener("b", "b.test")
	r := g.Apply(&config.Update{Generation: 1, Upserts: []*config.Resource{one, other}})
	if err := r.Listeners["default/gw/b"]; err == nil || !strings.Contains(err.Error(), "give them the same proxyProtocol and trustedProxies") || len(r.Listeners) != 1 {
		t.Errorf("%v", r.Listeners)
	}
}

// TestProxyProtocolChanges: whether connections begin with a header changes for new connections, and open ones go on.
func TestProxyProtocolChanges(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	web := httpBackend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("X-Forwarded-For")) })
	g.serve(web, nil)
	open := g.dial()
	if got, err := speakHTTP(open); got != "127.0.0.1" {
		t.Fatal(got, err)
	}
	g.apply([]*config.Resource{proxied(g.httpListener("http", ""), "127.0.0.0/8")})
	for _, c := range []net.Conn{open, &prefixed{g.dial(), headerV2, cuts["at once"]}} {
		want := "192.0.2.1"
		if c == open {
			want = "127.0.0.1"
		}
		if got, err := speakHTTP(c); got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}

// TestProxyProtocolBounded: a header that is longer than what is read of one ends the connection.
func TestProxyProtocolBounded(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	g.apply([]*config.Resource{proxied(g.httpListener("l", ""), "127.0.0.0/8")})
	c := g.dial()
	long := []byte(headerV2)
	long[14], long[15] = 0xff, 0xff
	c.Write(append(long, bytes.Repeat([]byte{0}, 5000)...))
	io.ReadAll(c)
	if g.reasonsLogged(1); !strings.Contains(g.log.String(), "longer than 4096 bytes") {
		t.Errorf("logged %s", g.log)
	}
}

// TestProxyProtocolChangesForLoops: a connection to a port of layer 4 that has sent nothing when its port gets the PROXY protocol goes on as it has begun, and
// a header of it is not believed: nobody has looked whether its peer is trusted.
func TestProxyProtocolChangesForLoops(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGatewayWith(t, Options{Metrics: observe.NewMetrics(observe.MetricsOptions{})})
	listeners := []*config.Resource{g.passthroughListener("p", "p.example"), g.tlsListener("t", "a.test", "c")}
	g.apply(append(append(backend("Service/default/b/80", greeting(t, "b")), listeners...), certificate(t, "c", newECDSA(t), "a.test"), tlsRoute("t", "t", "b", "a.test")))
	honest, forger := g.dial(), g.dial()
	g.eventually("both connections", func() bool { return g.counted(activeConnections) == 2 })
	for _, l := range listeners {
		proxied(l, "192.0.2.0/24")
	}
	g.apply(listeners)
	if got, err := speakTLS(speakTCP)(honest); got != "hello\n" {
		t.Errorf("a connection without a header: %q, %v", got, err)
	}
	io.WriteString(forger, headerV1+"no hello\r\n\r\n")
	io.ReadAll(forger)
	g.reasonsLogged(1)
	if log := g.log.String(); !strings.Contains(log, fmt.Sprintf(`"client_address":"%s"`, forger.LocalAddr())) {
		t.Errorf("logged %s, want the address of the connection", log)
	}
}

// TestProxyProtocolEndsWithPort: a connection whose client was named by a header is not served at a port that takes none.
func TestProxyProtocolEndsWithPort(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	g.serve(namedBackend(t, "b"), nil)
	g.apply([]*config.Resource{proxied(g.httpListener("http", ""), "127.0.0.1/32")})
	c := g.dial()
	r := bufio.NewReader(c)
	io.WriteString(c, headerV1)
	if got := statusOf(t, c, r, "h", "/"); got != "200" {
		t.Fatal(got)
	}
	g.apply(nil, listenerID("http"))
	g.apply([]*config.Resource{g.httpListener("http", "")})
	if got := statusOf(t, c, r, "h", "/"); got != "404" {
		t.Errorf("status %s", got)
	}
}
