package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
)

// namedBackend answers with its name and closes each connection after a while to keep pools honest.
func namedBackend(t testing.TB, name string) string {
	return rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-Backend: %s\r\nContent-Length: 2\r\n\r\nok", name)
		}
	})
}

// startServing starts a gateway with a listener "http" and a route "r" to a backend.
func startServing(t *testing.T) *gateway {
	t.Helper()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(namedBackend(t, "b"), nil)
	return g
}

// listenAt gives the listener "http" another address.
func (g *gateway) listenAt(address string) {
	g.t.Helper()
	l := g.httpListener("http", "")
	l.GetListener().Addresses = []string{address}
	g.apply([]*config.Resource{l})
}

func listenerID(name string) config.ID {
	return config.ID{Kind: config.KindListener, Key: "default/gw/" + name}
}

func routeID(name string) config.ID {
	return config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/" + name}
}

// TestListenersComeAndGo: the connections of one listener do not notice what happens to others, and
// hosts go to the most specific listener there is, without falling back from it.
func TestListenersComeAndGo(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/b/80", namedBackend(t, "b")),
		g.httpListener("any", ""), routeOf("any", "default/gw/any", "", anyRule())))
	c := g.dial()
	r := bufio.NewReader(c)
	ask := func(when, want string, host string) {
		t.Helper()
		if got := statusOf(t, c, r, host, "/"); got != want {
			t.Errorf("%s, host %s: %s, want %s", when, host, got, want)
		}
	}
	ask("at first", "200", "a.example.org")
	g.apply([]*config.Resource{g.httpListener("wild", "*.example.org")})
	ask("with a listener that has no route", "404", "a.example.org")
	ask("with a listener that has no route", "200", "other.org")
	g.apply([]*config.Resource{routeOf("wild", "default/gw/wild", "a.example.org", anyRule())})
	ask("with its route", "200", "a.example.org")
	ask("with its route", "404", "b.example.org")
	g.apply([]*config.Resource{g.httpListener("exact", "b.example.org"), routeOf("exact", "default/gw/exact", "", anyRule())})
	ask("with an exact listener", "200", "b.example.org")
	g.apply([]*config.Resource{g.httpListener("exact", "c.example.org")}) // changed
	ask("with its hostname changed", "404", "b.example.org")
	ask("with its hostname changed", "200", "c.example.org")
	g.apply(nil, listenerID("wild"), routeID("wild"), listenerID("exact"))
	ask("without the specific listeners", "200", "b.example.org")
	g.apply([]*config.Resource{g.httpListener("exact", "c.example.org")}) // its route was there all the time
	ask("with the listener back", "200", "c.example.org")
}

// TestPartsOfARouteChange: listeners go over from one Resource of a route to another in one Update, and are served by the new one.
func TestPartsOfARouteChange(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	const route = "HTTPRoute/default/r"
	// part is a Resource of the route with two rules that differ in nothing but their backends, of which the first answers.
	part := func(key, to string, listeners ...string) *config.Resource {
		first, second := anyRule(), anyRule()
		first.BackendRefs[0].Backend, second.BackendRefs[0].Backend = "Service/default/"+to+"/80", "Service/default/second/80"
		r := routeOf("r", "", "", first, second)
		r.GetRoute().Key, r.GetRoute().Attachments = key, nil
		for _, l := range listeners {
			r.GetRoute().Attachments = append(r.GetRoute().Attachments, routeOf("r", "default/gw/"+l, "").GetRoute().Attachments[0])
		}
		return r
	}
	upserts := []*config.Resource{g.httpListener("one", "one.example"), g.httpListener("two", "two.example")}
	for _, name := range []string{"a", "b", "c", "second"} {
		upserts = append(upserts, backend("Service/default/"+name+"/80", namedBackend(t, name))...)
	}
	g.apply(append(upserts, part(route, "a", "two"), part(config.RoutePartKey(route, 1), "b", "one")))
	id := func(part int) config.ID {
		key := route
		if part > 0 {
			key = config.RoutePartKey(route, part)
		}
		return config.ID{Kind: config.KindRoute, Key: key}
	}
	ask := func(when, one, two string) {
		t.Helper()
		for host, want := range map[string]string{"one.example": one, "two.example": two} {
			status, rest, _ := strings.Cut(g.roundTrip("GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"), "\r\n")
			got := strings.Fields(status)[1]
			if _, name, ok := strings.Cut(rest, "X-Backend: "); ok {
				got, _, _ = strings.Cut(name, "\r\n")
			}
			if got != want {
				t.Errorf("%s, %s: %s, want %s", when, host, got, want)
			}
		}
	}
	ask("at first", "b", "a")
	g.apply([]*config.Resource{part(route, "c", "one", "two")}, id(1))
	ask("both in one", "c", "c")
	g.apply([]*config.Resource{part(route, "b", "one"), part(config.RoutePartKey(route, 1), "a", "two")})
	ask("in two", "b", "a")
	g.apply([]*config.Resource{part(route, "a", "two"), part(config.RoutePartKey(route, 1), "b", "one")})
	ask("exchanged", "b", "a")
	g.apply([]*config.Resource{part(config.RoutePartKey(route, 1), "c", "two")}, id(0))
	ask("the second goes over", "404", "c")
	g.apply([]*config.Resource{part(route, "a", "two")}, id(1))
	ask("and back", "404", "a")
	g.apply(nil, id(0))
	ask("without the route", "404", "404")
}

