//lint:file-ignore SA1019 x/net's client takes a connection that the test has made itself

package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func authorities(of *testkit.Authority) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Authorities{Authorities: &config.Authorities{Key: config.AuthoritiesKey(string(of.PEM)), Pem: string(of.PEM)}}}
}

// validated has a listener demand certificates of its clients.
func validated(listener *config.Resource, optional bool, trusted ...*testkit.Authority) *config.Resource {
	l := listener.GetListener()
	v := &config.ClientValidation{Certificates: l.Certificates, Optional: optional}
	for _, a := range trusted {
		v.Authorities = append(v.Authorities, config.AuthoritiesKey(string(a.PEM)))
	}
	l.Certificates, l.ClientValidation = nil, v
	return listener
}

// showing has a client show a certificate whatever is asked for, nil for none.
func showing(cert *tls.Certificate, sessions tls.ClientSessionCache) func(*tls.Config) {
	return func(c *tls.Config) {
		c.ClientSessionCache = sessions
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if cert == nil {
				return &tls.Certificate{}, nil
			}
			return cert, nil
		}
	}
}

// ask makes a connection for a request, and returns the status, or "" where there was none; the connection goes on.
func (g *gateway) ask(sni, host string, change func(*tls.Config)) (c *tls.Conn, r *bufio.Reader, status string) {
	g.t.Helper()
	c, _, err := g.dialTLS(sni, change)
	if err != nil {
		return c, nil, ""
	}
	r = bufio.NewReader(c)
	if status = statusOf(g.t, c, r, host, "/"); len(status) != 3 {
		return c, r, "" // with TLS 1.3 a client hears of it after its handshake
	}
	return c, r, status
}

// TestClientCertificates changes what a listener demands, and asks what clients with tickets and connections from before can do.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	a, b := testkit.NewAuthority(t), testkit.NewAuthority(t)
	ofA, ofB := testkit.Certificate{Name: "a", Issuer: a}.TLS(t), testkit.Certificate{Name: "b", Issuer: b}.TLS(t)
	g := startGateway(t, Timeouts{})
	open := func() *config.Resource { return g.httpsListener("https", "a.example", "c") }
	g.apply(append(backend("Service/default/b/80", cannedBackend(t, cannedResponse(2), 0)), ticketKeys(1, 2, 3), authorities(a), authorities(b),
		certificate(t, "c", newECDSA(t), "*.example"), open(), routeOf("r", "default/gw/https", "a.example", anyRule())))

	sessions := map[string]tls.ClientSessionCache{}
	clients := map[string]*tls.Certificate{"none": nil, "a": &ofA, "b": &ofB}
	for name := range clients {
		sessions[name] = tls.NewLRUClientSessionCache(4)
	}
	type kept struct {
		c *tls.Conn
		r *bufio.Reader
		// asked tells that the client was asked for a certificate.
		asked bool
	}
	connections := map[string]kept{}
	for _, step := range []struct {
		name     string
		listener *config.Resource
		served   string // of "none", "a" and "b"
	}{
		{"nothing", open(), "none a b"},
		{"a", validated(open(), false, a), "a"},
		{"a or b", validated(open(), false, a, b), "a b"},
		{"b", validated(open(), false, b), "b"},
		{"optional", validated(open(), true, b), "none a b"},
		{"nobody", validated(open(), false), ""},
		{"a again", validated(open(), false, a), "a"},
		{"nothing again", open(), "none a b"},
	} {
		g.apply([]*config.Resource{step.listener})
		demands := step.listener.GetListener().GetClientValidation()
		served := map[string]bool{}
		for _, name := range strings.Fields(step.served) {
			served[name] = true
		}
		for name, cert := range clients {
			if k, ok := connections[name]; ok { // from before
				want := "421"
				if served[name] && (k.asked || demands == nil || demands.Optional) {
					want = "200"
				}
				if got := statusOf(t, k.c, k.r, "a.example", "/"); got != want {
					t.Errorf("%s: a connection of client %s: %s, want %s", step.name, name, got, want)
				}
				if want == "421" {
					if _, err := k.r.ReadByte(); err == nil {
						t.Errorf("%s: the connection of client %s goes on", step.name, name)
					}
					delete(connections, name)
				}
			}
			for range 2 { // the second with a ticket
				c, r, status := g.ask("a.example", "a.example", showing(cert, sessions[name]))
				if (status == "200") != served[name] || status != "" && status != "200" {
					t.Errorf("%s: client %s: %q, want it served: %v", step.name, name, status, served[name])
				}
				if status == "200" {
					connections[name] = kept{c, r, demands != nil}
				}
			}
		}
	}
}

// TestCoalescedRequests: a request for a listener that demands certificates is not served on a connection to one that does not, or that demands others.
func TestCoalescedRequests(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	a, b := testkit.NewAuthority(t), testkit.NewAuthority(t)
	ofA := testkit.Certificate{Name: "a", Issuer: a}.TLS(t)
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/b/80", cannedBackend(t, cannedResponse(2), 0)), ticketKeys(1, 2, 3), authorities(a), authorities(b),
		certificate(t, "c", newECDSA(t), "*.example"), g.httpsListener("open", "open.example", "c"), routeOf("open", "default/gw/open", "", anyRule()),
		validated(g.httpsListener("a", "a.example", "c"), false, a), routeOf("a", "default/gw/a", "", anyRule()),
		validated(g.httpsListener("b", "b.example", "c"), false, b), routeOf("b", "default/gw/b", "", anyRule())))
	for _, protocol := range []string{"http/1.1", "h2"} {
		for _, tc := range []struct {
			sni, host string
			want      string
		}{
			{"open.example", "open.example", "200"}, {"open.example", "a.example", "421"}, {"open.example", "b.example", "421"},
			{"a.example", "a.example", "200"}, {"a.example", "b.example", "421"}, {"a.example", "open.example", "421"},
		} {
			change := func(c *tls.Config) { showing(&ofA, nil)(c); c.NextProtos = []string{protocol} }
			c, _, err := g.dialTLS(tc.sni, change)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			if protocol == "h2" {
				cc, err := (&http2.Transport{}).NewClientConn(c)
				if err != nil {
					t.Fatal(err)
				}
				got = status2(t, cc, tc.host)
				cc.Close()
			} else {
				got = statusOf(t, c, bufio.NewReader(c), tc.host, "/")
			}
			if got != tc.want {
				t.Errorf("%s: SNI %s, host %s: %s, want %s", protocol, tc.sni, tc.host, got, tc.want)
			}
		}
	}
	if _, _, status := g.ask("b.example", "b.example", showing(&ofA, nil)); status != "" {
		t.Errorf("a client of another authority: %q", status)
	}
}

