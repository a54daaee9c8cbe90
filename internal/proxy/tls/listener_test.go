package tls

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"fmt"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

func rsaKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// clients know one algorithm or several, in each version of TLS.
var clients = map[string]*tls.Config{
	"1.3":            {MinVersion: tls.VersionTLS13},
	"1.2":            {MaxVersion: tls.VersionTLS12},
	"1.2 ECDSA only": {MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}},
	"1.2 RSA only":   {MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}},
}

func TestListenerChoosesCertificate(t *testing.T) {
	key := rsaKey(t)
	var none *Listener
	cfg := serve(none.Update("default/gw/l", []*Certificate{
		parsed(t, resource(t, "first", testkit.NewKey(t), "first.example")),
		parsed(t, resource(t, "both-rsa", key, "both.example", "rsa.only.example")),
		parsed(t, resource(t, "both-ecdsa", testkit.NewKey(t), "both.example")),
		parsed(t, resource(t, "wild-ecdsa", testkit.NewKey(t), "*.example")),
		parsed(t, resource(t, "exact-rsa", key, "split.example")), // its other half is the wildcard
		parsed(t, resource(t, "pair-ecdsa", testkit.NewKey(t), "*.pair.example", "pair.example")),
		parsed(t, resource(t, "pair-rsa", key, "*.pair.example")),
		parsed(t, resource(t, "pair-rsa-again", key, "*.pair.example", "again.example")),
	}, nil, nil, nil, HTTP))
	for _, tc := range []struct {
		name, any, ecdsa, rsa string
	}{
		{"first.example", "first", "first", "first"},
		{"both.example", "both-rsa", "both-ecdsa", "both-rsa"}, // the order of the references
		{"a.example", "wild-ecdsa", "wild-ecdsa", ""},
		{"split.example", "exact-rsa", "wild-ecdsa", "exact-rsa"},
		{"a.pair.example", "pair-ecdsa", "pair-ecdsa", "pair-rsa"},
		{"pair.example", "pair-ecdsa", "pair-ecdsa", ""},
		{"a.b.pair.example", "first", "first", "both-rsa"},
		{"again.example", "wild-ecdsa", "wild-ecdsa", "pair-rsa-again"},
		{"a.b.example", "first", "first", "both-rsa"},
		{"other", "first", "first", "both-rsa"},
		{"", "first", "first", "both-rsa"},
	} {
		for kind, want := range map[string]string{"1.3": tc.any, "1.2": tc.any, "1.2 ECDSA only": tc.ecdsa, "1.2 RSA only": tc.rsa} {
			if tc.name == "first.example" && kind == "1.2 RSA only" || tc.name == "again.example" && kind != "1.2 RSA only" {
				continue // below
			}
			client := clients[kind].Clone()
			client.ServerName = tc.name
			if got := handshake(t, cfg, client); got.subject != want {
				t.Errorf("%q, client of %s: %+v, want %q", tc.name, kind, got, want)
			}
		}
	}
	// The exact name goes before the wildcard, whatever the order of the references.
	client := clients["1.3"].Clone()
	client.ServerName = "again.example"
	if got := handshake(t, cfg, client); got.subject != "pair-rsa-again" {
		t.Errorf("%+v", got)
	}
}

