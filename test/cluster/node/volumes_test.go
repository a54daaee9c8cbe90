package node

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestReplaceFiles changes a volume and reads it as a container does, by names
// that must never point at nothing.
func TestReplaceFiles(t *testing.T) {
	p := &pod{object: &corev1.Pod{}}
	dir := t.TempDir()
	write := func(texts map[string]string) {
		t.Helper()
		files := map[string]file{}
		for path, text := range texts {
			files[path] = file{data: []byte(text), mode: 0o640, user: -1}
		}
		if err := p.replaceFiles(dir, files); err != nil {
			t.Fatal(err)
		}
		for path, text := range texts {
			if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != text {
				t.Errorf("%s holds %q, %v; want %q", path, got, err, text)
			}
		}
	}
	write(map[string]string{"a": "1", "deep/b": "2"})
	first, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	write(map[string]string{"a": "1", "deep/b": "2"})
	if again, _ := os.Readlink(filepath.Join(dir, "..data")); again != first {
		t.Error("what has not changed is written again")
	}
	write(map[string]string{"a": "3", "c": "4"})
	if _, err := os.Lstat(filepath.Join(dir, "deep")); !os.IsNotExist(err) {
		t.Errorf("what is gone is still there: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "a")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v; want 0640", info.Mode(), err)
	}
	if entries, _ := filepath.Glob(filepath.Join(dir, "..[0-9]*")); len(entries) != 1 {
		t.Errorf("%q are kept, want one", entries)
	}
	write(nil)
}
