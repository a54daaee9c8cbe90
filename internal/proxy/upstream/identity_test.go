package upstream

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// secureSet returns a Set, and what it is to apply of a backend that is reached over TLS: its authorities, its Backend, and its Endpoints, of which the one echoes.
func secureSet(t *testing.T) (*Set, []*config.Resource) {
	t.Helper()
	ca := testkit.NewAuthority(t)
	settings := &tls.Config{Certificates: []tls.Certificate{testkit.Certificate{Hosts: []string{"example.com"}, Issuer: ca}.TLS(t)}, ClientAuth: tls.RequestClientCert}
	server := listenTo(t, func(c net.Conn) { echoAll(tls.Server(c, settings)) })
	s := NewSet(Options{})
	t.Cleanup(s.Close)
	return s, []*config.Resource{authoritiesResource(string(ca.PEM)), securedBackend(key, string(ca.PEM)),
		endpointsResource(key, endpoint(server.Addr().(*net.TCPAddr).AddrPort()))}
}

// TestIdentityBreaker: connections to an endpoint count together whatever certificates they show, and one that idles with one is closed for who waits for another.
func TestIdentityBreaker(t *testing.T) {
	var seed uint64
	s, all := secureSet(t)
	all[1].GetBackend().Traffic = &config.BackendTraffic{CircuitBreaker: &config.CircuitBreaker{MaxConnectionsPerEndpoint: proto.Uint32(1)}}
	apply(t, s, all...)
	b := s.Get(key)
	shown := testkit.Certificate{Name: "gateway"}.TLS(t)
	s.Sweep(time.Now())
	first := b.As(s.Identity("default/gw", "Secret/default/a", &shown)).Pick(&seed, new(Tried))
	second := b.As(s.Identity("default/other", "Secret/default/b", &shown)).Pick(&seed, new(Tried))
	c := dial(t, first)
	if by := second.reserve(); by != LimitEndpointConnections {
		t.Errorf("a second connection, with another certificate, meets limit %v", by)
	}
	for _, n := range b.BreakerStats() {
		if n.Limit == LimitEndpointConnections && (n.Now != 1 || !n.Open) {
			t.Errorf("counted %+v", n)
		}
	}
	waiting := connecting(t.Context(), second, true)
	b.waitsFor(t, 1)
	c.Release()
	got := wait(t, waiting)
	if got.err != nil || got.conn.Endpoint() != second || first.Idle() != nil {
		t.Fatalf("who waits for a connection that idles with another certificate: %+v", got)
	}
	got.conn.Release()
	if got = wait(t, connecting(t.Context(), first, true)); got.err != nil { // in the place of one that idles already
		t.Fatal(got.err)
	}
	got.conn.Close()
}

// TestIdentityEnds: who has found a backend before its Gateway's certificate was replaced gets an endpoint of it for a while, and after that nothing of
// the certificate is left but what was counted.
func TestIdentityEnds(t *testing.T) {
	var seed uint64
	s, all := secureSet(t)
	apply(t, s, all...)
	b := s.Get(key)
	shown := testkit.Certificate{Name: "gateway"}.TLS(t)
	begin := time.Now()
	s.Sweep(begin)
	old := s.Identity("default/gw", "Secret/default/old", &shown)
	if s.Identity("default/gw", "Secret/default/old", &shown) != old || s.Identity("default/gw", "Secret/default/new", &shown) == old ||
		s.Identity("default/other", "Secret/default/old", &shown) == old {
		t.Error("an Identity is that of a Gateway and a key")
	}
	as := b.As(old)
	if as == b || b.As(old) != as || b.As(nil) != b || b.As(Unusable) != nil {
		t.Fatal("the backend is not told apart by Identity")
	}
	dial(t, as.Pick(&seed, new(Tried))).Release()
	if n := b.Stats(); n.Open != 1 || n.Idle != 1 || n.Dialled != 1 {
		t.Errorf("counted %+v", n)
	}
	if b.Pick(&seed, new(Tried)).Idle() != nil {
		t.Fatal("a connection that shows a certificate is used without")
	}

	unused := s.Identity("default/gw", "Secret/default/unused", &shown)
	s.KeepIdentities(nil)
	if n := b.Stats(); n.Open != 0 {
		t.Errorf("%d connections are open whose certificate is shown no more", n.Open)
	}
	if s.Identity("default/gw", "Secret/default/old", &shown) == old {
		t.Error("an Identity that was forgotten is found")
	}
	s.Sweep(begin.Add(removedLifetime / 2))
	for _, i := range []*Identity{old, unused} {
		late := b.As(i).Pick(&seed, new(Tried))
		if late == nil {
			t.Fatal("a request that had found the Identity finds no endpoint")
		}
		if dial(t, late).Release(); late.Idle() != nil {
			t.Error("a connection is kept after its use")
		}
	}
	s.Sweep(begin.Add(3 * removedLifetime))
	if n := len(b.variantList()); n != 0 {
		t.Errorf("%d variants are left", n)
	}
	if n := b.Stats(); n.Dialled != 3 || n.Open != 0 {
		t.Errorf("counted %+v", n)
	}
}

