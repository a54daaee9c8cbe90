// Command testreport reads the output of `go test -json` and prints a summary: a line per package, the output of failed tests, the
// names of skipped tests, at the end the failures again, for readers of the end of a long log, and "N passed, N failed". A skipped
// test counts as failed: a test that does not run verifies nothing.
//
// It exists for .ci/run and imports the standard library only.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// event contains the fields that this command reads of `go doc test2json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

type report struct {
	out            io.Writer
	passed, failed int
	output         map[string][]string // by package and test, until the test ends
	failedIn       map[string]bool     // packages with a failed test
	failures       []string            // repeated at the end of the report
}

// maxAgain is how much of a failure's output the end of the report repeats, in bytes.
const maxAgain = 4 << 10

func main() {
	if !run(os.Stdin, os.Stdout) {
		os.Exit(1)
	}
}

// run reports whether everything ran and passed.
func run(in io.Reader, out io.Writer) bool {
	r := report{out: out, output: map[string][]string{}, failedIn: map[string]bool{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20) // one line may contain a whole diff
	for lines.Scan() {
		var e event
		if !strings.HasPrefix(lines.Text(), "{") || json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text())
			r.plain(lines.Text())
			continue
		}
		r.add(e)
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(out, "testreport:", err)
		r.failed++
	}
	for _, failure := range r.failures {
		fmt.Fprint(out, failure)
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", r.passed, r.failed)
	return r.failed == 0 && r.passed > 0
}

// plain reads a line that is not an event: output of make and of programs that do not run by `go test -json`.
func (r *report) plain(line string) {
	switch {
	case strings.HasPrefix(line, "make") && strings.Contains(line, "***"), strings.HasPrefix(strings.TrimSpace(line), "--- FAIL"):
		r.failures = append(r.failures, line+"\n")
	case line == "make lint failed":
		r.failed++
		r.failures = append(r.failures, "the linters found something, see above\n")
	case line == "make test failed" && r.failed == 0:
		r.failed++ // nothing that could be counted reported it
	}
}

// fail counts a failure, prints it, and keeps the end of its output for the end of the report.
func (r *report) fail(title string, output []string) {
	r.failed++
	text := strings.Join(output, "    ")
	if text == "" {
		title += "\n"
	} else {
		title += "\n    "
	}
	fmt.Fprint(r.out, title, text)
	if len(text) > maxAgain {
		text = "..." + text[len(text)-maxAgain:]
	}
	r.failures = append(r.failures, title+text)
}

func (r *report) add(e event) {
	name := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		r.output[name] = append(r.output[name], e.Output)
		return
	case "build-output":
		fmt.Fprint(r.out, e.Output)
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	if e.Test == "" {
		r.endPackage(e)
	} else {
		r.endTest(e, name)
	}
	delete(r.output, name)
}

func (r *report) endTest(e event, name string) {
	switch e.Action {
	case "pass":
		r.passed++
		return
	case "fail":
		r.fail("FAILED "+name, r.output[name])
	case "skip":
		r.fail("SKIPPED "+name+" (counts as failed)", r.output[name])
	}
	r.failedIn[e.Package] = true
}

func (r *report) endPackage(e event) {
	switch {
	case e.Action == "skip": // no test files
	case e.Action == "fail" && !r.failedIn[e.Package]: // did not build, panicked or timed out
		r.fail("FAILED "+e.Package, r.unfinished(e.Package))
	default:
		fmt.Fprintf(r.out, "%s\t%s\t%.1fs\n", e.Action, e.Package, e.Elapsed)
	}
}

// unfinished returns the output of a package that did not finish: its own, and that of the tests that were running.
func (r *report) unfinished(name string) (lines []string) {
	for _, test := range slices.Sorted(maps.Keys(r.output)) {
		if strings.HasPrefix(test, name+" ") {
			lines = append(lines, r.output[test]...)
			delete(r.output, test)
		}
	}
	return lines
}
