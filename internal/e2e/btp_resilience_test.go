package e2e

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// attempts counts the requests for each path that a backend gets.
type attempts struct{ n sync.Map }

// of counts one more, and returns how many there are.
func (a *attempts) of(path string) int32 {
	n, _ := a.n.LoadOrStore(path, new(atomic.Int32))
	return n.(*atomic.Int32).Add(1)
}

// wantCode takes what inBackground has returned.
func wantCode(t *testing.T, what string, got <-chan int, want int) {
	t.Helper()
	select {
	case n := <-got:
		if n != want {
			t.Errorf("%s: %d, want %d", what, n, want)
		}
	case <-time.After(patience):
		t.Fatalf("%s has no answer", what)
	}
}

func TestExampleBackendRetries(t *testing.T) {
	t.Parallel()
	var count attempts
	held, goOn := make(chan bool, 1), make(chan bool)
	b := newBackend(t, "app", func(w http.ResponseWriter, r *http.Request) bool {
		n := count.of(r.URL.Path)
		switch path := r.URL.Path; {
		case path == "/busy/always", path == "/budget":
			return statusOf(w, http.StatusServiceUnavailable)
		case path == "/busy/reset" && n == 1:
			panic(http.ErrAbortHandler)
		case path == "/busy/limited" && n == 1:
			return statusOf(w, http.StatusTooManyRequests)
		case path == "/busy/other" || path == "/budget/held" && n == 1:
			return statusOf(w, http.StatusInternalServerError)
		case strings.HasPrefix(path, "/busy") && n < 3:
			return statusOf(w, http.StatusServiceUnavailable)
		case path == "/slow" && n == 1:
			<-r.Context().Done()
			return true
		case path == "/budget/held":
			held <- true
			<-goOn
		}
		return false
	})
	e := servePolicyExample(t, "backend-retries", map[int]int{3000: b.port, 3001: freePort(t)}) // nothing listens on the latter

	// One retry is under way while the page asks for others.
	first := e.inBackground("/budget/held")
	<-held
	e.page()
	if n := e.metric("moongate_upstream_circuit_breaker_overflows_total", `limit="retries"`); n != 1 {
		t.Errorf("%v retries were refused, want 1", n)
	}
	close(goOn)
	wantCode(t, "the request with the retry", first, 200)

	for path, want := range map[string]struct {
		status, attempts int
		reason           string
	}{
		"/busy/always":  {503, 4, "retries_exhausted"},
		"/busy/limited": {200, 3, "ok"}, // 429, 503, 200
		"/busy/other":   {500, 1, "ok"},
		"/busy/reset":   {200, 3, "ok"},
	} {
		e.wants(path, want.status, want.reason)
		if n := e.logs(path, want.reason)["attempts"]; n != float64(want.attempts) {
			t.Errorf("%s: %v attempts, want %d", path, n, want.attempts)
		}
	}
	testkit.Eventually(t, "an endpoint that takes no connection is tried", func() bool {
		if status := e.get("/none").StatusCode; status != 200 {
			t.Errorf("without a policy: %d where another endpoint is there", status)
		}
		return e.metric("moongate_upstream_connect_errors_total", "default/partly") > 0
	})
	if a := (ask{method: "POST", url: e.url("/busy/post"), body: "one order"}).do(t); a.StatusCode != 200 || a.echo.Body != "one order" {
		t.Errorf("a POST that is sent again: %d, %q", a.StatusCode, a.echo.Body)
	}
}

