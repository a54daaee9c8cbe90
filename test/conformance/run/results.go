package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of what `go tool test2json` writes.
type event struct {
	Action  string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

// suiteTest is the Go test below which each of the suite's tests is one.
const suiteTest = "TestConformance"

// results is what became of the suite's tests.
type results struct {
	passed, failed, unsupported []string
	// gaveUp are tests that skipped themselves, or a part of them.
	gaveUp []string
	// ended is whether the suite itself came to its end, and succeeded.
	ended, succeeded bool

	output map[string]*strings.Builder
}

// read follows a run to its end. It calls done for each test of the suite that
// was run, and own for each line of the suite itself.
func (r *results) read(from io.Reader, done func(name, what string, took time.Duration), own func(line string)) error {
	r.output = map[string]*strings.Builder{}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if err := json.Unmarshal(line, &e); err != nil {
				return fmt.Errorf("not a test's event: %q: %w", line, err)
			}
			r.add(e, done, own)
		}
		if errors.Is(err, io.EOF) {
			r.sort()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *results) add(e event, done func(string, string, time.Duration), own func(string)) {
	path := strings.Split(e.Test, "/")
	if e.Test == "" || path[0] != suiteTest {
		if e.Action == "output" {
			own(e.Output)
		}
		return
	}
	if len(path) == 1 {
		switch e.Action {
		case "output":
			own(e.Output)
		case "pass", "fail", "skip":
			r.ended, r.succeeded = true, e.Action == "pass"
		}
		return
	}
	name := path[1]
	if e.Action == "output" {
		if r.output[name] == nil {
			r.output[name] = &strings.Builder{}
		}
		r.output[name].WriteString(e.Output)
		return
	}
	r.end(name, len(path) > 2, e, done)
}

// end notes the end of a test, or of a part of one.
func (r *results) end(name string, part bool, e event, done func(string, string, time.Duration)) {
	if e.Action == "skip" {
		switch {
		case part:
			r.gaveUp = append(r.gaveUp, strings.TrimPrefix(e.Test, suiteTest+"/"))
		case strings.Contains(r.text(name), "suite does not support"):
			r.unsupported = append(r.unsupported, name)
		default:
			r.gaveUp = append(r.gaveUp, name)
		}
		return
	}
	if part || e.Action != "pass" && e.Action != "fail" {
		return
	}
	if e.Action == "pass" {
		r.passed = append(r.passed, name)
	} else {
		r.failed = append(r.failed, name)
	}
	done(name, e.Action, time.Duration(e.Elapsed*float64(time.Second)))
}

func (r *results) text(name string) string {
	if r.output[name] == nil {
		return ""
	}
	return r.output[name].String()
}

func (r *results) sort() {
	for _, names := range [][]string{r.passed, r.failed, r.unsupported, r.gaveUp} {
		slices.Sort(names)
	}
}

// problem says why the run does not count; nil if it does.
func (r *results) problem() error {
	switch {
	case len(r.failed) > 0:
		return fmt.Errorf("%d tests failed: %s", len(r.failed), strings.Join(r.failed, " "))
	case len(r.gaveUp) > 0:
		return fmt.Errorf("%d tests or parts were skipped: %s", len(r.gaveUp), strings.Join(r.gaveUp, " "))
	case !r.ended:
		return errors.New("the suite did not come to its end")
	case !r.succeeded:
		return errors.New("the suite failed, though none of its tests did")
	case len(r.passed) == 0:
		return errors.New("no test was run")
	}
	return nil
}

// stamp is the time within a line, by which alone many lines differ.
var stamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z: `)

// digest is the end of a test's output, of which the suite writes the same lines
// again and again: without repetitions, and long lines without their middle.
func digest(text string, lines int) string {
	const start, end = 100, 300
	var kept []string
	for line := range strings.Lines(text) {
		line = stamp.ReplaceAllString(line, "")
		if len(line) > start+end {
			line = line[:start] + " ... " + line[len(line)-end:]
		}
		// The last few lines are enough to look back: tests of a table take turns.
		if !slices.Contains(kept[max(0, len(kept)-20):], line) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept[max(0, len(kept)-lines):], "")
}
