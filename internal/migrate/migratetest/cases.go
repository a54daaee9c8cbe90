// Package migratetest reads the cases of internal/migrate/testdata: Ingresses, the requests that are sent to nginx and to Moongate,
// and which of them may be answered differently because of which entry of the report. It exists so that golden files and traffic
// tests use the same cases. Only tests may import it.
package migratetest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Case is a set of Ingresses and the requests to them.
type Case struct {
	Theme, Name string // the file without its extension, and the name in it
	Requests    []Request
	Objects     []byte // Ingresses, and Services if ports have names, as YAML
}

// Request is a request that is sent to both.
type Request struct {
	// Do is the method and the URL, such as "GET http://a.test/".
	Do      string
	Headers map[string]string
	// Size is the length of the body in bytes.
	Size int
	// Times is how often it is sent, one after the other; the last response counts. 0 means once.
	Times int
	// Share compares the shares of Times requests that backends get, instead of the last response.
	Share bool
	// Differs is the field of the report entry that explains why the responses differ; "" if they are equal.
	Differs string
}

// UnmarshalYAML reads a plain string as Do.
func (r *Request) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&r.Do)
	}
	type plain Request
	return n.Decode((*plain)(r))
}

// Load reads all cases; dir is the folder of the files.
func Load(t testing.TB, dir string) []Case {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases in %s: %v", dir, err)
	}
	var cases []Case
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			var head struct {
				Case     string
				Requests []Request
			}
			if strings.HasPrefix(doc, "case:") {
				d := yaml.NewDecoder(bytes.NewReader([]byte(doc)))
				d.KnownFields(true)
				if err := d.Decode(&head); err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				cases = append(cases, Case{Theme: strings.TrimSuffix(filepath.Base(path), ".yaml"), Name: head.Case, Requests: head.Requests})
				continue
			}
			if len(cases) == 0 {
				t.Fatalf("%s does not begin with a case", path)
			}
			last := &cases[len(cases)-1]
			last.Objects = append(last.Objects, "---\n"+strings.TrimSpace(doc)+"\n"...)
		}
	}
	return cases
}
