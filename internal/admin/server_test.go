package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// start serves on a free port until the test ends.
func start(t *testing.T, o Options) string {
	t.Helper()
	if o.Address == "" {
		o.Address = "127.0.0.1:0"
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), <-served); err != nil {
			t.Error(err)
		}
	})
	return "http://" + s.Addr().String()
}

type reply struct {
	status int
	header http.Header
	body   string
}

// client keeps no connection, so that a shutdown has none to wait for.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       20 * time.Second,
}

// ask sends header as names and values in turn.
func ask(t *testing.T, method, url, host string, header ...string) reply {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

func get(t *testing.T, url string) reply { t.Helper(); return ask(t, "GET", url, "") }

// TestAlive checks that what only a restart helps against is told to the probe of liveness alone.
func TestAlive(t *testing.T) {
	var why atomic.Pointer[string]
	url := start(t, Options{Ready: func() error { return nil }, Alive: func() error {
		if p := why.Load(); p != nil {
			return errors.New(*p)
		}
		return nil
	}})
	if r := get(t, url+"/healthz"); r.status != http.StatusOK || r.body != "ok\n" {
		t.Errorf("alive: %d %q", r.status, r.body)
	}
	hangs := "translation hangs"
	why.Store(&hangs)
	if r := get(t, url+"/healthz"); r.status != http.StatusServiceUnavailable || r.body != "not alive: translation hangs\n" {
		t.Errorf("not alive: %d %q", r.status, r.body)
	}
	if r := get(t, url+"/readyz"); r.status != http.StatusOK {
		t.Errorf("ready: %d %q", r.status, r.body)
	}
}

func TestHealthAndReadiness(t *testing.T) {
	var why atomic.Pointer[string]
	url := start(t, Options{Ready: func() error {
		if p := why.Load(); p != nil {
			return errors.New(*p)
		}
		return nil
	}})
	for _, text := range []string{"the manifests are not read yet", "shutting down"} {
		why.Store(&text)
		if r := get(t, url+"/readyz"); r.status != 503 || !strings.Contains(r.body, text) {
			t.Errorf("not ready: %d %q", r.status, r.body)
		}
		if r := get(t, url+"/healthz"); r.status != 200 {
			t.Errorf("healthz while not ready: %d", r.status)
		}
	}
	ending := start(t, Options{Ready: func() error { return fmt.Errorf("soon: %w", ErrShutdown) }})
	for query, status := range map[string]int{"": 503, "?exclude=": 503, "?exclude=etcd": 503, "?exclude=shutdown": 200, "?exclude=etcd&exclude=shutdown": 200} {
		if r := get(t, ending+"/readyz"+query); r.status != status {
			t.Errorf("ending, %q: %d %q, want %d", query, r.status, r.body, status)
		}
	}
	if r := get(t, url+"/readyz?exclude=shutdown"); r.status != 503 {
		t.Errorf("not ready for another reason: %d %q", r.status, r.body)
	}
	why.Store(nil)
	if r := get(t, url+"/readyz"); r.status != 200 || r.body != "ready\n" {
		t.Errorf("ready: %d %q", r.status, r.body)
	}
}

// Without any callback nothing panics and nothing claims to be well.
func TestZeroOptions(t *testing.T) {
	url := start(t, Options{})
	for path, status := range map[string]int{"/": 200, "/healthz": 200, "/readyz": 503, "/metrics": 503, "/status": 200, "/config": 503} {
		if r := get(t, url+path); r.status != status {
			t.Errorf("%s: %d, want %d", path, r.status, status)
		}
	}
	if r := get(t, url+"/status"); strings.Join(strings.Fields(r.body), "") != `{"items":[],"problems":[]}` {
		t.Errorf("empty status is %s", r.body)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "moongate_example_total", Help: "An example."})
	registry.MustRegister(c)
	c.Add(3)
	if r := get(t, start(t, Options{Gatherer: registry})+"/metrics"); r.status != 200 || !strings.Contains(r.body, "moongate_example_total 3\n") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestStatus(t *testing.T) {
	type item struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	}
	problem := Problem{File: "routes.yaml", Line: 7, Object: "HTTPRoute default/shop", Field: "spec.rules[0]", Message: "not a rule", Remedy: "write a mapping"}
	url := start(t, Options{Status: func() Status {
		return Status{Items: []any{item{"Gateway", "b"}, item{"Gateway", "a"}}, Problems: []Problem{problem}}
	}})
	r := get(t, url+"/status")
	var got struct {
		Items    []item
		Problems []Problem
	}
	if err := json.Unmarshal([]byte(r.body), &got); err != nil {
		t.Fatal(err)
	}
	if r.status != 200 || r.header.Get("Content-Type") != "application/json" || len(got.Items) != 2 || got.Items[0].Name != "b" || got.Problems[0] != problem {
		t.Errorf("%d %v %s", r.status, r.header, r.body)
	}
}