// TestTwoGatewaysOnePort: listeners of two Gateways share a port by hostname.
func TestTwoGatewaysOnePort(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	second := g.httpListener("http", "b.example")
	second.GetListener().Key, second.GetListener().Gateway = "default/gw2/http", "default/gw2"
	missing := anyRule()
	missing.Matches[0].Path.Value = "/never"
	g.apply(append(backend("Service/default/b/80", namedBackend(t, "b")),
		g.httpListener("http", "a.example"), second,
		routeOf("a", "default/gw/http", "", anyRule()), routeOf("b", "default/gw2/http", "", missing)))
	c := g.dial()
	r := bufio.NewReader(c)
	for host, want := range map[string]string{"a.example": "200", "b.example": "404", "c.example": "404"} {
		if got := statusOf(t, c, r, host, "/"); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	same := g.httpListener("http", "a.example")
	same.GetListener().Key, same.GetListener().Gateway = "default/gw3/http", "default/gw3"
	g.generation++
	result := g.Apply(&config.Update{Generation: g.generation, Upserts: []*config.Resource{same}})
	if len(result.Listeners) != 1 || result.Listeners["default/gw3/http"] == nil {
		t.Errorf("%v, want an error of the third Gateway's listener", result.Listeners)
	}
	if got := statusOf(t, c, r, "a.example", "/"); got != "200" {
		t.Errorf("the listener that was there first: %s", got)
	}
}

// TestPortTaken: a port that is taken is reported, and served as soon as it is free and asked for.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	taken, err := net.Listen("tcp", g.addr())
	if err != nil {
		t.Fatal(err)
	}
	result := g.Apply(&config.Update{Generation: 1, Upserts: []*config.Resource{g.httpListener("http", "")}})
	var bind *BindError
	if err := result.Listeners["default/gw/http"]; !errors.As(err, &bind) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v, want that the address is in use", err)
	}
	if result := g.Rebind(); len(result.Listeners) != 1 || result.Generation != 1 {
		t.Errorf("%+v, want that it is in use still", result)
	}
	taken.Close()
	if result := g.Rebind(); len(result.Listeners) != 0 {
		t.Errorf("%v", result.Listeners)
	}
	c := g.dial()
	if got := statusOf(t, c, bufio.NewReader(c), "h", "/"); got != "404" {
		t.Error(got)
	}
	if b := g.Bound(); len(b) != 1 || b[0].Addresses[0] != g.addr() {
		t.Errorf("%+v", b)
	}
}

// TestBindOrder: of addresses that exclude each other it is always the same that is bound, and each other one is told of, beside what else is wrong with the listener.
func TestBindOrder(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	for range 10 {
		g := startGateway(t, Timeouts{})
		all := g.httpListener("all", "")
		all.GetListener().Addresses = []string{"0.0.0.0"}
		some := g.httpListener("some", "")
		some.GetListener().Addresses = []string{"127.0.0.3", "127.0.0.1", "127.0.0.2"}
		some.GetListener().Filters = []*anypb.Any{{TypeUrl: "type.googleapis.com/moongate.config.v1.NotYet"}}
		r := g.Apply(&config.Update{Generation: 1, Upserts: []*config.Resource{all, some}})
		failed := r.Listeners["default/gw/some"]
		if len(r.Listeners) != 1 || failed == nil || failed.Invalid == nil || len(failed.Unbound) != 3 {
			t.Fatalf("%v, want that the listener of single addresses has neither its filter nor one of these", r.Listeners)
		}
		for i, u := range failed.Unbound {
			if u.Addr.IP.String() != fmt.Sprintf("127.0.0.%d", i+1) || !errors.Is(u, syscall.EADDRINUSE) {
				t.Errorf("the error of address %d is %v", i+1, u)
			}
		}
		if b := g.Bound(); len(b) != 1 || b[0].Key != "default/gw/all" {
			t.Errorf("bound: %+v", b)
		}
		g.Shutdown(t.Context())
	}
}

