// Package manifest converts the text of Kubernetes manifests to typed objects, or to reports of what is wrong with them, each with
// its line, field and remedy. It exists so that a document can be validated without knowing where documents come from, when they
// change, and which of them is served.
//
// Split splits a file into chunks, Decode decodes one of them. Chunks are independent: an error in one does not affect the others,
// and the same text always decodes to the same document. Objects are complete with defaults, and validated by the rules of an API
// server: those of the CRDs (package schema), and for core kinds those that a gateway depends on.
//
// Everything here is pure and safe for concurrent use. It must never import the
// file system, a clock, translate or proxy.
package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/schema"
)

// Document is the content of a chunk. Its lines count from the chunk's first line, as 0, so that a chunk that has only moved need
// not be decoded again. It is shared and must not be modified.
type Document struct {
	Entries  []*Entry
	Problems []Problem // those that cannot be assigned to an object
	Unused   []Unused
}

// Entry is one definition of an object.
type Entry struct {
	ID   kind.ObjectKey
	Line int
	// Object is nil if problems forbid it. It is complete with defaults, and with generation 1 unless the manifest contains another.
	Object metav1.Object
	// Leftover is what the object denies although problems forbid it; nil for a kind that denies nothing.
	Leftover *kind.Undecoded
	// Older is the apiVersion in the manifest if the kind has a newer one; else "".
	Older string
	// Stated is set if the manifest contains the generation.
	Stated   bool
	Problems []Problem
}

// Unused is an object of a kind that is not used.
type Unused struct {
	ID         kind.ObjectKey // group and kind only
	APIVersion string
	Line       int
}

// Decode decodes the text of one chunk. It never fails: problems are part of the document.
func Decode(text []byte) *Document {
	d := new(Document)
	roots, err := parse(text)
	if err != nil {
		if template := templateError(text, err.line); template != nil {
			err = template
		}
		d.malformed(guess(text), err.line, "", err)
		return d
	}
	for _, root := range roots {
		b := new(builder)
		v, err := b.value(root, 0)
		if err != nil {
			var syntax *syntaxError
			if !errors.As(err, &syntax) {
				syntax = &syntaxError{line: root.Line, reason: err.Error(), remedy: yamlRemedy("")}
			}
			if template := templateError(text, syntax.line); template != nil {
				syntax = template
			}
			d.malformed(identify(root), syntax.line, "", syntax)
			continue
		}
		d.add(v, root, "", "")
		if foreign(v) {
			d.Problems[len(d.Problems)-1].Reason = Foreign
		}
	}
	return d
}

// foreign reports whether a document is a list or a single value of another program, such as a JSON patch or an Ansible playbook.
// A list of objects was probably meant to be a List.
func foreign(v any) bool {
	if _, is := v.(map[string]any); is {
		return false
	}
	items, _ := v.([]any)
	return !slices.ContainsFunc(items, func(item any) bool {
		o, _ := item.(map[string]any)
		return o["apiVersion"] != nil && o["kind"] != nil
	})
}

// malformed reports something that is not recognizable as the object that it seems to be; line counts from 1, 0 means unknown.
func (d *Document) malformed(seems kind.ObjectKey, line int, field string, e *syntaxError) {
	d.Problems = append(d.Problems, Problem{Position: Position{Line: max(line-1, 0)}, Reason: Malformed, Object: seems, Field: field, Message: e.reason, Remedy: e.remedy})
}

