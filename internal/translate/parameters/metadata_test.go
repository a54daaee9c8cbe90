package parameters_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/translate/parameters"
)

// TestMetadata asks for each key on which kinds it goes, as label and as annotation.
func TestMetadata(t *testing.T) {
	const everywhere = "Pod Deployment DaemonSet Service ServiceAccount ConfigMap PodDisruptionBudget HorizontalPodAutoscaler"
	for _, c := range []struct{ what, spec, key, label, annotation string }{
		{"conformance", `{}`, "key1", everywhere, everywhere},
		{"a role of AWS", `{}`, "eks.amazonaws.com/role-arn", "", ""},
		{"a role of Google", `{}`, "iam.gke.io/gcp-service-account", "", ""},
		{"an identity of Azure", `{}`, "azure.workload.identity/use", "", ""},
		{"an older identity of Azure", `{}`, "aadpodidbinding", "", ""},
		{"a sidecar", `{}`, "sidecar.istio.io/inject", "", ""},
		{"AppArmor", `{}`, "container.apparmor.security.beta.kubernetes.io/proxy", "", ""},
		{"a network", `{}`, "k8s.v1.cni.cncf.io/networks", "", ""},
		{"a name in the DNS", `{}`, "external-dns.alpha.kubernetes.io/hostname", "", ""},
		{"ours", `{}`, "moongate.dev/address", "", ""},
		{"an internal load balancer", `{}`, "service.beta.kubernetes.io/aws-load-balancer-internal=true", "", "Service"},
		{"one of Google", `{}`, "networking.gke.io/load-balancer-type=Internal", "", "Service"},
		{"an open load balancer", `{}`, "service.beta.kubernetes.io/aws-load-balancer-internal=false", "", ""},
		{"an open scheme", `{}`, "service.beta.kubernetes.io/aws-load-balancer-scheme=internet-facing", "", ""},
		{"an internal one though the service is locked", `{classOnly: {locked: [service]}}`, "service.beta.kubernetes.io/aws-load-balancer-scheme=internal", "", "Service"},
		{"a controller", `{classOnly: {locked: [service.type]}}`, "service.beta.kubernetes.io/aws-load-balancer-type=external", "", "Service"},
		{"an unknown controller", `{}`, "service.beta.kubernetes.io/aws-load-balancer-type=x", "", ""},
		{"a controller that is locked", `{classOnly: {locked: [service]}}`, "service.beta.kubernetes.io/aws-load-balancer-type=external", "", ""},
		{"its class is locked", `{classOnly: {locked: [service.loadBalancerClass]}}`, "service.beta.kubernetes.io/aws-load-balancer-type=external", "", ""},
		{"a security group", `{}`, "service.beta.kubernetes.io/aws-load-balancer-security-groups", "", ""},
		{"nothing is allowed", `{classOnly: {infrastructure: {}}}`, "key1", "", ""},
		{"the default is off beside rules", `{classOnly: {infrastructure: {labels: [{keys: [a]}]}}}`, "service.beta.kubernetes.io/aws-load-balancer-internal=true", "", ""},
		{"a key", `{classOnly: {infrastructure: {labels: [{keys: [example.com/team], kinds: [Pod, Deployment]}]}}}`, "example.com/team", "Pod Deployment", ""},
		{"another key", `{classOnly: {infrastructure: {labels: [{keys: [example.com/team]}]}}}`, "example.com/teams", "", ""},
		{"a prefix", `{classOnly: {infrastructure: {annotations: [{keys: [a/b], kinds: [Pod]}, {keys: [x, "example.com/*"], kinds: [Service]}]}}}`, "example.com/team", "", "Service"},
		{"all", `{classOnly: {infrastructure: {annotations: [{keys: ["*"]}]}}}`, "eks.amazonaws.com/role-arn", "", everywhere},
		{"all but ours", `{classOnly: {infrastructure: {annotations: [{keys: ["*", "moongate.dev/*"]}], labels: [{keys: [gateway.networking.k8s.io/gateway-name]}]}}}`, "moongate.dev/address", "", ""},
		{"all but those of the Gateway API", `{classOnly: {infrastructure: {labels: [{keys: [gateway.networking.k8s.io/gateway-name]}]}}}`, "gateway.networking.k8s.io/gateway-name", "", ""},
	} {
		class := read(t, c.spec).ClassOnly
		key, v, hasValue := strings.Cut(c.key, "=")
		if !hasValue {
			v = "v"
		}
		given := map[string]string{key: v}
		var labels, annotations []string
		for _, kind := range v1alpha1.MetadataKinds {
			l, a := parameters.Metadata(class, kind, given, given)
			if maps.Equal(l, given) {
				labels = append(labels, string(kind))
			}
			if maps.Equal(a, given) {
				annotations = append(annotations, string(kind))
			}
		}
		if got := strings.Join(labels, " "); got != c.label {
			t.Errorf("%s: label on %q, want %q", c.what, got, c.label)
		}
		if got := strings.Join(annotations, " "); got != c.annotation {
			t.Errorf("%s: annotation on %q, want %q", c.what, got, c.annotation)
		}
		l, a, leftOut := parameters.Allowed(class, given, given)
		var want []string
		if c.label == "" {
			want = append(want, `labels["`+key+`"]`)
		}
		if c.annotation == "" {
			want = append(want, `annotations["`+key+`"]`)
		}
		if !slices.Equal(leftOut, want) || (l == nil) != (c.label == "") || (a == nil) != (c.annotation == "") {
			t.Errorf("%s: %v and %v, left out %v, want %v", c.what, l, a, leftOut, want)
		}
	}
}
