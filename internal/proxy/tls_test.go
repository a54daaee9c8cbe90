package proxy

import (
	"bufio"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func newECDSA(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newRSA(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// certificate is a self-signed one; its key also stands in the subject.
func certificate(t testing.TB, key string, signer crypto.Signer, names ...string) *config.Resource {
	t.Helper()
	return certificateUntil(t, key, signer, time.Now().Add(time.Hour), names...)
}

// unfitCertificate is valid for two hours until the end.
func unfitCertificate(t testing.TB, key string, end time.Time) *config.Resource {
	t.Helper()
	return certificateUntil(t, key, newECDSA(t), end, key+".example")
}

func certificateUntil(t testing.TB, key string, signer crypto.Signer, end time.Time, names ...string) *config.Resource {
	t.Helper()
	chain, private := testkit.Certificate{Name: key, Hosts: names, Key: signer, NotBefore: end.Add(-2 * time.Hour), NotAfter: end}.PEM(t)
	return &config.Resource{Kind: &config.Resource_Certificate{Certificate: &config.Certificate{Key: key, ChainPem: chain, KeyPem: private}}}
}

func (g *gateway) httpsListener(name, hostname string, certificates ...string) *config.Resource {
	r := g.httpListener(name, hostname)
	l := r.GetListener()
	l.Protocol, l.Certificates = config.Protocol_PROTOCOL_HTTPS, certificates
	return r
}

// dialTLS shakes hands; shown is the subject of the certificate that was shown, whatever came of it.
func (g *gateway) dialTLS(sni string, change func(*tls.Config)) (c *tls.Conn, shown string, err error) {
	g.t.Helper()
	cfg := &tls.Config{ServerName: sni, InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		shown = s.PeerCertificates[0].Subject.CommonName
		return nil
	}}
	if change != nil {
		change(cfg)
	}
	raw := g.dial()
	c = tls.Client(raw, cfg)
	err = c.Handshake()
	return c, shown, err
}

// statusOf asks for path on c and returns the status; the connection is to go on.
func statusOf(t testing.TB, c net.Conn, r *bufio.Reader, host, path string) string {
	t.Helper()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host)
	head, err := readHead(r)
	if err != nil || len(head) < 12 {
		return fmt.Sprintf("%q %v", head, err)
	}
	_, rest, _ := strings.Cut(head, "Content-Length: ")
	var n int64
	fmt.Sscan(rest, &n)
	io.CopyN(io.Discard, r, n)
	return head[9:12]
}

// anyRule matches everything and sends it to the backend "b".
func anyRule() *config.Rule {
	return &config.Rule{
		Matches:     []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
		BackendRefs: []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}},
	}
}

