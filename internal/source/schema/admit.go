package schema

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Violation is one reason why an object is not admitted.
type Violation struct {
	// Field is the path of the field, such as spec.rules[0].backendRefs[1].port; empty for the object as a whole.
	Field string
	// Message is what is wrong, Remedy what to do. Neither is ever empty.
	Message string
	Remedy  string
}

// Admit sets the defaults in obj, removes what a cluster would remove, and returns what forbids the object. The values of obj are
// those of encoding/json with int64 for whole numbers; obj keeps its metadata, which the caller must check.
//
// As in a request with strict field validation, an unknown field forbids the object. Rules about a change (oldSelf) do not apply:
// every version of a manifest is validated as if it were created.
func (k *Kind) Admit(obj map[string]any) ([]Violation, error) {
	r, err := k.compile()
	if err != nil {
		return nil, err
	}
	defaulting.Default(obj, r.structural)
	unknown := pruning.PruneWithOptions(obj, r.structural, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, r.structural)

	var found []Violation
	for _, path := range unknown {
		found = append(found, unknownField(path, r.structural))
	}
	var errs field.ErrorList
	if !r.shape.has(obj) {
		errs = validation.ValidateCustomResource(nil, obj, r.openapi)
	}
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, r.structural, obj)...)
	// CEL rules assume the types and bounds of the schema.
	if ctx := context.Background(); !blocksCEL(errs) && !r.cel.satisfied(ctx, obj) {
		more, _ := r.validator().Validate(ctx, nil, r.structural, obj, nil, celconfig.RuntimeCELCostBudget)
		budget := int64(celconfig.RuntimeCELCostBudget) // for the elements of all lists together
		for _, e := range more {
			errs = append(errs, ofElements(ctx, e, obj, r.cel, &budget)...)
		}
	}
	var wrong, broken []string
	for _, e := range withoutSummaries(errs) {
		if e.Type == field.ErrorTypeTypeInvalid {
			wrong = append(wrong, e.Field)
		}
		if rule, failed := unevaluated(e); failed {
			broken = append(broken, e.Field)
			e.Detail = rule
		}
		found = append(found, violation(e, obj))
	}
	return withoutConsequences(found, wrong, broken), nil
}

// ofElements returns an error for each element of a list that violates a rule of the list by itself, for example a listener with a
// field that its protocol forbids; it returns e if none does, for example if names must differ.
func ofElements(ctx context.Context, e *field.Error, obj map[string]any, rules *celRules, budget *int64) (errs field.ErrorList) {
	value, _ := lookup(obj, e.Field)
	list, _ := value.([]any)
	if _, failed := unevaluated(e); failed || e.Type != field.ErrorTypeInvalid {
		list = nil
	}
	for _, i := range rules.at(e.Field).breaking(ctx, list, e.Detail, budget) {
		of := *e
		of.Field = fmt.Sprintf("%s[%d]", e.Field, i)
		errs = append(errs, &of)
	}
	if len(errs) == 0 {
		return field.ErrorList{e}
	}
	return errs
}

// unevaluated reports whether a rule could not be evaluated, and returns the message of the rule.
func unevaluated(e *field.Error) (string, bool) {
	_, rule, ok := strings.Cut(e.Detail, " evaluating rule: ")
	return rule, ok
}

// withoutConsequences removes what only follows from another violation: violations below a value of the wrong type, and rules that
// could not be evaluated because a value in their scope is itself invalid.
func withoutConsequences(found []Violation, wrong, broken []string) []Violation {
	below := func(path, parent string) bool {
		rest, ok := strings.CutPrefix(path, parent)
		return ok && rest != "" && (rest[0] == '.' || rest[0] == '[')
	}
	// Of several patterns of one value the last is the narrowest: a type's own comes first.
	pattern := map[string]int{}
	for i, v := range found {
		if strings.Contains(v.Message, "must match '") {
			pattern[v.Field] = i
		}
	}
	i := -1
	return slices.DeleteFunc(slices.Clone(found), func(v Violation) bool {
		if i++; strings.Contains(v.Message, "must match '") && pattern[v.Field] != i {
			return true
		}
		return slices.ContainsFunc(wrong, func(w string) bool { return below(v.Field, w) }) ||
			slices.Contains(broken, v.Field) && slices.ContainsFunc(found, func(o Violation) bool { return below(o.Field, v.Field) })
	})
}

