package schema

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// TestEncodedValuesDiffer: values that differ are encoded differently, and equal ones the same, however their maps are walked.
func TestEncodedValuesDiffer(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var value func(depth int) any
	value = func(depth int) any {
		words := []string{"", "a", "b", "ab", "s\x01a", "n"}
		switch n := random.IntN(8); {
		case n == 0:
			return nil
		case n == 1:
			return random.IntN(2) == 0
		case n == 2:
			return int64(random.IntN(3))
		case n == 3:
			return float64(random.IntN(3))
		case n < 6 || depth == 0:
			return words[random.IntN(len(words))]
		case n == 6:
			list := make([]any, random.IntN(3))
			for i := range list {
				list[i] = value(depth - 1)
			}
			return list
		default:
			m := map[string]any{}
			for range random.IntN(4) {
				m[words[random.IntN(len(words))]] = value(depth - 1)
			}
			return m
		}
	}
	seen := map[string]any{}
	for range 50_000 {
		v := value(3)
		encoded, ok := appendEncoded(nil, v)
		if !ok {
			continue
		}
		if before, known := seen[string(encoded)]; known && !reflect.DeepEqual(before, v) {
			t.Fatalf("%#v and %#v are encoded as %q", before, v, encoded)
		}
		seen[string(encoded)] = v
		if again, _ := appendEncoded(nil, v); string(again) != string(encoded) {
			t.Fatalf("%#v is encoded as %q and %q", v, encoded, again)
		}
	}
	if len(seen) < 2000 {
		t.Errorf("only %d values were compared", len(seen))
	}
	for _, large := range []any{strings.Repeat("x", maxEncoded+1), []any{strings.Repeat("x", maxEncoded), "y"}, int32(1), make([]any, maxEncoded), []any{make([]any, maxEncoded-3), map[string]any{}}} {
		if encoded, ok := appendEncoded(nil, large); ok {
			t.Errorf("%T is encoded with %d bytes", large, len(encoded))
		}
	}
	many := map[string]any{}
	for i := range maxFields + 1 {
		many[fmt.Sprint(i)] = nil
	}
	if _, ok := appendEncoded(nil, many); ok {
		t.Error("a map with too many fields is encoded")
	}
}

// TestSatisfiedValues: a value that breaks a rule is told of each time, also beside one that was found to break none, and values in other
// places are judged by the rules there.
func TestSatisfiedValues(t *testing.T) {
	route := func(port any) map[string]any {
		ref := map[string]any{"name": "app"}
		if port != nil {
			ref["port"] = port
		}
		return map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{
			"rules": []any{map[string]any{"backendRefs": []any{ref}, "filters": []any{map[string]any{"type": "RequestMirror", "requestMirror": map[string]any{"backendRef": map[string]any{"name": "app", "port": int64(80)}}}}}}}}
	}
	k := Lookup("v1", "HTTPRoute")
	for range 3 {
		for _, of := range []struct {
			port   any
			broken int
		}{{int64(80), 0}, {nil, 1}, {int64(80), 0}} {
			found, err := k.Admit(route(of.port))
			if err != nil || len(found) != of.broken {
				t.Fatalf("port %v: %v %v, want %d", of.port, found, err, of.broken)
			}
		}
	}
	r, err := k.compile()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.cel.seen.costs); n < 4 {
		t.Errorf("%d values are remembered", n)
	}
	for i := range maxRemembered + 10 {
		r.cel.seen.remember(r.cel, fmt.Append(nil, i), 1)
	}
	if n := len(r.cel.seen.costs); n > maxRemembered {
		t.Errorf("%d values are remembered", n)
	}
}
