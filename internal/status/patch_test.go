package status

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestPatch(t *testing.T) {
	sets := int32(1)
	object := gateway()
	object.ResourceVersion = "42"
	object.Status.AttachedListenerSets = &sets
	object.Status.Addresses = []gwv1.GatewayStatusAddress{{Value: "192.0.2.1"}}
	merged := object.Status
	merged.AttachedListenerSets = nil
	merged.Listeners = []gwv1.ListenerStatus{{Name: "web", SupportedKinds: []gwv1.RouteGroupKind{}, Conditions: []metav1.Condition{}}}
	got, err := Patch(object, &merged)
	const want = `{"metadata":{"resourceVersion":"42"},"status":{"attachedListenerSets":null,"listeners":[{"name":"web","supportedKinds":[],"attachedRoutes":0,"conditions":[]}]}}`
	if err != nil || string(got) != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
	}
	if Of(&gwv1.ReferenceGrant{}) != nil {
		t.Error("a ReferenceGrant has a status")
	}
}

// TestPatchMakesTheMergedStatus applies patches to statuses at random, field by
// field as an API server does, because no field of a status is an object.
func TestPatchMakesTheMergedStatus(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 2))
		object := route("web", 1+r.Int64N(3))
		object.Status.RouteStatus = randomParents(r, object.Generation, true)
		desired := randomParents(r, object.Generation, false)
		merged, _, _ := merger().Merge(object, &desired)
		text, err := Patch(object, merged)
		if err != nil {
			t.Fatal(err)
		}
		var patch struct{ Status map[string]json.RawMessage }
		if err := json.Unmarshal(text, &patch); err != nil {
			t.Fatal(err)
		}
		after, err := fields(Of(object))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range patch.Status {
			if after[name] = value; string(value) == "null" {
				delete(after, name)
			}
		}
		if want, _ := fields(merged); !reflect.DeepEqual(after, want) {
			t.Fatalf("seed %d: the patch %s makes\n%s of the status, and not\n%s", seed, text, after, want)
		}
	}
}
