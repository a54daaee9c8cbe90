package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestSecretFile: it is made once, whoever begins at the same time, for its owner alone, and read after that.
func TestSecretFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	secrets := make([][]byte, 8)
	var all sync.WaitGroup
	for i := range secrets {
		all.Go(func() {
			var err error
			if secrets[i], err = readSecret(path); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, s := range secrets {
		if len(s) != secretSize || !bytes.Equal(s, secrets[0]) {
			t.Errorf("%d bytes, or another secret", len(s))
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files are left", len(left))
	}
	a, errA := readSecret("")
	b, errB := readSecret("")
	if errA != nil || errB != nil || len(a) != secretSize || bytes.Equal(a, b) {
		t.Error("without a file there is not a secret of its own each time")
	}
	short, open := filepath.Join(dir, "short"), filepath.Join(dir, "open")
	for path, mode := range map[string]os.FileMode{short: 0o600, open: 0o644} {
		if err := os.WriteFile(path, bytes.Repeat([]byte{1}, map[string]int{short: 31, open: 32}[path]), mode); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		short:                              "is not a file of 32 to 4096 bytes",
		open:                               "chmod 600",
		dir:                                "is not a file of",
		filepath.Join(dir, "none", "file"): "no such file",
	} {
		if _, err := readSecret(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
