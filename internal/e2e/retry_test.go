package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// flaky fails the first requests of each id, as the query says: "fail" of them with status "code", each after "slow". A request that it
// does not fail is echoed. What it got is kept for each id.
type flaky struct {
	mu     sync.Mutex
	bodies map[string][]string
}

func (f *flaky) answer(w http.ResponseWriter, r *http.Request) bool {
	q := r.URL.Query()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return true // the gateway has given this attempt up
	}
	r.Body = io.NopCloser(bytes.NewReader(body)) // to be echoed
	f.mu.Lock()
	f.bodies[q.Get("id")] = append(f.bodies[q.Get("id")], string(body))
	n := len(f.bodies[q.Get("id")])
	f.mu.Unlock()
	fail, _ := strconv.Atoi(q.Get("fail"))
	if n > fail {
		return false
	}
	if d, err := time.ParseDuration(q.Get("slow")); err == nil {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return true
		}
	}
	switch code, _ := strconv.Atoi(q.Get("code")); code {
	case 0:
		panic(http.ErrAbortHandler) // a reset
	case 103:
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		w.Header().Set("X-Attempt", fmt.Sprint(n))
		w.WriteHeader(code)
		fmt.Fprintf(w, "failure %d", n)
	}
	return true
}

// got is what came of a request's body with each attempt.
func (f *flaky) got(id string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bodies[id]
}

func TestTaskRetry(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	b := newBackend(t, "app", func(w http.ResponseWriter, _ *http.Request) bool {
		if n.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	})
	runTask(t, "retry", map[int]*backend{3000: b})
	if n := n.Load(); n != 3 {
		t.Errorf("%d attempts, want 3", n)
	}
}

