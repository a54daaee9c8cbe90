package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/reconcile"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// load asks without pause until it is stopped and counts answers that are not 200.
type load struct {
	requests, failed atomic.Int64
	first            sync.Once
	why              string
	stop             context.CancelFunc
	done             sync.WaitGroup
}

// startLoad asks the URLs from one goroutine each. Every freshEvery-th request opens a new connection.
func startLoad(freshEvery int64, urls ...string) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{stop: cancel}
	for i, url := range urls {
		l.done.Go(func() {
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "example.com"}}
			client := &http.Client{Transport: transport, Timeout: patience}
			defer transport.CloseIdleConnections()
			for n := int64(0); ctx.Err() == nil; n++ {
				if n%freshEvery == freshEvery-1 {
					transport.CloseIdleConnections()
				}
				a := ask{url: url, host: "example.com", client: client}
				if i%2 == 1 {
					a.method, a.body = "POST", strings.Repeat("x", 5000)
				}
				l.count(a)
			}
		})
	}
	return l
}

func (l *load) count(a ask) {
	got, err := a.try()
	l.requests.Add(1)
	if err == nil && got.StatusCode == 200 && len(got.echo.Body) == len(a.body) {
		return
	}
	l.failed.Add(1)
	l.first.Do(func() {
		if err != nil {
			l.why = err.Error()
		} else {
			l.why = fmt.Sprintf("%s %s: %s, %d bytes", a.method, a.url, got.Status, len(got.body))
		}
	})
}

func (l *load) end(t *testing.T) {
	l.stop()
	l.done.Wait()
	if l.requests.Load() < 100 {
		t.Errorf("only %d requests: that is no load", l.requests.Load())
	}
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d of %d requests failed, the first: %s", n, l.requests.Load(), l.why)
	}
}

// TestChangeWithoutLoss rewrites routes, certificates, endpoints and a listener ten times a
// second under load. Not one request may fail.
func TestChangeWithoutLoss(t *testing.T) {
	t.Parallel()
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	plain, secure, extra := freePort(t), freePort(t), freePort(t)
	a, b, c := newBackend(t, "a", nil), newBackend(t, "b", nil), newBackend(t, "c", nil)
	listeners := []string{httpListener("http", plain, ""), httpsListener("https", secure, "", "{name: one}")}
	routes := func(i int) string {
		return route("r", fmt.Sprintf(`  rules:
  - matches: [{path: {value: /v}}]
    filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-Round, value: "%d"}]}}]
    backendRefs: [{name: s, port: 80}]
  - backendRefs: [{name: s, port: 80, weight: %d}, {name: other, port: 80, weight: 1}]`, i, 1+i%3))
	}
	g := start(t, map[string]string{
		"gateway.yaml": gatewayWith(listeners...),
		"routes.yaml":  routes(0),
		"secret.yaml":  secret(t, "default", "one", "example.com"),
		"service.yaml": service("default", "s", a, b),
		"other.yaml":   service("default", "other", c),
	})
	l := startLoad(20, local(plain, "/"), local(plain, "/v"), fmt.Sprintf("https://127.0.0.1:%d/", secure), fmt.Sprintf("https://127.0.0.1:%d/v", secure))
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 1; i <= rounds; i++ {
		<-tick.C
		g.write("routes.yaml", routes(i))
		g.write("secret.yaml", secret(t, "default", "one", "example.com"))
		g.write("service.yaml", service("default", "s", []*backend{a, b, c}[i%3], []*backend{a, b, c}[(i+1)%3]))
		if i%4 == 0 {
			g.write("gateway.yaml", gatewayWith(append(listeners, httpListener("extra", extra, ""))...))
		} else if i%4 == 2 {
			g.write("gateway.yaml", gatewayWith(listeners...))
		}
	}
	round := func() string { return ask{url: local(plain, "/v")}.do(t).Header.Get("X-Round") }
	testkit.Eventually(t, "the last change is served", func() bool { return round() == fmt.Sprint(rounds) })
	l.end(t)
}