// TestListenerUp: the metric is about sockets alone, and all of them.
func TestListenerUp(t *testing.T) {
	t.Parallel()
	m := observe.NewMetrics(observe.MetricsOptions{})
	g := startGatewayWith(t, Options{Metrics: m})
	up := func() (value float64) {
		families, err := m.Gatherer().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "moongate_listener_up" {
				return f.Metric[0].GetGauge().GetValue()
			}
		}
		t.Fatal("there is no such metric")
		return 0
	}
	for _, test := range []struct {
		what      string
		addresses []string
		filter    bool
		want      float64
	}{
		{"bound, with a filter that cannot be carried out", nil, true, 1},
		{"one of two addresses", []string{"127.0.0.1", "198.51.100.1"}, false, 0},
		{"both", []string{"127.0.0.1", "127.0.0.2"}, false, 1},
	} {
		l := g.httpListener("http", "")
		l.GetListener().Addresses = test.addresses
		if test.filter {
			l.GetListener().Filters = []*anypb.Any{{TypeUrl: "type.googleapis.com/moongate.config.v1.NotYet"}}
		}
		g.generation++
		g.Apply(&config.Update{Generation: g.generation, Upserts: []*config.Resource{l}})
		if got := up(); got != test.want {
			t.Errorf("%s: %v, want %v", test.what, got, test.want)
		}
	}
}

// TestProtocolChange: a listener that becomes HTTPS on its port is never served in the clear again.
func TestProtocolChange(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/b/80", namedBackend(t, "b")),
		certificate(t, "c", newECDSA(t), "h"), g.httpListener("web", ""), routeOf("r", "default/gw/web", "", anyRule())))
	plain := g.dial()
	r := bufio.NewReader(plain)
	if got := statusOf(t, plain, r, "h", "/"); got != "200" {
		t.Fatal(got)
	}
	g.apply([]*config.Resource{g.httpsListener("web", "", "c")})
	if got := statusOf(t, plain, r, "h", "/"); got != "404" {
		t.Errorf("in the clear: %s", got)
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("the old connection goes on: %v", err)
	}
	if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "http_on_tls_port") {
		t.Errorf("a new connection in the clear: %q", got)
	}
	secure, _, err := g.dialTLS("h", nil)
	if err != nil {
		t.Fatal(err)
	}
	sr := bufio.NewReader(secure)
	if got := statusOf(t, secure, sr, "h", "/"); got != "200" {
		t.Errorf("over TLS: %s", got)
	}
	g.apply([]*config.Resource{g.httpListener("web", "")})
	if got := statusOf(t, secure, sr, "h", "/"); got != "404" {
		t.Errorf("over TLS, when the listener is HTTP: %s", got)
	}
	if c := g.dial(); statusOf(t, c, bufio.NewReader(c), "h", "/") != "200" {
		t.Error("back to HTTP it does not serve")
	}
}

// TestListenerRemoved: what its connections ask afterwards is 404 and their end.
func TestListenerRemoved(t *testing.T) {
	t.Parallel()
	g := startServing(t)
	c := g.dial()
	r := bufio.NewReader(c)
	if got := statusOf(t, c, r, "h", "/"); got != "200" {
		t.Fatal(got)
	}
	g.apply(nil, listenerID("http"))
	if n, err := net.Dial("tcp", g.addr()); err == nil {
		n.Close()
		t.Error("the port is open")
	}
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	rest, err := io.ReadAll(r)
	if err != nil || !strings.HasPrefix(string(rest), "HTTP/1.1 404 ") || !strings.Contains(string(rest), "Connection: close\r\n") {
		t.Errorf("%q %v", rest, err)
	}
	g.apply([]*config.Resource{g.httpListener("http", "")})
	if n := g.dial(); statusOf(t, n, bufio.NewReader(n), "h", "/") != "200" {
		t.Error("the listener does not come back")
	}
}

