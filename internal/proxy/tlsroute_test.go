package proxy

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func (g *gateway) tlsListener(name, hostname string, certificates ...string) *config.Resource {
	r := g.httpsListener(name, hostname, certificates...)
	r.GetListener().Protocol = config.Protocol_PROTOCOL_TLS
	return r
}

func (g *gateway) passthroughListener(name, hostname string) *config.Resource {
	r := g.httpsListener(name, hostname)
	r.GetListener().Protocol = config.Protocol_PROTOCOL_TLS_PASSTHROUGH
	return r
}

// tlsRoute sends connections for the hostnames to one backend.
func tlsRoute(name, listener, backend string, hostnames ...string) *config.Resource {
	r := l4RouteOf(name, "default/gw/"+listener, &config.BackendRef{Backend: "Service/default/" + backend + "/80", Weight: 1})
	r.GetL4Route().Key = "TLSRoute/default/" + name
	at := r.GetL4Route().Attachments[0]
	at.Hostnames = nil
	for _, h := range hostnames {
		at.Hostnames = append(at.Hostnames, &config.Hostname{Effective: h, Original: h})
	}
	return r
}

// passedRoute is tlsRoute on a listener that does not terminate TLS.
func passedRoute(name, listener, backend string, hostnames ...string) *config.Resource {
	r := tlsRoute(name, listener, backend, hostnames...)
	l4 := r.GetL4Route()
	l4.BackendRefs, l4.PassthroughBackendRefs = nil, []*config.BackendRef{{Backend: "Service/default/" + backend + "/80/passthrough", Weight: 1}}
	return r
}

// secureGreeting is greeting over TLS.
func secureGreeting(t testing.TB, name string) string {
	pair := testkit.Certificate{Name: name, Hosts: []string{name + ".example"}}.TLS(t)
	return rawBackend(t, func(c net.Conn, _ *bufio.Reader) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "private"}})
		io.WriteString(s, name+"\n")
		io.Copy(s, s)
		s.CloseWrite()
	})
}

// recorded is a backend that keeps what it was sent, to its end, and answers with the number of bytes.
func recorded(t testing.TB) (addr string, got func() []byte) {
	all := make(chan []byte, 100)
	addr = rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		b, err := io.ReadAll(r)
		if err == nil {
			fmt.Fprint(c, len(b))
		}
		all <- b
	})
	return addr, func() []byte { return <-all }
}

// clientHello is what a client sends first.
func clientHello(t testing.TB, serverName string) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go tls.Client(client, &tls.Config{ServerName: serverName, InsecureSkipVerify: true}).Handshake()
	b := make([]byte, 16<<10)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// fragmented is a record's content in records of size bytes.
func fragmented(record []byte, size int) (out []byte) {
	for content := record[5:]; len(content) > 0; {
		n := min(size, len(content))
		out = binary.BigEndian.AppendUint16(append(out, 22, 3, 1), uint16(n))
		out, content = append(out, content[:n]...), content[n:]
	}
	return out
}

