package cli

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what check prints of testdata/mistakes")

// TestMistakes holds what check prints of each mistake of testdata/mistakes, beside the objects of base.yaml that it refers to,
// against the file of the same name that ends with .out: the whole output, and the exit code on the last line.
func TestMistakes(t *testing.T) {
	t.Chdir(filepath.Join("testdata", "mistakes"))
	mistakes, err := filepath.Glob("[0-9]*.yaml")
	if err != nil || len(mistakes) == 0 {
		t.Fatalf("%d mistakes, %v", len(mistakes), err)
	}
	for _, path := range mistakes {
		t.Run(path, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := Main([]string{"check", "base.yaml", path}, &stdout, &stderr)
			got := stdout.String() + stderr.String() + "exit code " + string(rune('0'+code)) + "\n"
			if !strings.Contains(got, path+":") {
				t.Errorf("nothing is said of a line of the file:\n%s", got)
			}
			golden := strings.TrimSuffix(path, ".yaml") + ".out"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
	// What is right must stay so, or the mistakes are not the only cause.
	var stdout, stderr bytes.Buffer
	if code := Main([]string{"check", "--strict", "base.yaml"}, &stdout, &stderr); code != exitOK {
		t.Errorf("base.yaml: exit code %d\n%s%s", code, &stdout, &stderr)
	}
}
