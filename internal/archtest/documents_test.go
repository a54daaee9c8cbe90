package archtest

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	gopath "path"
	"path/filepath"
	"regexp"
	"slices"
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

// TestPackagesAreDocumented checks that docs/architecture.md names every package, or the folder above it.
func TestPackagesAreDocumented(t *testing.T) {
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

// TestPackagesAreDocumentedOnce checks that no folder has two rows in the table of docs/architecture.md.
func TestPackagesAreDocumentedOnce(t *testing.T) {
	document, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	code, rows := regexp.MustCompile("`([^`]+)`"), map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+) \\|").FindAllStringSubmatch(string(document), -1) {
		parent := "" // of the first folder; the others of a row are beside it
		for i, cell := range code.FindAllStringSubmatch(row[1], -1) {
			if i == 0 {
				parent = gopath.Dir(cell[1])
				rows[gopath.Clean(cell[1])]++
			} else {
				rows[gopath.Join(parent, cell[1])]++
			}
		}
	}
	if rows["internal/translate"] == 0 {
		t.Errorf("the table was not found: %v", rows)
	}
	for folder, n := range rows {
		if n > 1 {
			t.Errorf("docs/architecture.md has %d rows for %s", n, folder)
		}
	}
}

// TestDocumentedPaths checks that paths and files of the repository that the documents name exist. A path may begin at the
// root, in internal or in internal/proxy, so only its end is compared; <name> and * stand for anything within a segment.
func TestDocumentedPaths(t *testing.T) {
	var all []string           // files and folders, from the root, each with a slash before
	begin := map[string]bool{} // the folders that a path may begin with
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		// conformance at the root holds the reports that `make conformance` has written.
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin" || rel == "conformance") {
			return filepath.SkipDir
		}
		all = append(all, "/"+rel)
		if dir, name := gopath.Split(rel); entry.IsDir() && (dir == "" || dir == "internal/" || dir == "internal/proxy/") {
			begin[name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	code, placeholder := regexp.MustCompile("`([^`\n]+)`"), regexp.MustCompile("<[^/>]*>")
	checked := 0
	for document, text := range documents(t) {
		if strings.HasPrefix(document, "internal/") {
			continue // notes for who changes the package, also about modules of others
		}
		for _, span := range code.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			for _, word := range strings.Fields(span[1]) {
				first, _, slash := strings.Cut(word, "/")
				if ext := gopath.Ext(word); !(slash && begin[first]) && (ext == word || ext != ".go" && ext != ".proto") {
					continue
				}
				checked++
				end := regexp.QuoteMeta("/" + strings.TrimSuffix(placeholder.ReplaceAllString(word, "*"), "/"))
				is := regexp.MustCompile(strings.ReplaceAll(end, `\*`, "[^/]*") + "$")
				if !slices.ContainsFunc(all, is.MatchString) {
					t.Errorf("%s names %s, which is not in the repository", document, word)
				}
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d paths were found in the documents", checked)
	}
}
