package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestREADME does what the README says: serves its manifest, and runs each of its commands.
func TestREADME(t *testing.T) {
	t.Parallel()
	manifests := fenced(t, "README.md", "yaml")
	example, err := os.ReadFile("../../examples/hello.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifest := manifests[0].use()
	if len(manifests) != 1 || !strings.HasSuffix(string(example), "\n"+manifest) {
		t.Errorf("%d manifests, want one: what examples/hello.yaml has behind its comment", len(manifests))
	}
	port := freePort(t)
	app := newBackend(t, "app", nil)
	here := withPorts(manifest, map[int]int{8080: port, 3000: app.port})
	start(t, map[string]string{"hello.yaml": here}, func(o *cli.RunOptions) { o.Bind = nil })
	path := filepath.Join(t.TempDir(), "hello.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}

	ran := map[string]int{}
	for _, block := range fenced(t, "README.md", "sh") {
		if strings.Contains(block.content, "kubectl ") {
			continue // test/documents
		}
		for line := range strings.Lines(block.use()) {
			line = strings.TrimSpace(line)
			words := strings.Fields(strings.ReplaceAll(line, "hello.yaml", path))
			ran[words[0]]++
			switch {
			case words[0] == "make":
				if !strings.Contains(string(makefile), "\n"+words[1]+":") {
					t.Errorf("%s: no such target", line)
				}
			case words[0] == "curl":
				if status, out := curl(t, strings.ReplaceAll(line, ":8080", fmt.Sprintf(":%d", port))); status != 200 || !strings.Contains(out, "app") {
					t.Errorf("%s: %d %s", line, status, out)
				}
			case words[0] == "moongate" && words[1] == "run": // what start does
			case words[0] == "moongate":
				if stdout, stderr, code := moongate(words[1:]...); code != 0 || !strings.Contains(stdout, "HTTPRoute default/hello") {
					t.Errorf("%s: exit code %d\n%s%s", line, code, stdout, stderr)
				}
			default:
				t.Errorf("%s: the test does not know how to run it", line)
			}
		}
	}
	if ran["make"] < 2 || ran["curl"] < 1 || ran["moongate"] < 3 {
		t.Errorf("commands found in the README: %v", ran)
	}
}

// TestContributing: the targets of make that contributors are pointed to are there.
func TestContributing(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range fenced(t, "CONTRIBUTING.md", "sh") {
		for line := range strings.Lines(block.use()) {
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != "make" || !strings.Contains(string(makefile), "\n"+words[1]+":") {
				t.Errorf("%s: no such target: %s", block, line)
			}
		}
	}
}

// TestExamples checks every file of examples/.
func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	installed := testkit.WriteFile(t, "class.yaml", []byte(class))
	for _, file := range files {
		args := []string{"check", "-f", file}
		if filepath.Base(file) == "kubernetes.yaml" { // where the chart has made the class
			args = append(args, "-f", installed)
		}
		if stdout, stderr, code := moongate(args...); code != 0 {
			t.Errorf("%s: exit code %d\n%s%s", file, code, stdout, stderr)
		}
	}
}
