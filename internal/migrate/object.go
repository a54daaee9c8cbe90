package migrate

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// object is a mapping that keeps the order of its fields.
type object []field

type field struct {
	name  string
	value any // string, int, bool, object, []object, []string or []any of these
}

// fields returns an object of alternating names and values. Values that are nil or empty lists and objects are left out.
func fields(pairs ...any) object {
	var o object
	for i := 0; i < len(pairs); i += 2 {
		o = o.with(pairs[i].(string), pairs[i+1])
	}
	return o
}

// with returns the object with one more field, unless its value is nil or empty.
func (o object) with(name string, value any) object {
	switch v := value.(type) {
	case nil:
		return o
	case object:
		if len(v) == 0 {
			return o
		}
	case []object:
		if len(v) == 0 {
			return o
		}
	case []string:
		if len(v) == 0 {
			return o
		}
	}
	return append(o[:len(o):len(o)], field{name, value}) // o may be extended elsewhere too
}

func node(value any) *yaml.Node {
	switch v := value.(type) {
	case object:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, f := range v {
			n.Content = append(n.Content, node(f.name), node(f.value))
		}
		return n
	case []object:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range v {
			n.Content = append(n.Content, node(item))
		}
		return n
	case []string:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range v {
			n.Content = append(n.Content, node(item))
		}
		return n
	}
	n := new(yaml.Node)
	if err := n.Encode(value); err != nil {
		panic(err) // only strings, numbers and booleans occur here
	}
	return n
}

// document is one object of the output.
type document struct {
	kind, namespace, name string
	sources               []string // objects that it was made from, as comments
	notes                 []string // further comments
	body                  object
}

// printable makes text of users safe for a comment and for a line of the report: characters that end a line for a YAML parser or for a
// terminal, or that have a special meaning there, become spaces.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

func (d *document) write(b *bytes.Buffer) {
	b.WriteString("---\n")
	for _, s := range d.sources {
		fmt.Fprintf(b, "# from %s\n", printable(s))
	}
	for _, s := range d.notes {
		fmt.Fprintf(b, "# %s\n", printable(s))
	}
	e := yaml.NewEncoder(b)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(node(d.body)); err != nil {
		panic(err)
	}
	e.Close()
}
