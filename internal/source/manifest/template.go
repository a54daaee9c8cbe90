package manifest

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/moongate-dev/moongate/internal/source/schema"
)

// template is a format from which manifests are generated.
type template struct {
	expression     *regexp.Regexp // it occurs where a manifest has a value
	reason, remedy string
}

var templates = []*template{
	{regexp.MustCompile(`\{\{-?[^{}\n]*\}\}`), "is a template, not a manifest", "render it first: helm template CHART | moongate check -"},
	{regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*(?::?[-=][^{}\n]*)?\}`), "has a variable that nothing here replaces", "replace it first: envsubst < FILE | moongate check -"},
}

// templateIn returns the template with an expression in a text; nil if there is none.
func templateIn(text string) *template {
	for _, t := range templates {
		if t.expression.MatchString(text) {
			return t
		}
	}
	return nil
}

// templateError returns the error for a text that does not parse from a line on and contains an expression of a template there, at
// the first of them; nil if it contains none. Variables also occur in scripts and other files that manifests contain as text, so
// those elsewhere are not the cause.
func templateError(text []byte, failed int) *syntaxError {
	for i, t := range templates {
		line, counted := 1, 0
		for _, at := range t.expression.FindAllIndex(text, -1) {
			line += bytes.Count(text[counted:at[0]], []byte("\n"))
			counted = at[0]
			if i == 0 || line >= failed-1 && line <= failed+1 {
				return &syntaxError{line: line, reason: t.reason, remedy: t.remedy}
			}
		}
	}
	return nil
}

// isChart reports whether a document is the Chart.yaml of Helm: it has an apiVersion and no kind.
func isChart(obj map[string]any) bool {
	for _, field := range []string{"name", "version"} {
		if _, ok := obj[field].(string); !ok {
			if _, number := obj[field].(int64); !number {
				return false
			}
		}
	}
	return obj["kind"] == nil && (obj["apiVersion"] == "v1" || obj["apiVersion"] == "v2")
}

// nameFields are fields whose values can never be an expression of a template, anywhere; their schemas may allow any string.
var nameFields = []string{"gatewayClassName", "hostname", "kind", "name", "namespace", "sectionName"}

// templatedField returns the path of the first field of an object that has an expression of a template instead of a name, or that is
// in violation and has one; "" if none. Other fields of a valid object, such as header values and the data of ConfigMaps, may
// contain one as text.
func templatedField(k *manifestKind, node *yaml.Node, violations []schema.Violation) string {
	found, line := "", 0
	for _, v := range violations {
		if at := lineOf(node, v.Field); templateIn(writtenAt(node, v.Field)) != nil && (found == "" || at < line) {
			found, line = v.Field, at
		}
	}
	if !k.Custom {
		return found
	}
	var walk func(n *yaml.Node, path string, depth int)
	walk = func(n *yaml.Node, path string, depth int) {
		for i, c := range n.Content {
			switch {
			case n.Kind == yaml.SequenceNode:
				walk(c, fmt.Sprintf("%s[%d]", path, i), depth+1)
			case n.Kind != yaml.MappingNode || i%2 == 0:
			case c.Kind == yaml.ScalarNode:
				field := strings.TrimPrefix(path+"."+n.Content[i-1].Value, ".")
				if slices.Contains(nameFields, n.Content[i-1].Value) && templateIn(c.Value) != nil && (found == "" || n.Content[i-1].Line < line) {
					found, line = field, n.Content[i-1].Line
				}
			case depth > 0 || n.Content[i-1].Value == "spec":
				walk(c, strings.TrimPrefix(path+"."+n.Content[i-1].Value, "."), depth+1)
			}
		}
	}
	walk(node, "", 0)
	return found
}
