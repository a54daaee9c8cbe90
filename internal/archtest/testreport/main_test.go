package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const pass = `{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}` + "\n"
	for _, c := range []struct {
		name, in string
		ok       bool
		last     string
		contains string
	}{
		{"all pass", pass + `{"Action":"pass","Package":"p","Elapsed":0.2}`, true, "1 passed, 0 failed", "pass\tp\t0.2s"},
		{"a skip fails", pass + `{"Action":"skip","Package":"p","Test":"TestB"}`, false, "1 passed, 1 failed", "SKIPPED p TestB"},
		{"no test files are no skip", pass + `{"Action":"skip","Package":"q"}`, true, "1 passed, 0 failed", ""},
		{"output of a failure", `{"Action":"output","Package":"p","Test":"TestB","Output":"boom\n"}` + "\n" +
			`{"Action":"fail","Package":"p","Test":"TestB"}` + "\n" + `{"Action":"fail","Package":"p"}`, false, "0 passed, 1 failed", "boom"},
		{"times out", pass + `{"Action":"output","Package":"p","Test":"TestB","Output":"goroutine 1 waits\n"}` + "\n" + `{"Action":"fail","Package":"p"}`,
			false, "1 passed, 1 failed", "goroutine 1 waits"},
		{"does not build", pass + `{"Action":"build-output","ImportPath":"q","Output":"q.go:1: bad\n"}` + "\n" + `{"Action":"fail","Package":"q"}`,
			false, "1 passed, 1 failed", "q.go:1: bad"},
		{"what failed stands at the end too", `{"Action":"output","Package":"p","Test":"TestB","Output":"boom\n"}` + "\n" +
			`{"Action":"fail","Package":"p","Test":"TestB"}` + "\n" + pass + "make: *** [Makefile:1: cluster] Error 1\n--- FAIL: TestCluster (1.0s)\n",
			false, "FAILED p TestB\n    boom\nmake: *** [Makefile:1: cluster] Error 1\n--- FAIL: TestCluster (1.0s)\n1 passed, 1 failed", ""},
		{"make fails before any test", "make test failed\n", false, "0 passed, 1 failed", ""},
		{"the linters find something", pass + "a.go:1: bad\nmake lint failed\n", false, "the linters found something, see above\n1 passed, 1 failed", "a.go:1: bad"},
		{"nothing ran", "", false, "0 passed, 0 failed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			if ok := run(strings.NewReader(c.in), &out); ok != c.ok {
				t.Errorf("ok = %v, want %v", ok, c.ok)
			}
			if !strings.HasSuffix(out.String(), c.last+"\n") || !strings.Contains(out.String(), c.contains) {
				t.Errorf("output:\n%s\nwant last line %q and %q in it", out.String(), c.last, c.contains)
			}
		})
	}
}
