package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// policyExamples is the folder of manifests that pages about BackendTrafficPolicies refer to.
const policyExamples = "examples/backendtrafficpolicy/"

// policyExample is a manifest of that folder that is served, on another port than its listener's, with ports of this machine in the place of those of its endpoints.
type policyExample struct {
	*gateway
	name    string // of the file
	port    int
	out     *testkit.Log      // the access log and the event log, in JSON
	written map[string]string // the manifests as they are in the folder, by name
	served  map[string]string // as they are served
	here    []string          // pairs of what a page says, and what that is here
}

// serveExample serves examples of the folder, with backends in the place of those at their ports. The first has the listener, whose port is 8080, or else 80.
func serveExample(t testing.TB, backends map[int]*backend, names []string, change ...func(*cli.RunOptions)) *policyExample {
	t.Helper()
	ports := map[int]int{}
	for port, b := range backends {
		ports[port] = b.port
	}
	return serveExampleAt(t, ports, names, change...)
}

// servePolicyExample is serveExampleAt for <name>.yaml alone.
func servePolicyExample(t testing.TB, name string, ports map[int]int, change ...func(*cli.RunOptions)) *policyExample {
	t.Helper()
	return serveExampleAt(t, ports, []string{name + ".yaml"}, change...)
}

// serveExampleAt is serveExample for endpoints that need not be backends.
func serveExampleAt(t testing.TB, ports map[int]int, names []string, change ...func(*cli.RunOptions)) *policyExample {
	t.Helper()
	e := &policyExample{name: names[0], port: freePort(t), written: map[string]string{}, served: map[string]string{}, out: &testkit.Log{}}
	manifest := map[int]int{8080: e.port}
	e.here = []string{":8080", fmt.Sprintf(":%d", e.port), ":80/", fmt.Sprintf(":%d/", e.port)}
	for from, to := range ports {
		manifest[from] = to
		e.here = append(e.here, fmt.Sprintf("127.0.0.1:%d", from), fmt.Sprintf("127.0.0.1:%d", to), fmt.Sprintf("[::1]:%d", from), fmt.Sprintf("[::1]:%d", to))
	}
	dir, all := t.TempDir(), ""
	for _, name := range names {
		text, err := os.ReadFile("../../" + policyExamples + name)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
		e.written[name] = string(text)
		e.served[name] = withPorts(string(text), manifest)
		if at := listenerPort.FindStringSubmatchIndex(e.served[name]); at != nil { // also where it is 80, as that of Services
			e.served[name] = e.served[name][:at[2]] + fmt.Sprint(e.port) + e.served[name][at[3]:]
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(e.served[name]), 0o644); err != nil {
			t.Fatal(err)
		}
		e.here = append(e.here, policyExamples+name, path)
	}
	for from := range ports {
		if !strings.Contains(all, fmt.Sprintf(": %d\n", from)) {
			t.Fatalf("%v have no port %d", names, from)
		}
	}
	e.gateway = start(t, e.served, append([]func(*cli.RunOptions){func(o *cli.RunOptions) { o.Bind, o.AccessLog, o.Stdout = nil, "json", e.out }}, change...)...)
	e.here = append(e.here, "127.0.0.1:9901", e.admin)
	return e
}

// url is that of a path on the example's listener.
func (e *policyExample) url(path string) string { return local(e.port, path) }

// get asks for a path by GET.
func (e *policyExample) get(path string) *answer {
	e.t.Helper()
	return ask{url: e.url(path)}.do(e.t)
}

// ask sends a request that must be answered with 200.
func (e *policyExample) ask(path string, header map[string]string) *answer {
	e.t.Helper()
	a := ask{url: e.url(path), header: header}.do(e.t)
	if a.StatusCode != 200 {
		e.t.Fatalf("%s is answered %d %s", path, a.StatusCode, a.body)
	}
	return a
}

// wants asks for a path, which must be answered with the status and logged with the reason.
func (e *policyExample) wants(path string, status int, reason string) *answer {
	e.t.Helper()
	a := e.get(path)
	if a.StatusCode != status {
		e.t.Errorf("%s is answered %d, want %d", path, a.StatusCode, status)
	}
	e.logs(path, reason)
	return a
}

// inBackground asks for a path; the channel has the status.
func (e *policyExample) inBackground(path string) <-chan int {
	status := make(chan int, 1)
	go func() {
		a, err := ask{url: e.url(path)}.try()
		if err != nil {
			e.t.Errorf("%s: %v", path, err)
			status <- 0
			return
		}
		status <- a.StatusCode
	}()
	return status
}

