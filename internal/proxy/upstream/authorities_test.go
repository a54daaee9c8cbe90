package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func authoritiesResource(pem string) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Authorities{Authorities: &config.Authorities{Key: config.AuthoritiesKey(pem), Pem: pem}}}
}

// securedBackend is verified for example.com by certificates in PEM.
func securedBackend(key string, pem ...string) *config.Resource {
	b := &config.Backend{Key: key, Tls: &config.BackendTLS{ServerName: "example.com"}}
	for _, p := range pem {
		b.Tls.Authorities = append(b.Tls.Authorities, config.AuthoritiesKey(p))
	}
	return &config.Resource{Kind: &config.Resource_Backend{Backend: b}}
}

// TestAuthoritiesAreShared: backends with the same authorities have one pool, in whatever update they come, and keep it and their
// connections when everything is sent again.
func TestAuthoritiesAreShared(t *testing.T) {
	s := NewSet(Options{})
	defer s.Close()
	one, other := string(testkit.NewAuthority(t).PEM), string(testkit.NewAuthority(t).PEM)
	var all []*config.Resource
	for i := range 256 {
		all = append(all, securedBackend(fmt.Sprint("b", i), one))
	}
	all = append(all, securedBackend("both", one, other), authoritiesResource(one), authoritiesResource(other))
	apply(t, s, all...)
	of := func(key string) *transport { return s.Get(key).transport.Load() }
	first := of("b0")
	if of("b255").tls.RootCAs != first.tls.RootCAs || of("both").tls.RootCAs.Equal(first.tls.RootCAs) {
		t.Error("the authorities are not shared by those who have the same")
	}
	apply(t, s, all...)
	apply(t, s, securedBackend("late", one))
	if of("b0") != first || of("late").tls.RootCAs != first.tls.RootCAs {
		t.Error("what was sent again is read again")
	}
	apply(t, s, securedBackend("b0", other))
	if of("b0").same(first) {
		t.Error("other authorities are taken for the same")
	}
	gone := authoritiesResource(other)
	if err := s.Apply(nil, []config.ID{gone.ID()}); err != nil || len(s.trusted.all) != 1 {
		t.Errorf("%d Authorities are known after one was removed, %v", len(s.trusted.all), err)
	}
}

// TestBadAuthorities: a Backend is not taken without all of its authorities.
func TestBadAuthorities(t *testing.T) {
	s := NewSet(Options{})
	defer s.Close()
	good := string(testkit.NewAuthority(t).PEM)
	for want, all := range map[string][]*config.Resource{
		"are missing":           {securedBackend("b", good, "unknown"), authoritiesResource(good)},
		"no certificate in PEM": {securedBackend("b", good, "no PEM"), authoritiesResource(good), authoritiesResource("no PEM")},
	} {
		if err := s.Apply(all, nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Backend b") {
			t.Errorf("%v, want %q", err, want)
		}
		if s.Get("b") != nil {
			t.Error("the Backend is there")
		}
	}
}

// TestUnverifiedBackends: nothing is sent where it is not known whether TLS is wanted, or by what a certificate is to be verified.
func TestUnverifiedBackends(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := NewSet(Options{})
	defer s.Close()
	unverified := &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Tls: &config.BackendTLS{ServerName: "example.com"}}}}
	if err := s.Apply([]*config.Resource{unverified}, nil); err == nil {
		t.Error("a Backend with TLS and without authorities is taken")
	}
	apply(t, s, endpointsResource(key, endpoint(netip.MustParseAddrPort(l.Addr().String())))) // as where the Backend was refused
	var failure *DialError
	if c, err := s.Get(key).Endpoints()[0].Dial(t.Context(), time.Time{}); !errors.As(err, &failure) || failure.Retryable {
		t.Errorf("an endpoint without a Backend: %v, %v", c, err)
	}
	unverified.GetBackend().Tls.SystemAuthorities = true
	apply(t, s, unverified)
	if tr := s.Get(key).transport.Load(); tr.tls == nil || tr.tls.RootCAs != nil {
		t.Errorf("with the system's authorities: %+v", tr)
	}
}
