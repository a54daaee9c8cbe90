// Package headermodifier sets, adds and removes field lines, for the filters that do so on requests and responses. It
// exists so that both agree on which fields belong to the connection and must not be changed by a filter.
//
// It imports config, message and filter only.
package headermodifier

import (
	"fmt"
	"strings"

	"github.com/moongate-dev/moongate/internal/cginame"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// reserved are the fields that frame a message or concern one hop only (RFC 9110 section 7.6.1, RFC 9112 section 6).
// The engine writes them; a filter that did could turn one message into two.
var reserved = map[string]bool{
	"cdn-loop":          true, // without it a loop would not be noticed (RFC 8586 section 2)
	"connection":        true,
	"content-length":    true,
	"expect":            true,
	"http2-settings":    true,
	"keep-alive":        true,
	"proxy-connection":  true,
	"te":                true,
	"trailer":           true,
	"transfer-encoding": true,
	"upgrade":           true,
}

// Reserved reports whether entries with that name in set and add are ignored. CGI-like servers may take the name for
// another one that the engine writes.
func Reserved(name string) bool {
	var b [32]byte // so that most names need no allocation
	return reserved[string(cginame.Append(b[:0], name))]
}

// Modifier is a compiled header modifier. The zero value changes nothing.
type Modifier struct {
	set, add []message.Field
	remove   [][]byte
	// lengths has a bit for the length of each name in set and remove; the last one is also for longer names.
	lengths uint64
}

// lengthBit returns the bit of Modifier.lengths for a name.
func lengthBit(name []byte) uint64 { return 1 << min(uint(len(name)), 63) }

// Compile compiles a Modifier. Of several entries with an equivalent name in one list the first counts. Entries with a
// Reserved name are ignored, because the engine sets their values.
func Compile(filterName string, set, add []*config.HeaderField, remove []string) (Modifier, error) {
	var m Modifier
	var err error
	if m.set, err = compile(filterName, "set", set); err != nil {
		return Modifier{}, err
	}
	if m.add, err = compile(filterName, "add", add); err != nil {
		return Modifier{}, err
	}
	for i, name := range remove {
		if !config.IsToken(name) {
			return Modifier{}, badName(filterName, fmt.Sprintf("remove[%d]", i), name)
		}
		if cginame.Same(name, "cdn-loop") {
			continue
		}
		m.remove = append(m.remove, []byte(name))
		m.lengths |= lengthBit(m.remove[len(m.remove)-1])
	}
	for i := range m.set {
		m.lengths |= lengthBit(m.set[i].Name)
	}
	return m, nil
}

func compile(filterName, list string, entries []*config.HeaderField) ([]message.Field, error) {
	var lines []message.Field
	seen := make(map[string]bool, len(entries))
	for i, e := range entries {
		if !config.IsToken(e.Name) {
			return nil, badName(filterName, fmt.Sprintf("%s[%d].name", list, i), e.Name)
		}
		value := strings.Trim(e.Value, " \t")
		if at := strings.IndexFunc(value, config.IsControl); at >= 0 {
			return nil, &filter.Error{
				Filter:  filterName,
				Field:   fmt.Sprintf("%s[%d].value", list, i),
				Problem: fmt.Sprintf("the value of %s holds the control character %q", e.Name, value[at]),
				Remedy:  "give a value on one line",
			}
		}
		name := strings.ToLower(e.Name)
		if seen[name] || Reserved(name) {
			continue
		}
		seen[name] = true
		lines = append(lines, message.Field{Name: []byte(e.Name), Value: []byte(value)})
	}
	return lines, nil
}

// Apply changes the section: set, then add, then remove. A set field is at the position of the first one with its name.
func (m *Modifier) Apply(section *message.Fields) {
	for i := range m.set {
		section.Set(m.set[i].Name, m.set[i].Value)
	}
	for i := range m.add {
		section.Add(m.add[i].Name, m.add[i].Value)
	}
	for _, name := range m.remove {
		section.Remove(name)
	}
}

// Decides implements filter.Decider. It reports whether the name is that of an entry of set or remove, or one that
// CGI-like servers take for it.
func (m *Modifier) Decides(name []byte) bool {
	for i := range m.set {
		if cginame.Same(name, m.set[i].Name) {
			return true
		}
	}
	for _, removed := range m.remove {
		if cginame.Same(name, removed) {
			return true
		}
	}
	return false
}

// DropDisguised removes fields that clients have sent under another name than that of an entry of set or remove, which
// CGI-like servers do not distinguish from it: they take X_User or X.User for X-User, or X-User for the X_User of the
// entry, and would trust the client. It must be called before Apply; a field with exactly the name of an entry is left
// to Apply. What the gateway, its trusted proxies and earlier filters have set is kept, so that X_Forwarded_For can be
// removed without X-Forwarded-For.
func (m *Modifier) DropDisguised(section *message.Fields) {
	for i := range section.Len() {
		if f := section.At(i); m.lengths&lengthBit(f.Name) != 0 && m.disguised(f) {
			section.RemoveIf(m.disguised)
			return
		}
	}
}

// disguised reports whether a client's field resembles an entry of set or remove without having the name of one.
func (m *Modifier) disguised(f *message.Field) bool {
	if f.Line == nil { // not the client's
		return false
	}
	like := false
	for i := range m.set {
		if n := m.set[i].Name; cginame.Same(f.Name, n) {
			if message.EqualFoldBytes(f.Name, n) {
				return false
			}
			like = true
		}
	}
	for _, n := range m.remove {
		if cginame.Same(f.Name, n) {
			if message.EqualFoldBytes(f.Name, n) {
				return false
			}
			like = true
		}
	}
	return like && !message.ClaimsProvenance(f) // what claims it here comes from a trusted proxy
}

// TakeHost removes the entries named Host from set and add, and returns the value of the one in set. A request's Host
// is not a field line here; it must occur exactly once.
func (m *Modifier) TakeHost() (value []byte, set bool) {
	m.set, value, set = without(m.set, "host")
	m.add, _, _ = without(m.add, "host")
	return value, set
}

func without(lines []message.Field, name string) (rest []message.Field, value []byte, found bool) {
	for _, l := range lines {
		if message.EqualFold(l.Name, name) {
			value, found = l.Value, true
			continue
		}
		rest = append(rest, l)
	}
	return rest, value, found
}

func badName(filterName, field, name string) error {
	return &filter.Error{
		Filter:  filterName,
		Field:   field,
		Problem: fmt.Sprintf("%q is not a field name", name),
		Remedy:  "use letters, digits and -",
	}
}