// TestListenerRefuses: what is not spoken fails the handshake.
func TestListenerRefuses(t *testing.T) {
	var none *Listener
	cfg := serve(none.Update("default/gw/l", []*Certificate{parsed(t, resource(t, "c", testkit.NewKey(t), "a.example"))}, nil, nil, nil, HTTP))
	for name, client := range map[string]*tls.Config{
		"TLS 1.0":      {MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10},
		"TLS 1.1":      {MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
		"another ALPN": {NextProtos: []string{"h3"}},
		"RSA only":     clients["1.2 RSA only"],
	} {
		client = client.Clone()
		client.ServerName = "a.example"
		if got := handshake(t, cfg, client); got.clientErr == nil || got.subject != "" {
			t.Errorf("%s: %+v, want no handshake", name, got)
		}
	}
	for version, name := range map[uint16]string{tls.VersionTLS12: "1.2", tls.VersionTLS13: "1.3"} {
		if got := handshake(t, cfg, &tls.Config{ServerName: "a.example", MinVersion: version, MaxVersion: version}); got.subject != "c" {
			t.Errorf("TLS %s: %+v", name, got)
		}
	}
}

// TestUpdateKeepsWhatIsSame: a change of one certificate makes nothing else anew.
func TestUpdateKeepsWhatIsSame(t *testing.T) {
	a := parsed(t, resource(t, "a", testkit.NewKey(t), "a.example"))
	b := parsed(t, resource(t, "b", testkit.NewKey(t), "b.example"))
	c := parsed(t, resource(t, "c", testkit.NewKey(t), "c.example"))
	var none *Listener
	one := none.Update("l", []*Certificate{a, b}, secrets(1), nil, nil, HTTP)
	if again := one.Update("l", []*Certificate{a, b}, secrets(1), nil, nil, HTTP); again != one {
		t.Error("an Update with nothing new makes another listener")
	}
	two := one.Update("l", []*Certificate{c, a}, secrets(1), nil, nil, HTTP)
	if two.configs[1] != one.configs[0] || two.configs[0] == one.configs[1] {
		t.Error("the certificate that stays is not configured as before, or the one that came is")
	}
	rotated := two.Update("l", []*Certificate{c, a}, secrets(2, 1), nil, nil, HTTP)
	if rotated.index != two.index || rotated.configs[0] == two.configs[0] {
		t.Error("other secrets make another index, or leave a configuration as it was")
	}
	if other := rotated.Update("other", []*Certificate{c, a}, secrets(2, 1), nil, nil, HTTP); other.configs[0] == rotated.configs[0] {
		t.Error("another listener has the tickets of this one")
	}
}

// hosts is a listener with n names on certificates of 100 each, in pairs of ECDSA and RSA.
func hosts(t testing.TB, key string, n int) *Listener {
	const each = 100
	keys := [...]crypto.Signer{testkit.NewKey(t), rsaKey(t)}
	var certs []*Certificate
	for from := 0; from < n; from += each {
		var names []string
		for i := from; i < min(from+each, n); i++ {
			names = append(names, hostName(key, i))
		}
		for kind, k := range keys {
			certs = append(certs, parsed(t, resource(t, fmt.Sprintf("%s-%d-%d", key, from, kind), k, names...)))
		}
	}
	var none *Listener
	return none.Update(key, certs, secrets(1, 2, 3), nil, nil, HTTP)
}

func hostName(key string, i int) string { return fmt.Sprintf("host-%05d.%s.example", i, key) }

// hello is what a client of all algorithms says first, as far as the choice reads it.
func hello(name string) *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{
		ServerName: name, SupportedVersions: []uint16{tls.VersionTLS13, tls.VersionTLS12},
		CipherSuites:     []uint16{tls.TLS_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
		SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256, tls.PSSWithSHA256},
		SupportedCurves:  []tls.CurveID{tls.X25519, tls.CurveP256},
	}
}

// TestChoiceAllocatesNothing: what a handshake allocates is crypto/tls's.
func TestChoiceAllocatesNothing(t *testing.T) {
	var none *Listener
	single := none.Update("single", []*Certificate{parsed(t, resource(t, "c", testkit.NewKey(t), "single.example"))}, nil, nil, nil, HTTP)
	several := none.Update("several", []*Certificate{
		parsed(t, resource(t, "a", testkit.NewKey(t), "a.several.example")),
		parsed(t, resource(t, "wild", testkit.NewKey(t), "*.several.example")),
	}, nil, nil, nil, HTTP)
	both := hosts(t, "both", 2)
	for name, tc := range map[string]struct {
		l   *Listener
		max float64
	}{
		"single.example": {single, 0}, "a.several.example": {several, 0}, "b.several.example": {several, 0}, "none.example": {several, 0},
		hostName("both", 1): {both, 2}, // both algorithms: crypto/tls is asked which one
	} {
		cfg, h := serve(tc.l), hello(name)
		got := testing.AllocsPerRun(100, func() {
			if c, err := cfg.GetConfigForClient(h); c == nil || err != nil {
				t.Fatal(err)
			}
		})
		if got > tc.max {
			t.Errorf("%s: %v allocations, want at most %v", name, got, tc.max)
		}
	}
}
