package proofs

import (
	"fmt"
	"reflect"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// kinds are those whose fields are listed, in the order of the page.
var kinds = []any{gwv1.GatewayClass{}, gwv1.Gateway{}, gwv1.HTTPRoute{}, gwv1.GRPCRoute{}, gwv1.BackendTLSPolicy{}, gwv1.ReferenceGrant{}}

// Fields returns the fields of spec and status of the kinds, such as "HTTPRoute.spec.rules.matches.method". Those of types from outside
// of the Gateway API, such as conditions and label selectors, are one each.
func Fields() []string {
	var out []string
	for _, k := range kinds {
		t := reflect.TypeOf(k)
		for _, part := range []string{"Spec", "Status"} {
			if f, found := t.FieldByName(part); found {
				out = appendFields(out, t.Name()+"."+strings.ToLower(part), f.Type)
			}
		}
	}
	return out
}

func appendFields(out []string, path string, t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || !strings.HasPrefix(t.PkgPath(), "sigs.k8s.io/gateway-api/") {
		return append(out, path)
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		below := path
		if name != "" { // an embedded struct has none
			below += "." + name
		}
		out = appendFields(out, below, t.Field(i).Type)
	}
	return out
}

// expand returns what a pattern with {a,b} stands for; braces may be within others.
func expand(pattern string) ([]string, error) {
	open := strings.IndexByte(pattern, '{')
	if open < 0 {
		return []string{pattern}, nil
	}
	var out, choices []string
	depth, from := 0, open+1
	for i := open; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '{':
			depth++
		case c == ',' && depth == 1:
			choices, from = append(choices, pattern[from:i]), i+1
		case c == '}' && depth > 1:
			depth--
		case c == '}':
			for _, choice := range append(choices, pattern[from:i]) {
				more, err := expand(pattern[:open] + choice + pattern[i+1:])
				if err != nil {
					return nil, err
				}
				out = append(out, more...)
			}
			return out, nil
		}
	}
	return nil, fmt.Errorf("%s: a brace is not closed", pattern)
}

// sets reports whether an object, as YAML has it, gives the field a value.
func sets(object any, path []string) bool {
	switch o := object.(type) {
	case []any:
		for _, element := range o {
			if sets(element, path) {
				return true
			}
		}
		return false
	case map[string]any:
		if len(path) == 0 {
			return true
		}
		value, found := o[path[0]]
		return found && sets(value, path[1:])
	}
	return len(path) == 0
}
