package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/revocation"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// tlsBackend answers over TLS with what it was spoken to in: the protocol of HTTP, the server name, and whether the
// session was resumed. It counts handshakes.
func tlsBackend(t testing.TB, cert *config.Resource, protocols ...string) (addr string, handshakes *atomic.Int64) {
	t.Helper()
	c := cert.GetCertificate()
	pair, err := tls.X509KeyPair(c.ChainPem, c.KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	handshakes = &atomic.Int64{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%s %s resumed=%v %d", r.Proto, r.TLS.ServerName, r.TLS.DidResume, n)
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				handshakes.Add(1)
			}
		},
	}
	for _, p := range protocols {
		s.Protocols.SetHTTP2(s.Protocols.HTTP2() || p == "h2")
		s.Protocols.SetHTTP1(s.Protocols.HTTP1() || p == "http/1.1")
	}
	go s.ServeTLS(l, "", "")
	t.Cleanup(func() { s.Close() })
	return l.Addr().String(), handshakes
}

// overTLS is a Backend that is verified by ca, those of the system for none.
func overTLS(key, serverName string, ca []byte, protocol config.BackendProtocol) []*config.Resource {
	b := &config.Backend{Key: key, Protocol: protocol, Tls: &config.BackendTLS{ServerName: serverName}}
	all := []*config.Resource{{Kind: &config.Resource_Backend{Backend: b}}}
	if ca != nil {
		pem := string(ca)
		b.Tls.Authorities = []string{config.AuthoritiesKey(pem)}
		all = append(all, &config.Resource{Kind: &config.Resource_Authorities{Authorities: &config.Authorities{Key: b.Tls.Authorities[0], Pem: pem}}})
	}
	return all
}

// TestBackendTLS: what the backend chooses by ALPN is spoken, on as few connections as that takes.
func TestBackendTLS(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	cert := certificate(t, "c", newECDSA(t), "backend.example")
	ca := cert.GetCertificate().ChainPem
	for _, tc := range []struct {
		name     string
		speaks   []string
		protocol config.BackendProtocol
		want     string // "" is that the handshake fails
	}{
		{"both", []string{"h2", "http/1.1"}, config.BackendProtocol_BACKEND_PROTOCOL_HTTP, "HTTP/2.0"},
		{"HTTP1", []string{"http/1.1"}, config.BackendProtocol_BACKEND_PROTOCOL_HTTP, "HTTP/1.1"},
		{"HTTP2", []string{"h2"}, config.BackendProtocol_BACKEND_PROTOCOL_HTTP, "HTTP/2.0"},
		{"HTTP2 alone", []string{"h2", "http/1.1"}, config.BackendProtocol_BACKEND_PROTOCOL_H2C, "HTTP/2.0"},
		{"HTTP2 alone, not spoken", []string{"http/1.1"}, config.BackendProtocol_BACKEND_PROTOCOL_H2C, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr, handshakes := tlsBackend(t, cert, tc.speaks...)
			g := startGateway(t, Timeouts{})
			g.serve(addr, nil)
			g.apply(overTLS("Service/default/b/80", "backend.example", ca, tc.protocol))
			if tc.want == "" {
				if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 502 ") || !strings.Contains(got, "upstream_tls_failed") {
					t.Error(got)
				}
				if r := g.reasonsLogged(1); r[0] != "upstream_tls_failed" {
					t.Errorf("logged %q", r)
				}
				return
			}
			c := g.dial()
			r := bufio.NewReader(c)
			for i, request := range []string{
				"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
				"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
				"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n" + strings.Repeat("a", 0x10000) + "\r\n0\r\n\r\n",
				"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("a", 300000),
			} {
				io.WriteString(c, request)
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				b, _ := io.ReadAll(resp.Body)
				want := fmt.Sprintf("%s backend.example resumed=false %d", tc.want, []int{0, 3, 0x10000, 300000}[i])
				if resp.StatusCode != 200 || string(b) != want {
					t.Errorf("request %d: %d %q, want %q", i, resp.StatusCode, b, want)
				}
			}
			if n := handshakes.Load(); n != 1 {
				t.Errorf("%d connections, want one", n)
			}
		})
	}
}

