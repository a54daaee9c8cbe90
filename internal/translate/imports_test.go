package translate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPure checks that translation depends on nothing but its input: no I/O, clock,
// randomness, goroutine or logger, and none of the packages beside it in the data flow.
func TestPure(t *testing.T) {
	never := []string{"os", "io", "bufio", "net", "net/http", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "sync", "context", "embed",
		"github.com/moongate-dev/moongate/internal/source", "github.com/moongate-dev/moongate/internal/proxy", "github.com/moongate-dev/moongate/internal/deliver"}
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
	var paths []string
	for _, pattern := range []string{"*.go", "rule/*.go", "certificate/*.go", "condition/*.go", "gateway/*.go", "listener/*.go", "parameters/*.go", "policy/*.go", "support/*.go", "../incremental/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		paths = append(paths, found...)
	}
	checked := 0
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		checked++
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			imported := strings.Trim(i.Path.Value, `"`)
			for _, n := range never {
				if imported == n || strings.Contains(n, "/internal/") && strings.HasPrefix(imported, n+"/") {
					t.Errorf("%s imports %s", path, imported)
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", fset.Position(n.Pos()))
			case *ast.SelectorExpr:
				if x, is := n.X.(*ast.Ident); is && (x.Name == "time" || x.Name == "metav1") && slices.Contains(clock, n.Sel.Name) {
					t.Errorf("%s reads the clock", fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
	if checked == 0 {
		t.Error("no file was checked")
	}
}