// TestServerNameInOtherLetters: a server name whose lower case is another listener's by Unicode alone, and not by ASCII, does not have that listener's handshake
// count for the listener that the name is under.
func TestServerNameInOtherLetters(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	a := testkit.NewAuthority(t)
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/b/80", cannedBackend(t, cannedResponse(2), 0)), ticketKeys(1, 2, 3), authorities(a), certificate(t, "c", newECDSA(t), "*.example"),
		g.httpsListener("kiosk", "kiosk.example", "c"), routeOf("kiosk", "default/gw/kiosk", "", anyRule()),
		validated(g.httpsListener("rest", "*.example", "c"), false, a), routeOf("rest", "default/gw/rest", "", anyRule())))
	if _, _, status := g.ask("KIOSK.example", "kiosk.example", showing(nil, nil)); status != "200" {
		t.Errorf("in capital letters: %q", status)
	}
	for _, name := range []string{"\u212Aiosk.example", "k\u0130osk.example", "kio\u017Fk.example", "kiosk\xff.example"} { // the Kelvin sign, a dotted capital I, a long s
		if _, _, status := g.ask(name, "admin.example", showing(nil, nil)); status != "" {
			t.Errorf("%q: %s for a client that has shown nothing", name, status)
		}
	}
}

// status2 is the status of a request over HTTP/2.
func status2(t testing.TB, cc *http2.ClientConn, host string) string {
	t.Helper()
	req, err := http.NewRequest("GET", "https://"+host+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := cc.RoundTrip(req)
	if err != nil {
		return err.Error()
	}
	resp.Body.Close()
	return fmt.Sprint(resp.StatusCode)
}

// TestHTTP2ConnectionFollowsWhatIsDemanded: a connection whose client is not served any more is drained, so that its client makes another one.
func TestHTTP2ConnectionFollowsWhatIsDemanded(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	a := testkit.NewAuthority(t)
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/b/80", cannedBackend(t, cannedResponse(2), 0)), authorities(a),
		certificate(t, "c", newECDSA(t), "*.example"), g.httpsListener("https", "a.example", "c"), routeOf("r", "default/gw/https", "", anyRule())))
	cc := g.http2Client("a.example")
	if got := status2(t, cc, "a.example"); got != "200" {
		t.Fatal(got)
	}
	g.apply([]*config.Resource{validated(g.httpsListener("https", "a.example", "c"), false, a)})
	if got := status2(t, cc, "a.example"); got != "421" {
		t.Errorf("%s, want 421", got)
	}
	testkit.Eventually(t, "the connection takes no more requests", func() bool { return !cc.CanTakeNewRequest() })
}

// TestAuthoritiesThatAreMissing: without them nobody is served, and the listener says so; they may come later.
func TestAuthoritiesThatAreMissing(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	a := testkit.NewAuthority(t)
	ofA := testkit.Certificate{Name: "a", Issuer: a}.TLS(t)
	g := startGateway(t, Timeouts{})
	g.generation++
	result := g.Apply(&config.Update{Generation: g.generation, Upserts: append(backend("Service/default/b/80", cannedBackend(t, cannedResponse(2), 0)),
		certificate(t, "c", newECDSA(t), "*.example"), validated(g.httpsListener("https", "a.example", "c"), true, a), routeOf("r", "default/gw/https", "", anyRule()))})
	if result.Listeners["default/gw/https"] == nil {
		t.Error("nothing is said against the listener")
	}
	if _, _, status := g.ask("a.example", "a.example", showing(&ofA, nil)); status != "" {
		t.Errorf("served: %s", status)
	}
	g.apply([]*config.Resource{authorities(a)})
	if _, _, status := g.ask("a.example", "a.example", showing(&ofA, nil)); status != "200" {
		t.Errorf("not served: %q", status)
	}
}

// TestRefusedCertificateIsHeardOf: in TLS 1.3 a client sends its request before its certificate is looked at. It hears why it was refused, whatever it has sent.
func TestRefusedCertificateIsHeardOf(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{Linger: testkit.Patience})
	a := testkit.NewAuthority(t)
	g.apply([]*config.Resource{authorities(a), certificate(t, "c", newECDSA(t), "*.example"), validated(g.httpsListener("https", "a.example", "c"), false, a)})
	for range 10 {
		c, _, err := g.dialTLS("a.example", showing(nil, nil))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100000\r\n\r\n")
		for range 10 {
			if _, err = c.Write(make([]byte, 10_000)); err != nil {
				t.Fatalf("while the request was sent: %v", err)
			}
			time.Sleep(time.Millisecond)
		}
		if _, err = c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "certificate required") {
			t.Fatalf("the client reads %v", err)
		}
		c.Close()
	}
}