// TestBackendTLSFails: a certificate that is not the backend's is a reason of its own, and the log says why.
func TestBackendTLSFails(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	cert := certificate(t, "c", newECDSA(t), "backend.example")
	other := certificate(t, "other", newECDSA(t), "backend.example").GetCertificate().ChainPem
	for _, tc := range []struct{ name, serverName, cause string }{
		{"unknown authority", "backend.example", "unknown authority"},
		{"wrong name", "other.example", "not other.example"},
		{"no TLS", "backend.example", "first record does not look like a TLS handshake"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr, _ := tlsBackend(t, cert, "h2", "http/1.1")
			ca := cert.GetCertificate().ChainPem
			switch tc.name {
			case "unknown authority":
				ca = other
			case "no TLS":
				addr = rawBackend(t, func(c net.Conn, r *bufio.Reader) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
			}
			said := &testkit.Log{}
			g := startGatewayWith(t, Options{Bind: []netip.Addr{loopback}, Logger: slog.New(slog.NewTextHandler(said, nil))})
			g.serve(addr, nil)
			g.apply(overTLS("Service/default/b/80", tc.serverName, ca, 0))
			for range 3 {
				if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 502 ") || !strings.Contains(got, "upstream_tls_failed") {
					t.Error(got)
				}
			}
			if s := said.String(); !strings.Contains(s, tc.cause) || !strings.Contains(s, addr) || !strings.Contains(s, "Service/default/b/80") {
				t.Errorf("the log says %s", s)
			} else if n := strings.Count(s, "\n"); n > 3 {
				t.Errorf("the log says it %d times", n)
			}
		})
	}
}

// TestBackendTLSResumes: a new connection resumes the session of one before.
func TestBackendTLSResumes(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	cert := certificate(t, "c", newECDSA(t), "backend.example")
	addr, _ := tlsBackend(t, cert, "http/1.1")
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	g.apply(overTLS("Service/default/b/80", "backend.example", cert.GetCertificate().ChainPem, 0))
	const get = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	if got := g.roundTrip(get); !strings.Contains(got, "resumed=false") {
		t.Error(got)
	}
	// Many at once need more connections than the one that idles.
	var resumed atomic.Int64
	var work sync.WaitGroup
	for range 20 {
		work.Go(func() {
			got := g.roundTrip(get)
			if !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				t.Error(got)
			}
			if strings.Contains(got, "resumed=true") {
				resumed.Add(1)
			}
		})
	}
	work.Wait()
	for deadline := time.Now().Add(testkit.Patience); resumed.Load() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("no session was resumed")
		}
		g.apply(backend("Service/default/b/80", "127.0.0.1:1")[1:]) // the connections that idle are closed
		g.apply(backend("Service/default/b/80", addr)[1:])
		if strings.Contains(g.roundTrip(get), "resumed=true") {
			resumed.Add(1)
		}
	}
}

// TestBackendTLSKeepsIdle: what TLS itself says on an idle connection does not end it, its end does.
func TestBackendTLSKeepsIdle(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	cert := certificate(t, "c", newECDSA(t), "backend.example")
	addr, handshakes := tlsBackend(t, cert, "http/1.1")
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	g.apply(overTLS("Service/default/b/80", "backend.example", cert.GetCertificate().ChainPem, 0))
	for range 20 {
		if got := g.roundTrip("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nConnection: close\r\n\r\na"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Error(got)
		}
	}
	if n := handshakes.Load(); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
}