// TestRetry has backends of both protocols fail, for clients of both.
func TestRetry(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789abcdef", 16<<10)
	cases := []struct {
		name, method, rule, fail, code, slow, body string
		streamed                                   bool // the body has no length
		status, attempts                           int
		reason, says                               string
	}{
		{name: "succeeds at last", rule: "codes", fail: "2", code: "503", status: 200, attempts: 3, reason: "ok"},
		{name: "attempts are used up", rule: "codes", fail: "9", code: "500", status: 500, attempts: 4, reason: "retries_exhausted", says: "failure 4"},
		{name: "another code", rule: "codes", fail: "1", code: "502", status: 502, attempts: 1, reason: "ok", says: "failure 1"},
		{name: "no attempts", rule: "none", fail: "1", code: "503", status: 503, attempts: 1, reason: "ok"},
		{name: "no codes", rule: "bare", fail: "1", code: "503", status: 503, attempts: 1, reason: "ok"},
		{name: "no retry", rule: "plain", fail: "1", code: "503", status: 503, attempts: 1, reason: "ok"},
		{name: "HEAD", method: "HEAD", rule: "codes", fail: "1", code: "503", status: 200, attempts: 2, reason: "ok"},
		{name: "POST", method: "POST", rule: "codes", fail: "2", code: "503", body: "short", status: 200, attempts: 3, reason: "ok"},
		{name: "POST of 60 KiB", method: "POST", rule: "codes", fail: "2", code: "503", body: long[:60<<10], status: 200, attempts: 3, reason: "ok"},
		{name: "POST of unknown length", method: "POST", rule: "codes", fail: "2", code: "503", body: long[:60<<10], streamed: true, status: 200, attempts: 3, reason: "ok"},
		{name: "POST of 256 KiB", method: "POST", rule: "codes", fail: "1", code: "503", body: long, status: 503, attempts: 1, reason: "retry_body_too_large", says: "failure 1"},
		{name: "PUT of 256 KiB of unknown length", method: "PUT", rule: "codes", fail: "1", code: "503", body: long, streamed: true, status: 503, attempts: 1, reason: "retry_body_too_large"},
		{name: "behind an interim response", rule: "codes", fail: "1", code: "103", status: 503, attempts: 1, reason: "ok"},
		{name: "reset", rule: "codes", fail: "2", status: 200, attempts: 3, reason: "ok"},
		{name: "reset of a POST", method: "POST", rule: "codes", fail: "1", body: "x", status: 502, attempts: 1, reason: "upstream_reset"},
		{name: "timeouts.backendRequest", rule: "slow", fail: "1", code: "200", slow: "1m", status: 200, attempts: 2, reason: "ok"},
		{name: "timeouts.backendRequest each time", rule: "slow", fail: "9", code: "200", slow: "1m", status: 504, attempts: 3, reason: "backend_timeout"},
		{name: "timeouts.backendRequest of a POST", method: "POST", rule: "slow", fail: "1", code: "200", slow: "1m", body: "x", status: 504, attempts: 1, reason: "backend_timeout"},
		{name: "timeouts.request in an attempt", rule: "short", fail: "9", code: "503", slow: "2s", status: 504, attempts: 2, reason: "request_timeout"},
		{name: "timeouts.request in a wait", rule: "patient", fail: "9", code: "503", status: 503, attempts: 1, reason: "retries_exhausted", says: "failure 1"},
	}
	rule := func(name, retry, timeouts string) string {
		return fmt.Sprintf("  - matches: [{path: {value: /%s}}]\n    backendRefs: [{name: b, port: 80}]\n%s%s", name, retry, timeouts)
	}
	rules := "  rules:\n" +
		rule("codes", "    retry: {codes: [500, 503], attempts: 3, backoff: 1ms}\n    filters: [{type: RequestMirror, requestMirror: {backendRef: {name: copies, port: 80}}}]\n", "") +
		rule("none", "    retry: {codes: [500, 503], attempts: 0}\n", "") +
		rule("bare", "    retry: {attempts: 3}\n", "") +
		rule("plain", "", "") +
		rule("slow", "    retry: {codes: [503], attempts: 2}\n", "    timeouts: {backendRequest: 1500ms}\n") +
		rule("short", "    retry: {codes: [503], attempts: 5}\n", "    timeouts: {request: 3s}\n") +
		rule("patient", "    retry: {codes: [503], attempts: 5, backoff: 1m}\n", "    timeouts: {request: 3s}\n")

	run := func(t *testing.T, h2 bool) {
		t.Parallel()
		f := &flaky{bodies: map[string][]string{}}
		b := &backend{name: "b"}
		b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !f.answer(w, r) {
				io.Copy(w, r.Body)
			}
		}))
		b.Config.Protocols = new(http.Protocols)
		b.Config.Protocols.SetHTTP1(!h2)
		b.Config.Protocols.SetUnencryptedHTTP2(h2)
		b.Start()
		t.Cleanup(b.Close)
		b.port = b.Listener.Addr().(*net.TCPAddr).Port
		copies := &flaky{bodies: map[string][]string{}}
		mirror := newBackend(t, "copies", func(w http.ResponseWriter, r *http.Request) bool {
			r.URL.RawQuery = "id=" + r.URL.Query().Get("id")
			return copies.answer(w, r)
		})
		manifests := service("default", "b", b)
		if h2 {
			manifests = strings.Replace(manifests, "{port: 80}", "{port: 80, appProtocol: kubernetes.io/h2c}", 1)
		}
		log := filepath.Join(t.TempDir(), "access.log")
		port := freePort(t)
		g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + manifests + service("default", "copies", mirror) + route("r", rules)},
			func(o *cli.RunOptions) { o.AccessLog = log })
		clients := []*http.Client{noRedirects, clientOfHTTP2(t)}
		var wg sync.WaitGroup
		for _, client := range clients {
			for i, c := range cases {
				wg.Go(func() {
					id := fmt.Sprintf("%d-%p", i, client)
					name := fmt.Sprintf("backend by HTTP/2: %v, client by HTTP/2: %v, %s", h2, client != noRedirects, c.name)
					var body io.Reader = strings.NewReader(c.body)
					if c.streamed {
						body = io.MultiReader(body) // of no known length
					}
					if c.method == "" {
						c.method = "GET"
					}
					req, err := http.NewRequestWithContext(context.Background(), c.method,
						local(port, fmt.Sprintf("/%s?id=%s&fail=%s&code=%s&slow=%s", c.rule, id, c.fail, c.code, c.slow)), body)
					if err != nil {
						t.Error(err)
						return
					}
					resp, err := client.Do(req)
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					defer resp.Body.Close()
					text, err := io.ReadAll(resp.Body)
					if err != nil || resp.StatusCode != c.status || c.says != "" && string(text) != c.says {
						t.Errorf("%s: %d %.40q, want %d %q: %v", name, resp.StatusCode, text, c.status, c.says, err)
					}
					got := f.got(id)
					for n, body := range got {
						if body != c.body {
							t.Errorf("%s: attempt %d came with %d bytes, want %d", name, n+1, len(body), len(c.body))
						}
					}
					if len(got) != c.attempts {
						t.Errorf("%s: the backend got %d attempts, want %d", name, len(got), c.attempts)
					}
					if c.status == 200 && c.method != "HEAD" && string(text) != c.body {
						t.Errorf("%s: %d bytes came back, want %d", name, len(text), len(c.body))
					}
				})
			}
		}
		wg.Wait()
		for _, client := range clients {
			for i, c := range cases {
				if c.rule == "codes" {
					id := fmt.Sprintf("%d-%p", i, client)
					testkit.Eventually(t, "the copy of "+c.name, func() bool { return len(copies.got(id)) > 0 })
					if n := len(copies.got(id)); n != 1 {
						t.Errorf("%s: %d copies", c.name, n)
					}
				}
			}
		}
		metrics := string(g.adminGet("/metrics"))
		g.end()
		logged := readLog(t, log)
		retries := 0
		for i, c := range cases {
			for _, line := range logged[fmt.Sprintf("%d-", i)] {
				retries += line.Attempts - 1
				if line.Attempts != c.attempts || line.Reason != c.reason || line.Code != c.status {
					t.Errorf("%s: logged as %+v, want %d attempts and %s", c.name, line, c.attempts, c.reason)
				}
			}
			if n := len(logged[fmt.Sprintf("%d-", i)]); n != len(clients) {
				t.Errorf("%s: %d lines in the access log", c.name, n)
			}
		}
		if want := fmt.Sprintf("moongate_upstream_retries_total{backend=%q} %d\n", "Service/default/b/80", retries); !strings.Contains(metrics, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
	t.Run("HTTP/1.1", func(t *testing.T) { run(t, false) })
	t.Run("HTTP/2", func(t *testing.T) { run(t, true) })
}

