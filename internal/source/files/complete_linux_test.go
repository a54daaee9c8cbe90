package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNewFileDoesNotWait: a new file is read at once when nobody writes it any more, and not before.
func TestNewFileDoesNotWait(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	write(t, filepath.Join(elsewhere, "a.yaml"), config("a", "one"))
	if !complete(filepath.Join(elsewhere, "a.yaml")) {
		t.Fatal("the kernel grants no lease here; set TMPDIR to a folder on a local file system")
	}
	const debounce = time.Minute
	s, err := New([]string{dir}, Options{Debounce: debounce})
	if err != nil {
		t.Fatal(err)
	}
	w := watchSource(t, s)
	if err := os.Rename(filepath.Join(elsewhere, "a.yaml"), filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	w.until("a=one")

	// What is being written waits, however long that takes.
	f, err := os.Create(filepath.Join(elsewhere, "b.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(config("b", "one")); err != nil {
		t.Fatal(err)
	}
	if complete(f.Name()) {
		t.Error("a file that is open for writing is complete")
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(elsewhere, "c.yaml"), config("c", "one"))
	if err := os.Rename(filepath.Join(elsewhere, "c.yaml"), filepath.Join(dir, "c.yaml")); err != nil {
		t.Fatal(err)
	}
	w.until("a=one", "c=one")

	// Nobody is kept from writing.
	if _, err := f.WriteString("---\n"); err != nil {
		t.Error(err)
	}
	write(t, filepath.Join(dir, "c.yaml"), config("c", "two"))
	for _, path := range []string{"", "empty.yaml", "link.yaml"} {
		path = filepath.Join(elsewhere, path)
		if strings.Contains(path, "empty") {
			write(t, path, "")
		}
		if strings.Contains(path, "link") {
			if err := os.Symlink(filepath.Join(dir, "a.yaml"), path); err != nil {
				t.Fatal(err)
			}
		}
		if complete(path) {
			t.Errorf("%s is complete", path)
		}
	}
}