// TestTLSPassthrough: the server name chooses listener and route, the most specific hostname of each, and the client speaks with the backend.
func TestTLSPassthrough(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	var up []*config.Resource
	for _, name := range []string{"a", "wild", "deep", "other"} {
		up = append(up, backend("Service/default/"+name+"/80/passthrough", secureGreeting(t, name))...)
	}
	g.apply(append(up, g.passthroughListener("wild", "*.example"), g.passthroughListener("all", ""),
		passedRoute("a", "wild", "a", "a.example"), passedRoute("wild", "wild", "wild", "*.example"), passedRoute("deep", "wild", "deep", "*.b.example"),
		passedRoute("other", "all", "other", "other.test", "x.example")))
	for _, b := range g.Bound() {
		if want := map[string]int{"default/gw/wild": 3, "default/gw/all": 1}[b.Key]; b.Routes != want {
			t.Errorf("%+v, want %d routes", b, want)
		}
	}
	for sni, want := range map[string]string{"a.example": "a", "A.EXAMPLE": "a", "x.example": "wild", "c.a.example": "wild", "c.b.example": "deep", "other.test": "other"} {
		c, shown, err := g.dialTLS(sni, func(c *tls.Config) { c.NextProtos = []string{"private"} })
		if err != nil || shown != want || c.ConnectionState().NegotiatedProtocol != "private" {
			t.Errorf("%s: certificate of %q %v, want %s", sni, shown, err, want)
			continue
		}
		io.WriteString(c, "ping")
		c.CloseWrite()
		if b, err := io.ReadAll(c); string(b) != want+"\nping" || err != nil {
			t.Errorf("%s: %q %v", sni, b, err)
		}
		c.NetConn().(*net.TCPConn).CloseWrite()
	}
	for _, w := range g.reasonsLogged(6) {
		if w != "tunnel_ended" {
			t.Errorf("logged as %s", w)
		}
	}
	for _, want := range []string{`"scheme":"tls"`, `"protocol":"TLS"`, `"authority":"c.b.example"`, `"route":"TLSRoute/default/deep"`, `"listener":"all"`} {
		if !strings.Contains(g.log.String(), want) {
			t.Errorf("%s is not in the log:\n%s", want, g.log)
		}
	}
}

// TestTLSPassthroughUnchanged: what the server name was found in reaches the backend as it came, in whatever records and segments, and what
// follows too.
func TestTLSPassthroughUnchanged(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	addr, got := recorded(t)
	g.apply(append(backend("Service/default/b/80/passthrough", addr), g.passthroughListener("p", ""), passedRoute("r", "p", "b", "a.example")))
	hello := clientHello(t, "a.example")
	rest := make([]byte, 200_000)
	rand.Read(rest)
	for _, tc := range []struct{ record, segment, rest int }{
		{len(hello), len(hello), 0}, {1, 1000, 0}, {7, 1, 0}, {500, 50, 10}, {len(hello), 1 << 20, len(rest)}, {100, 1 << 20, len(rest)}, {len(hello), 1, len(rest)},
	} {
		sent := append(fragmented(hello, tc.record), rest[:tc.rest]...)
		c := g.dial().(*net.TCPConn)
		c.SetNoDelay(true)
		for b := sent; len(b) > 0; {
			n := min(tc.segment, len(b))
			if len(b) <= tc.rest {
				n = len(b)
			}
			if _, err := c.Write(b[:n]); err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
		c.CloseWrite()
		if answer, err := io.ReadAll(c); string(answer) != fmt.Sprint(len(sent)) || err != nil {
			t.Errorf("%+v: %q %v, want %d", tc, answer, err, len(sent))
		}
		if !bytes.Equal(got(), sent) {
			t.Errorf("%+v: other bytes reached the backend", tc)
		}
	}
}

// TestTLSPassthroughFailures: what cannot be routed is ended, and the log says why.
func TestTLSPassthroughFailures(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	hello := clientHello(t, "a.example")
	padded := append([]byte{22, 3, 1, 0x40, 0, 1, 0, 0xff, 0}, make([]byte, 0x4000-4)...)
	for range 3 {
		padded = append(append(padded, 22, 3, 1, 0x40, 0), make([]byte, 0x4000)...)
	}
	for name, tc := range map[string]struct {
		sent   []byte
		half   bool // the client ends its stream
		reason string
		cause  string
		reset  bool
	}{
		"no listener":            {clientHello(t, "b.test"), false, "route_not_found", "", true},
		"no route":               {clientHello(t, "b.example"), false, "route_not_found", "", true},
		"no server name":         {clientHello(t, ""), false, "route_not_found", "", true},
		"invalid backend":        {clientHello(t, "invalid.example"), false, "backend_invalid", "", true},
		"no endpoint":            {clientHello(t, "away.example"), false, "no_endpoints", "", true},
		"HTTP":                   {[]byte("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"), true, "http_on_tls_port", "HTTP without TLS", false},
		"no TLS":                 {[]byte("SSH-2.0-x\r\n"), true, "tls_handshake_failed", "first record", false},
		"half of it":             {hello[:100], true, "tls_handshake_failed", "unexpected EOF", false},
		"nothing":                {nil, true, "tls_handshake_failed", "EOF", false},
		"half of it, and no end": {hello[:100], false, "tls_handshake_failed", "too slow", false},
		"too large":              {padded, true, "tls_handshake_failed", "not complete after 65536 bytes", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeouts := Timeouts{Handshake: testkit.Patience}
			if tc.cause == "too slow" {
				timeouts.Handshake = 500 * time.Millisecond
			}
			g := startGateway(t, timeouts)
			invalid := passedRoute("invalid", "p", "b", "invalid.example")
			invalid.GetL4Route().PassthroughBackendRefs = []*config.BackendRef{{Weight: 1, Failure: &config.Failure{Status: 500, Reason: "backend_invalid"}}}
			g.apply(append(append(backend("Service/default/b/80/passthrough", secureGreeting(t, "b")), backend("Service/default/away/80/passthrough")...),
				g.passthroughListener("p", "*.example"), passedRoute("r", "p", "b", "a.example"), invalid, passedRoute("away", "p", "away", "away.example")))
			c := g.dial().(*net.TCPConn)
			c.Write(tc.sent)
			if tc.half {
				c.CloseWrite()
			}
			_, err := io.ReadAll(c)
			if reset := errors.Is(err, syscall.ECONNRESET); tc.reset && !reset || err != nil && !reset {
				t.Errorf("ended by %v, want a reset: %v", err, tc.reset)
			}
			if words := g.reasonsLogged(1); words[0] != tc.reason || !strings.Contains(g.log.String(), tc.cause) {
				t.Errorf("logged as %v, want %s with %q: %s", words, tc.reason, tc.cause, g.log)
			}
			if !strings.Contains(g.log.String(), `"scheme":"tls"`) {
				t.Errorf("logged as %s", g.log)
			}
		})
	}
}