// TestBackendTLSCut: a response over TLS that only the end of the connection ends is whole with close_notify alone. What has a length or chunks is whole by that.
func TestBackendTLSCut(t *testing.T) {
	t.Parallel()
	cert := certificate(t, "c", newECDSA(t), "backend.example")
	pair, err := tls.X509KeyPair(cert.GetCertificate().ChainPem, cert.GetCertificate().KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("x", 0x8000)
	for _, plainIO := range []bool{false, true} {
		for _, client2 := range []bool{false, true} {
			for _, framing := range []string{"Connection: close\r\n\r\n" + body, "Content-Length: 32768\r\n\r\n" + body, "Transfer-Encoding: chunked\r\n\r\n8000\r\n" + body + "\r\n0\r\n\r\n"} {
				for _, notify := range []bool{false, true} {
					field, _, _ := strings.Cut(framing, "\r")
					t.Run(fmt.Sprintf("plain %v, HTTP2 %v, %s, close_notify %v", plainIO, client2, field, notify), func(t *testing.T) {
						checkLeaks(t)
						addr := rawBackend(t, func(c net.Conn, _ *bufio.Reader) {
							defer c.Close()
							secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})
							if _, err := http.ReadRequest(bufio.NewReader(secure)); err != nil {
								return
							}
							io.WriteString(secure, "HTTP/1.1 200 OK\r\n"+framing)
							if notify {
								secure.CloseWrite()
							}
						})
						g := startGatewayWith(t, Options{PlainIO: plainIO})
						g.serve(addr, nil)
						g.apply(overTLS("Service/default/b/80", "backend.example", cert.GetCertificate().ChainPem, 0))
						resp, err := g.client(client2).RoundTrip(g.newRequest(t, http.MethodGet, nil))
						if err != nil {
							t.Fatal(err)
						}
						got, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						whole, reason := notify || field != "Connection: close", "ok"
						if !whole {
							reason = "upstream_truncated"
						}
						if (err == nil) != whole || whole && string(got) != body {
							t.Errorf("%d bytes, error %v; whole: %v", len(got), err, whole)
						}
						if r := g.reasonsLogged(1); r[0] != reason {
							t.Errorf("logged %q, want %q", r, reason)
						}
					})
				}
			}
		}
	}
}

// TestBackendTLSRejected: a Backend whose authorities cannot be read leaves the one before in force.
func TestBackendTLSRejected(t *testing.T) {
	g := startGateway(t, Timeouts{})
	twoNames := authenticated(testkit.NewAuthority(t).PEM, "a.example")
	twoNames[0].GetBackend().Tls.ServerName = "a.example"
	unknownVersion, unknownSuite := overTLS("Service/default/b/80", "a.example", nil, 0), overTLS("Service/default/b/80", "a.example", nil, 0)
	unknownVersion[0].GetBackend().Tls.SystemAuthorities, unknownVersion[0].GetBackend().Tls.MinVersion = true, 0x0305
	unknownSuite[0].GetBackend().Tls.SystemAuthorities, unknownSuite[0].GetBackend().Tls.CipherSuites = true, []uint32{0xffff}
	missing := overTLS("Service/default/b/80", "backend.example", []byte("lost on the way"), 0)[:1]
	for _, all := range [][]*config.Resource{
		missing,
		overTLS("Service/default/b/80", "backend.example", []byte("no PEM"), 0),
		overTLS("Service/default/b/80", "", nil, 0),
		authenticated([]byte(testkit.NewAuthority(t).PEM)),
		authenticated([]byte(testkit.NewAuthority(t).PEM), "spiffe://%"),
		twoNames,
		unknownVersion,
		unknownSuite,
	} {
		g.generation++
		r := g.Apply(&config.Update{Generation: g.generation, Upserts: all})
		if err := r.Rejected[all[0].ID()]; err == nil || !strings.Contains(err.Error(), "Service/default/b/80") {
			t.Errorf("%v", r.Rejected)
		}
	}
}

// TestBackendTLSRejectedIsNotCleartext: a backend that was reached in cleartext is reached not at all where TLS is asked for that this proxy cannot speak, until
// it is sent what the proxy can. One that was reached over TLS stays as it was.
func TestBackendTLSRejectedIsNotCleartext(t *testing.T) {
	g := startGateway(t, Timeouts{})
	g.serve(namedBackend(t, "b"), nil)
	status := func() string {
		t.Helper()
		return strings.Fields(g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))[1]
	}
	if got := status(); got != "200" {
		t.Fatal(got)
	}
	cleartext := &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "Service/default/b/80"}}}
	tooNew := overTLS("Service/default/b/80", "a.example", nil, 0)
	tooNew[0].GetBackend().Tls.SystemAuthorities, tooNew[0].GetBackend().Tls.MinVersion = true, 0x0305
	reject := func() {
		t.Helper()
		g.generation++
		if r := g.Apply(&config.Update{Generation: g.generation, Upserts: tooNew}); r.Rejected[tooNew[0].ID()] == nil {
			t.Errorf("not rejected: %+v", r)
		}
	}
	reject()
	if got := status(); got != "502" {
		t.Errorf("%s in cleartext, want 502", got)
	}
	g.apply([]*config.Resource{cleartext})
	if got := status(); got != "200" {
		t.Errorf("%s, want 200", got)
	}
	cert := certificate(t, "c", newECDSA(t), "backend.example")
	addr, _ := tlsBackend(t, cert, "http/1.1")
	g.apply(append(overTLS("Service/default/b/80", "backend.example", cert.GetCertificate().ChainPem, 0), backend("Service/default/b/80", addr)[1]))
	reject()
	if got := status(); got != "200" {
		t.Errorf("%s of a backend that was reached over TLS, want 200", got)
	}
}