// TestManyRoutes edits one of 5,000 routes: the work is that of one, and it is served in one step.
func TestManyRoutes(t *testing.T) {
	t.Parallel()
	const files, perFile = 50, 100
	port := freePort(t)
	file := func(n int, more string) string {
		var all strings.Builder
		for i := range perFile {
			all.WriteString(route(fmt.Sprintf("r-%d-%d", n, i), fmt.Sprintf(
				"  hostnames: [h%d.example.com]\n  rules: [{matches: [{path: {value: /r/%d}}], backendRefs: [{name: s, port: 80}]}%s]", n, i, more)))
			more = ""
		}
		return all.String()
	}
	manifests := map[string]string{"gateway.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "s", newBackend(t, "s", nil))}
	for n := range files {
		manifests[fmt.Sprintf("routes-%d.yaml", n)] = file(n, "")
	}
	var mu sync.Mutex
	var deliveries []reconcile.Outcome
	g := start(t, manifests, func(o *cli.RunOptions) {
		o.Delivered = func(d reconcile.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			deliveries = append(deliveries, d)
		}
	})
	if got := (ask{url: local(port, "/r/99"), host: "h49.example.com"}).do(t); got.StatusCode != 200 {
		t.Fatalf("the last route: %s", got.Status)
	}
	if n := g.status("Gateway", "gw").Status.Listeners[0].AttachedRoutes; n != files*perFile {
		t.Errorf("attachedRoutes = %d, want %d", n, files*perFile)
	}
	mu.Lock()
	deliveries = nil
	mu.Unlock()

	const early = 20 // so many requests go before the edit
	var edited time.Time
	before, after := 0, 0
	testkit.Eventually(t, "the new rule is served", func() bool {
		got := ask{url: local(port, "/new"), host: "h7.example.com"}.do(t)
		switch {
		case got.StatusCode == 404 && after == 0:
			if before++; before == early {
				edited = time.Now()
				g.write("routes-7.yaml", file(7, ", {matches: [{path: {type: Exact, value: /new}}], backendRefs: [{name: s, port: 80}]}"))
			}
		case got.StatusCode == 200 && got.echo.Backend == "s" && before >= early:
			if after++; after == 1 {
				t.Logf("served %v after the file was replaced", time.Since(edited))
			}
		default:
			t.Fatalf("after %d times 404 and %d times 200: %s", before, after, got.Status)
		}
		return after >= 50
	})
	mu.Lock()
	defer mu.Unlock()
	if len(deliveries) != 1 || deliveries[0].Runs > 10 || deliveries[0].Applied != 1 {
		t.Errorf("one edit led to %+v, want one delivery with at most 10 functions and 1 resource", deliveries)
	}
}

// TestBrokenEdit breaks a file in several ways: what was served stays, and the mistake is told.
func TestBrokenEdit(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	good := route("r", "  rules: [{backendRefs: [{name: s, port: 80}]}]")
	g := start(t, map[string]string{
		"gateway.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "s", newBackend(t, "s", nil)),
		"route.yaml":   good,
	})
	for _, broken := range []string{"\tthis: is not YAML", strings.Replace(good, "backendRefs", "backendReffs", 1), strings.Replace(good, "port: 80", "port: eighty", 1)} {
		g.write("route.yaml", broken)
		testkit.Eventually(t, "the mistake is in /status", func() bool { return strings.Contains(string(g.adminGet("/status")), `route.yaml`) })
		if got := (ask{url: local(port, "/")}).do(t); got.StatusCode != 200 {
			t.Errorf("with %.40q: %s", broken, got.Status)
		}
		g.write("route.yaml", good)
		testkit.Eventually(t, "no mistake in /status", func() bool { return !strings.Contains(string(g.adminGet("/status")), `route.yaml`) })
	}
	for _, message := range []string{`msg="cannot use" what=`, `msg="can be used again" what=`} {
		if n := strings.Count(g.stderr.String(), message); n != 3 {
			t.Errorf("of 3 mistakes %d lines are logged with %s:\n%s", n, message, g.stderr)
		}
	}
	g.write("twin.yaml", route("r", "  rules: [{name: twin, backendRefs: [{name: s, port: 80}]}]"))
	testkit.Eventually(t, "the second one of its name is in /status", func() bool { return strings.Contains(string(g.adminGet("/status")), `twin.yaml`) })
	g.remove("route.yaml")
	testkit.Eventually(t, "the second one is used", func() bool {
		return regexp.MustCompile(`msg="can be used again" what="?[^ ]*twin.yaml:[0-9]+: HTTPRoute default/r`).MatchString(g.stderr.String())
	})
	g.remove("twin.yaml")
	testkit.Eventually(t, "the route is gone", func() bool { return ask{url: local(port, "/")}.do(t).StatusCode == 404 })
}