func TestExampleCircuitBreakers(t *testing.T) {
	t.Parallel()
	held, goOn := make(chan string, 8), make(chan bool)
	b := newBackend(t, "app", func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Connection", r.RemoteAddr)
		if strings.HasSuffix(r.URL.Path, "/held") {
			held <- r.URL.Path
			<-goOn
		}
		return false
	})
	e := servePolicyExample(t, "circuit-breakers", map[int]int{3000: b.port})
	const overflows, open = "moongate_upstream_circuit_breaker_overflows_total", "moongate_upstream_circuit_breaker_open"

	requests, pending, endpoint := e.inBackground("/requests/held"), e.inBackground("/pending/held"), e.inBackground("/endpoint/held")
	for range 3 {
		<-held
	}
	waiting, alsoWaiting := e.inBackground("/pending/waits"), e.inBackground("/endpoint/waits")
	testkit.Eventually(t, "two requests wait", func() bool { return e.metric("moongate_upstream_requests_waiting") == 2 })
	e.page()
	for path, limit := range map[string]string{"/requests": "requests", "/pending": "pending_requests", "/endpoint": "pending_requests"} {
		before := e.metric(overflows, "default"+path+`"`, `limit="`+limit+`"`)
		if a := e.wants(path, 503, "circuit_breaker_open"); a.Header.Get("X-Envoy-Overloaded") != "true" {
			t.Errorf("%s: X-Envoy-Overloaded %q", path, a.Header.Get("X-Envoy-Overloaded"))
		}
		if n := e.metric(overflows, "default"+path+`"`, `limit="`+limit+`"`); n != before+1 {
			t.Errorf("%s: %v overflows of %s, want %v", path, n, limit, before+1)
		}
	}
	for _, labels := range [][]string{{"default/requests", `limit="requests"`}, {"default/pending", `limit="connections"`}, {"default/pending", `limit="pending_requests"`}, {"default/endpoint", `limit="endpoint_connections"`}} {
		if e.metric(open, labels...) != 1 {
			t.Errorf("%v is not open", labels)
		}
	}
	close(goOn)
	wantCode(t, "the request that passed", requests, 200)
	wantCode(t, "the request with the connection", pending, 200)
	wantCode(t, "the request that waited for it", waiting, 200)
	wantCode(t, "the request with the endpoint's connection", endpoint, 200)
	wantCode(t, "the request that waited for it", alsoWaiting, 200)
	for _, path := range []string{"/requests", "/pending", "/endpoint"} {
		testkit.Eventually(t, path+" is answered again", func() bool { return e.get(path).StatusCode == 200 })
	}

	carried := map[string]int{}
	for range 6 {
		carried[e.get("/renewed").Header.Get("X-Connection")]++
	}
	for connection, n := range carried {
		if n > 2 {
			t.Errorf("connection %s has carried %d requests, want at most 2", connection, n)
		}
	}
}

