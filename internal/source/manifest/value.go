package manifest

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// maxDepth is the maximum nesting; the deepest CRD has about 20 levels.
	maxDepth = 100
	// maxAliased is the maximum number of nodes, per document, that aliases repeat: otherwise a few lines of YAML could stand for
	// billions of values.
	maxAliased = 100_000
)

var errDepth = &syntaxError{reason: "nested too deeply", remedy: fmt.Sprintf("use at most %d levels", maxDepth)}

// builder converts a YAML tree to the values of encoding/json, with int64 for whole numbers, by the rules by which kubectl reads
// manifests.
type builder struct {
	aliased int // nodes reached through an alias so far
	inAlias int // number of aliases around the current node
}

// value returns the value of n.
func (b *builder) value(n *yaml.Node, depth int) (any, error) {
	if depth > maxDepth {
		return nil, at(n, errDepth)
	}
	if b.inAlias > 0 {
		if b.aliased++; b.aliased > maxAliased {
			return nil, &syntaxError{line: n.Line, reason: "aliases repeat too much", remedy: fmt.Sprintf("write the values out; aliases may stand for at most %d values in a document", maxAliased)}
		}
	}
	switch n.Kind {
	case yaml.AliasNode:
		b.inAlias++
		v, err := b.value(n.Alias, depth+1)
		b.inAlias--
		return v, err
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, err := b.value(c, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.MappingNode:
		return b.mapping(n, depth)
	case yaml.ScalarNode:
		return scalar(n)
	}
	return nil, &syntaxError{line: n.Line, reason: "unexpected YAML", remedy: yamlRemedy("")}
}

func (b *builder) mapping(n *yaml.Node, depth int) (map[string]any, error) {
	m := make(map[string]any, len(n.Content)/2)
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge" {
			merges = append(merges, v)
			continue
		}
		name, err := key(k)
		if err != nil {
			return nil, err
		}
		if _, ok := m[name]; ok {
			if depth == 0 && (name == "apiVersion" || name == "kind") {
				return nil, &syntaxError{line: k.Line, reason: fmt.Sprintf("field %q is there twice: another object begins here", name), remedy: `put a line "---" between the two objects`}
			}
			return nil, &syntaxError{line: k.Line, reason: fmt.Sprintf("field %q is there twice", name), remedy: "remove one of the two"}
		}
		if m[name], err = b.value(v, depth+1); err != nil {
			return nil, err
		}
	}
	for _, v := range merges {
		if err := b.merge(m, v, depth+1); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// merge adds the mappings that "<<" names, without overwriting; the first one wins.
func (b *builder) merge(into map[string]any, n *yaml.Node, depth int) error {
	v, err := b.value(n, depth)
	if err != nil {
		return err
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, v := range list {
		from, ok := v.(map[string]any)
		if !ok {
			return &syntaxError{line: n.Line, reason: `"<<" needs a mapping`, remedy: "let it name an anchor of a mapping"}
		}
		for k, v := range from {
			if _, ok := into[k]; !ok {
				into[k] = v
			}
		}
	}
	return nil
}

func key(n *yaml.Node) (string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode {
		v, err := scalar(n)
		if err != nil {
			return "", err
		}
		switch v := v.(type) {
		case string:
			return v, nil
		case int64:
			return strconv.FormatInt(v, 10), nil
		case bool:
			return strconv.FormatBool(v), nil
		case float64:
			return strconv.FormatFloat(v, 'g', -1, 64), nil
		}
	}
	return "", &syntaxError{line: n.Line, reason: "a field's name must be a string", remedy: "put the name in quotes"}
}

func scalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool":
		var v bool
		if err := n.Decode(&v); err != nil {
			return nil, badScalar(n)
		}
		return v, nil
	case "!!int", "!!float":
		return number(n)
	case "!!binary":
		var v string
		if err := n.Decode(&v); err != nil {
			return nil, badScalar(n)
		}
		return v, nil
	case "!!str":
		// kubectl reads YAML 1.1, in which these plain words are booleans.
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0 && len(n.Value) <= 3 {
			switch n.Value {
			case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
				return true, nil
			case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
				return false, nil
			}
		}
	}
	return n.Value, nil // also timestamps and unknown tags
}

func number(n *yaml.Node) (any, error) {
	if i, err := strconv.ParseInt(n.Value, 10, 64); err == nil && (n.Value == "0" || n.Value[0] != '0') {
		return i, nil
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, badScalar(n)
	}
	switch v := v.(type) {
	case int:
		return int64(v), nil
	case int64:
		return v, nil
	case uint64:
		return float64(v), nil
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, badScalar(n)
		}
		// 8080.0 is encoded as 8080 in JSON.
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v), nil
		}
		return v, nil
	}
	return nil, badScalar(n)
}

func badScalar(n *yaml.Node) error {
	value := n.Value
	if len(value) > 40 {
		value = strings.ToValidUTF8(value[:40], "") + "..."
	}
	return &syntaxError{line: n.Line, reason: fmt.Sprintf("%q is not a value that JSON has", value), remedy: "put it in quotes if it is a string"}
}

func at(n *yaml.Node, e *syntaxError) error {
	return &syntaxError{line: n.Line, reason: e.reason, remedy: e.remedy}
}

// lineOf returns the line of a field by its path (spec.rules[0].name, metadata.labels[a.b/c]), or of the nearest existing field
// around it.
func lineOf(n *yaml.Node, path string) int {
	line := n.Line
	for path != "" {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		child, keyLine, rest := step(n, path)
		if child == nil {
			break
		}
		n, line, path = child, keyLine, rest
	}
	return line
}

// writtenAt returns the scalar at a path as the document spells it; "" if there is none.
func writtenAt(n *yaml.Node, path string) string {
	for n != nil {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		if path == "" {
			break
		}
		n, _, path = step(n, path)
	}
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// step goes one segment down. Names may contain dots (annotations), so in a mapping the longest matching name is used.
func step(n *yaml.Node, path string) (child *yaml.Node, line int, rest string) {
	path = strings.TrimPrefix(path, ".")
	var index string
	if strings.HasPrefix(path, "[") {
		index, rest, _ = strings.Cut(path[1:], "]")
	}
	switch n.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line, rest
		}
	case yaml.MappingNode:
		best := -1
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			tail, ok := strings.CutPrefix(path, k.Value)
			switch {
			case index != "" && k.Value == index:
				return n.Content[i+1], k.Line, rest
			case ok && len(k.Value) > best && k.Value != "" && (tail == "" || tail[0] == '.' || tail[0] == '['):
				best, child, line, rest = len(k.Value), n.Content[i+1], k.Line, tail
			}
		}
	}
	return child, line, rest
}
