package house

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDependencyReasons checks that docs/dependencies.md lists what go.mod requires directly, in these versions.
func TestDependencyReasons(t *testing.T) {
	edit := exec.Command("go", "mod", "edit", "-json")
	edit.Dir = root
	out, err := edit.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path, Version string
			Indirect      bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(filepath.Join(root, "docs/dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (v[^ ]+) \\| [^|]+ \\| [^|]{10,} \\|").FindAllStringSubmatch(string(document), -1) {
		listed[m[1]] = m[2]
	}
	for _, r := range mod.Require {
		if r.Indirect {
			continue
		}
		if listed[r.Path] != r.Version {
			t.Errorf("docs/dependencies.md has %s in version %q, go.mod in %s", r.Path, listed[r.Path], r.Version)
		}
		delete(listed, r.Path)
	}
	for path := range listed {
		t.Errorf("docs/dependencies.md lists %s, which go.mod does not require directly", path)
	}
}

// TestArchitectureRooms checks that docs/architecture.md names every package, or the folder above it.
func TestArchitectureRooms(t *testing.T) {
	document, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range deps(t, "./...") {
		dir := strings.TrimPrefix(pkg, module)
		named := false
		for d := dir; d != "." && d != "internal" && d != "internal/proxy"; d = filepath.Dir(d) {
			if strings.Contains(string(document), "`"+d+"`") || strings.Contains(string(document), "`"+d+"/<name>`") ||
				strings.Contains(string(document), "`"+filepath.Base(d)+"`") {
				named = true
			}
		}
		if !named && dir != "internal/proxy" {
			t.Errorf("docs/architecture.md does not name %s", dir)
		}
	}
}
