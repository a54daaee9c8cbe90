package schema

import (
	"math"
	"regexp"
	"slices"
	"unicode/utf8"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// shape contains the types, bounds and patterns of a schema, to determine only whether an object certainly satisfies them: the
// OpenAPI validator reports what is wrong. That creates its rules again for every value, which is half of the cost of validating an
// object.
type shape struct {
	kind       string // a JSON Schema type
	required   []string
	properties map[string]*shape
	items      *shape
	// additional is for properties that are not in properties; nil means that they are not restricted.
	additional *shape
	enum       []any // strings and int64
	pattern    *regexp.Regexp
	// Of the length of a string in characters, or the number of items or of properties.
	least, most int64
	// Of a number.
	minimum, maximum float64
	// unsure is set if the schema contains what shape does not support.
	unsure bool
}

func newShape(s *structural.Structural) *shape {
	h := &shape{kind: s.Type, most: math.MaxInt64, minimum: math.Inf(-1), maximum: math.Inf(1)}
	h.unsure = s.XIntOrString || s.XEmbeddedResource
	if len(s.Properties) > 0 {
		h.properties = make(map[string]*shape, len(s.Properties))
		for name, property := range s.Properties {
			h.properties[name] = newShape(&property)
		}
	}
	if s.Items != nil {
		h.items = newShape(s.Items)
	}
	if a := s.AdditionalProperties; a != nil && a.Structural != nil {
		h.additional = newShape(a.Structural)
	} else if a != nil {
		h.additional = &shape{unsure: true}
	}
	if s.ValueValidation != nil {
		h.bound(s.ValueValidation)
	}
	return h
}

func (h *shape) bound(v *structural.ValueValidation) {
	h.required = v.Required
	if v.Pattern != "" {
		var err error
		h.pattern, err = regexp.Compile(v.Pattern)
		h.unsure = h.unsure || err != nil
	}
	for _, allowed := range v.Enum {
		switch value := allowed.Object.(type) {
		case string, int64:
			h.enum = append(h.enum, value)
		case float64:
			h.enum = append(h.enum, int64(value))
			h.unsure = h.unsure || value != math.Trunc(value)
		default:
			h.unsure = true
		}
	}
	switch v.Format {
	case "", "int64":
	case "int32":
		h.minimum, h.maximum = math.MinInt32, math.MaxInt32
	default:
		h.unsure = true
	}
	for _, least := range []*int64{v.MinLength, v.MinItems, v.MinProperties} {
		if least != nil {
			h.least = max(h.least, *least)
		}
	}
	for _, most := range []*int64{v.MaxLength, v.MaxItems, v.MaxProperties} {
		if most != nil {
			h.most = min(h.most, *most)
		}
	}
	if v.Minimum != nil {
		h.minimum = max(h.minimum, *v.Minimum)
	}
	if v.Maximum != nil {
		h.maximum = min(h.maximum, *v.Maximum)
	}
	h.unsure = h.unsure || v.ExclusiveMinimum || v.ExclusiveMaximum || v.UniqueItems || v.MultipleOf != nil ||
		len(v.AllOf)+len(v.AnyOf)+len(v.OneOf) > 0 || v.Not != nil
}

// has reports whether v certainly has the shape.
func (h *shape) has(v any) bool {
	if h.unsure {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		return h.kind == "object" && h.enum == nil && h.fits(len(v)) && h.hasProperties(v)
	case []any:
		if h.kind != "array" || h.enum != nil || !h.fits(len(v)) {
			return false
		}
		return h.items == nil || !slices.ContainsFunc(v, func(item any) bool { return !h.items.has(item) })
	case string:
		return h.kind == "string" && h.fits(utf8.RuneCountInString(v)) &&
			h.allows(v) && (h.pattern == nil || h.pattern.MatchString(v))
	case int64:
		return (h.kind == "integer" || h.kind == "number") && h.allows(v) && float64(v) >= h.minimum && float64(v) <= h.maximum
	case bool:
		return h.kind == "boolean" && h.enum == nil
	}
	return false
}

func (h *shape) allows(v any) bool { return h.enum == nil || slices.Contains(h.enum, v) }

func (h *shape) fits(n int) bool { return int64(n) >= h.least && int64(n) <= h.most }

func (h *shape) hasProperties(v map[string]any) bool {
	for _, name := range h.required {
		if _, ok := v[name]; !ok {
			return false
		}
	}
	for name, value := range v {
		property := h.properties[name]
		if property == nil {
			property = h.additional
		}
		if property != nil && !property.has(value) {
			return false
		}
	}
	return true
}
