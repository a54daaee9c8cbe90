package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestDemo runs moongate demo, then every curl line that it prints, then edits the example.
func TestDemo(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	dir := filepath.Join(work, "example")
	p := startProcess(t, "demo", "--dir", dir, "--admin-address", "127.0.0.1:0", "--access-log", "off")
	testkit.Eventually(t, "5 curl lines", func() bool { return len(curlLines(p.stdout.String())) == 5 })
	lines := curlLines(p.stdout.String())
	wants := []string{`"backend": "`, `"backend": "green"`, `"path": "/users"`, "Location: https://demo.example.com:", `"backend": "`}
	for i, line := range lines {
		if _, out := curl(t, line); !strings.Contains(out, wants[i]) {
			t.Errorf("%s\nanswers\n%s\nwithout %s", line, out, wants[i])
		}
	}

	routes := filepath.Join(dir, "routes.yaml")
	edit := func(old, new string) string {
		text, err := os.ReadFile(routes)
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(text), old, new, 1)
		if changed == string(text) {
			t.Fatalf("no %q in %s", old, routes)
		}
		if err := os.WriteFile(routes, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		return changed
	}
	edited := edit("value: /api/v1", "value: /api/v2")
	line := strings.Replace(lines[2], "/api/v1", "/api/v2", 1)
	testkit.Eventually(t, "the edit is served", func() bool { _, out := curl(t, line); return strings.Contains(out, `"path": "/users"`) })
	p.signal(syscall.SIGTERM)
	p.waitExit(patience, 0)

	// Another start keeps the edited file, and brings back one that was deleted.
	if err := os.Remove(filepath.Join(dir, "backends.yaml")); err != nil {
		t.Fatal(err)
	}
	p = startProcess(t, "demo", "--dir", dir, "--admin-address", "127.0.0.1:0", "--access-log", "off")
	if text, err := os.ReadFile(routes); err != nil || string(text) != edited {
		t.Errorf("the edited file was written over (%v):\n%s", err, text)
	}
	testkit.Eventually(t, "5 curl lines again", func() bool { return len(curlLines(p.stdout.String())) == 5 })
	for _, line := range curlLines(p.stdout.String())[:2] {
		if status, out := curl(t, line); status != 200 {
			t.Errorf("%s after another start: %d %s", line, status, out)
		}
	}
}

// TestDemoBind: the example listens where --bind says, and its curl lines go there.
func TestDemoBind(t *testing.T) {
	t.Parallel()
	p := startProcess(t, "demo", "--dir", filepath.Join(t.TempDir(), "example"), "--bind", "127.0.0.9", "--admin-address", "127.0.0.1:0", "--access-log", "off")
	testkit.Eventually(t, "5 curl lines", func() bool { return len(curlLines(p.stdout.String())) == 5 })
	for _, line := range curlLines(p.stdout.String()) {
		if status, out := curl(t, line); !strings.Contains(line, "127.0.0.9") || status != 200 && status != 301 {
			t.Errorf("%s: %d %s", line, status, out)
		}
	}
	if !strings.Contains(p.stderr.String(), "address=127.0.0.9:") || strings.Contains(p.stderr.String(), "address=127.0.0.1:") {
		t.Errorf("it listens elsewhere:\n%s", p.stderr.String())
	}
}

// curlLines are the lines to try in what demo prints.
func curlLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestStatusVerb asks a running gateway.
func TestStatusVerb(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	g := start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + route("r", "  rules: [{backendRefs: [{name: missing, port: 80}]}]") +
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n"})
	stdout, stderr, code := moongate("status", "--admin-address", g.admin)
	for _, want := range []string{"Gateway default/gw", "BackendNotFound", "ResolvedRefs=False", "BackendNotFound", "ignored: ", "Deployment"} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, no %q in\n%s%s", code, want, stdout, stderr)
		}
	}
	if stdout, _, _ := moongate("status", "--admin-address", g.admin, "-o", "json"); !strings.Contains(stdout, fmt.Sprintf(`"port": %d`, port)) {
		t.Errorf("-o json:\n%s", stdout)
	}
}
