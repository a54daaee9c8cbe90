package schema

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
)

// celRules are the CEL rules of a schema, to determine only whether all of them hold: cel.Validator, which evaluates the same
// programs, reports what is wrong. Most objects are valid, and the Validator takes three times as long: it creates the map of an
// object's properties again whenever a rule reads one.
type celRules struct {
	rules      []celRule
	schema     common.Schema
	properties map[string]*celRules
	items      *celRules
	additional *celRules
	seen       *satisfiedValues // of the whole schema
}

// celRule is one rule of a value.
type celRule struct {
	program celgo.Program
	message string // the message of cel.Validator; that of a rule with a messageExpression may differ
}

// errUnsupported is returned for a schema with rules that celRules does not support.
var errUnsupported = errors.New("rules that only the validator knows")

func newCELRules(s *structural.Structural) (*celRules, error) {
	declared := model.SchemaDeclType(s, true)
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	c := ruleCompiler{env, new(satisfiedValues)}
	return c.compile(s, newCELSchema(model.WithTypeAndObjectMeta(s)), declared)
}

// ruleCompiler compiles the rules of one schema.
type ruleCompiler struct {
	env  *environment.EnvSet
	seen *satisfiedValues
}

// compile returns nil if neither s nor anything below has rules.
func (c *ruleCompiler) compile(s *structural.Structural, values *celSchema, declared *apiservercel.DeclType) (*celRules, error) {
	if declared == nil {
		return nil, nil
	}
	if s.ValueValidation != nil {
		for _, nested := range s.ValueValidation.AllOf {
			if len(nested.XValidations) > 0 {
				return nil, errUnsupported
			}
		}
	}
	r := &celRules{schema: values, seen: c.seen}
	results, err := cel.Compile(s, declared, celconfig.PerCallLimit, c.env, cel.StoredExpressionsEnvLoader())
	if err != nil {
		return nil, err
	}
	for i, result := range results {
		switch optional := s.XValidations[i].OptionalOldSelf; {
		case result.Error != nil:
			return nil, result.Error
		case optional != nil && *optional:
			return nil, errUnsupported
		case result.UsesOldSelf || result.Program == nil:
			continue // about a change, or empty
		}
		message := strings.TrimSpace(s.XValidations[i].Message)
		if message == "" {
			message = "failed rule: " + strings.TrimSpace(s.XValidations[i].Rule)
		}
		r.rules = append(r.rules, celRule{result.Program, message})
	}
	if err := c.compileBelow(r, s, values, declared); err != nil {
		return nil, err
	}
	if len(r.rules) == 0 && len(r.properties) == 0 && r.items == nil && r.additional == nil {
		return nil, nil
	}
	return r, nil
}

