package v1alpha1_test

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
)

// TestUnread: whatever a cluster holds, what a policy is for is known, and what cannot be read of it, by whichever way it comes.
func TestUnread(t *testing.T) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(eg.GroupVersion, &eg.BackendTrafficPolicy{}, &eg.BackendTrafficPolicyList{})
	metav1.AddToGroupVersion(scheme, eg.GroupVersion)
	codec := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	gvk := func(kind string) *schema.GroupVersionKind { k := eg.GroupVersion.WithKind(kind); return &k }
	for name, test := range map[string]struct {
		settings string
		want     eg.Unread
	}{
		"all of it":                    {`"retry":{"numRetries":3}`, eg.Unread{}},
		"an unknown field":             {`"bulkhead":{"size":3}`, eg.Unread{Field: "spec.bulkhead"}},
		"one further down":             {`"retry":{"numRetries":3,"hedge":true}`, eg.Unread{Field: "spec.retry.hedge"}},
		"one in a list":                {`"targetSelectors":[{"kind":"HTTPRoute"},{"kind":"HTTPRoute","fields":{}}]`, eg.Unread{Field: "spec.targetSelectors[1].fields"}},
		"a field of another case":      {`"Retry":{}`, eg.Unread{Field: "spec.Retry"}},
		"a field of another type":      {`"retry":{"numRetries":"many"}`, eg.Unread{Field: "spec.retry.numRetries", Type: "string"}},
		"a mergeType of another type":  {`"mergeType":7`, eg.Unread{Field: "spec.mergeType", Type: "number"}},
		"a field of a type of its own": {`"connection":{"bufferLimit":"much"}`, eg.Unread{Field: "spec"}},
	} {
		text := `{"apiVersion":"gateway.envoyproxy.io/v1alpha1","kind":"BackendTrafficPolicy","metadata":{"name":"p","generation":7},"spec":{` + test.settings +
			`,"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"gw"}]}}`
		check := func(way string, p *eg.BackendTrafficPolicy, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s, %s: %v", name, way, err)
				return
			}
			got := p.Spec.Unread
			if name == "a field of a type of its own" {
				if got.Error == "" {
					t.Errorf("%s, %s: no error", name, way)
				}
				got.Error = ""
			}
			if got != test.want || len(p.Spec.TargetRefs) != 1 || p.Spec.TargetRefs[0].Name != "gw" || p.Generation != 7 {
				t.Errorf("%s, %s: %+v, generation %d, targetRefs %v; want %+v", name, way, got, p.Generation, p.Spec.TargetRefs, test.want)
			}
			if again := p.DeepCopy(); again.Spec.Unread != p.Spec.Unread {
				t.Errorf("%s, %s: a copy has %+v", name, way, again.Spec.Unread)
			}
		}
		var p eg.BackendTrafficPolicy
		check("JSON", &p, json.Unmarshal([]byte(text), &p))
		o, _, err := codec.Decode([]byte(text), gvk("BackendTrafficPolicy"), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		check("codec", o.(*eg.BackendTrafficPolicy), nil)
		list, _, err := codec.Decode([]byte(`{"apiVersion":"gateway.envoyproxy.io/v1alpha1","kind":"BackendTrafficPolicyList","items":[`+text+`]}`), gvk("BackendTrafficPolicyList"), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		check("list", &list.(*eg.BackendTrafficPolicyList).Items[0], nil)
		var fields map[string]any
		if err := json.Unmarshal([]byte(text), &fields); err != nil {
			t.Fatal(err)
		}
		var converted eg.BackendTrafficPolicy
		check("converter", &converted, runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &converted))
	}
	var p eg.BackendTrafficPolicy
	for what, text := range map[string]string{
		"what is no JSON":               `{"spec":{`,
		"no object":                     `{"spec":"none"}`,
		"targetRefs of another type":    `{"spec":{"targetRefs":"web"}}`,
		"one of targetRefs":             `{"spec":{"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"gw"},{"name":7}]}}`,
		"targetRef of another type":     `{"spec":{"targetRef":[]}}`,
		"a selector of another type":    `{"spec":{"targetSelectors":[{"kind":"HTTPRoute","matchLabels":["a"]}]}}`,
		"targets beside something else": `{"spec":{"retry":{"numRetries":"many"},"targetRefs":"web"}}`,
	} {
		if json.Unmarshal([]byte(text), &p) == nil {
			t.Errorf("%s: decoded as %+v", what, p.Spec)
		}
	}
}