// namedCertificate is self-signed, for hosts and URIs, with a common name that is none of them.
func namedCertificate(t testing.TB, hosts, uris []string) *config.Resource {
	t.Helper()
	c := testkit.Certificate{Name: "common.example", Hosts: hosts}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c.URIs = append(c.URIs, u)
	}
	chain, key := c.PEM(t)
	return &config.Resource{Kind: &config.Resource_Certificate{Certificate: &config.Certificate{Key: "c", ChainPem: chain, KeyPem: key}}}
}

// authenticated is a Backend that is asked for asked.example, verified by ca and authenticated by names, those with a scheme URIs.
func authenticated(ca []byte, names ...string) []*config.Resource {
	all := overTLS("Service/default/b/80", "", ca, 0)
	alternatives := &config.SubjectAltNames{AskedName: "asked.example"}
	for _, name := range names {
		if strings.Contains(name, ":") {
			alternatives.Uris = append(alternatives.Uris, name)
		} else {
			alternatives.Hostnames = append(alternatives.Hostnames, name)
		}
	}
	all[0].GetBackend().Tls.SubjectAltNames = alternatives
	return all
}

// TestBackendTLSSubjectAltNames: with subject alternative names one of them has to be the certificate's, and the name that is asked for
// authenticates nobody.
func TestBackendTLSSubjectAltNames(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const spiffe = "spiffe://mesh.example/ns/default/sa/web"
	for _, tc := range []struct {
		name        string
		hosts, uris []string // of the certificate
		names       []string // of the Backend
		want        bool
	}{
		{"hostname", []string{"a.example"}, nil, []string{"a.example"}, true},
		{"another hostname", []string{"a.example"}, nil, []string{"b.example"}, false},
		{"the name asked for", []string{"asked.example"}, nil, []string{"b.example"}, false},
		{"the common name", []string{"a.example"}, nil, []string{"common.example"}, false},
		{"a URI alone, and the common name", nil, []string{spiffe}, []string{"common.example"}, false},
		{"one of several", []string{"a.example"}, nil, []string{"b.example", spiffe, "a.example"}, true},
		{"URI", nil, []string{spiffe}, []string{spiffe}, true},
		{"URI of several", []string{"a.example"}, []string{"https://a.example/", spiffe}, []string{"b.example", spiffe}, true},
		{"URI, case of scheme and host", nil, []string{"SPIFFE://Mesh.Example/ns/default/sa/web"}, []string{spiffe}, true},
		{"URI, case of the path", nil, []string{"spiffe://mesh.example/ns/default/sa/Web"}, []string{spiffe}, false},
		{"URI, below another", nil, []string{spiffe + "/x"}, []string{spiffe}, false},
		{"a URI's host is no hostname", nil, []string{spiffe}, []string{"mesh.example"}, false},
		{"the certificate's wildcard", []string{"*.example.com"}, nil, []string{"a.example.com"}, true},
		{"the certificate's wildcard, two labels", []string{"*.example.com"}, nil, []string{"a.b.example.com"}, false},
		{"wildcard", []string{"A.Example.Com"}, nil, []string{"*.example.com"}, true},
		{"wildcards", []string{"*.example.com"}, nil, []string{"*.example.com"}, true},
		{"wildcard, two labels", []string{"a.b.example.com"}, nil, []string{"*.example.com"}, false},
		{"wildcard, none", []string{"example.com"}, nil, []string{"*.example.com"}, false},
		{"wildcard, another suffix", []string{"a.notexample.com"}, nil, []string{"*.example.com"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cert := namedCertificate(t, tc.hosts, tc.uris)
			addr, _ := tlsBackend(t, cert, "http/1.1")
			g := startGateway(t, Timeouts{})
			g.serve(addr, nil)
			g.apply(authenticated(cert.GetCertificate().ChainPem, tc.names...))
			got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			if ok := strings.HasPrefix(got, "HTTP/1.1 200 ") && strings.Contains(got, " asked.example "); ok != tc.want {
				t.Errorf("got %q, want success %t", got, tc.want)
			}
			if !tc.want && (!strings.HasPrefix(got, "HTTP/1.1 502 ") || !strings.Contains(got, "upstream_tls_failed")) {
				t.Error(got)
			}
		})
	}

	t.Run("another authority", func(t *testing.T) {
		cert := namedCertificate(t, []string{"a.example"}, nil)
		addr, _ := tlsBackend(t, cert, "http/1.1")
		g := startGateway(t, Timeouts{})
		g.serve(addr, nil)
		g.apply(authenticated(testkit.NewAuthority(t).PEM, "a.example"))
		if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 502 ") {
			t.Error(got)
		}
	})
}