// TestListenerReturns: connections that were idle while no listener had their port are served by the one that has it then.
func TestListenerReturns(t *testing.T) {
	t.Parallel()
	g := startServing(t)
	c := g.dial()
	r := bufio.NewReader(c)
	h2 := g.http2Client("")
	ask := func() {
		t.Helper()
		if got := statusOf(t, c, r, "h", "/"); got != "200" {
			t.Errorf("HTTP/1.1: %s", got)
		}
		if got := status2(t, h2, "h"); got != "200" {
			t.Errorf("HTTP/2: %s", got)
		}
	}
	ask()
	g.apply(nil, listenerID("http"))
	g.apply([]*config.Resource{g.httpListener("other", "elsewhere")}) // another socket, whose table changes by the next
	g.apply([]*config.Resource{g.httpListener("http", "")})
	ask()
	g.apply([]*config.Resource{routeOf("r", "default/gw/http", "", anyRule())})
	ask()
	g.apply(nil, listenerID("http"), listenerID("other"))
	g.apply([]*config.Resource{g.httpListener("http", "")})
	ask()
}

// TestAddressesUnderLoad: a socket for all addresses and one for a single address replace each other without a failure.
func TestAddressesUnderLoad(t *testing.T) {
	t.Parallel()
	g := startServing(t)
	check := func(status string) {
		if status != "200" {
			t.Errorf("status %s", status)
		}
	}
	stop := g.load(4, "/", check)
	defer stop()
	for _, address := range []string{"0.0.0.0", "127.0.0.1", "0.0.0.0", "127.0.0.1"} {
		g.listenAt(address)
		for range 20 {
			c := g.dial()
			check(statusOf(t, c, bufio.NewReader(c), "h", "/"))
			c.Close()
		}
	}
}

// TestAddressTakenAway: a connection to an address at which nothing listens any more is not served by a listener on another one.
func TestAddressTakenAway(t *testing.T) {
	t.Parallel()
	g := startServing(t)
	g.listenAt("0.0.0.0")
	c := g.dial()
	r := bufio.NewReader(c)
	if got := statusOf(t, c, r, "h", "/"); got != "200" {
		t.Fatal(got)
	}
	g.listenAt("127.0.0.2")
	if got := statusOf(t, c, r, "h", "/"); got != "404" {
		t.Errorf("status %s", got)
	}
}

// load asks all the time on several connections until stop, and hands every status to check.
func (g *gateway) load(connections int, path string, check func(status string)) (stop func()) {
	var wg sync.WaitGroup
	var ended atomic.Bool
	for range connections {
		c := g.dial()
		wg.Go(func() {
			r := bufio.NewReader(c)
			for !ended.Load() {
				check(statusOf(g.t, c, r, "h", path))
			}
		})
	}
	return func() { ended.Store(true); wg.Wait() }
}

