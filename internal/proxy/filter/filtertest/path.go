package filtertest

import "github.com/moongate-dev/moongate/internal/config"

// Modifier returns the message for the path of an example.
func (e Example) Modifier(p *Path) *config.PathModifier {
	switch {
	case p == nil:
		return nil
	case p.Type == "ReplaceFullPath":
		return &config.PathModifier{Kind: &config.PathModifier_ReplaceFullPath{ReplaceFullPath: p.ReplaceFullPath}}
	}
	return Prefix(e.Prefix(), p.ReplacePrefixMatch)
}

// Prefix returns a PathModifier that replaces a prefix.
func Prefix(prefix, replacement string) *config.PathModifier {
	return &config.PathModifier{Kind: &config.PathModifier_ReplacePrefix{ReplacePrefix: &config.ReplacePrefix{Prefix: prefix, Replacement: replacement}}}
}

// Fields returns entries of set or add.
func Fields(list []struct{ Name, Value string }) []*config.HeaderField {
	var out []*config.HeaderField
	for _, e := range list {
		out = append(out, &config.HeaderField{Name: e.Name, Value: e.Value})
	}
	return out
}
