package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/dnsserver"
)

// hostServers answer with their address, all at one port.
func hostServers(t *testing.T, addresses ...string) (port int) {
	t.Helper()
	for try := 0; ; try++ {
		first, err := net.Listen("tcp", addresses[0]+":0")
		if err != nil {
			t.Fatal(err)
		}
		all := []net.Listener{first}
		port = first.Addr().(*net.TCPAddr).Port
		for _, a := range addresses[1:] {
			l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", a, port))
			if err != nil {
				break
			}
			all = append(all, l)
		}
		if len(all) < len(addresses) {
			for _, l := range all {
				l.Close()
			}
			if try == 10 {
				t.Fatal("there is no port that all addresses have")
			}
			continue
		}
		for i, l := range all {
			s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, addresses[i]) })}
			go s.Serve(l) //nolint:errcheck // it ends with the test
			t.Cleanup(func() { s.Close() })
		}
		return port
	}
}

const hostKey = "XBackend/default/x/80"

// serveHost has the gateway send everything to a host.
func (g *gateway) serveHost(port int, host *config.ExternalHostname) {
	g.t.Helper()
	rule := &config.Rule{Matches: []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
		BackendRefs: []*config.BackendRef{{Backend: hostKey, Weight: 1}}}
	g.apply([]*config.Resource{g.hostBackend(port, host), g.httpListener("http", ""), routeOf("r", "default/gw/http", "", rule)})
}

func (g *gateway) hostBackend(port int, host *config.ExternalHostname) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: hostKey, Namespace: "default", Name: "x", Port: uint32(port), ExternalHostname: host}}}
}

// from is which server answers, or the status.
func (g *gateway) from() string {
	got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		g.t.Logf("%q", got) // with the reason
		return strings.Fields(got)[1]
	}
	return got[strings.LastIndex(got, "\n")+1:]
}

// TestExternalHostname: the first request waits for DNS; the endpoints follow what DNS says, and stay as they are while it says nothing; those of another host
// are never asked.
func TestExternalHostname(t *testing.T) {
	checkLeaks(t)
	port := hostServers(t, "127.0.0.2", "127.0.0.3")
	s := dnsserver.Start(t)
	g := startGatewayWith(t, Options{DNSServers: []netip.AddrPort{s.Addr()}, minTTL: 20 * time.Millisecond})
	s.Set(t, "a.example.com", "a.example.com. 0 IN A 127.0.0.2")
	s.Set(t, "b.example.com", "b.example.com. 0 IN A 127.0.0.3")
	allowed := []string{"127.0.0.0/8"}
	g.serveHost(port, &config.ExternalHostname{Name: "a.example.com", Allowed: allowed})
	if got := g.from(); got != "127.0.0.2" {
		t.Fatalf("the first request is answered %s", got)
	}
	answers := func(what, want string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return g.from() == want })
	}
	s.Set(t, "a.example.com", "a.example.com. 0 IN A 127.0.0.3")
	answers("another address", "127.0.0.3")
	s.Fail("a.example.com", dns.RcodeServerFailure)
	asked := s.Asked("a.example.com")
	testkit.Eventually(t, "a failure", func() bool { return s.Asked("a.example.com") > asked })
	if got := g.from(); got != "127.0.0.3" {
		t.Errorf("while DNS fails: %s", got)
	}
	s.Set(t, "a.example.com")
	answers("no such name", "503")
	s.Set(t, "a.example.com", "a.example.com. 0 IN A 127.0.0.2")
	answers("the name is back", "127.0.0.2")

	g.serveHost(port, &config.ExternalHostname{Name: "b.example.com", Allowed: allowed})
	for range 20 {
		if got := g.from(); got != "127.0.0.3" {
			t.Fatalf("of another host: %s", got)
		}
	}
	// Requests go on while the rules change, and it becomes a Backend with Endpoints and is a host again.
	for _, c := range []struct {
		what string
		host *config.ExternalHostname
		want string
	}{
		{"nothing allowed", &config.ExternalHostname{Name: "b.example.com"}, "503"},
		{"allowed", &config.ExternalHostname{Name: "b.example.com", Allowed: allowed}, "127.0.0.3"},
		{"denied", &config.ExternalHostname{Name: "b.example.com", Allowed: allowed, Denied: []string{"127.0.0.3/32"}}, "503"},
	} {
		g.apply([]*config.Resource{g.hostBackend(port, c.host)})
		if got := g.from(); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	endpoints := &config.Resource{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: hostKey, Endpoints: []*config.Endpoint{{Address: "127.0.0.2", Port: uint32(port)}}}}}
	g.apply([]*config.Resource{g.hostBackend(port, nil), endpoints})
	if got := g.from(); got != "127.0.0.2" {
		t.Errorf("with Endpoints: %s", got)
	}
	g.apply([]*config.Resource{g.hostBackend(port, &config.ExternalHostname{Name: "b.example.com", Allowed: allowed})}, config.ID{Kind: config.KindEndpoints, Key: hostKey})
	if got := g.from(); got != "127.0.0.3" {
		t.Errorf("a host again: %s", got)
	}
	g.apply(nil, config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/r"}, config.ID{Kind: config.KindBackend, Key: hostKey})
	testkit.Eventually(t, "nobody asks for a host that is gone", func() bool {
		asked := s.Asked("b.example.com")
		time.Sleep(60 * time.Millisecond)
		return s.Asked("b.example.com") == asked
	})
}