// TestBackendTLSRevoked: a backend whose certificate its authority has revoked is not spoken to, whether it is verified for a name or for subject alternative names.
func TestBackendTLSRevoked(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	a := testkit.NewAuthority(t)
	chain, key := testkit.Certificate{Name: "a", Hosts: []string{"backend.example"}, Issuer: a}.PEM(t)
	cert := &config.Resource{Kind: &config.Resource_Certificate{Certificate: &config.Certificate{Key: "c", ChainPem: chain, KeyPem: key}}}
	serial := revocation.Certificates(string(chain))[0].SerialNumber
	for name, of := range map[string]func() []*config.Resource{
		"for a name":                    func() []*config.Resource { return overTLS("Service/default/b/80", "backend.example", a.PEM, 0) },
		"for subject alternative names": func() []*config.Resource { return authenticated(a.PEM, "backend.example") },
	} {
		addr, _ := tlsBackend(t, cert, "http/1.1")
		g := startGateway(t, Timeouts{})
		g.serve(addr, nil)
		for i, step := range []struct {
			list []byte
			want string
		}{
			{nil, "HTTP/1.1 200 "},
			{a.Revoke(t, x509.RevocationList{}), "HTTP/1.1 200 "},
			{a.Revoke(t, x509.RevocationList{}, serial), "HTTP/1.1 502 "},
			{a.Revoke(t, x509.RevocationList{ThisUpdate: time.Now().Add(-2 * time.Hour), NextUpdate: time.Now().Add(-time.Hour)}), "HTTP/1.1 502 "},
			{a.Revoke(t, x509.RevocationList{}, big.NewInt(0)), "HTTP/1.1 200 "},
		} {
			all := of()
			if step.list != nil {
				revocable := &config.Authorities{Key: config.AuthoritiesKey(string(a.PEM), step.list), Revocable: &config.Revocable{Pem: string(a.PEM), Lists: [][]byte{step.list}}}
				all[0].GetBackend().Tls.Authorities = []string{revocable.Key}
				all = append(all, &config.Resource{Kind: &config.Resource_Authorities{Authorities: revocable}})
			}
			g.apply(all)
			if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, step.want) {
				t.Errorf("%s, step %d: %q, want %q", name, i, got, step.want)
			}
		}
	}
}

