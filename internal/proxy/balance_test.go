package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moongate-dev/moongate/internal/config"
)

const balancedKey = "Service/default/b/80"

// balancedBackend is the Backend of serve with a load balancer.
func balancedBackend(l *config.LoadBalancer) *config.Backend {
	return &config.Backend{Key: balancedKey, Traffic: &config.BackendTraffic{LoadBalancer: l}}
}

func backendOf(b *config.Backend) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Backend{Backend: b}}
}

func hashBy(h *config.ConsistentHash) *config.LoadBalancer {
	h.TableSize = 65537
	return &config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH, ConsistentHash: h}
}

// asking is a client that sends requests with these lines, one after the other, and returns the last response and who has answered.
type asking struct {
	t testing.TB
	c net.Conn
	r *bufio.Reader
}

func (g *gateway) asking() *asking {
	c := g.dial()
	return &asking{g.t, c, bufio.NewReader(c)}
}

func (a *asking) ask(target, lines string) (resp *http.Response, name string) {
	a.t.Helper()
	fmt.Fprintf(a.c, "GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", target, lines)
	resp, err := http.ReadResponse(a.r, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp, string(b)
}

func (g *gateway) balanced(l *config.LoadBalancer, change func(*config.Rule), addrs ...string) {
	g.t.Helper()
	g.serve(addrs[0], change)
	g.apply([]*config.Resource{backend(balancedKey, addrs...)[1], backendOf(balancedBackend(l))})
}

func newMembers(t testing.TB, n int) (addrs []string) {
	for i := range n {
		addrs = append(addrs, newMember(t, fmt.Sprint(i)).addr)
	}
	return addrs
}

// TestConsistentHash: requests with the same input go to one endpoint, others are spread, and retries go to the next one.
func TestConsistentHash(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addrs := newMembers(t, 5)
	for name, tc := range map[string]struct {
		hash  *config.ConsistentHash
		input func(i int) (target, lines string)
		noise func(i int) (target, lines string) // which is not hashed
	}{
		"headers": {&config.ConsistentHash{Headers: []string{"x-user", "x-tenant"}},
			func(i int) (string, string) { return "/", fmt.Sprintf("X-User: %d\r\nx-tenant: a\r\n", i) },
			func(i int) (string, string) { return "/" + fmt.Sprint(i), fmt.Sprintf("X-Other: %d\r\n", i) }},
		"query parameters": {&config.ConsistentHash{QueryParams: []string{"user", "b"}},
			func(i int) (string, string) { return fmt.Sprintf("/?a=1&user=%d&b=2", i), "" },
			func(i int) (string, string) { return "", fmt.Sprintf("X-Other: %d\r\n", i) }},
		"source": {&config.ConsistentHash{SourceIp: true},
			func(i int) (string, string) { return "/", fmt.Sprintf("X-Forwarded-For: 192.0.2.%d\r\n", i) },
			func(i int) (string, string) { return "/" + fmt.Sprint(i), "" }},
		"cookie": {&config.ConsistentHash{Cookie: &config.HashCookie{Name: "s"}},
			func(i int) (string, string) { return "/", fmt.Sprintf("Cookie: a=b; s=%d\r\n", i) },
			func(i int) (string, string) { return "/" + fmt.Sprint(i), "" }},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, Timeouts{})
			g.balanced(hashBy(tc.hash), nil, addrs...)
			l := g.httpListener("http", "")
			l.GetListener().TrustedProxies = []string{"127.0.0.0/8"}
			g.apply([]*config.Resource{l})
			seen := map[string]bool{}
			clients := []*asking{g.asking(), g.asking()}
			for i := range 40 {
				target, lines := tc.input(i)
				resp, first := clients[0].ask(target, lines)
				if resp.Header.Get("Set-Cookie") != "" {
					t.Fatalf("it sets the cookie %q", resp.Header.Get("Set-Cookie"))
				}
				seen[first] = true
				for k := range 3 {
					otherTarget, otherLines := tc.noise(k)
					if strings.Contains(target, "?") {
						otherTarget = target
					}
					if _, again := clients[k%2].ask(otherTarget, lines+otherLines); again != first {
						t.Fatalf("input %d went to %s and %s", i, first, again)
					}
				}
			}
			if len(seen) < 3 { // where each is is left to chance, since ports are
				t.Errorf("40 inputs went to %d of 5 endpoints", len(seen))
			}
			// Without the input there is nothing to be equal by.
			if name == "headers" || name == "query parameters" {
				clear(seen)
				for range 60 {
					_, at := clients[0].ask("/", "")
					seen[at] = true
				}
				if len(seen) < 3 {
					t.Errorf("60 requests without an input went to %d endpoints", len(seen))
				}
			}
		})
	}
}