// TestRebinding: a name that becomes one of the machine itself, or of private networks, leads nowhere, and the endpoints that it had before are left.
func TestRebinding(t *testing.T) {
	port := hostServers(t, "127.0.0.2", "127.0.0.3")
	s := dnsserver.Start(t)
	g := startGatewayWith(t, Options{DNSServers: []netip.AddrPort{s.Addr()}, minTTL: 20 * time.Millisecond})
	s.Set(t, "a.example.com", "a.example.com. 0 IN A 127.0.0.2")
	g.serveHost(port, &config.ExternalHostname{Name: "a.example.com", Allowed: []string{"127.0.0.2/32"}})
	if got := g.from(); got != "127.0.0.2" {
		t.Fatalf("answered %s", got)
	}
	s.Set(t, "a.example.com", "a.example.com. 0 IN A 127.0.0.3", "a.example.com. 0 IN A 169.254.169.254", "a.example.com. 0 IN A 10.0.0.1")
	testkit.Eventually(t, "the name leads nowhere", func() bool { return g.from() == "503" })
	s.Set(t, "a.example.com", "a.example.com. 0 IN A 127.0.0.3", "a.example.com. 0 IN A 127.0.0.2")
	testkit.Eventually(t, "one of its addresses is good", func() bool { return g.from() == "127.0.0.2" })
	for range 20 {
		if got := g.from(); got != "127.0.0.2" {
			t.Fatalf("answered %s", got)
		}
	}
}