// TestRouteUnderLoad: a new route's path goes from 404 to 200 and back and shows nothing else.
func TestRouteUnderLoad(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.apply(append(backend("Service/default/b/80", namedBackend(t, "b")), g.httpListener("http", "")))
	var ok, notFound, others atomic.Int64
	stop := g.load(4, "/new/path", func(status string) {
		switch status {
		case "200":
			ok.Add(1)
		case "404":
			notFound.Add(1)
		default:
			others.Add(1)
			t.Errorf("status %s", status)
		}
	})
	rule := anyRule()
	rule.Matches[0].Path.Value = "/new"
	for i := range 100 {
		before, missed := ok.Load(), notFound.Load()
		if i%2 == 0 {
			g.apply([]*config.Resource{routeOf("new", "default/gw/http", "", rule)})
			for ok.Load() == before && others.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			g.apply([]*config.Resource{routeOf("new", "default/gw/http", "", rule)}) // replaced while in use
		} else {
			g.apply(nil, routeID("new"))
			for notFound.Load() == missed && others.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	stop()
	if ok.Load() == 0 || notFound.Load() == 0 {
		t.Errorf("%d times 200, %d times 404", ok.Load(), notFound.Load())
	}
}

// TestEndpointChurn: endpoints come and go under load, and so do listeners; no request fails.
func TestEndpointChurn(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	addrs := []string{namedBackend(t, "0"), namedBackend(t, "1"), namedBackend(t, "2")}
	g.serve(addrs[0], nil)
	var requests atomic.Int64
	stop := g.load(4, "/", func(status string) {
		if requests.Add(1); status != "200" {
			t.Errorf("status %s", status)
		}
	})
	for i := range 150 {
		up := backend("Service/default/b/80", addrs[i%3], addrs[(i+1)%3])
		if i%3 == 0 {
			up = backend("Service/default/b/80", addrs[(i/3)%3])
		}
		if i%2 == 0 {
			g.apply(append(up, g.httpListener(fmt.Sprint("l", i), fmt.Sprintf("h%d.example", i))))
		} else {
			g.apply(up, listenerID(fmt.Sprint("l", i-1)))
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	t.Logf("%d requests", requests.Load())
}

// TestRejectedKeepsBefore: a resource that cannot be carried out changes nothing, and its neighbours apply.
func TestRejectedKeepsBefore(t *testing.T) {
	t.Parallel()
	g := startServing(t)
	bad := anyRule()
	bad.Matches[0].Path = &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_REGULAR_EXPRESSION, Value: "("}
	unknown := anyRule()
	unknown.BackendRefs[0].Backend = "Service/default/unknown/80"
	badEndpoints := backend("Service/default/b/80", "127.0.0.1:1")[1]
	badEndpoints.GetEndpoints().Endpoints[0].Address = "not an address"
	good := anyRule()
	good.BackendRefs = nil
	result := g.Apply(&config.Update{Generation: 7, Upserts: []*config.Resource{
		badEndpoints, routeOf("r", "default/gw/http", "", bad), routeOf("r2", "default/gw/http", "", unknown), routeOf("good", "default/gw/http", "good", good),
	}})
	for _, id := range []config.ID{routeID("r"), routeID("r2"), {Kind: config.KindEndpoints, Key: "Service/default/b/80"}} {
		if result.Rejected[id] == nil {
			t.Errorf("%s was not rejected", id)
		}
	}
	if len(result.Rejected) != 3 || result.Generation != 7 {
		t.Errorf("%+v", result)
	}
	c := g.dial()
	r := bufio.NewReader(c)
	for host, want := range map[string]string{"h": "200", "good": "500"} {
		if got := statusOf(t, c, r, host, "/"); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

// TestApplyReleasesHandles: what metrics export does not grow with the number of changes.
func TestApplyReleasesHandles(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	metrics := observe.NewMetrics(observe.MetricsOptions{Grace: time.Nanosecond})
	g := &gateway{t: t, port: freePort(t), Proxy: New(Options{Bind: []netip.Addr{loopback}, Metrics: metrics})}
	t.Cleanup(func() { g.Shutdown(context.Background()) })
	series := func() int {
		families, err := metrics.Gatherer().Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range families {
			n += len(f.Metric)
		}
		return n
	}
	addr := namedBackend(t, "b")
	var after int
	for i := range 30 {
		g.serve(addr, nil)
		c := g.dial()
		statusOf(t, c, bufio.NewReader(c), "h", "/")
		c.Close()
		name := fmt.Sprint("x", i)
		g.apply([]*config.Resource{g.httpListener(name, name), routeOf(name, "default/gw/"+name, "", anyRule())})
		g.apply(nil, routeID(name), listenerID(name), routeID("r"), listenerID("http"))
		time.Sleep(time.Millisecond)
		if n := series(); i == 5 {
			after = n
		} else if i > 5 && n > after {
			t.Fatalf("%d series after %d changes, %d after 5", n, i, after)
		}
	}
	if n := len(g.state.listeners); n != 0 {
		t.Errorf("%d listeners are remembered", n)
	}
	if n := len(g.sockets); n != 0 {
		t.Errorf("%d sockets are open", n)
	}
}

// TestCountedResources: the metric counts what is in force of each kind, however often it was changed, and nothing that was refused.
func TestCountedResources(t *testing.T) {
	t.Parallel()
	metrics := observe.NewMetrics(observe.MetricsOptions{})
	g := startGatewayWith(t, Options{Metrics: metrics})
	const key = "Service/default/b/80"
	counted := func(when string, want map[string]float64) {
		t.Helper()
		families, err := metrics.Gatherer().Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			if f.GetName() != "moongate_config_resources" {
				continue
			}
			for _, m := range f.Metric {
				if n := m.GetGauge().GetValue(); n > 0 {
					got[m.Label[0].GetValue()] = n
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	resources := append(backend(key, "127.0.0.1:1"), g.httpListener("http", ""), routeOf("r", "default/gw/http", "", anyRule()))
	for range 2 {
		g.apply(resources)
		counted("applied", map[string]float64{"Backend": 1, "Endpoints": 1, "Listener": 1, "Route": 1})
	}
	invalid := routeOf("invalid", "default/gw/http", "", &config.Rule{BackendRefs: []*config.BackendRef{{Backend: "nothing", Weight: 1}}})
	if r := g.Apply(&config.Update{Upserts: []*config.Resource{invalid}}); len(r.Rejected) != 1 {
		t.Fatalf("rejected: %v", r.Rejected)
	}
	for range 2 {
		g.apply(nil, config.ID{Kind: config.KindEndpoints, Key: key})
		counted("without endpoints", map[string]float64{"Backend": 1, "Listener": 1, "Route": 1})
	}
	g.apply(nil, config.ID{Kind: config.KindBackend, Key: key}, listenerID("http"), routeID("r"))
	counted("removed", map[string]float64{})
}