// TestIdentityOfHosts: an external hostname is shown no Gateway's certificate, and is reached also where that cannot be used.
func TestIdentityOfHosts(t *testing.T) {
	s, all := secureSet(t)
	host := proto.CloneOf(all[1])
	host.GetBackend().ExternalHostname = &config.ExternalHostname{Name: "api.example.com"}
	host.GetBackend().Port = 443
	shown := testkit.Certificate{Name: "gateway"}.TLS(t)
	identity := s.Identity("default/gw", "Secret/default/c", &shown)
	check := func(when string, own bool) {
		t.Helper()
		b := s.Get(key)
		if got := b.As(identity) == b; got != own {
			t.Errorf("%s: reached without the Gateway's certificate: %v", when, got)
		}
		if got := b.As(Unusable) == b; got != own {
			t.Errorf("%s: reached where the Gateway's certificate cannot be used: %v", when, got)
		}
		if own && b.transport.Load().client != nil {
			t.Errorf("%s: a certificate is shown", when)
		}
	}
	apply(t, s, all[0], host)
	check("host", true)
	apply(t, s, all[1])
	check("in the cluster", false)
	apply(t, s, host)
	check("host again", true)
}

// TestIdentityFollowsEndpoints: what comes and goes of a backend does so for each Identity, and with the backend all of them go.
func TestIdentityFollowsEndpoints(t *testing.T) {
	var seed uint64
	s, all := secureSet(t)
	apply(t, s, all...)
	b := s.Get(key)
	shown := testkit.Certificate{Name: "gateway"}.TLS(t)
	as := b.As(s.Identity("default/gw", "Secret/default/c", &shown))
	e := as.Pick(&seed, new(Tried))
	dial(t, e).Release()
	apply(t, s, all[2])
	if as.Pick(&seed, new(Tried)) != e || e.Stats().Idle != 1 {
		t.Error("the same endpoints again have cost a connection")
	}
	apply(t, s, endpointsResource(key))
	if as.Pick(&seed, new(Tried)) != nil || b.Stats().Open != 0 {
		t.Error("an endpoint that is gone is there for the Identity")
	}
	apply(t, s, all[2])
	begin := time.Now()
	s.Sweep(begin)
	e = as.Pick(&seed, new(Tried))
	dial(t, e).Release()
	if err := s.Apply(nil, []config.ID{{Kind: config.KindBackend, Key: key}, {Kind: config.KindEndpoints, Key: key}}); err != nil {
		t.Fatal(err)
	}
	if b.Stats().Open != 0 {
		t.Error("a connection of a backend that was removed idles")
	}
	s.Sweep(begin.Add(2 * removedLifetime))
	if as.Pick(&seed, new(Tried)) != nil {
		t.Error("a backend that was removed has endpoints for the Identity")
	}
}

// TestIdentityOfRemovedBackend: requests that had found a Backend before it was removed show what is shown now, and what is kept for them is bounded.
func TestIdentityOfRemovedBackend(t *testing.T) {
	s, all := secureSet(t)
	s.Sweep(time.Now())
	before, now := testkit.Certificate{Name: "before"}.TLS(t), testkit.Certificate{Name: "now"}.TLS(t)
	identity := s.Identity("default/gw", "Secret/default/c", &before)
	remove := func() *Backend {
		apply(t, s, all...)
		b := s.Get(key)
		b.As(identity)
		if err := s.Apply(nil, []config.ID{{Kind: config.KindBackend, Key: key}, {Kind: config.KindEndpoints, Key: key}}); err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := remove()
	s.Identity("default/gw", "Secret/default/c", &now)
	if shown := b.As(identity).transport.Load().client; shown != &now {
		t.Error("a certificate that was replaced is shown")
	}
	for range maxRemoved { // each is kept twice, once for the Identity
		remove()
	}
	kept := 0
	for _, l := range s.removed {
		for range l.everyEndpoint() {
			kept++
		}
	}
	if kept > maxRemoved {
		t.Errorf("%d endpoints of removed Backends are kept, want %d at most", kept, maxRemoved)
	}
}

// TestIdentityOfBackendThatBecomesTLS: a request that has found a backend in cleartext, and then waits for its body or a retry, reaches it over TLS only with what
// its Gateway shows.
func TestIdentityOfBackendThatBecomesTLS(t *testing.T) {
	var seed uint64
	s, all := secureSet(t)
	apply(t, s, backendResource(key), all[2])
	shown := testkit.Certificate{Name: "gateway"}.TLS(t)
	identity := s.Identity("default/gw", "Secret/default/c", &shown)
	found := s.Get(key).As(identity)
	before := found.PickAs(identity, &seed, new(Tried))
	apply(t, s, all...)
	e := found.PickAs(identity, &seed, new(Tried))
	if e.backend.identity != identity {
		t.Fatal("the backend is reached without the Gateway's certificate")
	}
	dial(t, e).Close()
	if found.PickAs(Unusable, &seed, new(Tried)) != nil {
		t.Error("a Gateway whose certificate cannot be shown reaches the backend")
	}
	if e := found.PickAs(nil, &seed, new(Tried)); e == nil || e.backend != found {
		t.Error("a Gateway that shows nothing does not reach the backend")
	}
	var failure *DialError
	if c, err := before.Dial(t.Context(), time.Time{}); !errors.As(err, &failure) || failure.Reason != ReasonGone || !failure.Retryable {
		t.Errorf("an endpoint of before: %v, %v", c, err)
	}
}
