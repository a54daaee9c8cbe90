package interop

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	"github.com/xeipuuv/gojsonschema"
)

// TestSARIF holds what check prints to the schema of SARIF 2.1.0, and has a library of others find the places in it.
func TestSARIF(t *testing.T) {
	dir := t.TempDir()
	goBuild(t, filepath.Join("..", ".."), dir, "./cmd/moongate")
	manifests, err := filepath.Abs(filepath.Join("..", "..", "internal", "cli", "testdata", "mistakes"))
	if err != nil {
		t.Fatal(err)
	}
	schema := sarifSchema(t)
	for _, c := range []struct {
		files []string
		level string // of the only result, "" for none
	}{
		{[]string{"base.yaml"}, ""},
		{[]string{"base.yaml", "056-service-name.yaml"}, "error"},
		{[]string{"base.yaml", "089-btp-enum.yaml"}, "error"},
		{[]string{"base.yaml", "107-older-version.yaml"}, "warning"},
	} {
		check := exec.Command(filepath.Join(dir, "moongate"), append([]string{"check", "-o", "sarif"}, c.files...)...)
		check.Dir = manifests
		out, err := check.Output()
		if failed := check.ProcessState != nil && check.ProcessState.ExitCode() == 1; err != nil && !failed {
			t.Fatalf("%v: %v", check, err)
		}
		if found := violations(t, schema, string(out)); len(found) > 0 {
			t.Errorf("%v: %v: %s", c.files, found, out)
		}
		report := &sarif.Report{}
		if err := json.Unmarshal(out, report); err != nil || len(report.Runs) != 1 {
			t.Errorf("%v: %v: %s", c.files, err, out)
			continue
		}
		results := report.Runs[0].Results
		if c.level == "" {
			if results == nil || len(results) > 0 { // null would mean that the run has failed
				t.Errorf("%v: results %v", c.files, results)
			}
			continue
		}
		if len(results) != 1 || results[0].Level != c.level {
			t.Errorf("%v: %d results, want one of level %s: %s", c.files, len(results), c.level, out)
			continue
		}
		at := results[0].Locations[0].PhysicalLocation
		if *at.ArtifactLocation.URI != c.files[1] || at.Region == nil || *at.Region.StartLine < 1 {
			t.Errorf("%v: the result is at %+v", c.files, at)
		}
	}
	for _, wrong := range []string{`{"version": "2.1.0"}`, `{"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "a"}}, "results": [{"message": {"text": "a"}, "level": "mistake"}]}]}`} {
		if len(violations(t, schema, wrong)) == 0 {
			t.Errorf("the schema takes %s", wrong)
		}
	}
}

func violations(t *testing.T, schema *gojsonschema.Schema, log string) []gojsonschema.ResultError {
	t.Helper()
	result, err := schema.Validate(gojsonschema.NewStringLoader(log))
	if err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	return result.Errors()
}

// sarifSchema returns the schema that the library has in its source. It does not export it, and itself validates only what its own types have written.
func sarifSchema(t *testing.T) *gojsonschema.Schema {
	t.Helper()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif").Output()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "schema.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var text string
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING && len(literal.Value) > len(text) {
			text = literal.Value
		}
		return true
	})
	if text, err = strconv.Unquote(text); err != nil || !strings.Contains(text, "SARIF") {
		t.Fatalf("schema.go has no schema of SARIF: %v", err)
	}
	schema, err := gojsonschema.NewSchema(gojsonschema.NewStringLoader(text))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}
