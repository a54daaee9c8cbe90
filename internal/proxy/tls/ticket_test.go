package tls

import (
	"bytes"
	"crypto/tls"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// secrets are those of a Gateway, told apart by numbers.
func secrets(numbers ...byte) (out [][]byte) {
	for _, n := range numbers {
		out = append(out, bytes.Repeat([]byte{n}, SecretSize))
	}
	return out
}

// visitor is a client that resumes where it can, of one version of TLS.
func visitor(version uint16, name string) *tls.Config {
	return &tls.Config{ServerName: name, MinVersion: version, MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
}

// TestResumption: who may be resumed where. Each case begins a session at one listener and goes on at another.
func TestResumption(t *testing.T) {
	a := parsed(t, resource(t, "a", testkit.NewKey(t), "a.example"))
	b := parsed(t, resource(t, "b", testkit.NewKey(t), "b.example"))
	renewed := parsed(t, resource(t, "a", testkit.NewKey(t), "a.example"))
	c := parsed(t, resource(t, "c", testkit.NewKey(t), "c.example"))
	var none *Listener
	begin := none.Update("default/gw/l", []*Certificate{a, b}, secrets(1, 2, 3), nil, nil, HTTP)
	for name, tc := range map[string]struct {
		then *Listener
		want bool
	}{
		"the same":                            {begin, true},
		"another proxy of the Gateway":        {none.Update("default/gw/l", []*Certificate{a, b}, secrets(1, 2, 3), nil, nil, HTTP), true},
		"one that was told of the next key":   {none.Update("default/gw/l", []*Certificate{a, b}, secrets(2, 3, 1), nil, nil, HTTP), true},
		"one that was not told of it yet":     {none.Update("default/gw/l", []*Certificate{a, b}, secrets(3, 1, 2), nil, nil, HTTP), true},
		"after a change of another":           {begin.Update("default/gw/l", []*Certificate{c, a}, secrets(1, 2, 3), nil, nil, HTTP), true},
		"after the last of its keys":          {begin.Update("default/gw/l", []*Certificate{a, b}, secrets(4, 2, 3), nil, nil, HTTP), false},
		"without keys":                        {begin.Update("default/gw/l", []*Certificate{a, b}, nil, nil, nil, HTTP), false},
		"another listener of the Gateway":     {none.Update("default/gw/m", []*Certificate{a, b}, secrets(1, 2, 3), nil, nil, HTTP), false},
		"the same name of another Gateway":    {none.Update("default/other/l", []*Certificate{a, b}, secrets(1, 2, 3), nil, nil, HTTP), false},
		"the same listener by another secret": {none.Update("default/gw/l", []*Certificate{a, b}, secrets(5), nil, nil, HTTP), false},
		"the certificate is renewed":          {begin.Update("default/gw/l", []*Certificate{renewed, b}, secrets(1, 2, 3), nil, nil, HTTP), false},
		"the certificate is gone":             {begin.Update("default/gw/l", []*Certificate{b}, secrets(1, 2, 3), nil, nil, HTTP), false},
	} {
		for version, tls := range map[uint16]string{tls.VersionTLS12: "1.2", tls.VersionTLS13: "1.3"} {
			client := visitor(version, "a.example")
			if first := handshake(t, serve(begin), client); first.resumed || first.subject != "a" {
				t.Fatalf("%s, TLS %s: the first handshake: %+v", name, tls, first)
			}
			if then := handshake(t, serve(tc.then), client); then.resumed != tc.want || then.clientErr != nil || then.serverErr != nil {
				t.Errorf("%s, TLS %s: %+v, want a resumption: %v", name, tls, then, tc.want)
			}
		}
	}
}

// TestResumptionFollowsTheCertificate: a session that began with one certificate is not resumed for a name that has
// another one on the same listener, although the client has the ticket.
func TestResumptionFollowsTheCertificate(t *testing.T) {
	a := parsed(t, resource(t, "a", testkit.NewKey(t), "a.example"))
	b := parsed(t, resource(t, "b", testkit.NewKey(t), "b.example"))
	var none *Listener
	cfg := serve(none.Update("default/gw/l", []*Certificate{a, b}, secrets(1), nil, nil, HTTP))
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		sessions := anyName{tls.NewLRUClientSessionCache(1)}
		client := visitor(version, "a.example")
		client.ClientSessionCache = sessions
		if got := handshake(t, cfg, client); got.subject != "a" {
			t.Fatalf("%+v", got)
		}
		if got := handshake(t, cfg, client); !got.resumed {
			t.Errorf("%+v, want a resumption: the cache is of no use", got)
		}
		client.ServerName = "b.example"
		if got := handshake(t, cfg, client); got.resumed || got.subject != "b" {
			t.Errorf("%+v, want another handshake", got)
		}
	}
}

// anyName offers the same session whatever server is asked.
type anyName struct{ tls.ClientSessionCache }

func (c anyName) Get(string) (*tls.ClientSessionState, bool) { return c.ClientSessionCache.Get("") }
func (c anyName) Put(_ string, session *tls.ClientSessionState) {
	c.ClientSessionCache.Put("", session)
}

// TestRotation follows keys as they are handed on: a ticket is good until the key that sealed it goes.
func TestRotation(t *testing.T) {
	certs := []*Certificate{parsed(t, resource(t, "a", testkit.NewKey(t), "a.example"))}
	var l *Listener
	client := visitor(tls.VersionTLS13, "a.example")
	for i := byte(1); i < 6; i++ {
		l = l.Update("default/gw/l", certs, secrets(i, i+1, i-1), nil, nil, HTTP) // present, next, previous
		if got := handshake(t, serve(l), client); got.resumed != (i > 1) || got.clientErr != nil {
			t.Fatalf("period %d: %+v", i, got)
		}
	}
	l = l.Update("default/gw/l", certs, secrets(7, 8, 6), nil, nil, HTTP) // two periods later
	if got := handshake(t, serve(l), client); got.resumed || got.clientErr != nil {
		t.Errorf("%+v, want another handshake", got)
	}
}

func TestCheckSecrets(t *testing.T) {
	if err := CheckSecrets(secrets(1, 2)); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string][][]byte{
		"none": nil, "an empty one": {secrets(1)[0], nil}, "a short one": {make([]byte, SecretSize-1)}, "a long one": {make([]byte, SecretSize+1)},
	} {
		if CheckSecrets(bad) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