// TestBackendTLSEdited: neither a connection nor a session that was made under other names or authorities is used once a Backend has been
// edited, and requests under way end.
func TestBackendTLSEdited(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	cert := namedCertificate(t, []string{"a.example", "asked.example"}, nil)
	ca, other := cert.GetCertificate().ChainPem, testkit.NewAuthority(t).PEM
	const get = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	for _, protocol := range []string{"http/1.1", "h2"} {
		addr, handshakes := tlsBackend(t, cert, protocol)
		g := startGateway(t, Timeouts{})
		g.serve(addr, nil)
		for i, step := range []struct {
			name string
			now  []*config.Resource
			want string
		}{
			{"names", authenticated(ca, "a.example"), "HTTP/1.1 200 "},
			{"other names", authenticated(ca, "b.example"), "HTTP/1.1 502 "},
			{"one more name", authenticated(ca, "b.example", "a.example"), "HTTP/1.1 200 "},
			{"another authority", authenticated(other, "b.example", "a.example"), "HTTP/1.1 502 "},
			{"the name asked for", overTLS("Service/default/b/80", "asked.example", ca, 0), "HTTP/1.1 200 "},
			{"another name asked for", overTLS("Service/default/b/80", "b.example", ca, 0), "HTTP/1.1 502 "},
			{"names again", authenticated(ca, "a.example"), "HTTP/1.1 200 "},
		} {
			g.apply(step.now)
			for range 2 {
				if got := g.roundTrip(get); !strings.HasPrefix(got, step.want) || strings.Contains(got, "resumed=true") {
					t.Errorf("%s, %s: %s", protocol, step.name, got)
				}
			}
			before := handshakes.Load()
			g.apply(step.now)
			if g.roundTrip(get); i == 0 && handshakes.Load() != before {
				t.Errorf("%s, %s: what was sent again has cost the connection", protocol, step.name)
			}
		}
	}
}

// TestBackendTLSNamesResume: sessions are resumed with subject alternative names, too.
func TestBackendTLSNamesResume(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	cert := namedCertificate(t, []string{"a.example"}, nil)
	addr, _ := tlsBackend(t, cert, "http/1.1")
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	g.apply(authenticated(cert.GetCertificate().ChainPem, "a.example"))
	testkit.Eventually(t, "a session is resumed", func() bool {
		got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		g.apply(backend("Service/default/b/80", "127.0.0.1:1")[1:]) // the connections that idle are closed
		g.apply(backend("Service/default/b/80", addr)[1:])
		return strings.Contains(got, "resumed=true")
	})
}

