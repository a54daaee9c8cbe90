package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// ticketKeys are those of the Gateway under test, told apart by numbers.
func ticketKeys(numbers ...byte) *config.Resource {
	k := &config.TicketKeys{Key: "default/gw"}
	for _, n := range numbers {
		k.Keys = append(k.Keys, bytes.Repeat([]byte{n}, 32))
	}
	return &config.Resource{Kind: &config.Resource_TicketKeys{TicketKeys: k}}
}

// TestResumeSessions follows a client from proxy to proxy and from generation to generation.
func TestResumeSessions(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			c, up := certificate(t, "c", newECDSA(t), "a.example", "b.example"), cannedBackend(t, cannedResponse(2), 0)
			start := func(keys ...byte) *gateway {
				g := startGateway(t, Timeouts{})
				g.apply(append(backend("Service/default/b/80", up), ticketKeys(keys...), c,
					g.httpsListener("a", "a.example", "c"), g.httpsListener("b", "b.example", "c"),
					routeOf("a", "default/gw/a", "a.example", anyRule()), routeOf("b", "default/gw/b", "b.example", anyRule())))
				return g
			}
			sessions := tls.NewLRUClientSessionCache(8)
			visit := func(what string, g *gateway, host string, want bool) {
				t.Helper()
				conn, _, err := g.dialTLS(host, func(cfg *tls.Config) {
					cfg.ClientSessionCache, cfg.MinVersion, cfg.MaxVersion = sessions, version, version
				})
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				defer conn.Close()
				if got := statusOf(t, conn, bufio.NewReader(conn), host, "/"); got != "200" { // and with it the ticket
					t.Fatalf("%s: %s", what, got)
				}
				if got := conn.ConnectionState().DidResume; got != want {
					t.Errorf("%s: resumed %v, want %v", what, got, want)
				}
			}
			one, two := start(1, 2), start(1, 2)
			visit("first", one, "a.example", false)
			visit("again", one, "a.example", true)
			visit("another proxy", two, "a.example", true)
			visit("another listener", two, "b.example", false)
			one.apply([]*config.Resource{routeOf("a", "default/gw/a", "a.example", anyRule(), anyRule())})
			visit("another route", one, "a.example", true)
			one.apply([]*config.Resource{certificate(t, "d", newECDSA(t), "d.example"), one.httpsListener("d", "d.example", "d")})
			visit("another listener came", one, "a.example", true)
			two.apply([]*config.Resource{ticketKeys(2, 3, 1)})
			visit("a proxy that has the next keys already", two, "a.example", true)
			visit("and back to the one that has not", one, "a.example", true)
			one.apply([]*config.Resource{ticketKeys(4, 5, 3)})
			visit("all keys are others", one, "a.example", false)
			one.apply(nil, config.ID{Kind: config.KindTicketKeys, Key: "default/gw"})
			visit("there are no keys", one, "a.example", false)
			visit("still", one, "a.example", false)
		})
	}
}

// TestBadTicketKeys: the keys before stay.
func TestBadTicketKeys(t *testing.T) {
	g := startGateway(t, Timeouts{})
	g.apply([]*config.Resource{ticketKeys(1)})
	bad := ticketKeys(2)
	bad.GetTicketKeys().Keys[0] = []byte("short")
	result := g.Apply(&config.Update{Generation: 99, Upserts: []*config.Resource{bad}})
	if err := result.Rejected[bad.ID()]; err == nil || strings.Contains(err.Error(), "short") {
		t.Errorf("%v, want an error that does not show the key", err)
	}
	if got := g.state.ticketKeys["default/gw"]; len(got) != 1 || got[0][0] != 1 {
		t.Errorf("%d keys, want the ones before", len(got))
	}
}

// TestAnEditMakesNoOtherListenerAnew: what does not change is the same value in the next generation.
func TestAnEditMakesNoOtherListenerAnew(t *testing.T) {
	g := startGateway(t, Timeouts{})
	g.apply([]*config.Resource{
		certificate(t, "shared", newECDSA(t), "a.example", "b.example"), certificate(t, "own", newECDSA(t), "b.example"),
		ticketKeys(1), g.httpsListener("a", "a.example", "shared"), g.httpsListener("b", "b.example", "shared", "own"),
	})
	a, b := g.state.listeners["default/gw/a"].tls, g.state.listeners["default/gw/b"].tls
	g.apply([]*config.Resource{certificate(t, "own", newECDSA(t), "b.example")})
	if g.state.listeners["default/gw/a"].tls != a || g.state.listeners["default/gw/b"].tls == b {
		t.Error("the other listener was made anew, or the one that changed was not")
	}
}

// TestWarnsOfUnfitCertificate: it is served, and the log says why clients complain.
func TestWarnsOfUnfitCertificate(t *testing.T) {
	var log testkit.Log
	g := startGateway(t, Timeouts{})
	g.logger = slog.New(slog.NewTextHandler(&log, nil))
	fit := certificate(t, "fit", newECDSA(t), "a.example")
	g.apply([]*config.Resource{fit, unfitCertificate(t, "old", time.Now().Add(-time.Hour)), unfitCertificate(t, "early", time.Now().Add(3*time.Hour)),
		g.httpsListener("old", "old.example", "old"), g.httpsListener("early", "early.example", "early")})
	text := log.String()
	if !strings.Contains(text, "expired ") || !strings.Contains(text, "not valid before ") || strings.Contains(text, "certificate=fit") {
		t.Errorf("logged %q", text)
	}
	for _, name := range []string{"old", "early"} {
		if _, shown, err := g.dialTLS(name+".example", nil); err != nil || shown != name {
			t.Errorf("%s: certificate %q %v", name, shown, err)
		}
	}
}

// TestWarnsOfOldLists: an operator hears that clients are refused for want of a current revocation list, and nothing where they are served all the same.
func TestWarnsOfOldLists(t *testing.T) {
	a := testkit.NewAuthority(t)
	old := x509.RevocationList{ThisUpdate: time.Now().Add(-2 * time.Hour), NextUpdate: time.Now().Add(-time.Hour)}
	for name, tc := range map[string]struct {
		list     []byte
		optional bool
		want     bool
	}{
		"old": {a.Revoke(t, old), false, true}, "current": {a.Revoke(t, x509.RevocationList{}), false, false}, "old, of clients that need none": {a.Revoke(t, old), true, false},
	} {
		var log testkit.Log
		g := startGateway(t, Timeouts{})
		g.logger = slog.New(slog.NewTextHandler(&log, nil))
		trusted := &config.Authorities{Key: config.AuthoritiesKey(string(a.PEM), tc.list), Revocable: &config.Revocable{Pem: string(a.PEM), Lists: [][]byte{tc.list}}}
		l := g.httpsListener("https", "a.example", "c")
		l.GetListener().Certificates, l.GetListener().ClientValidation = nil, &config.ClientValidation{Certificates: []string{"c"}, Authorities: []string{trusted.Key}, Optional: tc.optional}
		g.apply([]*config.Resource{certificate(t, "c", newECDSA(t), "a.example"), ticketKeys(1), {Kind: &config.Resource_Authorities{Authorities: trusted}}, l})
		if text := log.String(); strings.Contains(text, "should have been replaced") != tc.want || strings.Contains(text, "listener=default/gw/https") && !tc.want {
			t.Errorf("%s: logged %q", name, text)
		}
	}
}
