package manifest

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/source/schema"
)

const discoveryGroup = "discovery.k8s.io"

// kind is what is known of one kind of object.
type kind struct {
	group, name string
	versions    []string // that are read, preferred first
	namespaced  bool
	new         func() metav1.Object
	nameRule    validation.ValidateNameFunc
	// complete sets the defaults of a core object and says what forbids it; nil for
	// the kinds that have a CRD.
	complete func(metav1.Object) []schema.Violation
}

var kinds = []*kind{
	{name: "ConfigMap", namespaced: true, new: func() metav1.Object { return new(corev1.ConfigMap) }, complete: completeConfigMap},
	{name: "Namespace", new: func() metav1.Object { return new(corev1.Namespace) }, nameRule: validation.NameIsDNSLabel, complete: completeNamespace},
	{name: "Secret", namespaced: true, new: func() metav1.Object { return new(corev1.Secret) }, complete: completeSecret},
	{name: "Service", namespaced: true, new: func() metav1.Object { return new(corev1.Service) }, nameRule: validation.NameIsDNS1035Label, complete: completeService},
	{group: discoveryGroup, name: "EndpointSlice", namespaced: true, new: func() metav1.Object { return new(discoveryv1.EndpointSlice) }, complete: completeEndpointSlice},
	{group: schema.Group, name: "BackendTLSPolicy", new: func() metav1.Object { return new(gwv1.BackendTLSPolicy) }},
	{group: schema.Group, name: "GRPCRoute", new: func() metav1.Object { return new(gwv1.GRPCRoute) }},
	{group: schema.Group, name: "Gateway", new: func() metav1.Object { return new(gwv1.Gateway) }},
	{group: schema.Group, name: "GatewayClass", new: func() metav1.Object { return new(gwv1.GatewayClass) }},
	{group: schema.Group, name: "HTTPRoute", new: func() metav1.Object { return new(gwv1.HTTPRoute) }},
	{group: schema.Group, name: "ListenerSet", new: func() metav1.Object { return new(gwv1.ListenerSet) }},
	{group: schema.Group, name: "ReferenceGrant", new: func() metav1.Object { return new(gwv1.ReferenceGrant) }},
	{group: schema.Group, name: "TCPRoute", new: func() metav1.Object { return new(gwv1.TCPRoute) }},
	{group: schema.Group, name: "TLSRoute", new: func() metav1.Object { return new(gwv1.TLSRoute) }},
	{group: schema.Group, name: "UDPRoute", new: func() metav1.Object { return new(gwv1.UDPRoute) }},
}

func init() {
	for _, k := range kinds {
		if k.complete == nil {
			k.versions = schema.Versions(k.name)
			k.namespaced = schema.Lookup(k.versions[0], k.name).Namespaced
		} else {
			k.versions = []string{"v1"}
		}
		if k.nameRule == nil {
			k.nameRule = validation.NameIsDNSSubdomain
		}
	}
}

func (k *kind) apiVersion() string { return joinVersion(k.group, k.versions[0]) }

func findKind(group, name string) *kind {
	for _, k := range kinds {
		if k.group == group && k.name == name {
			return k
		}
	}
	return nil
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

// misnamed finds the kind that was probably meant by one that is not known: the
// right name in a wrong group, or a name in a right group that is nearly right.
// Kinds of other groups are somebody else's.
func misnamed(group, name string) (meant *kind, reason string) {
	var names []string
	for _, k := range kinds {
		if k.group == group {
			names = append(names, k.name)
		}
		if k.name == name && k.complete == nil && (!strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")) {
			return k, "is not in this API group"
		}
		if k.name == name && k.complete != nil && (group == schema.Group || group == "" || group == discoveryGroup) {
			return k, "is not in this API group"
		}
	}
	// Pod, Node and so on are real kinds, however near to ours they look.
	if slices.Contains(coreKinds, name) && group == "" {
		return nil, ""
	}
	if near := schema.Nearest(name, names); near != "" {
		return findKind(group, near), "is not a kind of this API group"
	}
	return nil, ""
}

// coreKinds are the kinds of core/v1 that are none of ours.
var coreKinds = []string{"Binding", "ComponentStatus", "Endpoints", "Event", "LimitRange", "Node", "PersistentVolume",
	"PersistentVolumeClaim", "Pod", "PodTemplate", "ReplicationController", "ResourceQuota", "ServiceAccount"}
