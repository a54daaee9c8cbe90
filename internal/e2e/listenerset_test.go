package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestListenerSetTask serves what docs/tasks/listenerset.md says, and follows what the Gateway allows.
func TestListenerSetTask(t *testing.T) {
	t.Parallel()
	g := runTask(t, "listenerset", map[int]*backend{3000: newBackend(t, "blue", nil)})
	text, err := os.ReadFile(filepath.Join(g.dir, "listenerset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	port, err := strconv.Atoi(listenerPort.FindStringSubmatch(page)[1])
	if err != nil {
		t.Fatal(err)
	}
	get := func(host string) *answer { return ask{url: local(port, "/"), host: host}.do(t) }
	if got := get("blue.example.com"); got.StatusCode != 200 || got.echo.Backend != "blue" {
		t.Errorf("the ListenerSet's listener: %d %s", got.StatusCode, got.body)
	}
	if got := get("www.example.com"); got.StatusCode != 404 {
		t.Errorf("the Gateway's own listener, which has no route: %d", got.StatusCode)
	}
	g.waitCondition("ListenerSet", "blue", "Programmed=True/Programmed")
	if set := g.status("ListenerSet", "blue"); len(set.Status.Listeners) != 1 || set.Status.Listeners[0].AttachedRoutes != 1 {
		t.Errorf("status: %+v", set.Status)
	}
	if status := string(g.adminGet("/status")); !strings.Contains(strings.ReplaceAll(status, " ", ""), `"attachedListenerSets":1`) {
		t.Errorf("the Gateway does not count its ListenerSet: %s", status)
	}
	if stdout, stderr, code := moongate("check", "-f", g.dir); code != 0 {
		t.Errorf("check: exit code %d\n%s%s", code, stdout, stderr)
	}
	explain := func() string {
		stdout, stderr, _ := moongate("explain", "-f", g.dir, "GET", fmt.Sprintf("http://blue.example.com:%d/", port))
		return stdout + stderr
	}
	if got := explain(); !strings.Contains(got, "default/shared/default/blue/http") || !strings.Contains(got, "what the backend answers") {
		t.Errorf("explain: %s", got)
	}

	g.write("listenerset.yaml", strings.Replace(page, "from: Same", "from: None", 1))
	testkit.Eventually(t, "the Gateway allows no ListenerSets", func() bool { return get("blue.example.com").StatusCode == 404 })
	g.waitCondition("ListenerSet", "blue", "Accepted=False/NotAllowed")
	if stdout, _, code := moongate("check", "-f", g.dir); code != 1 || !strings.Contains(stdout, "change spec.allowedListeners of the Gateway") {
		t.Errorf("check: exit code %d\n%s", code, stdout)
	}
	g.write("listenerset.yaml", page)
	testkit.Eventually(t, "the ListenerSet is allowed again", func() bool { return get("blue.example.com").StatusCode == 200 })
}

// sharedGateway returns the Gateway of the page's first manifest, with its listener on a port.
func sharedGateway(t *testing.T, b block, port int) string {
	t.Helper()
	for document := range strings.SplitSeq(b.use(), "---\n") {
		if strings.Contains(document, "\nkind: Gateway\n") {
			return withListener(document, 8080, port)
		}
	}
	t.Fatalf("%s has no Gateway", b)
	return ""
}

// TestListenerSetTLS has the page's listeners with TLS and TCP: each is served, one port by server name.
func TestListenerSetTLS(t *testing.T) {
	t.Parallel()
	port, queuePort := freePort(t), freePort(t)
	green := newBackend(t, "green", nil)
	db, queue := newTCPBackend(t, "db", showing(t, testkit.NewAuthority(t), "db.example.com")), newTCPBackend(t, "queue", nil)
	pages := fenced(t, "docs/tasks/listenerset.md", "yaml")
	page := strings.NewReplacer("port: 5432\n", "port: 80\n", "port: 1883\n", "port: 80\n").Replace(withListener(withListener(pages[1].use(), 443, port), 1883, queuePort))
	gateway := sharedGateway(t, pages[0], freePort(t))
	g := start(t, map[string]string{
		"class.yaml": class, "gateway.yaml": gateway, "page.yaml": page,
		"green.yaml": service("default", "green", green), "db.yaml": service("default", "db", db), "queue.yaml": service("default", "queue", queue),
		"secret.yaml": secret(t, "default", "green-tls", "green.example.com"),
	})
	g.waitCondition("ListenerSet", "green", "Programmed=True/Programmed")
	if status, certificate, backend, err := tlsAsk(port, "HTTP/2.0", "green.example.com", "green.example.com"); err != nil || status != 200 || certificate != "green-tls" || backend != "green" {
		t.Errorf("HTTPS: %d, certificate %s, backend %s, %v", status, certificate, backend, err)
	}
	if got := greetingTLS(t, port, "db.example.com"); got != "db (db.example.com)" {
		t.Errorf("passthrough: %s", got)
	}
	if got := greetingTLS(t, port, "other.example.com"); got != "reset" {
		t.Errorf("a server name that nobody has: %s", got)
	}
	if got := greeting(t, queuePort); got != "queue" {
		t.Errorf("TCP: %s", got)
	}
	if stdout, stderr, code := moongate("check", "-f", g.dir); code != 0 {
		t.Errorf("check: exit code %d\n%s%s", code, stdout, stderr)
	}
	for url, want := range map[string]string{
		fmt.Sprintf("tls://db.example.com:%d", port): "default/shared/default/green/db", fmt.Sprintf("tcp://127.0.0.1:%d", queuePort): "default/shared/default/green/queue",
	} {
		if stdout, stderr, _ := moongate("explain", "-f", g.dir, url); !strings.Contains(stdout, want) {
			t.Errorf("explain %s: %s%s", url, stdout, stderr)
		}
	}

	// A new certificate is shown to the next client, and without any no other one stands in.
	g.write("secret.yaml", strings.ReplaceAll(secret(t, "default", "renewed", "green.example.com"), "name: renewed", "name: green-tls"))
	testkit.Eventually(t, "the new certificate is shown", func() bool {
		_, certificate, _, err := tlsAsk(port, "HTTP/1.1", "green.example.com", "green.example.com")
		return err == nil && certificate == "renewed"
	})
	g.write("page.yaml", strings.Replace(page, "name: green-tls", "name: missing", 1))
	g.waitCondition("ListenerSet", "green", "Accepted=True/ListenersNotValid")
	testkit.Eventually(t, "the listener says that its certificate is missing", func() bool {
		for _, l := range g.status("ListenerSet", "green").Status.Listeners {
			for _, c := range l.Conditions {
				if string(l.Name) == "https" && c.Type == "ResolvedRefs" && c.Reason == "InvalidCertificateRef" {
					return true
				}
			}
		}
		return false
	})
	if got := greeting(t, queuePort); got != "queue" {
		t.Errorf("TCP, while another listener of the ListenerSet has no certificate: %s", got)
	}
}

// TestXListenerSet has the page's XListenerSet: it is served, explained, checked, and has a status with ports.
func TestXListenerSet(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	former := newBackend(t, "former", nil)
	pages := fenced(t, "docs/tasks/listenerset.md", "yaml")
	gateway := sharedGateway(t, pages[0], port)
	g := start(t, map[string]string{"class.yaml": class, "gateway.yaml": gateway, "page.yaml": withListener(pages[2].use(), 8080, port), "former.yaml": service("default", "former", former)})
	g.waitCondition("XListenerSet", "former", "Programmed=True/Programmed")
	if got := (ask{url: local(port, "/"), host: "former.example.com"}).do(t); got.StatusCode != 200 || got.echo.Backend != "former" {
		t.Errorf("its listener: %d %s", got.StatusCode, got.body)
	}
	if status := strings.Join(strings.Fields(string(g.adminGet("/status"))), ""); !strings.Contains(status, `"attachedListenerSets":1`) || !strings.Contains(status, fmt.Sprintf(`"port":%d,"supportedKinds"`, port)) {
		t.Errorf("the Gateway does not count it, or its status has no port: %s", status)
	}
	if stdout, stderr, code := moongate("check", "-f", g.dir); code != 0 || !strings.Contains(stdout, "XListenerSet default/former") {
		t.Errorf("check: exit code %d\n%s%s", code, stdout, stderr)
	}
	if stdout, stderr, _ := moongate("explain", "-f", g.dir, "GET", fmt.Sprintf("http://former.example.com:%d/", port)); !strings.Contains(stdout, "default/shared/XListenerSet/default/former/http") {
		t.Errorf("explain: %s%s", stdout, stderr)
	}
	g.write("gateway.yaml", strings.Replace(gateway, "from: Same", "from: None", 1))
	g.waitCondition("XListenerSet", "former", "Accepted=False/NotAllowed")
	if stdout, _, code := moongate("check", "-f", g.dir); code != 1 || !strings.Contains(stdout, "change spec.allowedListeners of the Gateway") {
		t.Errorf("check: exit code %d\n%s", code, stdout)
	}
}
