package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/admin"
)

func TestPlainWriter(t *testing.T) {
	var out bytes.Buffer
	in := []byte("a\tb\n\x1b[2Jc\r\x00é\u0085d\u009b31m\x7f")
	kept := string(in)
	if n, err := (plainWriter{&out}).Write(in); n != len(in) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if want := "a\tb\n?[2Jc??é??d??31m?"; out.String() != want || string(in) != kept {
		t.Errorf("%q of %q, want %q", out.String(), in, want)
	}
}

// TestProblemLineIsALine: a name cannot begin a line of its own, by which it could be a command of what reads the output.
func TestProblemLineIsALine(t *testing.T) {
	p := admin.Problem{File: "a\nb.yaml", Object: "X\n::stop-commands::t", Message: "one\r\ntwo\u2028three", Remedy: "r\n"}
	if line := problemLine(p); strings.ContainsAny(line, "\n\r\u2028") || !strings.Contains(line, "one") {
		t.Errorf("%q", line)
	}
}

// TestHostileNamesAreShown: what a manifest has in its names does nothing to the terminal, nor to what reads the output by lines.
func TestHostileNamesAreShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: \"X\\n::stop-commands::t\\e[2J\"\nmetadata: {name: \"a\\e]0;t\\a\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", file}, {"check", "-o", "text", file}, {"check", "-o", "github", file}} {
		var stdout, stderr bytes.Buffer
		Main(args, &stdout, &stderr)
		for _, text := range []string{stdout.String(), stderr.String()} {
			if strings.ContainsAny(text, "\x1b\a") || strings.Contains(text, "\n::stop-commands") {
				t.Errorf("%q: %q", args, text)
			}
		}
	}
}
