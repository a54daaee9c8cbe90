package proxy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// TestL4RoutesOfAHostname: after any edits each hostname is the first route's, by key, of those that want it.
func TestL4RoutesOfAHostname(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	names := []string{"", "a.example", "*.a.example", "b.example"}
	var l attachedL4
	there := map[string]*snapshot.L4Route{}
	for step := range 5000 {
		key := fmt.Sprintf("TCPRoute/default/%d", random.IntN(8))
		if old := there[key]; old != nil {
			l.remove(key, old.Config.Attachments[0].Hostnames)
			delete(there, key)
		}
		if random.IntN(3) > 0 {
			at := &config.Attachment{}
			for range random.IntN(4) { // one may be there twice
				at.Hostnames = append(at.Hostnames, &config.Hostname{Effective: names[random.IntN(len(names))]})
			}
			there[key] = &snapshot.L4Route{Config: &config.L4Route{Key: key, Attachments: []*config.Attachment{at}}}
			l.add(there[key], at.Hostnames)
		}
		want := map[string]*snapshot.L4Route{}
		for _, key := range sortedKeys(there) {
			for _, h := range there[key].Config.Attachments[0].Hostnames {
				if want[h.Effective] == nil {
					want[h.Effective] = there[key]
				}
			}
		}
		if l.routes != len(there) || l.hosts.Len() != len(want) || len(l.of) != len(want) {
			t.Fatalf("seed %d, step %d: %d routes and %d hostnames, want %d and %d", seed, step, l.routes, l.hosts.Len(), len(there), len(want))
		}
		for _, name := range names {
			if got, _ := l.hosts.Get(name); got != want[name] {
				t.Fatalf("seed %d, step %d: %q is another route's", seed, step, name)
			}
		}
	}
}

// listenerOn is the listener of a hostname in force.
func (g *gateway) listenerOn(hostname string) *snapshot.Listener {
	g.t.Helper()
	for _, p := range g.engine.Snapshot.Load().Sockets {
		if p != nil {
			if l, ok := p.Listeners.Get(hostname); ok {
				return l
			}
		}
	}
	g.t.Fatalf("no listener has %s", hostname)
	return nil
}

// TestL4EditsTouchOnlyTheirListener: every edit of a layer-4 route is in force at once, and other listeners are the same values as before.
func TestL4EditsTouchOnlyTheirListener(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	g.apply(backend("Service/default/x/80/passthrough", "127.0.0.1:1"))
	g.apply([]*config.Resource{g.passthroughListener("a", "*.a.example"), g.passthroughListener("b", "*.b.example"),
		passedRoute("one", "a", "x", "1.a.example"), passedRoute("other", "b", "x", "1.b.example")})
	b := g.listenerOn("*.b.example")
	want := func(what string, names ...string) {
		t.Helper()
		var got []string
		for hostname, r := range g.listenerOn("*.a.example").L4.All() {
			got = append(got, hostname+" "+r.Config.Name)
		}
		if !slices.Equal(got, names) {
			t.Errorf("%s: %q, want %q", what, got, names)
		}
		if g.listenerOn("*.b.example") != b {
			t.Errorf("%s: the other listener was made anew", what)
		}
		routes := 0
		for _, l := range g.Bound() {
			if l.Key == "default/gw/a" {
				routes = l.Routes
			}
		}
		if in := len(g.state.l4Routes) - 1; routes != in {
			t.Errorf("%s: %d routes are counted, want %d", what, routes, in)
		}
	}
	gone := func(name string) {
		t.Helper()
		g.apply(nil, config.ID{Kind: config.KindL4Route, Key: "TLSRoute/default/" + name})
	}
	want("at first", "1.a.example one")
	g.apply([]*config.Resource{passedRoute("two", "a", "x", "1.a.example", "2.a.example")})
	want("a later one for the same hostname", "1.a.example one", "2.a.example two")
	gone("one")
	want("the first one gone", "1.a.example two", "2.a.example two")
	g.apply([]*config.Resource{passedRoute("one", "a", "x", "1.a.example")})
	want("it is back", "1.a.example one", "2.a.example two")
	g.apply([]*config.Resource{passedRoute("one", "a", "x", "3.a.example")})
	want("it has another hostname", "1.a.example two", "2.a.example two", "3.a.example one")
	gone("two")
	gone("one")
	want("none")

	// A route may be there before its listener, and after it.
	g.apply([]*config.Resource{passedRoute("early", "c", "x", "1.c.example")})
	g.apply([]*config.Resource{g.passthroughListener("c", "*.c.example")})
	if r, ok := g.listenerOn("*.c.example").L4.Find([]byte("1.c.example")); !ok || r.Config.Name != "early" {
		t.Error("the route that came before its listener is not in force")
	}
	g.apply(nil, config.ID{Kind: config.KindListener, Key: "default/gw/c"})
	if g.state.listeners["default/gw/c"] == nil {
		t.Error("a listener whose routes are there is forgotten")
	}
	gone("early")
	if g.state.listeners["default/gw/c"] != nil {
		t.Error("a listener that nothing names is kept")
	}
}

// besideOthers starts a gateway with a route that is to be edited, and as many others on listeners of their own.
func besideOthers(t testing.TB, others int) (g *gateway, edit func()) {
	g = startGateway(t, Timeouts{})
	route := passedRoute("r", "a", "x", "1.a.example")
	up := append(backend("Service/default/x/80/passthrough", "127.0.0.1:1"), g.passthroughListener("a", "*.a.example"), route)
	for i := range others {
		name := fmt.Sprintf("o%d", i)
		up = append(up, g.passthroughListener(name, name+".example"), passedRoute(name, name, "x", name+".example"))
	}
	g.apply(up)
	return g, func() { g.apply([]*config.Resource{route}) }
}

// TestL4EditCostsItsOwnPart: an edit allocates as much beside few others as beside many, but for the deeper path in the table of hostnames.
func TestL4EditCostsItsOwnPart(t *testing.T) {
	measure := func(others int) float64 {
		_, edit := besideOthers(t, others)
		return testing.AllocsPerRun(20, edit)
	}
	if few, many := measure(1), measure(1000); many > 2*few {
		t.Errorf("%v allocations beside 1000 listeners with a route each, %v beside one", many, few)
	}
}

// BenchmarkL4Edit is the edit of one route beside others on listeners of their own.
func BenchmarkL4Edit(b *testing.B) {
	for _, others := range []int{1, 5000} {
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			_, edit := besideOthers(b, others)
			b.ReportAllocs()
			for b.Loop() {
				edit()
			}
		})
	}
}
