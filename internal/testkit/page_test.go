package testkit

import (
	"os"
	"testing"
)

// pageTB notes what a test would say.
type pageTB struct {
	testing.TB
	failed bool
}

func (p *pageTB) Helper()               {}
func (p *pageTB) Errorf(string, ...any) { p.failed = true }

// TestSamePart: a part that is not what the code makes fails the test, and is written where that is asked for; the rest of the page stays.
func TestSamePart(t *testing.T) {
	file := WriteFile(t, "page.md", []byte("head\n<!-- a -->\nold\n<!-- b -->\ntail\n"))
	same := func(made string, update bool) bool {
		p := &pageTB{TB: t}
		SamePart(p, file, "<!-- a -->\n", "<!-- b -->\n", made, update)
		return !p.failed
	}
	if !same("old\n", false) || same("new\n", false) || !same("new\n", true) || !same("new\n", false) {
		t.Error("the part is not compared, or not written")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "head\n<!-- a -->\nnew\n<!-- b -->\ntail\n" {
		t.Errorf("%q, %v", text, err)
	}
}