// answered counts which backends answer n requests, one after the other; "" is none.
func (e *policyExample) answered(path string, n int) map[string]int {
	e.t.Helper()
	by := map[string]int{}
	for range n {
		by[e.get(path).Header.Get("X-Backend")]++
	}
	return by
}

// logs waits until the access log has a request for a path that has ended for a reason, and returns its line.
func (e *policyExample) logs(path, reason string) (line map[string]any) {
	e.t.Helper()
	testkit.Eventually(e.t, path+" is logged with "+reason, func() bool {
		for text := range strings.Lines(e.out.String()) {
			var got map[string]any
			if json.Unmarshal([]byte(text), &got) == nil && got["path"] == path && got["reason"] == reason {
				line = got
				return true
			}
		}
		return false
	})
	return line
}

// metric returns the sum of a metric's series that have all of the labels, such as `limit="requests"`.
func (e *policyExample) metric(name string, labels ...string) (sum float64) {
	e.t.Helper()
series:
	for line := range strings.Lines(string(e.adminGet("/metrics"))) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(line, label) {
				continue series
			}
		}
		var n float64
		fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n)
		sum += n
	}
	return sum
}

// chance fails the test where got of n independent events of probability p are farther than 6 standard deviations from what is expected: that is so by chance
// once in 500 million.
func chance(t testing.TB, what string, got, n int, p float64) {
	t.Helper()
	if want := float64(n) * p; math.Abs(float64(got)-want) > 6*math.Sqrt(want*(1-p)) {
		t.Errorf("%s: %d of %d, want %.0f", what, got, n, want)
	}
}

// quotedField is a field of a log that a document quotes, such as `"reason":"ok"`.
var quotedField = regexp.MustCompile("`(\"[a-z_]+\":[^`]+)`")

// page is runPage for the page of the example's name.
func (e *policyExample) page() {
	e.t.Helper()
	runPage(e.t, strings.TrimSuffix(e.name, ".yaml"), e)
}

// runPage does what docs/tasks/<page>.md says with the examples that it refers to: a block is about the one that was named last before it. Blocks of yaml are
// parts of it, those of sh are run, and those of text and http are lines of what the block before prints, where "..." stands for what differs from run to run.
// One of the logs has each field that the page quotes.
func runPage(t testing.TB, page string, examples ...*policyExample) {
	t.Helper()
	document := "docs/tasks/" + page + ".md"
	text, err := os.ReadFile(filepath.Join(repository, document))
	if err != nil {
		t.Fatal(err)
	}
	var printed string
	ran, used := 0, map[*policyExample]bool{}
	lines := strings.SplitAfter(string(text), "\n")
	for _, b := range blocksIn(document, string(text)) {
		content := b.use()
		e := exampleOf(strings.Join(lines[:b.line], "")+content, examples)
		if e == nil {
			t.Fatalf("%s: a block comes before any example", document)
		}
		used[e] = true
		here := strings.NewReplacer(e.here...)
		switch b.language {
		case "yaml":
			if !strings.Contains(e.written[e.name], content) {
				t.Errorf("%s: not a part of %s:\n%s", document, e.name, content)
			}
		case "sh":
			printed = ""
			for line := range strings.Lines(here.Replace(content)) {
				printed += runLine(t, document, strings.TrimSpace(line))
				ran++
			}
		case "http", "text":
			for line := range strings.Lines(here.Replace(content)) {
				pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, "\n")), `\.\.\.`, ".*")
				if !regexp.MustCompile(`(?m)^` + pattern + `$`).MatchString(printed) {
					t.Errorf("%s: no line %qin\n%s", document, line, printed)
				}
			}
		default:
			t.Errorf("%s: the test does not know what to do with a block of %s", b, b.language)
		}
	}
	if ran == 0 || len(used) != len(examples) {
		t.Fatalf("%s has %d commands, and blocks about %d of %d examples", document, ran, len(used), len(examples))
	}
	for _, field := range quotedField.FindAllStringSubmatch(string(text), -1) {
		testkit.Eventually(t, document+": a line of a log has "+field[1], func() bool {
			return slices.ContainsFunc(examples, func(e *policyExample) bool {
				return strings.Contains(e.out.String(), strings.NewReplacer(e.here...).Replace(field[1]))
			})
		})
	}
}

// exampleOf is that of which the file is named last in a text, nil where none is; of one all is about it.
func exampleOf(text string, examples []*policyExample) (e *policyExample) {
	if len(examples) == 1 {
		return examples[0]
	}
	last := -1
	for _, other := range examples {
		if i := strings.LastIndex(text, policyExamples+other.name); i > last {
			e, last = other, i
		}
	}
	return e
}

// statusOf answers with a status, and false is that it does not.
func statusOf(w http.ResponseWriter, status int) bool {
	w.WriteHeader(status)
	return true
}
