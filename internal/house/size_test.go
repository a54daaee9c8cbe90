package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// House rule 4.
const (
	maxFileLines     = 500
	maxFunctionLines = 60   // tests are exempt: a table is as long as its cases
	maxPackageLines  = 2500 // tests do not count
)

// exceptions are what may be larger, each with its reason. One that is no longer
// needed fails the test.
var exceptions = map[string]string{}

type goFile struct {
	path   string // from the root, with slashes
	lines  int
	test   bool
	syntax *ast.File
	fset   *token.FileSet
}

func (f *goFile) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.path, f.fset.Position(n.Pos()).Line)
}

// goFiles are all files of ours that people write, in this module and in test/.
func goFiles(t *testing.T) []*goFile {
	t.Helper()
	var files []*goFile
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "bin"):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, ".pb.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		syntax, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files = append(files, &goFile{filepath.ToSlash(rel), bytes.Count(text, []byte("\n")), strings.HasSuffix(path, "_test.go"), syntax, fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestSizes(t *testing.T) {
	used := map[string]bool{}
	tooLong := func(what string, lines, limit int) {
		if lines <= limit {
			return
		}
		if exceptions[what] != "" {
			used[what] = true
			return
		}
		t.Errorf("%s has %d lines, more than %d: split it, or list it in exceptions with the reason", what, lines, limit)
	}
	packages := map[string]int{}
	for _, file := range goFiles(t) {
		tooLong(file.path, file.lines, maxFileLines)
		if file.test {
			continue
		}
		packages[filepath.ToSlash(filepath.Dir(file.path))] += file.lines
		for _, decl := range file.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				lines := file.fset.Position(fn.End()).Line - file.fset.Position(fn.Pos()).Line + 1
				tooLong(file.path+" "+fn.Name.Name, lines, maxFunctionLines)
			}
		}
	}
	for dir, lines := range packages {
		tooLong(dir, lines, maxPackageLines)
	}
	for what := range exceptions {
		if !used[what] {
			t.Errorf("the exception for %s is no longer needed", what)
		}
	}
}

// TestPackageComments checks house rule 5 as far as a test can: every package of
// ours says what it is, and at some length.
func TestPackageComments(t *testing.T) {
	docs := map[string]string{}
	for _, file := range goFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(file.path))
		if !file.test && !strings.HasPrefix(dir, "test/") {
			docs[dir] += file.syntax.Doc.Text()
		}
	}
	for dir, doc := range docs {
		switch {
		case strings.TrimSpace(doc) == "":
			t.Errorf("%s: the package comment is missing", dir)
		case strings.HasPrefix(dir, "internal/") && !strings.Contains(doc, "import"):
			t.Errorf("%s: the package comment does not say what the package must never import", dir)
		}
	}
}

// TestNames checks house rule 6.
func TestNames(t *testing.T) {
	bad := []string{"utils", "util", "common", "helpers", "helper", "misc"}
	for _, file := range goFiles(t) {
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file.path), ".go"), "_test")
		if slices.Contains(bad, name) || slices.Contains(bad, file.syntax.Name.Name) {
			t.Errorf("%s: name it after what it holds", file.path)
		}
		for _, decl := range file.syntax.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.TYPE {
				continue
			}
			for _, spec := range gen.Specs {
				if name := spec.(*ast.TypeSpec).Name.Name; strings.HasSuffix(name, "Impl") {
					t.Errorf("%s: name %s after what it does", file.at(spec), name)
				}
			}
		}
	}
}
