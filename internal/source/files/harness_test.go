package files

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fsnotify/fsnotify"
)

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func source(t testing.TB, paths ...string) *Source {
	t.Helper()
	s, err := New(paths, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// names lists objects without the Namespaces that exist by themselves.
func names(objects []Object) []string {
	var list []string
	for _, o := range objects {
		if o.Position != (Position{}) {
			list = append(list, o.ID.String())
		}
	}
	return list
}

func watcher(t testing.TB) *fsnotify.Watcher {
	t.Helper()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}
