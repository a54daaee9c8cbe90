package tls

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// demands makes Clients that trust some authorities.
func demands(t testing.TB, optional bool, trusted ...*testkit.Authority) *Clients {
	t.Helper()
	v := &config.ClientValidation{Optional: optional}
	byKey := map[string]*config.Authorities{}
	for _, a := range trusted {
		key := config.AuthoritiesKey(string(a.PEM))
		v.Authorities, byKey[key] = append(v.Authorities, key), &config.Authorities{Key: key, Pem: string(a.PEM)}
	}
	c, err := NewClients(v, func(key string) *config.Authorities { return byKey[key] })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// showing is a client of one version of TLS that shows certificates whatever authorities are asked for, and resumes where it can.
func showing(version uint16, certs ...tls.Certificate) *tls.Config {
	c := visitor(version, "a.example")
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if len(certs) == 0 {
			return &tls.Certificate{}, nil
		}
		return &certs[0], nil
	}
	return c
}

var versions = map[uint16]string{tls.VersionTLS12: "1.2", tls.VersionTLS13: "1.3"}

func TestClientsDemand(t *testing.T) {
	a, b := testkit.NewAuthority(t), testkit.NewAuthority(t) // of one name
	certs := []*Certificate{parsed(t, resource(t, "a", testkit.NewKey(t), "a.example"))}
	var none *Listener
	serving := func(c *Clients) *tls.Config {
		return serve(none.Update("default/gw/l", certs, secrets(1), c, nil, HTTP))
	}
	ofA, ofB := testkit.Certificate{Name: "a", Issuer: a}.TLS(t), testkit.Certificate{Name: "b", Issuer: b}.TLS(t)
	expired := testkit.Certificate{Name: "a", Issuer: a, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}.TLS(t)
	long := testkit.Certificate{Name: "a", Issuer: a}.TLS(t)
	for len(long.Certificate) < MaxClientChain+1 {
		long.Certificate = append(long.Certificate, long.Certificate[0])
	}
	forServers := clientOnlyFor(t, a, x509.ExtKeyUsageServerAuth)
	forClients := clientOnlyFor(t, a, x509.ExtKeyUsageClientAuth)
	for name, tc := range map[string]struct {
		clients *Clients
		shown   []tls.Certificate
		want    bool
	}{
		"nothing demanded, nothing shown":    {nil, nil, true},
		"none":                               {demands(t, false, a), nil, false},
		"a valid one":                        {demands(t, false, a), []tls.Certificate{ofA}, true},
		"one for clients":                    {demands(t, false, a), []tls.Certificate{forClients}, true},
		"one for servers":                    {demands(t, false, a), []tls.Certificate{forServers}, false},
		"of another authority":               {demands(t, false, a), []tls.Certificate{ofB}, false},
		"of one of two":                      {demands(t, false, a, b), []tls.Certificate{ofB}, true},
		"expired":                            {demands(t, false, a), []tls.Certificate{expired}, false},
		"where nobody is trusted":            {demands(t, false), []tls.Certificate{ofA}, false},
		"a long chain":                       {demands(t, false, a), []tls.Certificate{long}, false},
		"optional, none":                     {demands(t, true, a), nil, true},
		"optional, a valid one":              {demands(t, true, a), []tls.Certificate{ofA}, true},
		"optional, of another authority":     {demands(t, true, a), []tls.Certificate{ofB}, true},
		"optional, expired":                  {demands(t, true, a), []tls.Certificate{expired}, true},
		"optional, a long chain is not held": {demands(t, true, a), []tls.Certificate{long}, false},
	} {
		for version, text := range versions {
			client := showing(version, tc.shown...)
			got := handshake(t, serving(tc.clients), client)
			if served := got.clientErr == nil && got.serverErr == nil; served != tc.want {
				t.Errorf("%s, TLS %s: %+v, want %v", name, text, got, tc.want)
			}
			if name == "optional, expired" {
				continue // crypto/tls resumes no session of an expired certificate
			}
			if again := handshake(t, serving(tc.clients), client); tc.want && (!again.resumed || again.clientErr != nil) {
				t.Errorf("%s, TLS %s: %+v, want a resumption", name, text, again)
			}
		}
	}
}

func clientOnlyFor(t testing.TB, a *testkit.Authority, usage x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	return testkit.Certificate{Name: "a", Issuer: a, Change: func(c *x509.Certificate) {
		c.ExtKeyUsage, c.Subject = []x509.ExtKeyUsage{usage}, pkix.Name{CommonName: fmt.Sprint("for ", usage)}
	}}.TLS(t)
}

