package node

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/test/cluster/image"
	"github.com/moongate-dev/moongate/test/cluster/sandbox"
)

func TestCapabilities(t *testing.T) {
	all := sandbox.AllCapabilities()
	without := func(list []string, name string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(n string) bool { return n == name })
	}
	for _, test := range []struct {
		add, drop []corev1.Capability
		want      []string
	}{
		{nil, nil, sandbox.DefaultCapabilities},
		{nil, []corev1.Capability{"ALL"}, nil},
		{[]corev1.Capability{"NET_BIND_SERVICE"}, []corev1.Capability{"ALL"}, []string{"NET_BIND_SERVICE"}},
		{[]corev1.Capability{"CAP_KILL"}, []corev1.Capability{"all"}, []string{"KILL"}},
		{[]corev1.Capability{"NET_ADMIN"}, nil, append([]string{"NET_ADMIN"}, sandbox.DefaultCapabilities...)},
		{nil, []corev1.Capability{"NET_RAW"}, without(sandbox.DefaultCapabilities, "NET_RAW")},
		{[]corev1.Capability{"ALL"}, []corev1.Capability{"NET_RAW"}, without(all, "NET_RAW")},
	} {
		got, err := capabilities(&corev1.Capabilities{Add: test.add, Drop: test.drop})
		want := slices.Sorted(slices.Values(test.want))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("add %v, drop %v: %v %v, want %v", test.add, test.drop, got, err, want)
		}
	}
	if _, err := capabilities(&corev1.Capabilities{Add: []corev1.Capability{"FLY"}}); err == nil {
		t.Error("an unknown capability is granted")
	}
}

func TestSecure(t *testing.T) {
	for name, test := range map[string]struct {
		pod, container, user string
		want                 sandbox.Spec
		fails                string
	}{
		"nothing said": {want: sandbox.Spec{}},
		"the image":    {user: "7:8", want: sandbox.Spec{User: 7, Group: 8}},
		"the pod beats the image": {pod: `{runAsUser: 1, runAsGroup: 2, fsGroup: 3, supplementalGroups: [4], seccompProfile: {type: RuntimeDefault}}`,
			user: "7:8", want: sandbox.Spec{User: 1, Group: 2, Groups: []uint32{4, 3}, FilterSyscalls: true}},
		"the container beats the pod": {pod: `{runAsUser: 1, seccompProfile: {type: RuntimeDefault}}`,
			container: `{runAsUser: 5, seccompProfile: {type: Unconfined}, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false}`,
			want:      sandbox.Spec{User: 5, ReadOnlyRoot: true, NoNewPrivs: true}},
		"root where none may be": {pod: `{runAsNonRoot: true}`, fails: "runAsNonRoot"},
		"a user by name":         {user: "nobody", fails: "not a number"},
	} {
		pod, container := &corev1.Pod{}, &corev1.Container{}
		if err := yaml.UnmarshalStrict([]byte(test.pod), &pod.Spec.SecurityContext); err != nil {
			t.Fatal(name, err)
		}
		if err := yaml.UnmarshalStrict([]byte(test.container), &container.SecurityContext); err != nil {
			t.Fatal(name, err)
		}
		var got sandbox.Spec
		err := secure(&got, pod, container, image.Image{User: test.user})
		if test.fails != "" {
			if err == nil || !strings.Contains(err.Error(), test.fails) {
				t.Errorf("%s: %v, want %q", name, err, test.fails)
			}
			continue
		}
		w := test.want
		if err != nil || got.User != w.User || got.Group != w.Group || !slices.Equal(got.Groups, w.Groups) ||
			got.ReadOnlyRoot != w.ReadOnlyRoot || got.NoNewPrivs != w.NoNewPrivs || got.FilterSyscalls != w.FilterSyscalls {
			t.Errorf("%s: %+v %v, want %+v", name, got, err, w)
		}
	}
}

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "1", "B": "$(A)"}
	for text, want := range map[string]string{
		"": "", "x": "x", "$(A)": "1", "$(A)$(A)": "11", "$$(A)": "$(A)", "$(C)": "$(C)", "$": "$", "$(A": "$(A", "a$b": "a$b",
		"$(B)": "$(A)", "$$$(A)": "$1",
	} {
		if got := expand(text, values); got != want {
			t.Errorf("expand(%q) = %q, want %q", text, got, want)
		}
	}
}
