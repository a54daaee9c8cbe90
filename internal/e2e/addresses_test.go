package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestAddressesTask serves what docs/tasks/addresses.md says: the address that is there, and nothing in the place of the one of a Service.
func TestAddressesTask(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	app := newBackend(t, "app", nil)
	const document = "docs/tasks/addresses.md"
	page := withPorts(fenced(t, document, "yaml")[0].use(), map[int]int{8080: port, 3000: app.port})
	g := start(t, map[string]string{"page.yaml": page})
	url := fmt.Sprintf("http://127.0.0.2:%d/", port)
	if got := (ask{url: url}).do(t); got.StatusCode != 200 || got.echo.Backend != "app" {
		t.Errorf("the address that was asked for: %d %s", got.StatusCode, got.body)
	}
	refused := func(address string) bool {
		conn, err := net.Dial("tcp", fmt.Sprint(address, ":", port))
		if err == nil {
			conn.Close()
		}
		return err != nil
	}
	if !refused("127.0.0.1") {
		t.Error("another address is bound")
	}
	g.waitCondition("Gateway", "web", "Programmed=True/Programmed")
	g.waitCondition("Gateway", "web", "AddressesAssigned=False/PartiallyAssigned")
	if s := g.status("Gateway", "web").Status.Addresses; len(s) != 1 || s[0].Value != "127.0.0.2" || s[0].Routability != "" {
		t.Errorf("addresses %+v", s)
	}
	stdout, stderr, _ := moongate("explain", "-f", g.dir, "GET", url)
	if got := stdout + stderr; !strings.Contains(got, "default/web/http") || !strings.Contains(got, "what the backend answers") {
		t.Errorf("explain: %s", got)
	}
	here := strings.NewReplacer("addresses.yaml", filepath.Join(g.dir, "page.yaml"), ":8080", fmt.Sprint(":", port))
	var printed string
	for line := range strings.Lines(here.Replace(fenced(t, document, "sh")[0].use())) {
		printed += runLine(t, document, strings.TrimSpace(line))
	}
	for line := range strings.Lines(here.Replace(fenced(t, document, "text")[0].use())) {
		if !strings.Contains("\n"+printed, "\n"+line) {
			t.Errorf("%s: no line %q in\n%s", document, line, printed)
		}
	}

	g.write("page.yaml", strings.Replace(page, "  - type: IPAddress\n    value: 127.0.0.2\n", "", 1))
	g.waitCondition("Gateway", "web", "AddressesAssigned=False/NotAssigned")
	g.waitCondition("Gateway", "web", "Programmed=False/AddressNotAssigned")
	testkit.Eventually(t, "nothing is bound", func() bool { return refused("127.0.0.2") && refused("127.0.0.1") })
	if stdout, stderr, _ := moongate("explain", "-f", g.dir, "GET", url); strings.Contains(stdout+stderr, "what the backend answers") {
		t.Errorf("explain of a Gateway that is bound nowhere: %s%s", stdout, stderr)
	}

	g.write("page.yaml", page)
	testkit.Eventually(t, "the address is served again", func() bool { return !refused("127.0.0.2") })
}