// proxiedBackend speaks HTTP/1.1 behind the PROXY header that each connection begins with, and answers what the header says.
func proxiedBackend(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	serve := func(c net.Conn) error {
		defer c.Close()
		r := bufio.NewReader(c)
		if _, err := r.Peek(1); err != nil { // a check that the end of the gateway cut off before it had sent anything
			return nil
		}
		from, err := readProxyHeader(r)
		if err != nil {
			return err
		}
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return nil
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return nil
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-Client: %s\r\nContent-Length: 0\r\n\r\n", from)
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				if err := serve(c); err != nil {
					t.Errorf("the backend: %v", err)
				}
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// readProxyHeader reads a PROXY header of either version, for TCP over IPv4, and returns the version and the client.
func readProxyHeader(r *bufio.Reader) (string, error) {
	start, err := r.Peek(12)
	if err != nil {
		return "", err
	}
	if string(start) != "\r\n\r\n\x00\r\nQUIT\n" {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", err
		}
		if line == "PROXY UNKNOWN\r\n" {
			return "v1 of the proxy itself", nil
		}
		var client, own string
		var from, to int
		if _, err := fmt.Sscanf(line, "PROXY TCP4 %s %s %d %d\r\n", &client, &own, &from, &to); err != nil {
			return "", fmt.Errorf("no PROXY header: %q", line)
		}
		return fmt.Sprintf("v1 %s:%d", client, from), nil
	}
	head := make([]byte, 16)
	if _, err := io.ReadFull(r, head); err != nil {
		return "", err
	}
	rest := make([]byte, binary.BigEndian.Uint16(head[14:]))
	if _, err := io.ReadFull(r, rest); err != nil {
		return "", err
	}
	if head[12] == 0x20 { // LOCAL
		return "v2 of the proxy itself", nil
	}
	if head[12] != 0x21 || head[13] != 0x11 || len(rest) < 12 { // PROXY, TCP over IPv4
		return "", fmt.Errorf("version 2: %x %x", head, rest)
	}
	return fmt.Sprintf("v2 %s:%d", net.IP(rest[:4]), binary.BigEndian.Uint16(rest[8:])), nil
}

func TestExampleBackendProxyProtocol(t *testing.T) {
	t.Parallel()
	e := servePolicyExample(t, "backend-proxy-protocol", map[int]int{3000: proxiedBackend(t)})
	e.page()
	for _, version := range []string{"v1", "v2"} {
		for range 2 { // two clients
			c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", e.port))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			r := bufio.NewReader(c)
			for range 2 { // requests
				fmt.Fprintf(c, "GET /%s HTTP/1.1\r\nHost: h\r\n\r\n", version)
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := resp.Header.Get("X-Client"), version+" "+c.LocalAddr().String(); got != want {
					t.Errorf("the backend was told of %q, want %q", got, want)
				}
			}
		}
	}
	testkit.Eventually(t, "a check has passed", func() bool {
		return e.metric("moongate_upstream_health_checks_total", "default/checked", `result="passed"`) > 0
	})
	if n := e.metric("moongate_upstream_health_checks_total", "default/checked", `result="failed"`); n != 0 {
		t.Errorf("%v checks have failed", n)
	}
}

// patient is a backend whose health is asked for, and set by the test.
type patient struct {
	*backend
	sick  atomic.Bool
	hosts sync.Map     // by which its health was asked for
	calls *grpc.Server // answers checks by gRPC
	grpc  *health.Server
}

func newPatient(t *testing.T, name string) *patient {
	p := &patient{calls: grpc.NewServer(), grpc: health.NewServer()}
	healthpb.RegisterHealthServer(p.calls, p.grpc)
	p.set(false)
	p.backend = &backend{name: name}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/grpc.health.v1.Health/"):
			p.calls.ServeHTTP(w, r)
		case r.URL.Path == "/healthz":
			p.hosts.Store(r.Host, true)
			if p.sick.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		default:
			w.Header().Set("X-Backend", name)
			io.WriteString(w, "{}\n")
		}
	}))
	p.Config.Protocols = new(http.Protocols)
	p.Config.Protocols.SetHTTP1(true)
	p.Config.Protocols.SetUnencryptedHTTP2(true)
	p.Start()
	t.Cleanup(p.Close)
	p.port = p.Listener.Addr().(*net.TCPAddr).Port
	return p
}

func (p *patient) set(sick bool) {
	p.sick.Store(sick)
	status := healthpb.HealthCheckResponse_SERVING
	if sick {
		status = healthpb.HealthCheckResponse_NOT_SERVING
	}
	p.grpc.SetServingStatus("orders", status)
}

func TestExampleHealthChecks(t *testing.T) {
	t.Parallel()
	well, ill, wellCalls, illCalls := newPatient(t, "well"), newPatient(t, "ill"), newPatient(t, "well"), newPatient(t, "ill")
	ill.set(true)
	illCalls.set(true)
	e := servePolicyExample(t, "health-checks", map[int]int{3000: well.port, 3001: ill.port, 3002: wellCalls.port, 3003: illCalls.port})
	const unhealthy = "moongate_upstream_endpoints_unhealthy"
	is := func(policy, health string) float64 {
		return e.metric(unhealthy, "default/"+policy+`"`, `health="`+health+`"`)
	}
	paths := []string{"http", "tcp", "grpc"}
	for _, policy := range append(paths, "panic") {
		testkit.Eventually(t, policy+" has found out", func() bool { return is(policy, "unhealthy") == 1 && is(policy, "unknown") == 0 })
	}
	e.page()
	for _, path := range paths {
		if by := e.answered("/"+path, 40); by["well"] != 40 {
			t.Errorf("/%s: %v, want the endpoint that is well", path, by)
		}
	}
	testkit.Eventually(t, "both are asked in a panic", func() bool { return e.answered("/panic", 1)["ill"] == 1 })
	if _, ok := well.hosts.Load("orders.example.com"); !ok {
		t.Error("no check has the hostname")
	}

	ill.set(false)
	illCalls.set(false)
	for _, path := range paths {
		testkit.Eventually(t, "/"+path+" has both again", func() bool { return e.answered("/"+path, 1)["ill"] == 1 })
	}
	testkit.Eventually(t, "events", func() bool {
		out := e.out.String()
		return strings.Contains(out, `"event":"FailureSeriesStart"`) && strings.Count(out, `"event":"HealthyTransition"`) == 2
	})
	if out := e.out.String(); strings.Contains(out, `"event":"Success"`) || strings.Contains(out, `"event":"Failure"`) {
		t.Error("events are logged that are not asked for")
	}
	if e.metric("moongate_upstream_health_checks_total", "default/http", `result="failed"`) == 0 {
		t.Error("no check has failed")
	}
}

