package schema

import (
	"context"
	"fmt"
	"slices"
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
	// Field is the path of the field, as in spec.rules[0].backendRefs[1].port;
	// empty for the object as a whole.
	Field string
	// Message says what is wrong; Remedy what to do. Neither is ever empty.
	Message string
	Remedy  string
}

// Admit sets the defaults in obj, removes what a cluster would remove, and says
// what forbids the object. The values of obj are those of encoding/json with
// int64 for whole numbers; obj keeps its metadata, which is the caller's to check.
//
// As in a request with strict field validation, an unknown field forbids the
// object. Rules about a change (oldSelf) do not apply: every version of a
// manifest is judged as if it were created.
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
	// CEL rules presume the types and bounds that the schema states.
	if ctx := context.Background(); !blocksCEL(errs) && !r.cel.satisfied(ctx, obj) {
		more, _ := r.validator().Validate(ctx, nil, r.structural, obj, nil, celconfig.RuntimeCELCostBudget)
		budget := int64(celconfig.RuntimeCELCostBudget) // for the elements of all lists together
		for _, e := range more {
			errs = append(errs, ofElements(ctx, e, obj, r.cel, &budget)...)
		}
	}
	var wrong, broken []string
	for _, e := range errs {
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

// ofElements returns an error for each element of a list that breaks a rule of the list by itself, as a listener with a field that its protocol forbids does,
// or e where none does, as of names that must differ.
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

// unevaluated says that a rule could not be evaluated, and gives the words of the rule.
func unevaluated(e *field.Error) (string, bool) {
	_, rule, ok := strings.Cut(e.Detail, " evaluating rule: ")
	return rule, ok
}

// withoutConsequences drops what only follows from another violation: whatever is
// below a value of the wrong type, and rules that could not be evaluated around a
// value that is invalid itself.
func withoutConsequences(found []Violation, wrong, broken []string) []Violation {
	below := func(path, parent string) bool {
		rest, ok := strings.CutPrefix(path, parent)
		return ok && rest != "" && (rest[0] == '.' || rest[0] == '[')
	}
	return slices.DeleteFunc(slices.Clone(found), func(v Violation) bool {
		return slices.ContainsFunc(wrong, func(w string) bool { return below(v.Field, w) }) ||
			slices.Contains(broken, v.Field) && slices.ContainsFunc(found, func(o Violation) bool { return below(o.Field, v.Field) })
	})
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

// unknownField names a field that the schema does not have, and the nearest that it has.
func unknownField(path string, root *structural.Structural) Violation {
	parent, name := splitLast(path)
	var known []string
	if s := at(root, parent); s != nil {
		for n := range s.Properties {
			known = append(known, n)
		}
	}
	return UnknownField(path, name, known)
}

// at finds the schema of a path as the pruner writes it: a.b[2].c.
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
