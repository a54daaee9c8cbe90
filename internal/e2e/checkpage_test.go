package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// shopRoute is a route to a Service that has another name; its document begins in line 8.
const shopRoute = `apiVersion: v1
kind: Service
metadata:
  name: cart
spec:
  ports: [{port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: shop
spec:
  hostnames: [shop.example.com]
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{name: %s, port: 80}]}]
`

// TestCheckPage: a running gateway answers the commands of docs/check.md and docs/troubleshooting.md, and logs what the page says.
func TestCheckPage(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	gateway := strings.Replace(gatewayWith(httpListener("http", port, "")), "{name: gw}", "{name: web}", 1)
	g := start(t, map[string]string{"gateway.yaml": gateway, "routes.yaml": fmt.Sprintf(shopRoute, "cart")})
	g.write("routes.yaml", fmt.Sprintf(shopRoute, "carts"))
	g.waitCondition("HTTPRoute", "shop", "ResolvedRefs=False/BackendNotFound")
	g.write("routes.yaml", fmt.Sprintf(shopRoute, "cart"))
	g.waitCondition("HTTPRoute", "shop", "ResolvedRefs=True/ResolvedRefs")
	for _, b := range fenced(t, "docs/check.md", "text") {
		for line := range strings.Lines(b.use()) {
			pattern := strings.NewReplacer(`…`, `.*`, `at=`, `at="?\S*`).Replace(regexp.QuoteMeta(strings.TrimSpace(line)))
			testkit.Eventually(t, "the log has "+line, func() bool { return regexp.MustCompile(pattern).MatchString(g.stderr.String()) })
		}
	}

	here := strings.NewReplacer("127.0.0.1:9901", g.admin, "http://shop.example.com/", fmt.Sprintf("http://shop.example.com:%d/", port), "https://shop.example/", fmt.Sprintf("http://shop.example.com:%d/", port),
		"manifests/", g.dir, "moongate status", "moongate status --admin-address "+g.admin)
	ran := 0
	for _, document := range []string{"docs/check.md", "docs/troubleshooting.md"} {
		for _, b := range fenced(t, document, "sh") {
			if strings.Contains(b.content, "kubectl ") || strings.Contains(b.content, "--kube") || strings.Contains(b.content, "--watch") || strings.Contains(b.content, "helm ") {
				continue // test/documents
			}
			for line := range strings.Lines(here.Replace(b.use())) {
				ran++
				words := shellWords(t, strings.TrimSpace(line))
				if stdout, stderr, code := moongate(words[1:]...); code != 0 || !strings.Contains(stdout, "HTTPRoute default/shop") {
					t.Errorf("%s: exit code %d\n%s%s", line, code, stdout, stderr)
				}
			}
		}
	}
	if ran != 4 {
		t.Errorf("%d commands were run", ran)
	}
}

// TestWatchPage: the command of docs/troubleshooting.md prints an object, and again when it has changed.
func TestWatchPage(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	inShop := strings.NewReplacer("{name: r}", "{name: cart, namespace: shop}", "{name: gw}", "{name: gw, namespace: default}")
	gateway := strings.Replace(gatewayWith(httpListener("http", port, "")), "port: "+fmt.Sprint(port), fmt.Sprintf("port: %d, allowedRoutes: {namespaces: {from: All}}", port), 1)
	g := start(t, map[string]string{"gateway.yaml": gateway, "service.yaml": service("shop", "b", newBackend(t, "b", nil)),
		"route.yaml": inShop.Replace(route("r", "  rules: [{backendRefs: [{name: missing, port: 80}]}]"))})
	watched := 0
	for _, b := range fenced(t, "docs/troubleshooting.md", "sh") {
		if !strings.Contains(b.content, "--watch") {
			continue
		}
		watched++
		var out testkit.Log
		cmd := command(append(shellWords(t, strings.TrimSpace(b.use()))[1:], "--admin-address", g.admin)...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		testkit.Eventually(t, "the mistake is shown", func() bool { return strings.Contains(out.String(), "missing") })
		g.write("route.yaml", inShop.Replace(route("r", "  rules: [{backendRefs: [{name: b, port: 80}]}]")))
		testkit.Eventually(t, "that it is mended is shown", func() bool {
			_, later, ok := strings.Cut(out.String(), "missing")
			return ok && strings.Contains(later, "HTTPRoute shop/cart")
		})
	}
	if watched != 1 {
		t.Errorf("%d commands watch", watched)
	}
}

// TestResponseOverridePage: the HTML of the page has a script read a path that could not be written into it.
func TestResponseOverridePage(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	body := strings.ReplaceAll(strings.TrimSpace(fenced(t, "docs/tasks/response-override.md", "html")[0].use()), "\n", "\n            ")
	start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "b", newBackend(t, "b", func(w http.ResponseWriter, _ *http.Request) bool {
		return statusOf(w, 500)
	})) + route("r", "  rules: [{backendRefs: [{name: b, port: 80}]}]") + `---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: p}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}]
  responseOverride:
  - match: {statusCodes: [{type: Value, value: 500}]}
    response:
      contentType: text/html
      body:
        type: Inline
        inline: |
            ` + body + "\n"})
	got := ask{url: local(port, "/a?b='<script>'")}.do(t)
	if want := `data-path="/a?b&#61;&#39;&#60;script&#62;&#39;"`; !strings.Contains(string(got.body), want) {
		t.Errorf("the body has no %s:\n%s", want, got.body)
	}
}

// TestAccessLogDestinations: lines in the format of docs/access-log.md, and to a collector by the flag that it shows.
func TestAccessLogDestinations(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Method + " " + r.URL.Path }))
	t.Cleanup(collector.Close)
	port := freePort(t)
	serve := func(change func(*cli.RunOptions)) {
		start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "b", newBackend(t, "b", nil)) +
			route("r", "  rules: [{backendRefs: [{name: b, port: 80}]}]")}, change)
		ask{url: local(port, "/cart"), header: map[string]string{"User-Agent": "curl/8.5.0"}}.do(t)
	}
	for _, b := range blocksOf(t, "docs/access-log.md") {
		if _, url, ok := strings.Cut(b.content, "--access-log http"); ok {
			b.use()
			serve(func(o *cli.RunOptions) {
				o.AccessLog = strings.Replace("http"+strings.TrimSpace(url), "http://collector.example:4318", collector.URL, 1)
			})
			if got := <-asked; got != "POST /v1/logs" {
				t.Errorf("the collector is asked for %s", got)
			}
			port = freePort(t)
		}
	}
	var out testkit.Log
	serve(func(o *cli.RunOptions) { o.AccessLog, o.LogLines.Format, o.Stdout = "stdout", "combined", &out })
	testkit.Eventually(t, "a line in the access log", func() bool { return strings.HasSuffix(out.String(), "\n") })
	combined := regexp.MustCompile(`^(\S+ - - )\[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\]( "GET /cart HTTP/1.1" 200 )\d+( "-" "curl/8.5.0"\n)$`)
	const parts = "$1$2$3"
	written, shown := out.String(), fenced(t, "docs/access-log.md", "text")[0].use()
	shown = strings.Replace(shown, "192.0.2.7", "127.0.0.1", 1)
	if !combined.MatchString(shown) || combined.ReplaceAllString(written, parts) != combined.ReplaceAllString(shown, parts) {
		t.Errorf("written\n%sshown\n%s", written, shown)
	}
}
