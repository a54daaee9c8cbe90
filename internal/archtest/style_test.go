package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// yamlBlock is a code block of a document in YAML.
var yamlBlock = regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```$")

// flowMapping begins a mapping in braces that has entries. {{ of templates, ${ of variables and {" of JSON begin none.
var flowMapping = regexp.MustCompile(`(?m)^(?:[^#"'\n]*[\s:\[,-])?\{[^{}\s"]`)

// TestBlockStyle checks that manifests in documents and examples are written in block style, so that they read as those of
// everybody else, and an edit of one field is one line. Sequences of scalars may be in brackets.
func TestBlockStyle(t *testing.T) {
	manifests := map[string]string{}
	for document, text := range documents(t) {
		if strings.HasPrefix(document, "internal/") {
			continue // the filters' own notes, for who changes them
		}
		for _, m := range yamlBlock.FindAllStringSubmatch(text, -1) {
			manifests[document] += m[1]
		}
	}
	for _, pattern := range []string{"examples/*.yaml", "examples/*/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			manifests[file] = string(text)
		}
	}
	if len(manifests) < 80 {
		t.Errorf("%d documents and examples have manifests", len(manifests))
	}
	for file, text := range manifests {
		for _, line := range flowMapping.FindAllString(text, -1) {
			t.Errorf("%s has a mapping in braces: %s...", file, strings.TrimSpace(line))
		}
	}
}
