package manifest

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/schema"
)

// manifestKind is what is known of one kind of object.
type manifestKind struct {
	*kind.Kind
	nameRule validation.ValidateNameFunc
	// complete sets the defaults of a core object and returns what forbids it; nil for the kinds that have a CRD.
	complete func(metav1.Object) []schema.Violation
}

// completions are those of the kinds without a CRD.
var completions = map[*kind.Kind]func(metav1.Object) []schema.Violation{
	kind.ConfigMap.Kind: completeConfigMap, kind.Namespace.Kind: completeNamespace, kind.Secret.Kind: completeSecret,
	kind.Service.Kind: completeService, kind.EndpointSlice.Kind: completeEndpointSlice,
	kind.ClusterTrustBundle.Kind: completeClusterTrustBundle,
}

var kinds = func() (list []*manifestKind) {
	for _, k := range kind.All() {
		m := &manifestKind{k, k.NameRule, completions[k]}
		if m.nameRule == nil {
			m.nameRule = validation.NameIsDNSSubdomain
		}
		list = append(list, m)
	}
	return list
}()

func (k *manifestKind) apiVersion() string { return joinVersion(k.Group, k.Versions[0]) }

func findKind(group, name string) *manifestKind {
	for _, k := range kinds {
		if k.Group == group && k.Name == name {
			return k
		}
	}
	return nil
}

// kindsOf returns the names of the kinds of a group.
func kindsOf(group string) (names []string) {
	for _, k := range kinds {
		if k.Group == group {
			names = append(names, k.Name)
		}
	}
	return names
}

func splitVersion(apiVersion string) (group, version string) {
	if group, version, ok := strings.Cut(apiVersion, "/"); ok {
		return group, version
	}
	return "", apiVersion
}

func joinVersion(group, version string) string {
	if group == "" {
		return version
	}
	return group + "/" + version
}

// misnamed returns the kind that was probably meant by an unknown one: the right name in a wrong group, or a similar name in the
// right group. Kinds of other groups belong to other programs.
func misnamed(group, name string) (meant *manifestKind, reason string) {
	for _, k := range kinds {
		if k.Name == name && k.Custom && (!strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") || group == v1alpha1.GroupName) {
			return k, "is not in this API group"
		}
		if k.Name == name && !k.Custom && (group == gwv1.GroupName || group == "" || group == kind.EndpointSlice.Group || group == kind.ClusterTrustBundle.Group) {
			return k, "is not in this API group"
		}
	}
	// Pod, Node and so on are real kinds, even if their names are similar to those that are read.
	if slices.Contains(otherKinds[group], name) {
		return nil, ""
	}
	if near := schema.Nearest(name, kindsOf(group)); near != "" {
		return findKind(group, near), "is not a kind of this API group"
	}
	return nil, ""
}

// otherKinds are the kinds that are not read, by groups of which some kinds are. Config is a kubeconfig.
var otherKinds = map[string][]string{
	"":                              {"Binding", "ComponentStatus", "Config", "Endpoints", "Event", "LimitRange", "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod", "PodTemplate", "ReplicationController", "ResourceQuota", "ServiceAccount"},
	kind.BackendTrafficPolicy.Group: {"Backend", "ClientTrafficPolicy", "EnvoyExtensionPolicy", "EnvoyPatchPolicy", "EnvoyProxy", "HTTPRouteFilter", "SecurityPolicy"},
}
