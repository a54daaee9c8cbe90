package archtest

import (
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

type goFile struct {
	path   string // from the root, with slashes
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
		files = append(files, &goFile{filepath.ToSlash(rel), strings.HasSuffix(path, "_test.go"), syntax, fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestPackageComments checks that every package says what it is.
func TestPackageComments(t *testing.T) {
	docs := map[string]string{}
	for _, file := range goFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(file.path))
		if !file.test && !strings.HasPrefix(dir, "test/") {
			docs[dir] += file.syntax.Doc.Text()
		}
	}
	for dir, doc := range docs {
		if strings.TrimSpace(doc) == "" {
			t.Errorf("%s: the package comment is missing", dir)
		}
	}
}

// TestNames checks that packages and files are named after what they hold.
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

// TestNothingIsSkipped finds tests that would skip themselves: one that cannot run somewhere belongs into a file with a build constraint.
func TestNothingIsSkipped(t *testing.T) {
	for _, file := range goFiles(t) {
		ast.Inspect(file.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && file.test {
				if f, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, f.Sel.Name) {
					t.Errorf("%s: a skipped test counts as a failed one; use a build constraint", file.at(n))
				}
			}
			return true
		})
	}
}
