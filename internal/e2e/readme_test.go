package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
)

// fenced are the code blocks of a Markdown file in a language.
func fenced(t *testing.T, path, language string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no %s block", path, language)
	}
	return blocks
}

// TestREADME does what the README says: serves its manifest, and runs each of its commands.
func TestREADME(t *testing.T) {
	t.Parallel()
	manifests := fenced(t, "../../README.md", "yaml")
	if len(manifests) != 1 || strings.Count(manifests[0], "\n") > 10 {
		t.Errorf("%d manifests, the first of %d lines; want one of at most 10", len(manifests), strings.Count(manifests[0], "\n"))
	}
	port := freePort(t)
	app := newBackend(t, "app", nil)
	here := strings.NewReplacer("port: 8080", fmt.Sprintf("port: %d", port), "port: 3000", fmt.Sprintf("port: %d", app.port)).Replace(manifests[0])
	start(t, map[string]string{"hello.yaml": here}, func(o *cli.RunOptions) { o.Bind = nil })
	path := filepath.Join(t.TempDir(), "hello.yaml")
	if err := os.WriteFile(path, []byte(manifests[0]), 0o644); err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}

	ran := map[string]int{}
	for _, block := range fenced(t, "../../README.md", "sh") {
		for line := range strings.Lines(block) {
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
			case words[0] == "helm": // what test/charts does
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

// TestExamples checks every file of examples/.
func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		if stdout, stderr, code := moongate("check", "-f", file); code != 0 {
			t.Errorf("%s: exit code %d\n%s%s", file, code, stdout, stderr)
		}
	}
}

// TestDocumentLinks checks that the files that our documents refer to are there.
func TestDocumentLinks(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := filepath.Glob("../../docs/tasks/*.md")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("no tasks: %v", err)
	}
	documents = append(documents, tasks...)
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	for _, document := range append(documents, "../../README.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(document), m[1])); err != nil {
				t.Errorf("%s refers to %s: %v", document, m[1], err)
			}
		}
	}
}
