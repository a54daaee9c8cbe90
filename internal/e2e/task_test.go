package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// fence is a code block of a document.
var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// listenerPort is the port of a document's first listener.
var listenerPort = regexp.MustCompile(`listeners: \[\{[^}]*port: (\d+)`)

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
	document := "../../docs/tasks/" + name + ".md"
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(t.TempDir(), name+".yaml")
	written, port := string(listenerPort.FindSubmatch(text)[1]), freePort(t)
	here := []string{":" + written, fmt.Sprintf(":%d", port), "port: " + written, fmt.Sprintf("port: %d", port), name + ".yaml", manifest}
	var run taskRun
	for _, o := range options {
		o(&run)
	}
	here = append(here, run.replace...)
	for file, content := range files {
		here = append(here, " "+file+" ", " "+testkit.WriteFile(t, file, content)+" ")
	}
	for from, b := range backends {
		here = append(here, fmt.Sprintf("port: %d}", from), fmt.Sprintf("port: %d}", b.port), fmt.Sprintf("number: %d}", from), fmt.Sprintf("number: %d}", b.port))
	}
	blocks := fence.FindAllStringSubmatch(strings.NewReplacer(here...).Replace(string(text)), -1)
	var g *gateway
	var printed string
	ran := 0
	for _, b := range blocks {
		switch language, content := b[1], b[2]; language {
		case "yaml":
			if g == nil {
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
				words := shellWords(t, line)
				switch words[0] {
				case "curl":
					_, out := curl(t, line)
					printed += strings.ReplaceAll(out, "\r\n", "\n")
				case "moongate":
					stdout, stderr, _ := moongate(words[1:]...)
					printed += stdout + stderr
				default:
					t.Fatalf("%s: the test does not know how to run %s", document, line)
				}
				ran++
			}
		case "http", "text":
			for line := range strings.Lines(content) {
				if !strings.Contains("\n"+printed, "\n"+strings.TrimRight(line, "\n")+"\n") {
					t.Errorf("%s: no line %qin\n%s", document, line, printed)
				}
			}
		}
	}
	if g == nil || ran == 0 {
		t.Fatalf("%s has no manifest or no command", document)
	}
	return g
}