// add adds one object or list; an item of a typed list may omit apiVersion and kind, which then have the given values.
func (d *Document) add(v any, node *yaml.Node, apiVersion, kindName string) {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	obj, ok := v.(map[string]any)
	if !ok {
		if _, isList := v.([]any); isList {
			d.malformed(kind.ObjectKey{}, node.Line, "", &syntaxError{reason: "is a list, not an object", remedy: `put it under "items:" of a "kind: List" with "apiVersion: v1"`})
			return
		}
		d.malformed(kind.ObjectKey{}, node.Line, "", &syntaxError{reason: "is not an object", remedy: `begin with "apiVersion:", "kind:" and "metadata:"`})
		return
	}
	if apiVersion == "" && !slices.ContainsFunc([]string{"apiVersion", "kind", "metadata", "spec"}, func(name string) bool { _, has := obj[name]; return has }) {
		d.malformed(kind.ObjectKey{}, node.Line, "", &syntaxError{reason: "is not an object of Kubernetes: it has neither apiVersion nor kind", remedy: `begin with "apiVersion:", "kind:" and "metadata:"`})
		d.Problems[len(d.Problems)-1].Reason = Foreign
		return
	}
	for _, f := range []struct {
		name string
		to   *string
	}{{"apiVersion", &apiVersion}, {"kind", &kindName}} {
		s, isString := obj[f.name].(string)
		if isString && s != "" {
			*f.to = s
		}
		if isChart(obj) {
			d.malformed(kind.ObjectKey{}, node.Line, "", &syntaxError{reason: "is the description of a Helm chart, not a manifest", remedy: templates[0].remedy})
			return
		}
		if *f.to == "" || (obj[f.name] != nil && !isString) {
			d.malformed(identify(node), lineOf(node, f.name), f.name, &syntaxError{reason: "required field is missing or not a string", remedy: fmt.Sprintf("add %q", f.name)})
			return
		}
	}
	if base, isList := strings.CutSuffix(kindName, "List"); isList {
		if items, ok := obj["items"].([]any); ok {
			d.addItems(items, node, apiVersion, base)
			return
		}
	}
	obj["apiVersion"], obj["kind"] = apiVersion, kindName
	group, version := splitVersion(apiVersion)
	k := findKind(group, kindName)
	if k == nil {
		d.unknownKind(group, apiVersion, kindName, node)
		return
	}
	d.addObject(k, version, obj, node)
}

func (d *Document) addItems(items []any, node *yaml.Node, apiVersion, base string) {
	if base == "" {
		apiVersion = "" // of kind List: each item contains its own
	}
	var list *yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == "items" {
			list = node.Content[i+1]
		}
	}
	for list != nil && list.Kind == yaml.AliasNode {
		list = list.Alias
	}
	for i, item := range items {
		at := node // for items from a merge key
		if list != nil && i < len(list.Content) {
			at = list.Content[i]
		}
		d.add(item, at, apiVersion, base)
	}
}

func (d *Document) unknownKind(group, apiVersion, kindName string, node *yaml.Node) {
	if meant, reason := misnamed(group, kindName); meant != nil {
		d.malformed(identify(node), lineOf(node, "kind"), "kind", &syntaxError{
			reason: fmt.Sprintf("%s %s", schema.Show(kindName), reason),
			remedy: fmt.Sprintf("write apiVersion: %s and kind: %s", meant.apiVersion(), meant.Name),
		})
		return
	}
	if group == v1alpha1.GroupName { // no other program reads it
		d.malformed(identify(node), lineOf(node, "kind"), "kind", &syntaxError{
			reason: schema.Show(kindName) + " is not a kind of this API group",
			remedy: "its kinds are " + strings.Join(kindsOf(group), " and "),
		})
		return
	}
	shown := kind.ObjectKey{Group: schema.Show(group), Kind: schema.Show(kindName)}
	d.Unused = append(d.Unused, Unused{shown, schema.Show(apiVersion), node.Line - 1})
}

