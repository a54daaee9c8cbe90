package provision

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestRequests checks that there is a request of CPU wherever Kubernetes would make none, and one that makes sense for an autoscaler.
func TestRequests(t *testing.T) {
	list := func(name corev1.ResourceName, value string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(value)}
	}
	scaled := &v1alpha1.Autoscaling{MaxReplicas: 3}
	for _, c := range []struct {
		what        string
		resources   *corev1.ResourceRequirements
		autoscaling *v1alpha1.Autoscaling
		cpu, memory string // "" for none
	}{
		{"nothing is said", nil, nil, "50m", "32Mi"},
		{"autoscaling", nil, scaled, "500m", "32Mi"},
		{"a limit of memory alone", &corev1.ResourceRequirements{Limits: list(corev1.ResourceMemory, "100Mi")}, nil, "50m", ""},
		{"a limit of memory alone, autoscaling", &corev1.ResourceRequirements{Limits: list(corev1.ResourceMemory, "100Mi")}, scaled, "500m", ""},
		{"a limit of CPU is the request", &corev1.ResourceRequirements{Limits: list(corev1.ResourceCPU, "10m")}, scaled, "", "32Mi"},
		{"a request of CPU", &corev1.ResourceRequirements{Requests: list(corev1.ResourceCPU, "100m")}, scaled, "100m", "32Mi"},
		{"no request is wanted", &corev1.ResourceRequirements{Requests: list(corev1.ResourceCPU, "0")}, nil, "0", "32Mi"},
	} {
		spec := &translate.ProxySpec{Namespace: "shop", Name: "web", Class: "moongate"}
		spec.Parameters.Resources, spec.Parameters.Autoscaling = c.resources, c.autoscaling
		before := c.resources.DeepCopy()
		d, err := deployment(spec, settings)
		if err != nil {
			t.Fatal(err)
		}
		requests := d.Spec.Template.Spec.Containers[0].Resources.Requests
		for name, want := range map[corev1.ResourceName]string{corev1.ResourceCPU: c.cpu, corev1.ResourceMemory: c.memory} {
			got, ok := requests[name]
			if ok != (want != "") || ok && got.String() != want {
				t.Errorf("%s: request of %s is %q, want %q", c.what, name, got.String(), want)
			}
		}
		if before != nil && len(before.Requests) != len(c.resources.Requests) {
			t.Errorf("%s: the parameters were modified", c.what)
		}
	}
}

// TestSpread checks that several proxies are spread over zones as well as nodes, apart from those that a rollout replaces, and that a class's own constraints take the place of both.
func TestSpread(t *testing.T) {
	two := int32(2)
	spec := &translate.ProxySpec{Namespace: "shop", Name: "web", Class: "moongate"}
	keys := func() (keys []string) {
		t.Helper()
		d, err := deployment(spec, settings)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
			ofRollout := slices.Equal(c.MatchLabelKeys, []string{"pod-template-hash"})
			if c.WhenUnsatisfiable != corev1.ScheduleAnyway || c.LabelSelector == nil || ofRollout != (spec.Parameters.ClassOnly == nil) {
				t.Errorf("constraint %+v", c)
			}
			keys = append(keys, c.TopologyKey)
		}
		return keys
	}
	if got := keys(); len(got) != 0 {
		t.Errorf("one proxy: %q", got)
	}
	spec.Parameters.Replicas = &two
	if got := keys(); len(got) != 2 || got[0] != "topology.kubernetes.io/zone" || got[1] != "kubernetes.io/hostname" {
		t.Errorf("two proxies: %q", got)
	}
	spec.Parameters.ClassOnly = &v1alpha1.ClassOnly{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "rack", WhenUnsatisfiable: corev1.ScheduleAnyway}}}
	if got := keys(); len(got) != 1 || got[0] != "rack" {
		t.Errorf("with constraints of the class: %q", got)
	}
}
