package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestListenerSetTask serves what docs/tasks/listenerset.md says, and follows what the Gateway allows.
func TestListenerSetTask(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	blue := newBackend(t, "blue", nil)
	page := strings.ReplaceAll(fenced(t, "../../docs/tasks/listenerset.md", "yaml")[0], "port: 80, protocol", fmt.Sprintf("port: %d, protocol", port))
	g := start(t, map[string]string{"class.yaml": class, "page.yaml": page, "blue.yaml": service("default", "blue", blue)})
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

	g.write("page.yaml", strings.Replace(page, "from: Same", "from: None", 1))
	testkit.Eventually(t, "the Gateway allows no ListenerSets", func() bool { return get("blue.example.com").StatusCode == 404 })
	g.waitCondition("ListenerSet", "blue", "Accepted=False/NotAllowed")
	if stdout, _, code := moongate("check", "-f", g.dir); code != 1 || !strings.Contains(stdout, "change spec.allowedListeners of the Gateway") {
		t.Errorf("check: exit code %d\n%s", code, stdout)
	}
	g.write("page.yaml", page)
	testkit.Eventually(t, "the ListenerSet is allowed again", func() bool { return get("blue.example.com").StatusCode == 200 })
}