// TestHashOfEncodedQuery: query parameters are equal that mean the same, as they are for matching, and others are not.
func TestHashOfEncodedQuery(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.balanced(hashBy(&config.ConsistentHash{QueryParams: []string{"user id"}}), nil, newMembers(t, 5)...)
	client := g.asking()
	seen, long := map[string]bool{}, strings.Repeat("x", 200)
	for i := range 40 {
		_, first := client.ask(fmt.Sprintf("/?user%%20id=%%%02x%%20b%s", 'A'+i%26, strings.Repeat("c", i/26)+long), "")
		seen[first] = true
		for _, name := range []string{"user+id", "%75ser%20id", "a=1&user%20id"} {
			target := fmt.Sprintf("/?%s=%c+b%s", name, 'A'+i%26, strings.Repeat("c", i/26)+long)
			if _, again := client.ask(target, ""); again != first {
				t.Errorf("%s goes to %s, its equal to %s", target, again, first)
			}
		}
	}
	if len(seen) < 3 {
		t.Errorf("40 values went to %d of 5 endpoints", len(seen))
	}
}

// TestHashCookie: a client without the cookie gets one, which nobody can guess, and stays where it was.
func TestHashCookie(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	addrs := newMembers(t, 5)
	cookie := &config.HashCookie{Name: "place", TtlNanos: int64(90 * time.Second), Attributes: []*config.CookieAttribute{{Name: "HttpOnly"}}}
	g.balanced(hashBy(&config.ConsistentHash{Cookie: cookie}), nil, addrs...)
	values, seen := map[string]bool{}, map[string]bool{}
	for range 30 {
		c := g.asking()
		resp, first := c.ask("/", "Cookie: place=; other=1\r\n")
		line := resp.Header.Get("Set-Cookie")
		value, attributes, _ := strings.Cut(strings.TrimPrefix(line, "place="), ";")
		if len(value) != 22 || attributes != " Max-Age=90; SameSite=Strict; Path=/; HttpOnly" || values[value] {
			t.Fatalf("it sets %q", line)
		}
		values[value], seen[first] = true, true
		for range 3 {
			resp, again := g.asking().ask("/", "Cookie: place="+value+"\r\n")
			if again != first || resp.Header.Get("Set-Cookie") != "" {
				t.Fatalf("the client was at %s, and is at %s, with Set-Cookie %q", first, again, resp.Header.Get("Set-Cookie"))
			}
		}
	}
	if len(seen) < 3 {
		t.Errorf("30 clients went to %d of 5 endpoints", len(seen))
	}
	own := httpBackend(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Set-Cookie", "place=own") })
	g.balanced(hashBy(&config.ConsistentHash{Cookie: cookie}), nil, own)
	if resp, _ := g.asking().ask("/", ""); len(resp.Header["Set-Cookie"]) != 1 || resp.Header.Get("Set-Cookie") != "place=own" {
		t.Errorf("beside the backend's own cookie: %q", resp.Header["Set-Cookie"])
	}
	failing := newMember(t, "f")
	failing.status.Store(503)
	g.balanced(hashBy(&config.ConsistentHash{Cookie: cookie}), func(r *config.Rule) {
		r.Retry = &config.Retry{Attempts: 3, Codes: []uint32{503}, BackoffNanos: 1}
	}, failing.addr, addrs[0])
	for range 10 {
		resp, name := g.asking().ask("/", "")
		if name != "0" || len(resp.Header["Set-Cookie"]) != 1 {
			t.Errorf("after a retry %q has answered, with %q", name, resp.Header["Set-Cookie"])
		}
	}
}

// TestHashCookieSwitch: a 101 has the cookie, too.
func TestHashCookieSwitch(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	addr, accepted := switching(t)
	g.balanced(hashBy(&config.ConsistentHash{Cookie: &config.HashCookie{Name: "place"}}), nil, addr)
	b := balancedBackend(hashBy(&config.ConsistentHash{Cookie: &config.HashCookie{Name: "place"}}))
	b.Protocol = config.BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET
	g.apply([]*config.Resource{backendOf(b)})
	c := g.dial()
	io.WriteString(c, upgradeRequest)
	head, err := readHead(bufio.NewReader(c))
	if err != nil || !strings.HasPrefix(head, "HTTP/1.1 101 ") || !strings.Contains(head, "Set-Cookie: place=") {
		t.Errorf("%q %v", head, err)
	}
	c.Close()
	(<-accepted).Close()
}

// reporting is a gRPC server that answers with its name, and reports its load in the trailer section.
func reporting(t testing.TB, name, report string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Echo", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
		{MethodName: "Echo", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var in wrapperspb.BytesValue
			if err := decode(&in); err != nil {
				return nil, err
			}
			if report != "" {
				grpc.SetTrailer(ctx, metadata.Pairs("endpoint-load-metrics", report, "x-kept", "1"))
			}
			return wrapperspb.Bytes([]byte(name)), nil
		}}}}, nil)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// TestBalancedGRPC: the cookie is in a gRPC response, and a report in its trailer section counts and is taken out.
