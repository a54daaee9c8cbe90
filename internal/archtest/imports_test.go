package archtest

import (
	"go/ast"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/moongate-dev/moongate/"

// deps are the import paths that the packages need, directly or not, by package.
func deps(t *testing.T, pattern string) map[string][]string {
	t.Helper()
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, pattern)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	byPackage := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		byPackage[fields[0]] = fields[1:]
	}
	return byPackage
}

// TestImports checks what docs/architecture.md says of who may know whom, also
// through third packages.
func TestImports(t *testing.T) {
	for _, rule := range []struct {
		packages string
		never    []string // prefixes of import paths
		but      []string // packages with such a prefix that may be imported
	}{
		{packages: "internal/translate/...", never: []string{module + "internal/source", module + "internal/proxy", module + "internal/deliver", module + "internal/cli"}},
		{packages: "internal/proxy/...", never: []string{module + "internal/translate", module + "internal/source", module + "internal/status", "k8s.io/", "sigs.k8s.io/", "net/http/httputil"}},
		{packages: "internal/proxy/snapshot/...", never: []string{module + "internal/proxy/exchange", module + "internal/proxy/client"}},
		{packages: "internal/proxy/exchange/...", never: []string{module + "internal/proxy/client"}},
		{packages: "internal/proxy/compression/...", never: []string{module + "internal/proxy/exchange", module + "internal/proxy/client", module + "internal/config"}},
		{packages: "internal/proxy/http2/...", never: []string{module + "internal/proxy/exchange", module + "internal/proxy/client", module + "internal/config", "net/http"}},
		{packages: "internal/incremental/...", never: []string{module, "k8s.io/", "sigs.k8s.io/"}, but: []string{module + "internal/hashtable"}},
		{packages: "internal/hashtable/...", never: []string{module, "k8s.io/", "sigs.k8s.io/"}},
		{packages: "internal/intern/...", never: []string{module, "k8s.io/", "sigs.k8s.io/"}},
		{packages: "internal/config/...", never: []string{module, "k8s.io/", "sigs.k8s.io/"}},
		{packages: "internal/kind/...", never: []string{module + "internal/source", module + "internal/translate", module + "internal/status", module + "internal/proxy"}},
		{packages: "internal/status/...", never: []string{module + "internal/translate", module + "internal/proxy", module + "internal/source"}},
		{packages: "internal/provision/...", never: []string{module + "internal/source", module + "internal/deliver", module + "internal/proxy", module + "internal/cli"}},
		{packages: "internal/lint/...", never: []string{module + "internal/translate", module + "internal/proxy", module + "internal/cli"}},
		{packages: "internal/migrate/...", never: []string{module + "internal/translate", module + "internal/proxy", module + "internal/cli", module + "internal/source/files"}},
		{packages: "internal/reconcile/...", never: []string{module + "internal/source", module + "internal/provision", module + "internal/status/writer", module + "internal/cli"}},
		{packages: "internal/deliver/...", never: []string{module + "internal/translate", module + "internal/reconcile", module + "internal/source", module + "internal/status", module + "internal/cli"}},
		{packages: "cmd/...", never: []string{module + "internal/testkit", module + "internal/migrate/migratetest", module + "internal/deliver/delivertest"}},
		{packages: "internal/accesslog/...", never: []string{module, "k8s.io/", "sigs.k8s.io/"}},
		{packages: "internal/cginame/...", never: []string{module, "k8s.io/", "sigs.k8s.io/"}},
		{packages: "internal/testkit/...", never: []string{module}},
		{packages: "internal/revocation/...", never: []string{module, "k8s.io/", "sigs.k8s.io/"}},
		{packages: "internal/deliver/auth/...", never: []string{module}},
		{packages: "internal/deliver/client/...", never: []string{module + "internal/translate", module + "internal/source", "k8s.io/", "sigs.k8s.io/"}},
		{packages: "internal/deliver/partition/...", never: []string{module + "internal/translate", module + "internal/source", module + "internal/proxy", "k8s.io/", "sigs.k8s.io/"}},
		{packages: "internal/source/...", never: []string{module + "internal/translate", module + "internal/proxy", module + "internal/cli", module + "internal/deliver"}},
	} {
		checked := 0
		for pkg, imports := range deps(t, "./"+rule.packages) {
			checked++
			for _, imported := range imports {
				if own(rule.packages, imported) || slices.Contains(rule.but, imported) {
					continue
				}
				for _, prefix := range rule.never {
					if strings.HasPrefix(imported, prefix) {
						t.Errorf("%s must never import %s", strings.TrimPrefix(pkg, module), imported)
					}
				}
			}
		}
		if checked == 0 {
			t.Errorf("the rule for %s matches no package", rule.packages)
		}
	}
}

// own says that the imported package belongs to the pattern itself.
func own(pattern, imported string) bool {
	dir := module + strings.TrimSuffix(pattern, "/...")
	return imported == dir || strings.HasPrefix(imported, dir+"/")
}

// TestTranslationIsPure checks that there is no I/O, clock, randomness, goroutine
// or logger where config and status come from.
func TestTranslationIsPure(t *testing.T) {
	forbidden := []string{"os", "net/http", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "io/ioutil", "bufio", "sync", "context", "embed"}
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
	found := 0
	for _, file := range goFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(file.path))
		pure := dir == "internal/incremental" || dir == "internal/hashtable" || dir == "internal/translate" || strings.HasPrefix(dir, "internal/translate/")
		if !pure || file.test {
			continue
		}
		found++
		for _, spec := range file.syntax.Imports {
			if path := strings.Trim(spec.Path.Value, `"`); slices.Contains(forbidden, path) {
				t.Errorf("%s: translation is pure and imports no %q", file.path, path)
			}
		}
		ast.Inspect(file.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: translation is pure and starts no goroutine", file.at(n))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					t.Errorf("%s: translation is pure and reads no clock (time.%s)", file.at(n), n.Sel.Name)
				}
			}
			return true
		})
	}
	if found == 0 {
		t.Error("no file of internal/translate was found")
	}
}