// ejectedLine is the line of moongate backends for an endpoint that is ejected.
var ejectedLine = regexp.MustCompile(`(?m)^  127\.0\.0\.1:\d+ +ejected( for [\d.]+m?s)? `)

func TestExampleOutlierDetection(t *testing.T) {
	t.Parallel()
	var status atomic.Int32 // of the endpoint that fails; 0 is a reset, 200 that it does not
	var asked attempts
	good := newBackend(t, "good", nil)
	bad := newBackend(t, "bad", func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Bad", fmt.Sprint(asked.of(r.URL.Path)))
		switch n := int(status.Load()); n {
		case 0:
			panic(http.ErrAbortHandler)
		case 200:
			return false
		default:
			return statusOf(w, n)
		}
	})
	e := servePolicyExample(t, "outlier-detection", map[int]int{3000: good.port, 3001: bad.port})
	ejections := func(policy, reason string) float64 {
		return e.metric("moongate_upstream_ejections_total", "default/"+policy+`"`, `reason="`+reason+`"`)
	}
	var ejected time.Time // not before
	// failing asks until the bad endpoint has been ejected, and returns how many requests have failed.
	failing := func(policy, reason string) (failed int) {
		t.Helper()
		testkit.Eventually(t, policy+": the endpoint is ejected", func() bool {
			begun := time.Now()
			if e.get("/"+policy).StatusCode >= 500 {
				failed++
				ejected = begun
			}
			return ejections(policy, reason) == 1
		})
		return failed
	}

	status.Store(500)
	if n := failing("errors", "consecutive_5xx"); n != 3 {
		t.Errorf("%d requests have failed, want 3", n)
	}
	if shown, stderr, code := moongate("backends", "default/errors", "--admin-address", e.admin); code != 0 || !ejectedLine.MatchString(shown) || !strings.Contains(shown, fmt.Sprintf(":%d   healthy ", good.port)) {
		t.Errorf("backends: exit code %d\n%s%s", code, shown, stderr)
	}
	e.page()
	status.Store(200)
	testkit.Eventually(t, "the endpoint is used again", func() bool { return e.get("/errors").Header.Get("X-Bad") != "" })
	if d := time.Since(ejected); d < 2*time.Second {
		t.Errorf("it is used again after %v", d)
	}

	status.Store(502)
	if n := failing("gateway-errors", "consecutive_gateway_errors"); n != 2 {
		t.Errorf("%d requests have failed, want 2", n)
	}
	if by := e.answered("/gateway-errors", 20); by["good"] != 20 {
		t.Errorf("while one is ejected: %v", by)
	}
	status.Store(0)
	if n := failing("resets", "consecutive_local_origin_failures"); n != 2 {
		t.Errorf("%d requests have failed, want 2", n)
	}
	if by := e.answered("/resets", 20); by["good"] != 20 {
		t.Errorf("while one is ejected: %v", by)
	}

	// 10 % of two endpoints are none.
	status.Store(500)
	n := 0
	testkit.Eventually(t, "both are asked all the time", func() bool {
		if e.get("/at-most").StatusCode == 500 {
			n++
		}
		return n == 5
	})
	if n := ejections("at-most", "consecutive_5xx"); n != 0 {
		t.Errorf("%v ejections, want none", n)
	}
}