func TestBalancedGRPC(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	addr := reporting(t, "a", "TEXT cpu_utilization=0.5, rps_fractional=10")
	invoke := func(cc *grpc.ClientConn) (header, trailer metadata.MD) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := cc.Invoke(ctx, "/test.Echo/Echo", wrapperspb.Bytes(nil), &wrapperspb.BytesValue{}, grpc.Header(&header), grpc.Trailer(&trailer), grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		return header, trailer
	}
	set := func(l *config.LoadBalancer) {
		b := balancedBackend(l)
		b.Protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
		g.apply([]*config.Resource{backendOf(b)})
	}
	g.serveH2C(addr, nil)
	cc, err := grpc.NewClient("passthrough:///"+g.addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	set(hashBy(&config.ConsistentHash{Cookie: &config.HashCookie{Name: "place"}}))
	header, trailer := invoke(cc)
	if c := header.Get("set-cookie"); len(c) != 1 || !strings.HasPrefix(c[0], "place=") {
		t.Errorf("Set-Cookie %q", c)
	}
	if len(trailer.Get("endpoint-load-metrics")) != 1 {
		t.Error("a backend that is not balanced by reports has lost one")
	}
	for _, keep := range []bool{false, true} {
		set(&config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_BACKEND_UTILIZATION, BackendUtilization: &config.BackendUtilization{
			WeightExpirationPeriodNanos: int64(time.Hour), KeepResponseHeaders: keep}})
		_, trailer = invoke(cc)
		if n := len(trailer.Get("endpoint-load-metrics")); (n == 1) != keep || len(trailer.Get("x-kept")) != 1 {
			t.Errorf("keep %t: %d reports in %v", keep, n, trailer)
		}
		if w := g.upstreams.Get(balancedKey).Endpoints()[0].Weight(); w != 20 {
			t.Errorf("the endpoint weighs %v, want 20", w)
		}
	}
}

// TestUtilizationInBand: reports in header and trailer sections of HTTP/1.1 count.
func TestUtilizationInBand(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	light := httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Endpoint-Load-Metrics", "TEXT application_utilization=0.1, rps_fractional=100")
		io.WriteString(w, "light")
	})
	busy := httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Endpoint-Load-Metrics")
		w.WriteHeader(200)
		io.WriteString(w, "bu")
		w.(http.Flusher).Flush()
		io.WriteString(w, "sy")
		w.Header().Set("Endpoint-Load-Metrics", `JSON {"cpu_utilization": 0.9, "rps_fractional": 100}`)
	})
	g.balanced(&config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_BACKEND_UTILIZATION, BackendUtilization: &config.BackendUtilization{
		WeightExpirationPeriodNanos: int64(time.Hour)}}, nil, light, busy)
	c := g.asking()
	count := map[string]int{}
	for i := range 400 {
		resp, name := c.ask("/", "")
		if resp.Header.Get("Endpoint-Load-Metrics") != "" || resp.Trailer.Get("Endpoint-Load-Metrics") != "" {
			t.Fatal("the client gets the report")
		}
		if i == 40 { // round robin by now
			if count["light"] == 0 || count["busy"] == 0 {
				t.Fatalf("%v of 40 before there are weights", count)
			}
			clear(count)
			g.upstreams.UpdateWeights(time.Now().Add(time.Minute))
		}
		count[name]++
	}
	if share := float64(count["light"]) / float64(count["light"]+count["busy"]); share < .85 || share > .95 {
		t.Errorf("an endpoint with a ninth of the utilization has a share of %.2f, want 0.9", share)
	}
}

// TestReportAtTheEnd: a report counts, and is taken out, in a trailer section that comes long after the head.
func TestReportAtTheEnd(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	begun := make(chan struct{})
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
		<-begun
		io.WriteString(c, "1\r\nb\r\n0\r\nEndpoint-Load-Metrics: TEXT cpu_utilization=0.5, rps_fractional=10\r\nX-Kept: 1\r\n\r\n")
	})
	g.balanced(&config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_BACKEND_UTILIZATION, BackendUtilization: &config.BackendUtilization{
		WeightExpirationPeriodNanos: int64(time.Hour)}}, nil, addr)
	c := g.asking()
	io.WriteString(c.c, "GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: TE\r\n\r\n")
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	close(begun)
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "b" {
		t.Fatalf("%q %v", b, err)
	}
	if resp.Trailer.Get("Endpoint-Load-Metrics") != "" || resp.Trailer.Get("X-Kept") != "1" {
		t.Errorf("the client gets %v", resp.Trailer)
	}
	if w := g.upstreams.Get(balancedKey).Endpoints()[0].Weight(); w != 20 {
		t.Errorf("the endpoint weighs %v, want 20", w)
	}
}

