package proxy

import (
	"bufio"
	"net"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// addUnknown adds a field that this version does not know, and may not ignore.
func addUnknown(t testing.TB, m proto.Message) {
	t.Helper()
	testkit.AddField(t, m, config.FirstIgnorable-1)
}

// closes applies a listener that has such a field.
func (g *gateway) closes(listener *config.Resource) {
	g.t.Helper()
	addUnknown(g.t, listener.GetListener())
	g.generation++
	if r := g.Apply(&config.Update{Generation: g.generation, Upserts: []*config.Resource{listener}}); len(r.Listeners) != 1 || r.Listeners[listener.GetListener().Key] == nil {
		g.t.Errorf("listeners: %v", r.Listeners)
	}
}

// TestUnknownFieldOfListener: a listener with a field that may restrict whom it serves holds its hostname and serves nobody, whatever becomes of its
// routes, and its neighbour goes on. Without the field it serves again.
func TestUnknownFieldOfListener(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(namedBackend(t, "b"), nil)
	const key = "default/gw/strict"
	// The route of the neighbour, whose hostname is any, must not answer in the place of the listener.
	g.apply([]*config.Resource{g.httpListener("strict", "strict.example"), routeOf("strict", key, "strict.example", anyRule())})
	ask := func(host string) string {
		t.Helper()
		return strings.Fields(g.roundTrip("GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"))[1]
	}
	check := func(want string) {
		t.Helper()
		if got := ask("strict.example"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := ask("other.example"); got != "200" {
			t.Errorf("%s of the neighbour, want 200", got)
		}
	}
	check("200")
	strict := g.httpListener("strict", "strict.example")
	strict.GetListener().TlsOptions = &config.TLSOptions{}
	addUnknown(t, strict.GetListener().TlsOptions)
	update := func(upserts ...*config.Resource) {
		t.Helper()
		g.generation++
		r := g.Apply(&config.Update{Generation: g.generation, Upserts: upserts})
		if err := r.Listeners[key]; err == nil || len(r.Listeners) != 1 || !strings.Contains(err.Error(), "of its TLSOptions is unknown") {
			t.Errorf("listeners: %v", r.Listeners)
		}
	}
	update(strict)
	check("404")
	update(routeOf("strict", key, "strict.example", anyRule()), routeOf("more", key, "strict.example", anyRule()))
	check("404")
	g.apply([]*config.Resource{g.httpListener("strict", "strict.example")})
	check("200")
}

// TestUnknownFieldOfTLSListener: handshakes fail.
func TestUnknownFieldOfTLSListener(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	cert := certificate(t, "c", newECDSA(t), "strict.example")
	g.apply([]*config.Resource{cert, g.httpsListener("a", "strict.example", "c"), g.httpsListener("b", "", "c")})
	strict := g.httpsListener("a", "strict.example", "c")
	shake := func(name string) error {
		t.Helper()
		c, _, err := g.dialTLS(name, nil)
		c.Close()
		return err
	}
	if err := shake("strict.example"); err != nil {
		t.Fatal(err)
	}
	g.closes(strict)
	if err := shake("strict.example"); err == nil {
		t.Error("the listener shakes hands")
	}
	if err := shake("other.example"); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
}

// TestUnknownFieldOfBackend: nothing is sent to a Backend with a field that is unknown; other Resources with one are refused, and the version before stays.
func TestUnknownFieldOfBackend(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(namedBackend(t, "b"), nil)
	status := func() string {
		t.Helper()
		return strings.Fields(g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))[1]
	}
	const key = "Service/default/b/80"
	route := routeOf("r", "default/gw/http", "", anyRule())
	addUnknown(t, route.GetRoute().Rules[0].Matches[0])
	endpoints := backend(key, "127.0.0.1:1")[1]
	addUnknown(t, endpoints.GetEndpoints().Endpoints[0])
	authorities := &config.Resource{Kind: &config.Resource_Authorities{Authorities: &config.Authorities{Key: "a"}}}
	addUnknown(t, authorities.GetAuthorities())
	plain := func() *config.Resource { return proto.Clone(backend(key, "127.0.0.1:1")[0]).(*config.Resource) }
	strict := plain()
	addUnknown(t, strict.GetBackend())
	for _, tc := range []struct {
		r    *config.Resource
		want string
	}{{route, "200"}, {endpoints, "200"}, {authorities, "200"}, {strict, "502"}} {
		g.generation++
		if r := g.Apply(&config.Update{Generation: g.generation, Upserts: []*config.Resource{tc.r}}); len(r.Rejected) != 1 || r.Rejected[tc.r.ID()] == nil {
			t.Errorf("%s: rejected: %v", tc.r.ID(), r.Rejected)
		}
		if got := status(); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.r.ID(), got, tc.want)
		}
	}
	g.apply([]*config.Resource{plain()})
	if got := status(); got != "200" {
		t.Errorf("%s, want 200", got)
	}
}

// TestUnknownFieldOfTCPListener: connections are reset, those that are open go on, and it serves again without the field.
func TestUnknownFieldOfTCPListener(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/a/80", greeting(t, "a")), g.tcpListener("tcp"),
		l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: "Service/default/a/80", Weight: 1})))
	greeted := func(c net.Conn) {
		t.Helper()
		if got, err := bufio.NewReader(c).ReadString('\n'); got != "a\n" || err != nil {
			t.Errorf("%q %v", got, err)
		}
	}
	open := g.dial()
	greeted(open)
	g.closes(g.tcpListener("tcp"))
	g.wantReset()
	open.Write([]byte("ping\n"))
	if got, err := bufio.NewReader(open).ReadString('\n'); got != "ping\n" || err != nil {
		t.Errorf("an open connection: %q %v", got, err)
	}
	g.apply([]*config.Resource{g.tcpListener("tcp")})
	greeted(g.dial())
}

// TestUnknownFieldOfPassthroughListener: connections for its hostname are reset, and go to no other listener.
func TestUnknownFieldOfPassthroughListener(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.apply(append(append(backend("Service/default/a/80/passthrough", secureGreeting(t, "a")), backend("Service/default/b/80/passthrough", secureGreeting(t, "b"))...),
		g.passthroughListener("strict", "a.example"), g.passthroughListener("all", ""),
		passedRoute("a", "strict", "a", "a.example"), passedRoute("b", "all", "b", "a.example", "b.example")))
	shown := func(sni string) string {
		c, name, err := g.dialTLS(sni, nil)
		if err != nil {
			return "nobody"
		}
		c.Close()
		return name
	}
	for _, closed := range []bool{false, true} {
		want := "a"
		if closed {
			g.closes(g.passthroughListener("strict", "a.example"))
			want = "nobody"
		}
		if got := shown("a.example"); got != want {
			t.Errorf("closed %v: the certificate of %s is shown, want %s", closed, got, want)
		}
		if got := shown("b.example"); got != "b" {
			t.Errorf("closed %v: the neighbour shows the certificate of %s", closed, got)
		}
	}
}
