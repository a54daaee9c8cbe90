package provision

import (
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/translate"
)

// FuzzPatch patches a Deployment with anything. It is refused, or the Deployment is still that
// of its Gateway.
func FuzzPatch(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"metadata":null}`, `{"spec":null}`, `{"metadata":{"labels":null,"ownerReferences":null},"kind":"Job"}`,
		`{"spec":{"template":{"metadata":{"$patch":"delete"},"spec":{"containers":[{"name":"proxy","$patch":"delete"}]}}}}`,
		`{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"x"}],"containers":[{"name":"x"}]}}}}`,
		`{"spec":{"template":{"spec":{"$deleteFromPrimitiveList/x":[1]}}}}`, `{"spec":{"selector":{"matchLabels":{"a":"b"}}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, patch []byte) {
		change := specOf(web, nil)
		plain, err := deployment(change.Spec, settings)
		if err != nil {
			t.Fatal(err)
		}
		change.Spec.Parameters.ClassOnly = &v1alpha1.ClassOnly{DeploymentPatch: &runtime.RawExtension{Raw: patch}}
		got, err := deployment(change.Spec, settings)
		if err != nil {
			return
		}
		if got.Name != plain.Name || got.Namespace != plain.Namespace || got.Kind != "Deployment" || !reflect.DeepEqual(got.OwnerReferences, plain.OwnerReferences) ||
			!reflect.DeepEqual(got.Spec.Selector, plain.Spec.Selector) || !controlledBy(got, change.Spec) || got.Annotations[annotationController] != settings.ControllerName {
			t.Errorf("%s made it %+v", patch, got)
		}
		for key, value := range got.Spec.Selector.MatchLabels {
			if got.Spec.Template.Labels[key] != value {
				t.Errorf("%s: pods are not selected: %v", patch, got.Spec.Template.Labels)
			}
		}
		if _, err := json.Marshal(got); err != nil {
			t.Errorf("%s: %v", patch, err)
		}
		if _, err := encode(got); err != nil {
			t.Errorf("%s: %v", patch, err)
		}
	})
}

// FuzzPatchDaemonSet is FuzzPatch for a DaemonSet.
func FuzzPatchDaemonSet(f *testing.F) {
	for _, seed := range []string{`{"metadata":{"labels":null,"ownerReferences":null},"kind":"Job"}`, `{"spec":{"updateStrategy":{"type":"OnDelete"},"selector":null,"template":null}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, patch []byte) {
		change := specOf(web, func(p *translate.ProxySpec) {
			p.Parameters.DaemonSet, p.Parameters.ClassOnly = true, &v1alpha1.ClassOnly{DaemonSetPatch: &runtime.RawExtension{Raw: patch}}
		})
		got, err := daemonSet(change.Spec, settings)
		if err != nil {
			return
		}
		selector, err := metav1.LabelSelectorAsSelector(got.Spec.Selector)
		if err != nil || !reflect.DeepEqual(got.Spec.Selector.MatchLabels, identityLabels(change.Spec)) || !selector.Matches(labels.Set(got.Spec.Template.Labels)) {
			t.Errorf("%s: pods %v are selected by %v, %v", patch, got.Spec.Template.Labels, got.Spec.Selector, err)
		}
		if got.Name != "web-moongate" || got.Kind != kindDaemonSet || !controlledBy(got, change.Spec) || got.Annotations[annotationController] != settings.ControllerName {
			t.Errorf("%s made it %+v", patch, got)
		}
		if _, err := encode(got); err != nil {
			t.Errorf("%s: %v", patch, err)
		}
	})
}

// TestTerms reads the parameters that end in the pod's time to end.
func TestTerms(t *testing.T) {
	d, err := deployment(&translate.ProxySpec{Name: "a", Class: "b"}, settings)
	if err != nil {
		t.Fatal(err)
	}
	if got := *d.Spec.Template.Spec.TerminationGracePeriodSeconds; got != 40 {
		t.Errorf("a proxy has %d seconds to end, want 5 for load balancers, 30 for requests and 5", got)
	}
}