func (c *ruleCompiler) compileBelow(r *celRules, s *structural.Structural, values *celSchema, declared *apiservercel.DeclType) (err error) {
	for name, property := range s.Properties {
		escaped, ok := apiservercel.Escape(name)
		field := declared.Fields[escaped]
		if !ok || field == nil {
			continue
		}
		child, err := c.compile(&property, values.properties[name].(*celSchema), field.Type)
		if err != nil {
			return err
		}
		if child != nil {
			if r.properties == nil {
				r.properties = map[string]*celRules{}
			}
			r.properties[name] = child
		}
	}
	if s.Items != nil {
		if r.items, err = c.compile(s.Items, values.items, declared.ElemType); err != nil {
			return err
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		r.additional, err = c.compile(s.AdditionalProperties.Structural, values.additional.schema, declared.ElemType)
	}
	return err
}

// satisfied reports whether all rules hold for a value; it also returns false if one cannot be evaluated, or if together they cost
// more than an API server allows.
func (r *celRules) satisfied(ctx context.Context, value any) bool {
	budget := int64(celconfig.RuntimeCELCostBudget)
	return r.check(ctx, value, &budget)
}

func (r *celRules) check(ctx context.Context, value any, budget *int64) bool {
	if r == nil || value == nil {
		return true
	}
	if len(r.rules) > 0 && !r.evaluate(ctx, value, budget) {
		return false
	}
	switch value := value.(type) {
	case []any:
		if r.items == nil {
			return true
		}
		for _, v := range value {
			if !r.items.check(ctx, v, budget) {
				return false
			}
		}
	case map[string]any:
		for name, v := range value {
			if !r.properties[name].check(ctx, v, budget) || !r.additional.check(ctx, v, budget) {
				return false
			}
		}
	}
	return true
}

// evaluate reports whether the rules of the value itself hold, without those of its fields and elements.
func (r *celRules) evaluate(ctx context.Context, value any, budget *int64) bool {
	var room [maxEncoded]byte
	encoded, fits := appendEncoded(room[:0], value)
	if fits {
		if cost, known := r.seen.satisfied(r, encoded); known && cost <= *budget {
			*budget -= cost
			return true
		}
	}
	before := *budget
	self := selfOnly{common.UnstructuredToVal(value, r.schema)}
	for _, rule := range r.rules {
		if holds, known := rule.evaluate(ctx, self, budget); !holds || !known {
			return false
		}
	}
	if fits {
		r.seen.remember(r, encoded, before-*budget)
	}
	return true
}

// evaluate reports whether a rule holds. known is false if it cannot be evaluated, or costs more than the rest of budget.
func (r celRule) evaluate(ctx context.Context, self selfOnly, budget *int64) (holds, known bool) {
	result, details, err := r.program.ContextEval(ctx, self)
	if err != nil || details == nil || details.ActualCost() == nil {
		return false, false
	}
	cost := *details.ActualCost()
	if cost > math.MaxInt64 || int64(cost) > *budget {
		*budget = 0
		return false, false
	}
	*budget -= int64(cost)
	return result == types.True, true
}

// at returns the rules of the values at a path such as spec.rules[0].matches; nil if there are none.
func (r *celRules) at(path string) *celRules {
	for path != "" && r != nil {
		var segment string
		segment, path, _ = strings.Cut(path, ".")
		name, indexes, _ := strings.Cut(segment, "[")
		r = r.properties[name]
		for ; indexes != "" && r != nil; _, indexes, _ = strings.Cut(indexes, "[") {
			r = r.items
		}
	}
	return r
}

// breaking returns the indexes of the elements of a list that violate a rule of the list by themselves, by the rule's message. Each
// is evaluated alone, so that together they cost no more than some lists of that length; it returns none if budget is used up.
func (r *celRules) breaking(ctx context.Context, list []any, message string, budget *int64) (broken []int) {
	if r == nil {
		return nil
	}
	i := slices.IndexFunc(r.rules, func(c celRule) bool { return c.message == message })
	if i < 0 {
		return nil
	}
	for n := range list {
		switch holds, known := r.rules[i].evaluate(ctx, selfOnly{common.UnstructuredToVal(list[n:n+1], r.schema)}, budget); {
		case !known && *budget <= 0:
			return nil
		case known && !holds:
			broken = append(broken, n)
		}
	}
	return broken
}

// selfOnly is the activation of a rule that does not read oldSelf.
type selfOnly struct{ self any }

func (a selfOnly) ResolveName(name string) (any, bool) { return a.self, name == cel.ScopedVarName }

func (a selfOnly) Parent() interpreter.Activation { return nil }

// celSchema is a schema in the form by which CEL reads values; everything below is created once.
type celSchema struct {
	*model.Structural
	properties map[string]common.Schema
	items      *celSchema
	additional *celAdditional
}

// celAdditional is the schema of additional properties.
type celAdditional struct {
	*model.StructuralOrBool
	schema *celSchema
}

func newCELSchema(s *structural.Structural) *celSchema {
	c := &celSchema{Structural: &model.Structural{Structural: s}}
	if s.Properties != nil {
		c.properties = make(map[string]common.Schema, len(s.Properties))
		for name, p := range s.Properties {
			c.properties[name] = newCELSchema(&p)
		}
	}
	if s.Items != nil {
		c.items = newCELSchema(s.Items)
	}
	if s.AdditionalProperties != nil {
		c.additional = &celAdditional{StructuralOrBool: &model.StructuralOrBool{StructuralOrBool: s.AdditionalProperties}}
		if s.AdditionalProperties.Structural != nil {
			c.additional.schema = newCELSchema(s.AdditionalProperties.Structural)
		}
	}
	return c
}

func (c *celSchema) Properties() map[string]common.Schema { return c.properties }

func (c *celSchema) Items() common.Schema {
	if c.items == nil {
		return nil
	}
	return c.items
}

func (c *celSchema) AdditionalProperties() common.SchemaOrBool {
	if c.additional == nil {
		return nil
	}
	return c.additional
}

func (a *celAdditional) Schema() common.Schema {
	if a.schema == nil {
		return nil
	}
	return a.schema
}