// TestRetryConnections: an endpoint that cannot be reached is passed over, and asked again where there is no other.
func TestRetryConnections(t *testing.T) {
	t.Parallel()
	port, dead := freePort(t), freePort(t)
	good := newBackend(t, "good", nil)
	log := filepath.Join(t.TempDir(), "access.log")
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) +
		service("default", "both", good, &backend{port: dead}) + service("default", "dead", &backend{port: dead}) +
		route("r", `  rules:
  - {matches: [{path: {value: /both}}], retry: {attempts: 100}, backendRefs: [{name: both, port: 80}]}
  - {matches: [{path: {value: /dead}}], retry: {attempts: 4, backoff: 1ms}, backendRefs: [{name: dead, port: 80}]}
  - {matches: [{path: {value: /never}}], retry: {attempts: 0}, backendRefs: [{name: dead, port: 80}]}
`)}, func(o *cli.RunOptions) { o.AccessLog = log })
	for i := range 20 {
		for _, method := range []string{"GET", "POST"} {
			if got := (ask{method: method, url: local(port, fmt.Sprintf("/both?id=0-%d", i)), body: "x"}).do(t); got.StatusCode != 200 {
				t.Fatalf("%s: %d %s", method, got.StatusCode, got.body)
			}
		}
	}
	for path, want := range map[string]string{"/dead?id=1-": "502 connect_failed", "/never?id=2-": "502 connect_failed"} {
		if got := (ask{url: local(port, path)}).do(t); got.body != "moongate: "+want+"\n" {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	g.end()
	logged := readLog(t, log)
	if dead, never := logged["1-"][0], logged["2-"][0]; dead.Attempts != 5 || never.Attempts != 1 {
		t.Errorf("%d attempts at an endpoint that is dead, and %d without retries", dead.Attempts, never.Attempts)
	}
}

type logLine struct {
	Path     string `json:"path"`
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason"`
	Code     int    `json:"response_code"`
}

// readLog reads an access log: the lines by what stands in the parameter id up to its hyphen.
func readLog(t *testing.T, path string) map[string][]logLine {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string][]logLine{}
	for line := range strings.Lines(string(text)) {
		var l logLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		_, id, _ := strings.Cut(l.Path, "id=")
		id, _, _ = strings.Cut(id, "-")
		lines[id+"-"] = append(lines[id+"-"], l)
	}
	return lines
}

// clientOfHTTP2 speaks it without TLS.
func clientOfHTTP2(t *testing.T) *http.Client {
	t.Helper()
	var transport http.Transport
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: &transport, Timeout: patience, CheckRedirect: noRedirects.CheckRedirect}
}

// TestTaskRetryBudget does what the document says while a backend fails.
func TestTaskRetryBudget(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	b := newBackend(t, "app", func(w http.ResponseWriter, _ *http.Request) bool {
		n.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	runTask(t, "retry-budget", map[int]*backend{3000: b})
	if n := n.Load(); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
}
