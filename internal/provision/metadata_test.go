package provision

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestMetadataByKind makes everything that can run for a Gateway, whose class allows one annotation on
// each kind: each object has its own and no other, whatever the spec holds.
func TestMetadataByKind(t *testing.T) {
	spec := &translate.ProxySpec{
		Namespace: "shop", Name: "gw", UID: "1", Class: "moongate", Ports: []translate.ProxyPort{{Port: 80}},
		Labels: map[string]string{"team": "web", "sidecar.istio.io/inject": "true"}, Annotations: map[string]string{"moongate.dev/address": "forged"},
		Parameters: v1alpha1.GatewayParametersSpec{
			Autoscaling: &v1alpha1.Autoscaling{MaxReplicas: 3},
			ClassOnly:   &v1alpha1.ClassOnly{Infrastructure: &v1alpha1.InfrastructureMetadata{Labels: []v1alpha1.MetadataRule{{Keys: []string{"team"}}}}},
		},
	}
	for _, kind := range v1alpha1.MetadataKinds {
		key := "only/" + string(kind)
		spec.Annotations[key] = "v"
		spec.Parameters.ClassOnly.Infrastructure.Annotations = append(spec.Parameters.ClassOnly.Infrastructure.Annotations,
			v1alpha1.MetadataRule{Keys: []string{key}, Kinds: []v1alpha1.MetadataKind{kind}})
	}
	objects, err := Objects(spec, settings)
	if err != nil {
		t.Fatal(err)
	}
	check := func(kind string, labels, annotations map[string]string) {
		t.Helper()
		if labels["team"] != "web" || labels["sidecar.istio.io/inject"] != "" {
			t.Errorf("%s: labels %v", kind, labels)
		}
		if annotations["moongate.dev/address"] == "forged" {
			t.Errorf("%s has an annotation of ours that the user wrote", kind)
		}
		for _, k := range v1alpha1.MetadataKinds {
			if _, has := annotations["only/"+string(k)]; has != (string(k) == kind) {
				t.Errorf("%s: annotation for %s: %v", kind, k, has)
			}
		}
	}
	each := *spec
	each.Parameters.Autoscaling, each.Parameters.DaemonSet = nil, true
	daemonSet, err := proxies(&each, settings)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, o := range append(objects, daemonSet) {
		check(o.GetObjectKind().GroupVersionKind().Kind, o.GetLabels(), o.GetAnnotations())
		seen++
		if d, is := o.(*appsv1.Deployment); is {
			check("Pod", d.Spec.Template.Labels, d.Spec.Template.Annotations)
			seen++
		}
	}
	if seen != len(v1alpha1.MetadataKinds) {
		t.Errorf("%d kinds are made, want %d", seen, len(v1alpha1.MetadataKinds))
	}
}