// TestTicketsFollowWhatIsDemanded: a ticket is of no use where something else is demanded of clients than when it was issued, also to a client that satisfies both.
func TestTicketsFollowWhatIsDemanded(t *testing.T) {
	a, b := testkit.NewAuthority(t), testkit.NewAuthority(t)
	certs := []*Certificate{parsed(t, resource(t, "a", testkit.NewKey(t), "a.example"))}
	var none *Listener
	of := func(c *Clients) *Listener { return none.Update("default/gw/l", certs, secrets(1), c, nil, HTTP) }
	open, onlyA, onlyB, both, optional := of(nil), of(demands(t, false, a)), of(demands(t, false, b)), of(demands(t, false, a, b)), of(demands(t, true, a))
	nobody := of(demands(t, false))
	ofA := testkit.Certificate{Name: "a", Issuer: a}.TLS(t)
	for name, tc := range map[string]struct {
		first, then     *Listener
		shown           []tls.Certificate
		resumed, served bool
	}{
		"the same":               {onlyA, of(demands(t, false, a)), []tls.Certificate{ofA}, true, true},
		"without, then demanded": {open, onlyA, nil, false, false},
		"without being asked, then demanded, and shown":  {open, onlyA, []tls.Certificate{ofA}, false, true},
		"optional, then demanded":                        {optional, onlyA, nil, false, false},
		"demanded, then optional":                        {onlyA, optional, []tls.Certificate{ofA}, false, true},
		"demanded, then not":                             {onlyA, open, []tls.Certificate{ofA}, false, true},
		"the authority is replaced":                      {onlyA, onlyB, []tls.Certificate{ofA}, false, false},
		"an authority is added":                          {onlyA, both, []tls.Certificate{ofA}, false, true},
		"an authority is removed":                        {both, onlyB, []tls.Certificate{ofA}, false, false},
		"all are removed":                                {onlyA, nobody, []tls.Certificate{ofA}, false, false},
		"another listener that demands the same of them": {onlyA, none.Update("default/gw/m", certs, secrets(1), demands(t, false, a), nil, HTTP), []tls.Certificate{ofA}, false, true},
	} {
		for version, text := range versions {
			client := showing(version, tc.shown...)
			if first := handshake(t, serve(tc.first), client); first.clientErr != nil || first.resumed {
				t.Fatalf("%s, TLS %s: the first handshake: %+v", name, text, first)
			}
			then := handshake(t, serve(tc.then), client)
			if served := then.clientErr == nil && then.serverErr == nil; then.resumed != tc.resumed || served != tc.served {
				t.Errorf("%s, TLS %s: %+v, want resumed %v, served %v", name, text, then, tc.resumed, tc.served)
			}
		}
	}
}

// TestResumptionVerifiesAgain: a session whose certificate has expired meanwhile is not resumed.
func TestResumptionVerifiesAgain(t *testing.T) {
	a := testkit.NewAuthority(t)
	certs := []*Certificate{parsed(t, resource(t, "a", testkit.NewKey(t), "a.example"))}
	var none *Listener
	end := time.Now().Add(2 * time.Second).Truncate(time.Second) // dates have seconds
	ofA := testkit.Certificate{Name: "a", Issuer: a, NotAfter: end}.TLS(t)
	for version, text := range versions {
		cfg := serve(none.Update("default/gw/l", certs, secrets(1), demands(t, false, a), nil, HTTP))
		now := end
		later := func(c *tls.Config) *tls.Config {
			find := c.GetConfigForClient
			return &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				cfg, err := find(h)
				cfg.Time = func() time.Time { return now }
				return cfg, err
			}}
		}
		client := showing(version, ofA)
		if got := handshake(t, later(cfg), client); got.clientErr != nil {
			t.Fatalf("TLS %s: %+v", text, got)
		}
		now = end.Add(time.Second)
		if got := handshake(t, later(cfg), client); got.clientErr == nil && got.serverErr == nil {
			t.Errorf("TLS %s: %+v, want no handshake", text, got)
		}
	}
}

func TestMissingAuthorities(t *testing.T) {
	a := testkit.NewAuthority(t)
	v := &config.ClientValidation{Authorities: []string{config.AuthoritiesKey(string(a.PEM)), "sha256:unknown"}, Optional: true}
	c, err := NewClients(v, func(key string) *config.Authorities {
		if key == "sha256:unknown" {
			return nil
		}
		return &config.Authorities{Key: key, Pem: string(a.PEM)}
	})
	if err == nil {
		t.Fatal("no error")
	}
	cert, key := testkit.Certificate{Name: "a", Issuer: a}.PEM(t)
	pair, _ := tls.X509KeyPair(cert, key)
	if NewPeer([]*x509.Certificate{pair.Leaf}, nil).Satisfies(c) {
		t.Error("a client is served although it is not known who is trusted")
	}
}