func (d *Document) addObject(k *manifestKind, version string, obj map[string]any, node *yaml.Node) {
	meta, _ := obj["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	if given := meta["name"]; given != nil && name == "" && given != "" {
		v := schema.WrongType("metadata.name", given, "string")
		quoteAsWritten(&v, node)
		d.malformed(kind.ObjectKey{Group: k.Group, Kind: k.Name}, lineOf(node, v.Field), v.Field, &syntaxError{reason: v.Message, remedy: v.Remedy})
		return
	}
	if name == "" {
		remedy := `add "name" under "metadata"; names are not generated here`
		if obj["name"] != nil {
			remedy = `indent "name", so that it is under "metadata"`
		}
		d.malformed(kind.ObjectKey{Group: k.Group, Kind: k.Name}, lineOf(node, "metadata.name"), "metadata.name", &syntaxError{
			reason: "required field is missing", remedy: remedy})
		return
	}
	e := &Entry{ID: kind.ObjectKey{Group: k.Group, Kind: k.Name, Name: name}, Line: node.Line - 1}
	d.Entries = append(d.Entries, e)
	if k.Namespaced {
		e.ID.Namespace = "default"
		if ns, ok := meta["namespace"].(string); ok && ns != "" {
			e.ID.Namespace = ns
		}
	}
	violations := withoutConsequences(e.decode(k, version, obj, meta))
	if field := templatedField(k, node, violations); field != "" {
		// Other problems may disappear when the template is rendered.
		template := templateIn(writtenAt(node, field))
		violations = []schema.Violation{{Field: field, Message: template.reason, Remedy: template.remedy}}
		e.Object = nil
	}
	for _, v := range violations {
		quoteAsWritten(&v, node)
		e.Problems = append(e.Problems, Problem{
			Position: Position{Line: lineOf(node, v.Field) - 1}, Reason: Invalid, Object: e.ID,
			Field: v.Field, Message: v.Message, Remedy: v.Remedy,
		})
	}
	slices.SortStableFunc(e.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field))
	})
	if len(e.Problems) > 0 {
		e.Leftover = e.leftover(k, obj)
	}
}

const quoteIt = "put it in quotes: "

// quoteAsWritten makes the remedy for a value that is not a string show what the document contains, such as yes and not true, or
// 1.10 and not 1.1.
func quoteAsWritten(v *schema.Violation, node *yaml.Node) {
	if !strings.HasPrefix(v.Remedy, quoteIt) {
		return
	}
	if written := writtenAt(node, v.Field); written != "" {
		v.Remedy = quoteIt + strconv.Quote(schema.Show(written))
	}
}

// missingConfig matches the rule that a filter must have the configuration of its type.
var missingConfig = regexp.MustCompile(`^filter\.\w+ must be specified for`)

// emptyObject matches the rule that an object must have at least one field.
var emptyObject = regexp.MustCompile(`^must have at least \d+ properties`)

// withoutConsequences removes violations that follow from another one: a required field that is present under a misspelled name; the
// uniqueness rule of a list in which an entry is reported as a duplicate; missing or extra configuration of a filter with a wrong
// type; and that an object is empty whose only field is unknown.
func withoutConsequences(violations []schema.Violation) []schema.Violation {
	var causes []schema.Violation
	for _, v := range violations {
		follows := slices.ContainsFunc(violations, func(cause schema.Violation) bool {
			if i := strings.LastIndexByte(cause.Field, '['); i > 0 && strings.HasPrefix(cause.Message, "duplicate of an earlier entry") {
				return v.Field == cause.Field[:i] && strings.Contains(v.Message, "must be unique")
			}
			if missingConfig.MatchString(v.Message) && v.Field == cause.Field && strings.Contains(cause.Message, "must be nil if the filter.type is not") {
				return true // the type does not match what is set
			}
			parent, name, prefix := "", cause.Field, ""
			if i := strings.LastIndexByte(cause.Field, '.'); i >= 0 {
				parent, name, prefix = cause.Field[:i], cause.Field[i+1:], cause.Field[:i+1]
			}
			if wrong, ok := strings.CutPrefix(cause.Message, "unsupported value "); ok && name == "type" {
				// The configuration of a filter that the route does not support.
				return v.Message == schema.UnknownFieldMessage && strings.EqualFold(strconv.Quote(strings.TrimPrefix(v.Field, prefix)), wrong)
			}
			if cause.Message != schema.UnknownFieldMessage {
				return false
			}
			if beside := cause.Parent(); beside != "" && v.Message != schema.UnknownFieldMessage {
				if v.Field == prefix+beside && strings.HasPrefix(v.Remedy, "add ") || v.Field == parent && strings.Contains(v.Remedy, strconv.Quote(beside)) {
					return true // it is present at the wrong level
				}
			}
			if v.Field == parent && emptyObject.MatchString(v.Message) {
				return true
			}
			meant, ok := strings.CutPrefix(cause.Remedy, "did you mean ")
			meant = strings.TrimSuffix(meant, "?") // in quotes
			return ok && (v.Field == parent || strconv.Quote(strings.TrimPrefix(v.Field, prefix)) == meant) && strings.Contains(v.Remedy, "add "+meant)
		})
		if !follows {
			causes = append(causes, v)
		}
	}
	return causes
}

