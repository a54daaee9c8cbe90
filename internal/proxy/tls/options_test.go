package tls

import (
	"crypto/tls"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestOptions: what a listener restricts is not spoken with it.
func TestOptions(t *testing.T) {
	certs := []*Certificate{parsed(t, resource(t, "a", testkit.NewKey(t), "a.example"))}
	const gcm, chacha = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
	only := func(version uint16, suites ...uint16) *tls.Config {
		return &tls.Config{ServerName: "a.example", MinVersion: version, MaxVersion: version, CipherSuites: suites}
	}
	speaks := func(names ...string) *tls.Config { return &tls.Config{ServerName: "a.example", NextProtos: names} }
	for name, tc := range map[string]struct {
		options *config.TLSOptions
		client  *tls.Config
		want    bool
	}{
		"1.2 by default":                   {nil, only(tls.VersionTLS12), true},
		"1.2 of 1.2":                       {&config.TLSOptions{MinVersion: tls.VersionTLS12}, only(tls.VersionTLS12), true},
		"1.2 of 1.3":                       {&config.TLSOptions{MinVersion: tls.VersionTLS13}, only(tls.VersionTLS12), false},
		"1.3 of 1.3":                       {&config.TLSOptions{MinVersion: tls.VersionTLS13}, only(tls.VersionTLS13), true},
		"1.1 is never spoken":              {&config.TLSOptions{MinVersion: tls.VersionTLS10}, only(tls.VersionTLS11), false},
		"a suite that is there":            {&config.TLSOptions{CipherSuites: []uint32{uint32(gcm)}}, only(tls.VersionTLS12, gcm), true},
		"a suite that is not":              {&config.TLSOptions{CipherSuites: []uint32{uint32(gcm)}}, only(tls.VersionTLS12, chacha), false},
		"suites are of 1.2":                {&config.TLSOptions{CipherSuites: []uint32{uint32(gcm)}}, only(tls.VersionTLS13), true},
		"a protocol that is there":         {&config.TLSOptions{Alpn: []string{"http/1.1"}}, speaks("h2", "http/1.1"), true},
		"a protocol that is not":           {&config.TLSOptions{Alpn: []string{"http/1.1"}}, speaks("h2"), false},
		"no protocol where some are there": {&config.TLSOptions{Alpn: []string{"h2"}}, speaks(), true},
	} {
		var none *Listener
		got := handshake(t, serve(none.Update("default/gw/l", certs, nil, nil, tc.options, HTTP)), tc.client)
		if served := got.clientErr == nil && got.serverErr == nil; served != tc.want {
			t.Errorf("%s: %+v, want %v", name, got, tc.want)
		}
	}
	var none *Listener
	before := none.Update("l", certs, nil, nil, &config.TLSOptions{MinVersion: tls.VersionTLS12}, HTTP)
	if before.Update("l", certs, nil, nil, &config.TLSOptions{MinVersion: tls.VersionTLS12}, HTTP) != before {
		t.Error("the same options make another listener")
	}
	if got := handshake(t, serve(before.Update("l", certs, nil, nil, &config.TLSOptions{MinVersion: tls.VersionTLS13}, HTTP)), only(tls.VersionTLS12)); got.clientErr == nil {
		t.Error("options that have changed are not in force")
	}
}

// TestCertificateForSuites: of two certificates the one is shown whose key the cipher suites are for that both sides know.
func TestCertificateForSuites(t *testing.T) {
	both := []*Certificate{parsed(t, resource(t, "rsa", rsaKey(t), "a.example")), parsed(t, resource(t, "ecdsa", testkit.NewKey(t), "a.example"))}
	for suite, want := range map[uint16]string{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: "ecdsa", tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: "rsa"} {
		for _, certs := range [][]*Certificate{both, {both[1], both[0]}} {
			var none *Listener
			l := none.Update("l", certs, nil, nil, &config.TLSOptions{CipherSuites: []uint32{uint32(suite)}}, HTTP)
			if got := handshake(t, serve(l), visitor(tls.VersionTLS12, "a.example")); got.subject != want || got.clientErr != nil {
				t.Errorf("%s, %s first: %+v, want %s", tls.CipherSuiteName(suite), certs[0].Key, got, want)
			}
		}
	}
}

// TestResumptionFollowsOptions: a session of TLS 1.2 is not resumed with a suite that the listener no longer has, nor at all where it speaks TLS 1.3 alone.
func TestResumptionFollowsOptions(t *testing.T) {
	certs := []*Certificate{parsed(t, resource(t, "a", testkit.NewKey(t), "a.example"))}
	const gcm, chacha = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
	suites := func(ids ...uint32) *config.TLSOptions { return &config.TLSOptions{CipherSuites: ids} }
	var none *Listener
	begin := none.Update("l", certs, secrets(1), nil, suites(uint32(chacha)), HTTP)
	for name, tc := range map[string]struct {
		now             *config.TLSOptions
		resumed, served bool
	}{
		"the suite is still there": {suites(uint32(gcm), uint32(chacha)), true, true},
		"all suites":               {nil, true, true},
		"the suite was removed":    {suites(uint32(gcm)), false, true},
		"TLS 1.3 alone":            {&config.TLSOptions{MinVersion: tls.VersionTLS13}, false, false},
	} {
		client := visitor(tls.VersionTLS12, "a.example")
		client.CipherSuites = []uint16{chacha, gcm}
		if got := handshake(t, serve(begin), client); got.clientErr != nil || got.serverErr != nil {
			t.Fatalf("%s: the first handshake: %+v", name, got)
		}
		got := handshake(t, serve(begin.Update("l", certs, secrets(1), nil, tc.now, HTTP)), client)
		if served := got.clientErr == nil && got.serverErr == nil; got.resumed != tc.resumed || served != tc.served {
			t.Errorf("%s: %+v, want resumed %v, served %v", name, got, tc.resumed, tc.served)
		}
	}
}
