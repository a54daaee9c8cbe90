package manifest

import (
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/moongate-dev/moongate/internal/kind"
)

// identify returns the object that a tree seems to be, for the report of what is wrong with it.
func identify(root *yaml.Node) kind.ObjectKey {
	group, _ := splitVersion(scalarAt(root, "apiVersion"))
	return seeming(group, scalarAt(root, "kind"), scalarAt(root, "metadata", "namespace"), scalarAt(root, "metadata", "name"))
}

func scalarAt(n *yaml.Node, names ...string) string {
	for _, name := range names {
		var next *yaml.Node
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				next = n.Content[i+1]
			}
		}
		if next == nil {
			return ""
		}
		n = next
	}
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

var (
	apiVersionLine = regexp.MustCompile(`(?m)^apiVersion:[ \t]*["']?([\w./-]+)`)
	kindLine       = regexp.MustCompile(`(?m)^kind:[ \t]*["']?(\w+)`)
	nameLine       = regexp.MustCompile(`(?m)^metadata:[^\n]*\n(?:[ \t]+[^\n]*\n)*?[ \t]+name:[ \t]*["']?([\w.-]+)`)
	namespaceLine  = regexp.MustCompile(`(?m)^metadata:[^\n]*\n(?:[ \t]+[^\n]*\n)*?[ \t]+namespace:[ \t]*["']?([\w.-]+)`)
)

// guess does the same for a text that does not parse, if it has the usual layout.
func guess(text []byte) kind.ObjectKey {
	find := func(r *regexp.Regexp) string {
		if m := r.FindSubmatch(text); m != nil {
			return string(m[1])
		}
		return ""
	}
	group, _ := splitVersion(find(apiVersionLine))
	return seeming(group, find(kindLine), find(namespaceLine), find(nameLine))
}

func seeming(group, kindName, namespace, name string) kind.ObjectKey {
	id := kind.ObjectKey{Group: group, Kind: kindName, Namespace: namespace, Name: name}
	if kindName == "" {
		return kind.ObjectKey{}
	}
	if k := findKind(group, kindName); k != nil && k.Namespaced && namespace == "" && name != "" {
		id.Namespace = "default"
	}
	return id
}
