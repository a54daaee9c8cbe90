package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const whole = `{"Action":"start"}
{"Action":"run","Test":"TestConformance"}
{"Action":"output","Test":"TestConformance","Output":"setup\n"}
{"Action":"run","Test":"TestConformance/B"}
{"Action":"output","Test":"TestConformance/B","Output":"hello\n"}
{"Action":"pass","Test":"TestConformance/B/part","Elapsed":1}
{"Action":"pass","Test":"TestConformance/B","Elapsed":1.5}
{"Action":"pass","Test":"TestConformance/A","Elapsed":1}
{"Action":"output","Test":"TestConformance/Mesh","Output":"    x.go:1: Skipping Mesh: suite does not support Mesh\n"}
{"Action":"skip","Test":"TestConformance/Mesh"}
`

func follow(t *testing.T, text string) (*results, string) {
	t.Helper()
	var r results
	var said strings.Builder
	err := r.read(strings.NewReader(text), func(name, what string, took time.Duration) {
		said.WriteString(name + " " + what + " " + took.String() + "\n")
	}, func(line string) { said.WriteString(line) })
	if err != nil {
		t.Fatal(err)
	}
	return &r, said.String()
}

func TestResults(t *testing.T) {
	r, said := follow(t, whole+`{"Action":"pass","Test":"TestConformance"}`)
	if err := r.problem(); err != nil {
		t.Error(err)
	}
	if want := []string{"A", "B"}; !slices.Equal(r.passed, want) {
		t.Errorf("passed %v, want %v", r.passed, want)
	}
	if want := []string{"Mesh"}; !slices.Equal(r.unsupported, want) {
		t.Errorf("unsupported %v, want %v", r.unsupported, want)
	}
	if want := "setup\nB pass 1.5s\nA pass 1s\n"; said != want {
		t.Errorf("said %q, want %q", said, want)
	}
	if got := r.text("B"); got != "hello\n" {
		t.Errorf("the output of B is %q", got)
	}
}

func TestRunsThatDoNotCount(t *testing.T) {
	for name, test := range map[string]struct{ text, says string }{
		"cut off":       {whole, "did not come to its end"},
		"failed":        {whole + `{"Action":"fail","Test":"TestConformance/C"}` + "\n" + `{"Action":"fail","Test":"TestConformance"}`, "1 tests failed: C"},
		"failed itself": {whole + `{"Action":"fail","Test":"TestConformance"}`, "though none of its tests did"},
		"skips":         {whole + `{"Action":"skip","Test":"TestConformance/C"}` + "\n" + `{"Action":"pass","Test":"TestConformance"}`, "skipped: C"},
		"skips partly":  {whole + `{"Action":"skip","Test":"TestConformance/A/x"}` + "\n" + `{"Action":"pass","Test":"TestConformance"}`, "skipped: A/x"},
		"nothing":       {`{"Action":"pass","Test":"TestConformance"}`, "no test was run"},
	} {
		r, _ := follow(t, test.text)
		if err := r.problem(); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}

func TestReadGarbage(t *testing.T) {
	var r results
	err := r.read(strings.NewReader("no JSON\n"), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "no JSON") {
		t.Errorf("%v", err)
	}
}

func TestDigest(t *testing.T) {
	again := "x.go:1: 2026-11-21T19:27:44.046814477Z: not yet\n"
	long := strings.Repeat("a", 200) + strings.Repeat("z", 300) + "\n"
	got := digest(again+strings.Replace(again, "44.04", "45.9", 1)+"between\n"+again+long+"last", 3)
	want := "between\n" + strings.Repeat("a", 100) + " ... " + strings.Repeat("z", 299) + "\nlast"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