// leftover returns Entry.Leftover of an object with problems.
func (e *Entry) leftover(k *manifestKind, obj map[string]any) *kind.Undecoded {
	data, err := json.Marshal(obj)
	if err != nil { // then nothing is known except that it exists
		data = nil
	}
	p := &e.Problems[0]
	return k.Leftover(data, metav1.ObjectMeta{Namespace: e.ID.Namespace, Name: e.ID.Name}, errors.New(strings.TrimPrefix(p.Field+": "+p.Message, ": ")))
}

// decode sets e.Object, or returns why it is not possible.
func (e *Entry) decode(k *manifestKind, version string, obj, meta map[string]any) []schema.Violation {
	if !slices.Contains(k.Versions, version) {
		return []schema.Violation{{Field: "apiVersion", Message: "version " + schema.Show(version) + " of " + k.Name + " is not served", Remedy: "write apiVersion: " + k.apiVersion()}}
	}
	typed := k.New()
	violations := e.checkMeta(k, meta)
	// An API server ignores in a manifest what it sets itself.
	delete(obj, "status")
	for _, f := range []string{"managedFields", "resourceVersion", "selfLink", "uid"} {
		delete(meta, f)
	}
	if k.Custom {
		more, err := schema.Lookup(version, k.Name).Admit(obj)
		if err != nil {
			return []schema.Violation{{Message: err.Error(), Remedy: "report this as a defect"}}
		}
		violations = append(violations, more...)
	} else {
		rest := maps.Clone(obj)
		delete(rest, "metadata")
		violations = append(violations, checkType(reflect.TypeOf(typed).Elem(), rest, "")...)
	}
	if len(violations) > 0 {
		return violations
	}
	if k.Custom && version != k.Versions[0] {
		e.Older = joinVersion(k.Group, version)
	}
	obj["apiVersion"] = k.apiVersion() // the versions of a kind differ in nothing else
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj, typed); err != nil {
		return []schema.Violation{{Message: err.Error(), Remedy: "compare it with the documentation of " + k.Name}}
	}
	typed.SetNamespace(e.ID.Namespace)
	if !k.Custom {
		violations = k.complete(typed)
	}
	if len(violations) > 0 {
		return violations
	}
	e.Stated = typed.GetGeneration() > 0
	if !e.Stated {
		typed.SetGeneration(1)
	}
	e.Object = typed
	return nil
}

func (e *Entry) checkMeta(k *manifestKind, meta map[string]any) []schema.Violation {
	violations := checkType(reflect.TypeFor[metav1.ObjectMeta](), meta, "metadata")
	if len(violations) > 0 {
		return violations
	}
	typed := new(metav1.ObjectMeta)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(meta, typed); err != nil {
		return []schema.Violation{{Field: "metadata", Message: err.Error(), Remedy: "compare it with another object's"}}
	}
	typed.Namespace = e.ID.Namespace
	for _, err := range validation.ValidateObjectMetaAccessor(typed, k.Namespaced, k.nameRule, field.NewPath("metadata")) {
		violations = append(violations, schema.FromError(err))
	}
	return violations
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