// summary matches what the validator reports for a value that matches no branch of its schema, in addition to what is wrong in the
// branches, or for a number in addition to its wrong format. Its path is only in the text.
var summary = regexp.MustCompile(`^"([^"]+)" must (?:not )?validate .* ?schemas?\b|^Checked value must be of type .* in (\S+)$`)

// withoutSummaries removes summaries if something below is reported, and sets the field of the others.
func withoutSummaries(errs field.ErrorList) (rest field.ErrorList) {
	path := func(e *field.Error) string {
		if m := summary.FindStringSubmatch(e.Detail); m != nil {
			return m[1] + m[2]
		}
		return ""
	}
	for _, e := range errs {
		at := path(e)
		if at == "" {
			rest = append(rest, e)
			continue
		}
		listed := slices.ContainsFunc(errs, func(o *field.Error) bool {
			tail, ok := strings.CutPrefix(strings.TrimPrefix(o.Field, "."), at)
			return ok && path(o) == "" && (tail == "" || tail[0] == '.' || tail[0] == '[')
		})
		if !listed {
			e.Field = at
			rest = append(rest, e)
		}
	}
	return rest
}

func blocksCEL(errs field.ErrorList) bool {
	for _, e := range errs {
		switch e.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}

// unknownField reports a field that the schema does not have, and the most similar one that it has.
func unknownField(path string, root *structural.Structural) Violation {
	parent, name := splitLast(path)
	s := at(root, parent)
	if s == nil {
		return UnknownField(path, name, nil)
	}
	known := slices.Collect(maps.Keys(s.Properties))
	v := UnknownField(path, name, known)
	if slices.Contains(everywhere, name) || Nearest(name, known) != "" {
		return v
	}
	if child := childWith(s, name); child != "" {
		v.Remedy = misplaced + strconv.Quote(child) + "; move it there"
		return v
	}
	for parent != "" {
		inner := parent
		if strings.HasSuffix(parent, "]") {
			parent = parent[:strings.LastIndexByte(parent, '[')]
		}
		parent, _ = splitLast(parent)
		if s := at(root, parent); s != nil && parent != "" {
			if _, ok := s.Properties[name]; ok {
				_, beside := splitLast(inner)
				beside, _, _ = strings.Cut(beside, "[")
				v.Remedy = fmt.Sprintf("it is a field of %s; move it there, beside %q", parent, beside)
				return v
			}
		}
	}
	return v
}

// everywhere are the names of fields that too many objects have to determine which one was meant.
var everywhere = []string{"group", "kind", "name", "namespace", "port", "sectionName", "type", "value"}

// childWith returns the only property of s that has a field with a name, itself or in its items; "" if none or several do.
func childWith(s *structural.Structural, name string) string {
	found := ""
	for n, child := range s.Properties {
		if child.Items != nil {
			child = *child.Items
		}
		if _, ok := child.Properties[name]; !ok {
			continue
		}
		if found != "" {
			return ""
		}
		found = n
	}
	return found
}

// at returns the schema of a path in the format of the pruner: a.b[2].c.
func at(s *structural.Structural, path string) *structural.Structural {
	for path != "" {
		var segment string
		segment, path, _ = strings.Cut(path, ".")
		name, indexes, _ := strings.Cut(segment, "[")
		child, ok := s.Properties[name]
		switch {
		case ok:
			s = &child
		case s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil:
			s = s.AdditionalProperties.Structural
		default:
			return nil
		}
		for ; indexes != ""; _, indexes, _ = strings.Cut(indexes, "[") {
			if s.Items == nil {
				return nil
			}
			s = s.Items
		}
	}
	return s
}

func splitLast(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}