// TestOverrideHeader: a request goes to the endpoint that it names, if the backend has that, also after a retry.
func TestOverrideHeader(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	addrs := newMembers(t, 5)
	foreign := newMember(t, "foreign").addr
	g.balanced(&config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN, EndpointOverrideHeaders: []string{"x-first", "x-second"}}, nil,
		append(addrs, refusedAddr(t))...)
	g.apply(backend("Service/default/other/80", foreign))
	refused := g.upstreams.Get(balancedKey).Endpoints()[5].String()
	c := g.asking()
	for range 10 {
		for lines, want := range map[string]string{
			"X-First: " + addrs[3] + "\r\n":                                           "3",
			"X-Second: " + addrs[2] + "\r\nX-First: 10.0.0.1:80," + addrs[1] + "\r\n": "1",
			"X-Second: " + addrs[2] + "\r\nX-First: " + foreign + "\r\n":              "2",
			"X-First: " + refused + "\r\nX-Second: " + addrs[4] + "\r\n":              "4",
		} {
			if _, got := c.ask("/", lines); got != want {
				t.Errorf("%q went to %s, want %s", lines, got, want)
			}
		}
	}
	seen := map[string]bool{}
	for range 20 {
		_, got := c.ask("/", "X-First: "+foreign+"\r\nX-Other: "+addrs[0]+"\r\n")
		seen[got] = true
	}
	if len(seen) != 5 || seen["foreign"] {
		t.Errorf("requests that name no endpoint of the backend went to %v", seen)
	}
}

// TestSessionsBeforeBalancing: the token of a persistent session counts more than what requests are balanced by.
func TestSessionsBeforeBalancing(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	addrs := newMembers(t, 5)
	g.balanced(&config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN, EndpointOverrideHeaders: []string{"x-endpoint"}},
		func(r *config.Rule) { r.SessionPersistence = bySession }, addrs...)
	g.apply([]*config.Resource{sessionKeys()})
	resp, first := g.asking().ask("/", "")
	cookie := strings.Split(resp.Header.Get("Set-Cookie"), ";")[0]
	for i := range 10 {
		if _, got := g.asking().ask("/", "Cookie: "+cookie+"\r\nX-Endpoint: "+addrs[i%5]+"\r\n"); got != first {
			t.Errorf("the session is with %s, and a request went to %s", first, got)
		}
	}
}

// TestRetriesWithBalancers: with each kind a request finds the one endpoint that takes connections.
func TestRetriesWithBalancers(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	good := newMember(t, "good").addr
	for name, l := range map[string]*config.LoadBalancer{
		"least request": {EndpointOverrideHeaders: []string{"x"}},
		"round robin":   {Type: config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN},
		"random":        {Type: config.LoadBalancing_LOAD_BALANCING_RANDOM},
		"hash":          hashBy(&config.ConsistentHash{Headers: []string{"x-user"}}),
		"utilization":   {Type: config.LoadBalancing_LOAD_BALANCING_BACKEND_UTILIZATION, BackendUtilization: &config.BackendUtilization{}},
		"zones":         {ZoneWeights: []*config.ZoneWeight{{Zone: "a", Weight: 9}}},
	} {
		g := startGateway(t, Timeouts{})
		g.balanced(l, nil, refusedAddr(t), good, refusedAddr(t))
		for i := range 20 {
			if resp, got := g.asking().ask("/", fmt.Sprintf("X-User: %d\r\n", i)); got != "good" {
				t.Errorf("%s: %d %q", name, resp.StatusCode, got)
			}
		}
	}
}

// TestEndpointsChangeUnderBalancers: no request is lost while endpoints come and go.
func TestEndpointsChangeUnderBalancers(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	addrs := newMembers(t, 6)
	l := &config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN, SlowStartWindowNanos: int64(time.Second), EndpointOverrideHeaders: []string{"x-endpoint"}}
	g.balanced(l, nil, addrs...)
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			c := g.asking()
			for i := range 100 {
				if resp, _ := c.ask("/", fmt.Sprintf("X-User: %d\r\nX-Endpoint: %s\r\n", i*n, addrs[i%6])); resp.StatusCode != 200 {
					t.Errorf("status %d", resp.StatusCode)
				}
			}
		})
	}
	for i := range 40 {
		if i%4 == 3 {
			l = []*config.LoadBalancer{l, hashBy(&config.ConsistentHash{Headers: []string{"x-user"}})}[i/4%2]
		}
		g.apply([]*config.Resource{backendOf(balancedBackend(l)), backend(balancedKey, addrs[i%3:3+i%4]...)[1]})
	}
	wg.Wait()
}