// TestMisdirected is the table of the conformance test HTTPRouteHTTPSListenerDetectMisdirectedRequests.
func TestMisdirected(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	up := backend("Service/default/b/80", cannedBackend(t, cannedResponse(2), 0))
	g.apply(append(up,
		certificate(t, "c", newECDSA(t), "*.org"),
		g.httpsListener("any", "", "c"), g.httpsListener("second", "second-example.org", "c"),
		g.httpsListener("wildcard", "*.wildcard.org", "c"), g.httpsListener("fourth", "fourth-example.wildcard.org", "c"),
		routeOf("any", "default/gw/any", "example.org", anyRule()),
		routeOf("second", "default/gw/second", "second-example.org", anyRule()),
		routeOf("wildcard", "default/gw/wildcard", "*.wildcard.org", anyRule()),
		routeOf("fourth", "default/gw/fourth", "fourth-example.wildcard.org", anyRule()),
	))
	for _, tc := range []struct{ sni, host, want string }{
		{"example.org", "example.org", "200"},
		{"example.org", "second-example.org", "421"},
		{"example.org", "unknown-example.org", "404"},
		{"second-example.org", "second-example.org", "200"},
		{"second-example.org", "example.org", "421"},
		{"second-example.org", "unknown-example.org", "421"},
		{"third-example.wildcard.org", "third-example.wildcard.org", "200"},
		{"third-example.wildcard.org", "fith-example.wildcard.org", "200"},
		{"third-example.wildcard.org", "fourth-example.wildcard.org", "421"},
		{"third-example.wildcard.org", "second-example.org", "421"},
		{"fourth-example.wildcard.org", "fourth-example.wildcard.org", "200"},
		{"fourth-example.wildcard.org", "fith-example.wildcard.org", "421"},
		{"unknown-example.org", "example.org", "200"},
		{"unknown-example.org", "unknown-example.org", "404"},
		{"", "example.org", "200"}, // no server name: the catch-all
		{"", "second-example.org", "421"},
		{"example.org", "EXAMPLE.org.:443", "200"},
	} {
		c, _, err := g.dialTLS(tc.sni, nil)
		if err != nil {
			t.Errorf("%s: %v", tc.sni, err)
			continue
		}
		r := bufio.NewReader(c)
		if got := statusOf(t, c, r, tc.host, "/"); got != tc.want {
			t.Errorf("SNI %q, Host %q: %s, want %s", tc.sni, tc.host, got, tc.want)
		}
		c.Close()
	}
	g.apply([]*config.Resource{g.httpsListener("any", "any.org", "c")})
	c, _, err := g.dialTLS("second-example.org", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for _, tc := range []struct{ host, want string }{{"unknown-example.org", "404"}, {"any.org", "421"}, {"second-example.org", "200"}} {
		if got := statusOf(t, c, r, tc.host, "/"); got != tc.want {
			t.Errorf("without a listener for all hosts, Host %q: %s, want %s", tc.host, got, tc.want)
		}
	}
}

// TestNoListenerNoCertificate: a name that no listener has fails the handshake, and so does one whose
// listener has no certificate, although a less specific listener has one.
func TestNoListenerNoCertificate(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.generation++
	result := g.Apply(&config.Update{Generation: g.generation, Upserts: []*config.Resource{
		certificate(t, "good", newECDSA(t), "*.example.org"),
		g.httpsListener("wild", "*.example.org", "good"),
		g.httpsListener("missing", "missing.example.org", "absent"),
		g.httpsListener("none", "none.example.org"),
	}})
	if len(result.Listeners) != 1 || result.Listeners["default/gw/missing"] == nil {
		t.Errorf("%v, want an error of the listener missing alone", result.Listeners)
	}
	for _, sni := range []string{"other.org", "example.org", "missing.example.org", "none.example.org", ""} {
		_, shown, err := g.dialTLS(sni, nil)
		if err == nil || shown != "" {
			t.Errorf("%q: certificate %q %v, want no handshake", sni, shown, err)
		}
	}
	if _, shown, err := g.dialTLS("a.example.org", nil); err != nil || shown != "good" {
		t.Errorf("certificate %q %v", shown, err)
	}
	if r := g.reasonsLogged(5); r[0] != "tls_handshake_failed" {
		t.Errorf("logged %q", r)
	}
	var names []string
	for _, b := range g.Bound() {
		names = append(names, b.Key)
	}
	if got := strings.Join(names, " "); !strings.Contains(got, "default/gw/wild") || strings.Contains(got, "missing") {
		t.Errorf("bound: %s", got)
	}
}

func TestCertificateChoice(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.apply([]*config.Resource{
		certificate(t, "rsa", newRSA(t), "both.example"), certificate(t, "ecdsa", newECDSA(t), "both.example"),
		certificate(t, "wild", newECDSA(t), "*.wild.example"), certificate(t, "exact", newECDSA(t), "a.wild.example"),
		certificate(t, "first", newECDSA(t), "first.example"),
		g.httpsListener("any", "", "first", "rsa", "ecdsa", "wild", "exact"),
		g.httpsListener("own", "own.example", "wild"),
	})
	onlyRSA := func(c *tls.Config) {
		c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
	}
	onlyECDSA := func(c *tls.Config) {
		c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
	}
	for _, tc := range []struct {
		sni, want string
		change    func(*tls.Config)
	}{
		{"both.example", "rsa", onlyRSA},
		{"both.example", "ecdsa", onlyECDSA},
		{"a.wild.example", "exact", nil},
		{"b.wild.example", "wild", nil},
		{"B.Wild.Example", "wild", nil},
		{"a.b.wild.example", "first", nil}, // a wildcard stands for one label
		{"own.example", "wild", nil},
		{"", "first", nil},
		{"unknown.example", "first", nil},
	} {
		if _, shown, err := g.dialTLS(tc.sni, tc.change); err != nil || shown != tc.want {
			t.Errorf("%s: certificate %q %v, want %q", tc.sni, shown, err, tc.want)
		}
	}
	for _, old := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
		_, shown, err := g.dialTLS("both.example", func(c *tls.Config) { c.MinVersion, c.MaxVersion = old, old })
		if err == nil || shown != "" {
			t.Errorf("version %x: certificate %q %v, want no handshake", old, shown, err)
		}
	}
}