func TestOnlyReads(t *testing.T) {
	url := start(t, Options{})
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} {
		if r := ask(t, method, url+"/status", ""); r.status != 405 || r.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d, Allow %q", method, r.status, r.header.Get("Allow"))
		}
	}
	if r := ask(t, "HEAD", url+"/", ""); r.status != 200 || r.body != "" || r.header.Get("Content-Length") == "0" {
		t.Errorf("HEAD: %d %q %v", r.status, r.body, r.header)
	}
}

func TestUnknownPathListsEndpoints(t *testing.T) {
	url := start(t, Options{})
	for _, path := range []string{"/nothing", "/healthz/", "/status/x", "//", "/debug/", "/debug/pprofx"} {
		r := get(t, url+path)
		if r.status != 404 {
			t.Errorf("%s: %d", path, r.status)
		}
		for _, e := range endpoints() {
			if !strings.Contains(r.body, e.path) || !strings.Contains(r.body, e.description) {
				t.Errorf("%s does not name %s: %s", path, e.path, r.body)
			}
		}
	}
}

func TestProfiles(t *testing.T) {
	url := start(t, Options{})
	for path, status := range map[string]int{
		"/debug/pprof":                        301,
		"/debug/pprof/":                       200,
		"/debug/pprof/heap":                   200,
		"/debug/pprof/goroutine?debug=1":      200,
		"/debug/pprof/cmdline":                200,
		"/debug/pprof/symbol":                 200,
		"/debug/pprof/profile?seconds=1":      200,
		"/debug/pprof/trace?seconds=1":        200,
		"/debug/pprof/nothing":                404,
		"/debug/pprof/profile?seconds=999999": 400,
		"/debug/pprof/profile?seconds=-1":     400,
	} {
		if r := get(t, url+path); r.status != status || status == 200 && r.body == "" {
			t.Errorf("%s: %d with %d bytes, want %d", path, r.status, len(r.body), status)
		}
	}
}

// A name that a foreign site makes resolve to 127.0.0.1 gets nothing.
func TestHostCheck(t *testing.T) {
	url := start(t, Options{})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	for host, status := range map[string]int{
		"localhost": 200, "LocalHost:" + port: 200, "127.0.0.1:" + port: 200, "127.0.0.1": 200, "[::1]:1": 200, "[::1]": 200,
		"evil.example": 403, "evil.example:" + port: 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "192.0.2.1": 403, "0.0.0.0": 403,
	} {
		if r := ask(t, "GET", url+"/healthz", host); r.status != status {
			t.Errorf("Host %s: %d, want %d", host, r.status, status)
		}
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /healthz HTTP/1.0\r\n\r\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
		t.Errorf("HTTP/1.0 without Host: %q %v", line, err)
	}
}

// TestHostCheckBeyondLoopback asks a server that others can reach too. Probes may use any name; what shows
// state is for addresses and for names that no foreign site can own.
func TestHostCheckBeyondLoopback(t *testing.T) {
	url := start(t, Options{Address: "0.0.0.0:0"})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	url = "http://127.0.0.1:" + port
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	state := []string{"/", "/status", "/debug/pprof/", "/debug/pprof/cmdline", "/nothing"}
	for host, allowed := range map[string]bool{
		"10.0.0.7:" + port: true, "[2001:db8::1]:" + port: true, "localhost:" + port: true, "gateway:" + port: true, own + ":" + port: true,
		"moongate.edge.svc:" + port: true, "moongate.edge.svc.cluster.local.": true,
		"evil.example": false, "evil.example:" + port: false, "10.0.0.7.evil.example": false, "svc": true, "evilsvc.example": false,
		"127.0.0.1.nip.example:" + port: false, "cluster.local.example": false,
	} {
		for _, path := range state {
			if r := ask(t, "GET", url+path, host); (r.status != 403) != allowed {
				t.Errorf("Host %s, %s: %d, allowed %v", host, path, r.status, allowed)
			}
		}
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			if r := ask(t, "GET", url+path, host); r.status == 403 {
				t.Errorf("Host %s, %s: a probe is refused", host, path)
			}
		}
	}
	// What only a client that is no script of a page can say.
	if r := ask(t, "GET", url+"/status", "gateway.corp.example", "Sec-Fetch-Site", "none"); r.status != 200 {
		t.Errorf("a client that is no page gets %d", r.status)
	}
}

// TestProfileBeyondLoopback asks for profiles by an address, as an image of any page can: browsers do not say then
// where the request comes from.
func TestProfileBeyondLoopback(t *testing.T) {
	url := start(t, Options{Address: "0.0.0.0:0"})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	url = "http://127.0.0.1:" + port
	const browser, tool = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Go-http-client/1.1"
	for _, tc := range []struct {
		host, path, agent string
		status            int
	}{
		{"10.1.2.3:9901", "/debug/pprof/symbol", browser, 403},
		{"10.1.2.3:9901", "/debug/pprof/symbol", "AppleCoreMedia/1.0.0.20A362", 403},
		{"10.1.2.3:9901", "/debug/pprof/symbol", "curl/8.14.1", 200},
		{"10.1.2.3:9901", "/debug/pprof/symbol", "Wget", 200}, // BusyBox
		{"10.1.2.3:9901", "/debug/pprof/profile?seconds=300", browser, 403},
		{"10.1.2.3:9901", "/debug/pprof", browser, 403},
		{"moongate.edge.svc", "/debug/pprof/symbol", browser, 403},
		{"10.1.2.3:9901", "/debug/pprof/symbol", tool, 200},
		{"10.1.2.3:9901", "/status", browser, 200},
		{"localhost:9901", "/debug/pprof/symbol", browser, 200},
		{"127.0.0.1:9901", "/debug/pprof/symbol", browser, 200},
	} {
		r := ask(t, "GET", url+tc.path, tc.host, "User-Agent", tc.agent)
		if r.status != tc.status {
			t.Errorf("%s%s from %.12s: %d, want %d", tc.host, tc.path, tc.agent, r.status, tc.status)
		}
		if tc.status == 403 && !strings.Contains(r.body, "go tool pprof") {
			t.Errorf("the refusal does not say what to do: %.200q", r.body)
		}
	}
}

