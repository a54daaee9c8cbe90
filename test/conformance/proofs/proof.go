package proofs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/yaml"
)

// repository is the root of it, as seen by the tests of this package.
const repository = "../../.."

// proof is a test, as proofs.yaml names it: what kind of test it is, and which.
type proof string

// The kinds of tests.
const (
	official = "suite"  // of the official suite: its ShortName
	golden   = "golden" // a case of internal/translate/testdata: topic/case
	request  = "case"   // a file of internal/e2e/testdata/conformance
	goTest   = "test"   // folder.TestName
)

func (p proof) split() (what, name string) {
	what, name, _ = strings.Cut(string(p), " ")
	return what, name
}

// file is where the proof stands in the repository; "" for an official one.
func (p proof) file() string {
	switch what, name := p.split(); what {
	case golden:
		return "internal/translate/testdata/" + name + ".yaml"
	case request:
		return "internal/e2e/testdata/conformance/" + name + ".yaml"
	case goTest:
		return name[:max(strings.LastIndexByte(name, '.'), 0)]
	}
	return ""
}

// check reports a proof that is not there, or an official test that is not run because a feature that it needs is not supported.
func (p proof) check(supported []string) error {
	what, name := p.split()
	switch what {
	case official:
		at := slices.IndexFunc(tests.ConformanceTests, func(t suite.ConformanceTest) bool { return t.ShortName == name })
		if at < 0 {
			return fmt.Errorf("the suite has no test %s", name)
		}
		for _, f := range tests.ConformanceTests[at].Features {
			if !slices.Contains(supported, string(f)) {
				return fmt.Errorf("%s is not run: %s is not supported", name, f)
			}
		}
		return nil
	case golden, request:
		_, err := os.Stat(filepath.Join(repository, p.file()))
		return err
	case goTest:
		return p.checkGo()
	}
	return fmt.Errorf("%q: a proof is one of %s, %s, %s, %s and its name", p, official, golden, request, goTest)
}

func (p proof) checkGo() error {
	_, name := p.split()
	function := name[strings.LastIndexByte(name, '.')+1:]
	files, err := filepath.Glob(filepath.Join(repository, p.file(), "*_test.go"))
	if err != nil {
		return err
	}
	declaration := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(function) + `\(t \*testing\.T\)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if declaration.Match(text) {
			return nil
		}
	}
	return fmt.Errorf("no test %s in %s", function, p.file())
}

// checkSets reports a case with manifests in none of which the field of a spec has a value.
func (p proof) checkSets(field string) error {
	what, _ := p.split()
	path := strings.Split(field, ".")
	if what != golden && what != request || path[1] != "spec" {
		return nil
	}
	objects, err := manifests(filepath.Join(repository, p.file()))
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o["kind"] == path[0] && sets(o, path[1:]) {
			return nil
		}
	}
	return fmt.Errorf("%s does not set %s", p, field)
}

// placeholder is what stands in golden cases for the text of a file; its braces mean something else in YAML.
var placeholder = regexp.MustCompile(`\$\{([^}]*)\}`)

// manifests are the objects of a case, without what is expected of them.
func manifests(file string) ([]map[string]any, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out []map[string]any
	for document := range strings.SplitSeq(placeholder.ReplaceAllString(string(text), "$1"), "\n---\n") {
		if strings.HasPrefix(document, "config:") || strings.HasPrefix(document, "expect:") {
			break
		}
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, object)
	}
	return out, nil
}