// TestCertificateRotation: new handshakes see the new certificate, connections go on.
func TestCertificateRotation(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/b/80", cannedBackend(t, cannedResponse(2), 0)),
		certificate(t, "c", newECDSA(t), "a.example"), g.httpsListener("https", "", "c"), routeOf("r", "default/gw/https", "", anyRule())))
	serial := func(c *tls.Conn) string { return c.ConnectionState().PeerCertificates[0].SerialNumber.String() }
	old, _, err := g.dialTLS("a.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(old)
	for range 3 {
		if got := statusOf(t, old, r, "a.example", "/"); got != "200" {
			t.Fatal(got)
		}
		g.apply([]*config.Resource{certificate(t, "c", newRSA(t), "a.example")})
		fresh, _, err := g.dialTLS("a.example", nil)
		if err != nil || serial(fresh) == serial(old) {
			t.Errorf("the old certificate is shown, %v", err)
		}
	}
	if got := statusOf(t, old, r, "a.example", "/"); got != "200" {
		t.Fatal(got)
	}
	// One that cannot be parsed leaves the one before.
	bad := certificate(t, "c", newECDSA(t), "a.example")
	bad.GetCertificate().KeyPem = []byte("nonsense")
	result := g.Apply(&config.Update{Generation: 99, Upserts: []*config.Resource{bad}})
	if result.Rejected[config.ID{Kind: config.KindCertificate, Key: "c"}] == nil || len(result.Listeners) > 0 {
		t.Errorf("%+v", result)
	}
	if _, _, err := g.dialTLS("a.example", nil); err != nil {
		t.Error(err)
	}
}

// recorder keeps what was read.
type recorder struct {
	net.Conn
	read []byte
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.read = append(r.read, b[:n]...)
	return n, err
}

// endsWithAlert tells whether the last TLS record is an alert: crypto/tls does not say.
func (r *recorder) endsWithAlert() bool {
	kind := byte(0)
	for b := r.read; len(b) >= 5; {
		kind = b[0]
		b = b[min(len(b), 5+int(b[3])<<8+int(b[4])):]
	}
	return kind == 21
}

// TestCloseNotify: the end of a complete response is told from one that broke off.
func TestCloseNotify(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, request, response string
		want                    bool
	}{
		{"complete", "GET / HTTP/1.0\r\nHost: h\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nhello", true},
		{"closed by us", "GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nhello", true},
		{"not found", "GET /x HTTP/1.0\r\nHost: unknown.example\r\n\r\n", "", true},
		{"refused", "GET / HTTP/1.1\r\n\r\n", "", true},
		{"idle", "", "", true},
		{"broken off", "GET / HTTP/1.0\r\nHost: h\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkLeaks(t)
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				readHead(r)
				io.WriteString(c, tc.response)
			})
			g := startGateway(t, Timeouts{Linger: 100 * time.Millisecond, Idle: 300 * time.Millisecond})
			g.apply(append(backend("Service/default/b/80", addr),
				certificate(t, "c", newECDSA(t), "a.example"), g.httpsListener("https", "", "c"), routeOf("r", "default/gw/https", "h", anyRule())))
			raw := &recorder{Conn: g.dial()}
			c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, ServerName: "h", MaxVersion: tls.VersionTLS12}) // 1.3 hides the kind of a record
			io.WriteString(c, tc.request)
			if got, _ := io.ReadAll(c); raw.endsWithAlert() != tc.want {
				t.Errorf("after %q: close_notify %v, want %v", got, raw.endsWithAlert(), tc.want)
			}
		})
	}
}

// TestTLSClientVanishes ends the client at moments of the handshake and of a request.
func TestTLSClientVanishes(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	cancelled := make(chan struct{}, 16)
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err == nil {
			io.Copy(io.Discard, r)
			cancelled <- struct{}{}
		}
	})
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/b/80", addr),
		certificate(t, "c", newECDSA(t), "a.example"), g.httpsListener("https", "", "c"), routeOf("r", "default/gw/https", "", anyRule())))
	for _, prefix := range []string{"", "\x16", "\x16\x03\x01\x02\x00\x01", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"} {
		c := g.dial()
		io.WriteString(c, prefix)
		time.Sleep(10 * time.Millisecond)
		c.Close()
	}
	for _, sent := range []string{"", "GET / HT", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc"} {
		for _, how := range []string{"close", "close_notify", "reset"} {
			c, _, err := g.dialTLS("a.example", nil)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, sent)
			time.Sleep(20 * time.Millisecond)
			switch how {
			case "reset":
				c.NetConn().(*net.TCPConn).SetLinger(0)
				c.NetConn().Close()
			case "close":
				c.NetConn().Close()
			default:
				c.Close()
			}
			if !strings.HasSuffix(sent, "\n") && !strings.HasSuffix(sent, "abc") {
				continue
			}
			select {
			case <-cancelled:
			case <-time.After(testkit.Patience):
				t.Fatalf("%q, %s: the backend still works for nobody", sent, how)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		t.Errorf("connections were left: %v", err)
	}
}