// TestPeerIsVerifiedAgain: what is demanded now counts, whatever the handshake was.
func TestPeerIsVerifiedAgain(t *testing.T) {
	a, b := testkit.NewAuthority(t), testkit.NewAuthority(t)
	cert, key := testkit.Certificate{Name: "a", Issuer: a}.PEM(t)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	onlyA, onlyB, both := demands(t, false, a), demands(t, false, b), demands(t, false, a, b)
	shown := NewPeer([]*x509.Certificate{pair.Leaf}, onlyA)
	unasked := NewPeer(nil, nil)
	if unasked != nil {
		t.Error("a client that was not asked has memory")
	}
	for i, tc := range []struct {
		peer *Peer
		c    *Clients
		want bool
	}{
		{shown, onlyA, true}, {shown, onlyB, false}, {shown, both, true}, {shown, onlyB, false}, {shown, nil, true}, {shown, demands(t, true, b), true},
		{shown, demands(t, false, a), true}, {shown, demands(t, false), false},
		{unasked, nil, true}, {unasked, onlyA, false}, {unasked, demands(t, true, a), true},
	} {
		if got := tc.peer.Satisfies(tc.c); got != tc.want {
			t.Errorf("%d: %v, want %v", i, got, tc.want)
		}
	}
	shown.Satisfies(both)
	if n := testing.AllocsPerRun(100, func() { shown.Satisfies(both); unasked.Satisfies(nil) }); n > 0 {
		t.Errorf("%v allocations for a request of a client that was verified", n)
	}
}

// revoking makes Clients that trust one authority with its revocation lists.
func revoking(t testing.TB, optional bool, a *testkit.Authority, lists ...[]byte) *Clients {
	t.Helper()
	key := config.AuthoritiesKey(string(a.PEM), lists...)
	c, err := NewClients(&config.ClientValidation{Authorities: []string{key}, Optional: optional}, func(string) *config.Authorities {
		return &config.Authorities{Key: key, Revocable: &config.Revocable{Pem: string(a.PEM), Lists: lists}}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRevokedClients: a certificate that is revoked, or may be, ends the handshake; a session that began before is not resumed, and a connection
// that was open then is not served.
func TestRevokedClients(t *testing.T) {
	a := testkit.NewAuthority(t)
	certs := []*Certificate{parsed(t, resource(t, "a", testkit.NewKey(t), "a.example"))}
	var none *Listener
	serving := func(c *Clients) *tls.Config {
		return serve(none.Update("default/gw/l", certs, secrets(1), c, nil, HTTP))
	}
	shown := testkit.Certificate{Name: "a", Issuer: a}.TLS(t)
	cert, err := x509.ParseCertificate(shown.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	empty, listed := revoking(t, false, a, a.Revoke(t, x509.RevocationList{})), revoking(t, false, a, a.Revoke(t, x509.RevocationList{}, cert.SerialNumber))
	stale := revoking(t, false, a, a.Revoke(t, x509.RevocationList{ThisUpdate: time.Now().Add(-2 * time.Hour), NextUpdate: time.Now().Add(-time.Hour)}))
	optional := revoking(t, true, a, a.Revoke(t, x509.RevocationList{}, cert.SerialNumber))
	for name, tc := range map[string]struct {
		clients *Clients
		want    bool
	}{
		"not listed":       {empty, true},
		"listed":           {listed, false},
		"the list is old":  {stale, false},
		"optional, listed": {optional, true},
	} {
		for version, text := range versions {
			client := showing(version, shown)
			if got := handshake(t, serving(tc.clients), client); (got.clientErr == nil && got.serverErr == nil) != tc.want {
				t.Errorf("%s, TLS %s: %+v, want %v", name, text, got, tc.want)
			}
			client = showing(version, shown)
			handshake(t, serving(empty), client)
			if again := handshake(t, serving(tc.clients), client); tc.clients != empty && again.resumed || (again.clientErr == nil && again.serverErr == nil) != tc.want {
				t.Errorf("%s, then with a session, TLS %s: %+v, want %v and no resumption", name, text, again, tc.want)
			}
		}
		if got := NewPeer([]*x509.Certificate{cert}, empty).Satisfies(tc.clients); got != tc.want {
			t.Errorf("%s, with an open connection: %v, want %v", name, got, tc.want)
		}
	}
	if len(stale.Stale(time.Now())) != 1 || len(empty.Stale(time.Now())) != 0 {
		t.Errorf("out of date: %q, %q", stale.Stale(time.Now()), empty.Stale(time.Now()))
	}
}
