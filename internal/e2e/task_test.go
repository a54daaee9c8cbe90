package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// listenerPort is the port of a document's first listener.
var listenerPort = regexp.MustCompile(`(?s)listeners:\n.*?port: (\d+)`)

// portField is a field of a manifest that has a port.
var portField = regexp.MustCompile(`\b(port|number): (\d+)\b`)

// withPorts returns a text in which manifests have the ports of the map in the place of its keys.
func withPorts(text string, ports map[int]int) string {
	return portField.ReplaceAllStringFunc(text, func(field string) string {
		name, value, _ := strings.Cut(field, ": ")
		if n, err := strconv.Atoi(value); err == nil && ports[n] != 0 {
			return fmt.Sprintf("%s: %d", name, ports[n])
		}
		return field
	})
}

// listenerField is the port of a listener, which stands before its protocol.
var listenerField = regexp.MustCompile(`port: (\d+)(\n +protocol: )`)

// withListener returns a manifest with other listeners' ports, and the same ports of Services.
func withListener(text string, from, to int) string {
	return listenerField.ReplaceAllStringFunc(text, func(fields string) string {
		return strings.Replace(fields, fmt.Sprintf("port: %d\n", from), fmt.Sprintf("port: %d\n", to), 1)
	})
}

// runTask does what docs/tasks/<name>.md says. It serves the first manifest, on another port than its first listener's, with backends in the place of
// those on the ports of the map. Each block of sh is run, line by line, and what it prints must have the lines of the block of http or text
// that follows: the status line and fields of curl -i, or lines that Moongate prints.
func runTask(t *testing.T, name string, backends map[int]*backend) *gateway {
	t.Helper()
	return runTaskWith(t, name, backends, "", nil)
}

// taskRun is what a reader has otherwise than a document says, whom the commands must lead to the same.
type taskRun struct {
	replace []string // of the text: pairs of what stands there, and what is read in its place
	options func(*cli.RunOptions)
}

type taskOption func(*taskRun)

// runTaskWith is runTask for a document whose reader also has other objects, and files that are named in its commands.
func runTaskWith(t *testing.T, name string, backends map[int]*backend, objects string, files map[string][]byte, options ...taskOption) *gateway {
	t.Helper()
	document := "docs/tasks/" + name + ".md"
	text, err := os.ReadFile(filepath.Join(repository, document))
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(t.TempDir(), name+".yaml")
	written, port := string(listenerPort.FindSubmatch(text)[1]), freePort(t)
	here := []string{":" + written, fmt.Sprintf(":%d", port), name + ".yaml", manifest}
	var run taskRun
	for _, o := range options {
		o(&run)
	}
	here = append(here, run.replace...)
	for file, content := range files {
		here = append(here, " "+file+" ", " "+testkit.WriteFile(t, file, content)+" ")
	}
	ports := map[int]int{}
	for from, b := range backends {
		ports[from] = b.port
	}
	if n, err := strconv.Atoi(written); err == nil {
		ports[n] = port
	}
	replacer := strings.NewReplacer(here...)
	var g *gateway
	var printed string
	ran := 0
	for _, b := range blocksOf(t, document) {
		content := withPorts(replacer.Replace(b.content), ports)
		if strings.Contains(content, "kubectl ") {
			continue // test/documents
		}
		switch b.language {
		case "yaml":
			if g == nil {
				b.use()
				content += objects
				if err := os.WriteFile(manifest, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
				if stdout, stderr, code := moongate("check", "-f", manifest); code != 0 {
					t.Fatalf("%s: check: exit code %d\n%s%s", document, code, stdout, stderr)
				}
				g = start(t, map[string]string{name + ".yaml": content}, func(o *cli.RunOptions) {
					o.Bind = nil
					if run.options != nil {
						run.options(o)
					}
				})
			}
		case "sh":
			printed = ""
			for line := range strings.Lines(content) {
				line = strings.TrimSpace(line)
				printed += runLine(t, document, line)
				ran++
			}
			b.use()
		case "http", "text":
			wanted := map[string]int{}
			for line := range strings.Lines(content) {
				line = strings.TrimRight(line, "\n")
				wanted[line]++
				if strings.Count("\n"+strings.ReplaceAll(printed, "\n", "\n\n"), "\n"+line+"\n") < wanted[line] {
					t.Errorf("%s: no line %q in\n%s", b, line, printed)
				}
			}
			b.use()
		}
	}
	if g == nil || ran == 0 {
		t.Fatalf("%s has no manifest or no command", document)
	}
	return g
}

// runLine does what a line of a document's sh block says, and returns what it prints, or what of that " | grep " chooses.
func runLine(t testing.TB, document, line string) (printed string) {
	t.Helper()
	command, pattern, filtered := strings.Cut(line, " | grep ")
	switch words := shellWords(t, command); words[0] {
	case "curl":
		_, out := curl(t, command)
		printed = strings.ReplaceAll(out, "\r\n", "\n")
	case "moongate":
		stdout, stderr, code := moongate(words[1:]...)
		printed = stdout + stderr
		if code == 2 { // cannot do what it was asked for; 1 is that there are problems
			t.Errorf("%s: %s: exit code 2: %s", document, line, printed)
		}
	default:
		t.Fatalf("%s: the test does not know how to run %s", document, line)
	}
	if !filtered {
		return printed
	}
	words := shellWords(t, pattern)
	if len(words) != 1 || strings.HasPrefix(words[0], "-") {
		t.Fatalf("%s: the test does not know grep's %s", document, pattern)
	}
	var chosen string
	for l := range strings.Lines(printed) {
		if strings.Contains(l, words[0]) {
			chosen += l
		}
	}
	if chosen == "" {
		t.Errorf("%s: grep of %s finds nothing in\n%s", document, line, printed)
	}
	return chosen
}