// TestBackendTLSLimits: versions and cipher suites that a Backend rules out are not used, nor is a connection that was made before it did.
func TestBackendTLSLimits(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	cert := certificate(t, "c", newECDSA(t), "backend.example")
	pair, err := tls.X509KeyPair(cert.GetCertificate().ChainPem, cert.GetCertificate().KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	const aes128, aes256 = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
	backendWith := func(version uint16, suites ...uint16) string {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s", tls.VersionName(r.TLS.Version), tls.CipherSuiteName(r.TLS.CipherSuite))
		}))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MaxVersion: version, CipherSuites: suites}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	for _, tc := range []struct {
		name       string
		addr       string
		minVersion uint32
		suites     []uint32
		want       string // "" is that the handshake fails
	}{
		{"TLS 1.3", backendWith(tls.VersionTLS13), tls.VersionTLS13, nil, "TLS 1.3 "},
		{"TLS 1.2, too old", backendWith(tls.VersionTLS12), tls.VersionTLS13, nil, ""},
		{"TLS 1.2", backendWith(tls.VersionTLS12), tls.VersionTLS12, nil, "TLS 1.2 "},
		{"cipher suite", backendWith(tls.VersionTLS12), 0, []uint32{uint32(aes256)}, "TLS 1.2 " + tls.CipherSuiteName(aes256)},
		{"one of two cipher suites", backendWith(tls.VersionTLS12, aes256), 0, []uint32{uint32(aes128), uint32(aes256)}, "TLS 1.2 " + tls.CipherSuiteName(aes256)},
		{"another cipher suite", backendWith(tls.VersionTLS12, aes128), 0, []uint32{uint32(aes256)}, ""},
		{"cipher suites of TLS 1.2 do not limit TLS 1.3", backendWith(tls.VersionTLS13), 0, []uint32{uint32(aes256)}, "TLS 1.3 "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := startGateway(t, Timeouts{})
			g.serve(tc.addr, nil)
			all := overTLS("Service/default/b/80", "backend.example", cert.GetCertificate().ChainPem, 0)
			g.apply(all)
			const get = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
			if got := g.roundTrip(get); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				t.Fatalf("without limits: %s", got)
			}
			limited := proto.CloneOf(all[0])
			limited.GetBackend().Tls.MinVersion, limited.GetBackend().Tls.CipherSuites = tc.minVersion, tc.suites
			g.apply([]*config.Resource{limited})
			got := g.roundTrip(get)
			if tc.want == "" && !strings.HasPrefix(got, "HTTP/1.1 502 ") || tc.want != "" && !strings.Contains(got, "\r\n\r\n"+tc.want) {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}

// TestBackendTLSEditEndsConnections: when what a Backend verifies, or a Gateway shows, has changed, connections that idle are closed although no request
// comes, and the others when their request has ended, which it does undisturbed.
func TestBackendTLSEditEndsConnections(t *testing.T) {
	checkLeaks(t)
	checkDescriptors(t)
	cert := namedCertificate(t, []string{"a.example", "asked.example"}, nil)
	cert.GetCertificate().Key = "server"
	ca := cert.GetCertificate().ChainPem
	pair, err := tls.X509KeyPair(ca, cert.GetCertificate().KeyPem)
	if err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{"http/1.1", "h2"} {
		for _, edit := range []struct {
			name  string
			apply func(g *gateway)
		}{
			{"names", func(g *gateway) { g.apply(authenticated(ca, "b.example")) }},
			{"authorities", func(g *gateway) {
				g.apply(overTLS("Service/default/b/80", "asked.example", testkit.NewAuthority(t).PEM, 0))
			}},
			{"version", func(g *gateway) {
				all := overTLS("Service/default/b/80", "asked.example", ca, 0)
				all[0].GetBackend().Tls.MinVersion = tls.VersionTLS13
				g.apply(all)
			}},
			{"cleartext", func(g *gateway) { g.apply(backend("Service/default/b/80", "127.0.0.1:1")[:1]) }},
			{"client certificate", func(g *gateway) { g.apply([]*config.Resource{certificate(t, "c", newECDSA(t), "renewed")}) }},
			{"no client certificate", func(g *gateway) { g.apply([]*config.Resource{g.identified("a", "")}) }},
		} {
			t.Run(protocol+" "+edit.name, func(t *testing.T) {
				var open atomic.Int64
				begun, end := make(chan struct{}), make(chan struct{})
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/slow" {
						close(begun)
						<-end
					}
					io.WriteString(w, "answered")
				}))
				s.Config.ErrorLog = log.New(io.Discard, "", 0)
				s.Config.Protocols = new(http.Protocols)
				s.Config.Protocols.SetHTTP1(protocol == "http/1.1")
				s.Config.Protocols.SetHTTP2(protocol == "h2")
				s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
					switch state {
					case http.StateNew:
						open.Add(1)
					case http.StateClosed, http.StateHijacked:
						open.Add(-1)
					}
				}
				s.Config.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
				l := s.Listener
				go s.Config.ServeTLS(l, "", "")
				defer s.Config.Close()
				g := startGateway(t, Timeouts{})
				g.apply(append(backend("Service/default/b/80", l.Addr().String()), certificate(t, "c", newECDSA(t), "first"), g.identified("a", "c"),
					routeOf("a", "default/gw/a", "a.example", refRule("Service/default/b/80"))))
				g.apply(overTLS("Service/default/b/80", "asked.example", ca, 0))

				if got := g.get("a"); !strings.Contains(got, "answered") || open.Load() != 1 {
					t.Fatalf("%d connections: %s", open.Load(), got)
				}
				edit.apply(g)
				testkit.Eventually(t, "the connection that idles is closed", func() bool { return open.Load() == 0 })

				g.apply([]*config.Resource{g.identified("a", "c")})
				g.apply(overTLS("Service/default/b/80", "asked.example", ca, 0))
				answer := make(chan string)
				go func() {
					answer <- g.roundTrip("GET /slow HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
				}()
				<-begun
				edit.apply(g)
				close(end)
				if got := <-answer; !strings.Contains(got, "answered") {
					t.Errorf("the request under way: %s", got)
				}
				testkit.Eventually(t, "its connection is closed", func() bool { return open.Load() == 0 })
			})
		}
	}
}