// TestTLSTerminate: a listener of protocol TLS ends the client's TLS, and the bytes go on to the backend of the server name, in cleartext or over TLS of the
// gateway's own. Each end of a stream is passed on alone.
func TestTLSTerminate(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	cert := certificate(t, "backend", newECDSA(t), "backend.example").GetCertificate()
	pair, err := tls.X509KeyPair(cert.ChainPem, cert.KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	secure := rawBackend(t, func(c net.Conn, _ *bufio.Reader) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})
		io.WriteString(s, "secure\n")
		io.Copy(s, s)
		s.CloseWrite()
	})
	named := g.tlsListener("named", "named.example", "c")
	named.GetListener().TlsOptions = &config.TLSOptions{Alpn: []string{"postgresql"}}
	up := append(backend("Service/default/plain/80", greeting(t, "plain")), backend("Service/default/secure/80", secure)...)
	up = append(up, overTLS("Service/default/secure/80", "backend.example", cert.ChainPem, config.BackendProtocol_BACKEND_PROTOCOL_H2C)...)
	g.apply(append(up, ticketKeys(1), certificate(t, "c", newECDSA(t), "*.example"), g.tlsListener("t", "", "c"), named,
		tlsRoute("plain", "t", "plain", "plain.example"), tlsRoute("secure", "t", "secure", "*.example"), tlsRoute("named", "named", "plain", "named.example")))
	for sni, want := range map[string]string{"plain.example": "plain", "b.example": "secure", "named.example": "plain"} {
		offers := []string{"h2", "http/1.1"}
		if sni == "named.example" {
			offers = []string{"postgresql"}
		}
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			c, shown, err := g.dialTLS(sni, func(c *tls.Config) { c.NextProtos, c.MaxVersion = offers, version })
			if err != nil || shown != "c" {
				t.Fatalf("%s: certificate %q %v", sni, shown, err)
			}
			if chosen := c.ConnectionState().NegotiatedProtocol; chosen != "" && chosen != "postgresql" || chosen == "" && sni == "named.example" {
				t.Errorf("%s: %q chosen by ALPN", sni, chosen)
			}
			sent := make([]byte, 1<<20)
			rand.Read(sent)
			var sender sync.WaitGroup
			sender.Go(func() {
				c.Write(sent)
				c.CloseWrite()
			})
			if b, err := io.ReadAll(c); string(b) != want+"\n"+string(sent) || err != nil {
				t.Errorf("%s: %d bytes came back, %v", sni, len(b), err)
			}
			sender.Wait()
		}
	}
	if _, _, err := g.dialTLS("named.example", func(c *tls.Config) { c.NextProtos = []string{"h2"} }); err == nil {
		t.Error("a client that offers another protocol than the listener's is served")
	}
	words := strings.Join(g.reasonsLogged(7), " ")
	if strings.Count(words, "tunnel_ended") != 6 || !strings.Contains(g.log.String(), `"route":"TLSRoute/default/secure"`) || !strings.Contains(g.log.String(), `"authority":"b.example"`) {
		t.Errorf("logged as %s: %s", words, g.log)
	}
	// The name has a listener, and the listener no route for it.
	c, _, err := g.dialTLS("other.test", nil)
	if err == nil {
		_, err = io.ReadAll(c)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("without a route: %v, want a reset", err)
	}
}