// TestCrossSite asks as browsers do on behalf of pages of other sites.
func TestCrossSite(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		url := start(t, Options{Address: address})
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
		url = "http://127.0.0.1:" + port
		for site, allowed := range map[string]bool{"": true, "none": true, "same-origin": true, "same-site": false, "cross-site": false, "else": false} {
			for _, e := range endpoints() {
				var header []string
				if site != "" {
					header = []string{"Sec-Fetch-Site", site}
				}
				r := ask(t, "GET", url+e.path, "", header...)
				if (r.status != 403) != allowed {
					t.Errorf("%s: Sec-Fetch-Site %q gets %d from %s", address, site, r.status, e.path)
				}
				if !allowed && !strings.Contains(r.body, "another site") {
					t.Errorf("the refusal does not say why: %.200q", r.body)
				}
			}
		}
		// An older browser says where a script's request comes from, if not how.
		if r := ask(t, "GET", url+"/debug/pprof/", "", "Origin", "http://evil.example"); r.status != 403 {
			t.Errorf("%s: a foreign Origin gets %d", address, r.status)
		}
		if r := ask(t, "GET", url+"/debug/pprof/", "", "Origin", url); r.status != 200 {
			t.Errorf("%s: the own Origin gets %d", address, r.status)
		}
	}
}

func TestAddressInUse(t *testing.T) {
	url := start(t, Options{})
	address := strings.TrimPrefix(url, "http://")
	_, err := Listen(Options{Address: address})
	if err == nil || !strings.Contains(err.Error(), "--admin-address") || !strings.Contains(err.Error(), address) {
		t.Errorf("error %v, want one that names --admin-address and %s", err, address)
	}
	if _, err := Listen(Options{Address: "nonsense"}); err == nil || !strings.Contains(err.Error(), "--admin-address") {
		t.Errorf("error %v, want one that names --admin-address", err)
	}
}

func TestShutdownLetsRequestsFinish(t *testing.T) {
	inside, finish := make(chan struct{}), make(chan struct{})
	s, err := Listen(Options{Address: "127.0.0.1:0", Config: func() (any, error) {
		close(inside)
		<-finish
		return "done", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	served, answered := make(chan error, 1), make(chan string, 1)
	go func() { served <- s.Serve() }()
	go func() {
		resp, err := client.Get("http://" + s.Addr().String() + "/config")
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		answered <- string(b)
	}()
	<-inside
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(context.Background()) }()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
		c.Close()
		t.Error("still listening during shutdown")
	}
	close(finish)
	if got := <-answered; got != "\"done\"\n" {
		t.Errorf("the request in flight got %q", got)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

func TestShutdownIsBounded(t *testing.T) {
	inside, finish := make(chan struct{}), make(chan struct{})
	s, err := Listen(Options{Address: "127.0.0.1:0", Config: func() (any, error) {
		close(inside)
		<-finish
		return nil, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer close(finish)
	go s.Serve()
	go client.Get("http://" + s.Addr().String() + "/config")
	<-inside
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that requests were cut off", err)
	}
}

func TestShutdownWithoutServe(t *testing.T) {
	s, err := Listen(Options{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
		c.Close()
		t.Error("the port is still bound")
	}
}

// TestPaths has a server for health alone, as others than this machine can reach.
func TestPaths(t *testing.T) {
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/metrics": 503, // nothing is collected here
		"/": 404, "/status": 404, "/config": 404, "/debug/pprof": 404, "/debug/pprof/": 404, "/debug/pprof/heap": 404, "/healthz/x": 404, "/nothing": 404,
	} {
		s, err := Listen(Options{Address: "127.0.0.1:0", Flag: "--health-address", Paths: HealthPaths, Ready: func() error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "localhost"
		s.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s answers %d, want %d", path, w.Code, want)
		}
		if want == 404 && (strings.Contains(w.Body.String(), "/config") || !strings.Contains(w.Body.String(), "/healthz")) {
			t.Errorf("%s tells of other endpoints than there are:\n%s", path, w.Body)
		}
		if _, err := Listen(Options{Address: s.Addr().String(), Flag: "--health-address"}); err == nil || !strings.Contains(err.Error(), "--health-address") {
			t.Errorf("a taken address: %v, want the flag's name", err)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
