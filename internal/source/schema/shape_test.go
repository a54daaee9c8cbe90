package schema

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
)

// TestShapeAgreesWithTheValidator: what has the shape of a schema is valid by it, and
// what the validator refuses never has it, whatever is changed about an object.
func TestShapeAgreesWithTheValidator(t *testing.T) {
	r, err := Lookup("v1", "HTTPRoute").compile()
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	valid, refused, missed := 0, 0, 0
	for range 2000 {
		obj := object(t, fullRoute)
		for range 1 + random.IntN(2) {
			mutate(random, obj["spec"])
			distort(random, obj["spec"])
		}
		defaulting.Default(obj, r.structural)
		pruning.Prune(obj, r.structural, true)
		defaulting.PruneNonNullableNullsWithoutDefaults(obj, r.structural)
		errs := validation.ValidateCustomResource(nil, obj, r.openapi)
		has := r.shape.has(obj)
		switch {
		case len(errs) > 0 && has:
			t.Fatalf("refused, and yet of the shape: %v\n%v", errs, obj)
		case len(errs) > 0:
			refused++
		case has:
			valid++
		default:
			missed++
		}
	}
	if valid < 300 || refused < 300 || missed > valid/10 {
		t.Errorf("%d valid, %d refused and %d valid ones that were not known to be: no test", valid, refused, missed)
	}
}

// distort sometimes gives something below v another type, length or size.
func distort(r *rand.Rand, v any) {
	if r.IntN(3) > 0 {
		return
	}
	values := []any{nil, true, "", strings.Repeat("é", 300), strings.Repeat("x", 2000), int64(-1), int64(1) << 40, 1.5, []any{}, []any{"a", int64(1)}, map[string]any{}, map[string]any{"a": "b"}}
	for range 20 {
		switch at := v.(type) {
		case map[string]any:
			keys := slices.Sorted(maps.Keys(at))
			if len(keys) == 0 {
				return
			}
			k := keys[r.IntN(len(keys))]
			if r.IntN(4) == 0 {
				at[k] = values[r.IntN(len(values))]
				return
			}
			v = at[k]
		case []any:
			if len(at) == 0 {
				return
			}
			i := r.IntN(len(at))
			if r.IntN(4) == 0 {
				at[i] = values[r.IntN(len(values))]
				return
			}
			v = at[i]
		default:
			return
		}
	}
}

// TestShapeKnowsTheRoutes: the kinds of which there are many are judged by their
// shape; it is for speed only, so nothing else would tell that it stopped working.
func TestShapeKnowsTheRoutes(t *testing.T) {
	for _, name := range []string{"HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute", "UDPRoute", "ReferenceGrant"} {
		r, err := Lookup("v1", name).compile()
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range unsure(r.shape.properties["spec"], "spec") {
			t.Errorf("%s: the shape does not know %s", name, path)
		}
	}
}

func unsure(h *shape, path string) (paths []string) {
	if h == nil {
		return nil
	}
	if h.unsure {
		paths = append(paths, path)
	}
	for name, property := range h.properties {
		paths = append(paths, unsure(property, path+"."+name)...)
	}
	return append(append(paths, unsure(h.items, path+"[]")...), unsure(h.additional, path+".*")...)
}