// TestTLSMixed: listeners of protocols HTTPS and TLS share a port, whatever becomes of the TLS of each, and are told apart by the server name.
func TestTLSMixed(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	up := append(backend("Service/default/b/80", httpBackend(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hi") })), backend("Service/default/plain/80", greeting(t, "plain"))...)
	up = append(up, backend("Service/default/passed/80/passthrough", secureGreeting(t, "passed"))...)
	https := func(name string) *config.Resource { return g.httpsListener(name, name+".example", "c") }
	g.apply(append(up, certificate(t, "c", newECDSA(t), "*.example"), https("https"), routeOf("h", "default/gw/https", "https.example", anyRule()),
		tlsRoute("t", "t", "plain", "t.example"), passedRoute("p", "p", "passed", "p.example")))
	first, _, err := g.dialTLS("https.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(first)
	get := func(host, want string) {
		t.Helper()
		if got := statusOf(t, first, r, host, "/"); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	says := func(sni, want string) {
		t.Helper()
		c, shown, err := g.dialTLS(sni, nil)
		if err != nil {
			t.Fatalf("%s: %v", sni, err)
		}
		c.CloseWrite()
		if b, err := io.ReadAll(c); string(b) != want+"\n" || err != nil {
			t.Errorf("%s: %q %v behind certificate %s", sni, b, err, shown)
		}
		c.NetConn().(*net.TCPConn).CloseWrite()
	}
	answers := func() {
		t.Helper()
		for _, protocol := range []string{"h2", "http/1.1"} {
			c, _, err := g.dialTLS("https.example", func(c *tls.Config) { c.NextProtos = []string{protocol} })
			if err != nil || c.ConnectionState().NegotiatedProtocol != protocol {
				t.Fatalf("%s: %v", protocol, err)
			}
			if protocol == "http/1.1" {
				if got := statusOf(t, c, bufio.NewReader(c), "https.example", "/"); got != "200" {
					t.Errorf("%s", got)
				}
			}
			c.Close()
		}
	}
	get("https.example", "200")
	g.apply([]*config.Resource{g.tlsListener("t", "t.example", "c")})
	get("https.example", "200") // on a connection that was there
	says("t.example", "plain")
	answers()
	g.apply([]*config.Resource{g.passthroughListener("p", "p.example")})
	get("https.example", "200")
	says("t.example", "plain")
	says("p.example", "passed")
	answers()
	if _, _, err := g.dialTLS("none.example", nil); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a name that no listener has: %v, want a reset", err)
	}
	// A name of another listener than the handshake's is misdirected, whatever its protocol.
	for _, host := range []string{"t.example", "p.example"} {
		c, _, err := g.dialTLS("https.example", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := statusOf(t, c, bufio.NewReader(c), host, "/"); got != "421" {
			t.Errorf("%s: %s, want 421", host, got)
		}
	}
	// A listener that becomes one of another protocol answers no requests.
	g.apply([]*config.Resource{g.tlsListener("https", "https.example", "c")})
	get("https.example", "421")
	g.apply(nil, config.ID{Kind: config.KindListener, Key: "default/gw/p"}, config.ID{Kind: config.KindListener, Key: "default/gw/t"})
	g.apply([]*config.Resource{https("https")})
	answers()
}

// TestTLSCompatible: listeners with TLS do not share a port with others.
func TestTLSCompatible(t *testing.T) {
	checkLeaks(t)
	for _, other := range []func(g *gateway) *config.Resource{
		func(g *gateway) *config.Resource { return g.httpListener("z", "z.example") }, func(g *gateway) *config.Resource { return g.tcpListener("z") },
	} {
		g := startGateway(t, Timeouts{})
		g.generation++
		r := g.Apply(&config.Update{Generation: g.generation, Upserts: []*config.Resource{g.passthroughListener("p", "p.example"), other(g)}})
		if r.Listeners["default/gw/z"] == nil || r.Listeners["default/gw/p"] != nil {
			t.Errorf("%v, want the second listener to be refused", r.Listeners)
		}
	}
}

// TestTLSClientBreaksOff is TestTCPClientBreaksOff with a client whose TLS ends at the gateway.
func TestTLSClientBreaksOff(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	accepted := make(chan net.Conn)
	addr := rawBackend(t, func(c net.Conn, _ *bufio.Reader) {
		accepted <- c
		<-accepted
	})
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/b/80", addr), certificate(t, "c", newECDSA(t), "a.example"), g.tlsListener("t", "", "c"), tlsRoute("r", "t", "b", "a.example")))
	for i := range 20 {
		c, _, err := g.dialTLS("a.example", nil)
		if err != nil {
			t.Fatal(err)
		}
		b := <-accepted
		b.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		b.Write(make([]byte, 32<<20)) // more than fits on the way, so that the gateway is writing to the client when that breaks off
		c.Write(make([]byte, 100<<10))
		raw := c.NetConn().(*net.TCPConn)
		raw.SetLinger(0)
		raw.Close()
		b.SetReadDeadline(time.Now().Add(testkit.Patience))
		if n, err := io.Copy(io.Discard, b); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("connection %d: the backend's ended by %v behind %d bytes, want a reset", i, err, n)
		}
		accepted <- nil
	}
}

// TestTLSHelloAfterReplacement: a connection that has sent nothing when its socket is replaced is served by the listener that its
// ClientHello names.
func TestTLSHelloAfterReplacement(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	at := func(address string) []*config.Resource {
		all := []*config.Resource{g.httpsListener("https", "a.test", "cert"), g.passthroughListener("passed", "b.test")}
		for _, l := range all {
			l.GetListener().Addresses = []string{address}
		}
		return all
	}
	g.apply(append(append(backend("Service/default/b/80", namedBackend(t, "b")), at("0.0.0.0")...), certificate(t, "cert", newECDSA(t), "a.test"),
		routeOf("r", "default/gw/https", "", anyRule())))
	raw := g.dial()
	time.Sleep(50 * time.Millisecond) // it is accepted
	g.apply(at("127.0.0.1"))
	c := tls.Client(raw, &tls.Config{ServerName: "a.test", InsecureSkipVerify: true})
	if got := statusOf(t, c, bufio.NewReader(c), "a.test", "/"); got != "200" {
		t.Error(got)
	}
}