// TestExternalHostnameUnanswered: requests wait as long for the first answer as it takes, and not at all once it is known that there is none.
func TestExternalHostnameUnanswered(t *testing.T) {
	port := hostServers(t, "127.0.0.2")
	s := dnsserver.Start(t)
	s.Silence(true)
	g := startGatewayWith(t, Options{DNSServers: []netip.AddrPort{s.Addr()}, minTTL: 20 * time.Millisecond})
	s.Set(t, "a.example.com", "a.example.com. 0 IN A 127.0.0.2")
	g.serveHost(port, &config.ExternalHostname{Name: "a.example.com", Allowed: []string{"127.0.0.0/8"}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := g.from(); got != "127.0.0.2" {
				t.Errorf("a request that has waited is answered %s", got)
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	s.Silence(false) // the server is asked again
	wg.Wait()
	s.Fail("b.example.com", dns.RcodeRefused)
	g.serveHost(port, &config.ExternalHostname{Name: "b.example.com", Allowed: []string{"127.0.0.0/8"}})
	if got := g.from(); got != "503" {
		t.Errorf("of a host that does not resolve: %s", got)
	}
}

// TestExternalHostnameLookup: a policy says how a host is asked for; an edit of that leaves the endpoints and their connections alone until there is another answer.
func TestExternalHostnameLookup(t *testing.T) {
	port := hostServers(t, "127.0.0.2", "127.0.0.3")
	s := dnsserver.Start(t)
	g := startGatewayWith(t, Options{DNSServers: []netip.AddrPort{s.Addr()}, minTTL: 20 * time.Millisecond})
	s.Set(t, "a.example.com", "a.example.com. 3600 IN A 127.0.0.2")
	host := &config.ExternalHostname{Name: "a.example.com", Allowed: []string{"127.0.0.0/8"}}
	g.serveHost(port, host)
	if got := g.from(); got != "127.0.0.2" {
		t.Fatalf("answered %s", got)
	}
	before := g.upstreams.Get(hostKey).Endpoints()[0]
	s.Silence(true)
	b := g.hostBackend(port, host)
	b.GetBackend().Traffic = connectionsAs(&config.BackendConnections{DnsIgnoreTtl: true, DnsRefreshNanos: int64(20 * time.Millisecond)})
	g.apply([]*config.Resource{b})
	for range 5 {
		if got := g.from(); got != "127.0.0.2" {
			t.Fatalf("answered %s while DNS says nothing", got)
		}
	}
	if now := g.upstreams.Get(hostKey).Endpoints(); len(now) != 1 || now[0] != before {
		t.Error("the endpoint is another one")
	}
	s.Silence(false)
	s.Set(t, "a.example.com", "a.example.com. 3600 IN A 127.0.0.3")
	testkit.Eventually(t, "the new address", func() bool { return g.from() == "127.0.0.3" })
	s.Set(t, "a.example.com", "a.example.com. 3600 IN A 127.0.0.2")
	testkit.Eventually(t, "the next one, long before the TTL is over", func() bool { return g.from() == "127.0.0.2" })
}

// TestHostByDeadline: timeouts.request ends the wait for DNS.
func TestHostByDeadline(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	g := startGatewayWith(t, Options{DNSServers: []netip.AddrPort{silent.LocalAddr().(*net.UDPAddr).AddrPort()}})
	rule := &config.Rule{Matches: []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
		BackendRefs: []*config.BackendRef{{Backend: hostKey, Weight: 1}}, RequestTimeoutNanos: int64(50 * time.Millisecond)}
	g.apply([]*config.Resource{g.hostBackend(80, &config.ExternalHostname{Name: "a.example.com"}), g.httpListener("http", ""), routeOf("r", "default/gw/http", "", rule)})
	if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "moongate: 504 request_timeout\n") {
		t.Errorf("got %q", got)
	}
}

// TestSessionAwaitsHost: a session goes on with its endpoint when that is found by DNS, though requests come before the answer.
func TestSessionAwaitsHost(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	port := hostServers(t, "127.0.0.2", "127.0.0.3")
	s := dnsserver.Start(t)
	g := startGatewayWith(t, Options{DNSServers: []netip.AddrPort{s.Addr()}})
	for _, name := range []string{"a.example.com", "b.example.com"} {
		s.Set(t, name, name+". 60 IN A 127.0.0.2", name+". 60 IN A 127.0.0.3")
	}
	serve := func(name string) {
		rule := &config.Rule{Matches: []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
			BackendRefs: []*config.BackendRef{{Backend: hostKey, Weight: 1}}, SessionPersistence: bySession}
		g.apply([]*config.Resource{sessionKeys(), g.hostBackend(port, &config.ExternalHostname{Name: name, Allowed: []string{"127.0.0.0/8"}}), g.httpListener("http", ""),
			routeOf("r", "default/gw/http", "", rule)})
	}
	serve("a.example.com")
	first := g.visitor()
	status, want := first.ask()
	if status != 200 || first.token == "" {
		t.Fatalf("%d, token %q", status, first.token)
	}
	s.Silence(true)
	serve("b.example.com")
	var all sync.WaitGroup
	for range 16 {
		v := g.visitor()
		v.token = first.token
		all.Go(func() {
			if status, got := v.ask(); status != 200 || got != want {
				t.Errorf("%d by %s, want %s", status, got, want)
			}
		})
	}
	testkit.Eventually(t, "a question", func() bool { return s.Asked("b.example.com") > 0 })
	s.Silence(false)
	all.Wait()
}
