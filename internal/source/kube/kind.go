package kube

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
)

// kind is what is known of one kind of object.
type kind struct {
	group, name, resource string
	versions              []string // that are read, preferred first; all are decoded as the first
	// optional kinds come by a CustomResourceDefinition, which may be absent.
	optional bool
	// essential kinds are those that what is served depends on: to go on without their objects would take away what proxies
	// have, so the start waits for them.
	essential bool
	// partial says that only the metadata is asked for.
	partial bool
	// status says that objects are kept as they are, for Get, and that view makes what
	// translation gets.
	status bool
	// keep takes what is needed from a decoded object, which it may use up.
	keep func(runtime.Object) metav1.Object
	// view is what translation gets of a kept object; the kept one itself where nil.
	view func(metav1.Object) metav1.Object
	// known and list are the types that objects and lists of them are decoded into.
	known, list runtime.Object
}

const (
	secretKind = "Secret"
	crdGroup   = "apiextensions.k8s.io"
)

// Those that are in no namespace.
var (
	namespaceKind = builtin("", "Namespace", "namespaces", keepNamespace)
	classKind     = essential(custom("GatewayClass", "gatewayclasses", &gwv1.GatewayClassList{},
		func(o *gwv1.GatewayClass) { o.Status = gwv1.GatewayClassStatus{} }, "v1beta1"))
)

// kinds are all that translation reads but Secrets.
var kinds = []*kind{
	namespaceKind,
	builtin("", "Service", "services", keepService),
	builtin(discoveryv1.GroupName, "EndpointSlice", "endpointslices", keepEndpointSlice),
	essential(custom("BackendTLSPolicy", "backendtlspolicies", &gwv1.BackendTLSPolicyList{},
		func(o *gwv1.BackendTLSPolicy) { o.Status = gwv1.PolicyStatus{} }, "v1alpha3")),
	custom("GRPCRoute", "grpcroutes", &gwv1.GRPCRouteList{},
		func(o *gwv1.GRPCRoute) { o.Status = gwv1.GRPCRouteStatus{} }, "v1alpha2"),
	essential(custom("Gateway", "gateways", &gwv1.GatewayList{},
		func(o *gwv1.Gateway) { o.Status = gwv1.GatewayStatus{} }, "v1beta1")),
	classKind,
	essential(custom("HTTPRoute", "httproutes", &gwv1.HTTPRouteList{},
		func(o *gwv1.HTTPRoute) { o.Status = gwv1.HTTPRouteStatus{} }, "v1beta1")),
	custom("ListenerSet", "listenersets", &gwv1.ListenerSetList{},
		func(o *gwv1.ListenerSet) { o.Status = gwv1.ListenerSetStatus{} }),
	essential(custom[gwv1.ReferenceGrant]("ReferenceGrant", "referencegrants", &gwv1.ReferenceGrantList{}, nil, "v1beta1")),
	custom("TCPRoute", "tcproutes", &gwv1.TCPRouteList{},
		func(o *gwv1.TCPRoute) { o.Status = gwv1.TCPRouteStatus{} }, "v1alpha2"),
	custom("TLSRoute", "tlsroutes", &gwv1.TLSRouteList{},
		func(o *gwv1.TLSRoute) { o.Status = gwv1.TLSRouteStatus{} }, "v1alpha3", "v1alpha2"),
	custom("UDPRoute", "udproutes", &gwv1.UDPRouteList{},
		func(o *gwv1.UDPRoute) { o.Status = gwv1.UDPRouteStatus{} }, "v1alpha2"),
	// Without them the addresses that a class denies would be open.
	essential(ours(custom("GatewayParameters", "gatewayparameters", &v1alpha1.GatewayParametersList{},
		func(o *v1alpha1.GatewayParameters) { o.Status = v1alpha1.GatewayParametersStatus{} }))),
}

// secretMetadata and definitionMetadata are watched for what they say of other things;
// wholeSecret is read one by one.
var (
	wholeSecret        = &kind{name: secretKind, resource: "secrets", versions: []string{"v1"}}
	secretMetadata     = &kind{name: secretKind, resource: "secrets", versions: []string{"v1"}, partial: true}
	definitionMetadata = &kind{group: crdGroup, name: "CustomResourceDefinition", resource: "customresourcedefinitions", versions: []string{"v1"}, partial: true}
)

func builtin(group, name, resource string, keep func(runtime.Object) metav1.Object) *kind {
	return &kind{group: group, name: name, resource: resource, versions: []string{"v1"}, partial: name == "Namespace", essential: true, keep: keep}
}

// essential is for a kind that decides what is served.
func essential(k *kind) *kind {
	k.essential = true
	return k
}

func ours(k *kind) *kind {
	k.group, k.versions = v1alpha1.GroupName, []string{v1alpha1.GroupVersion.Version}
	return k
}

// custom is a kind of the Gateway API; clearStatus is nil for one without a status. Older
// versions have the fields of v1, or fewer, by the same names.
func custom[T any, O interface {
	*T
	metav1.Object
	runtime.Object
}](name, resource string, list runtime.Object, clearStatus func(O), older ...string) *kind {
	view := func(obj metav1.Object) metav1.Object {
		seen := *obj.(O)
		o := O(&seen)
		clearMeta(o)
		if clearStatus != nil {
			clearStatus(o)
		}
		return o
	}
	k := &kind{
		group: gwv1.GroupName, name: name, resource: resource, versions: append([]string{"v1"}, older...),
		optional: true, status: clearStatus != nil, known: O(new(T)), list: list,
	}
	if k.status {
		k.view = view
		k.keep = func(obj runtime.Object) metav1.Object { return keepCustom(obj.(O)) }
	} else {
		k.keep = func(obj runtime.Object) metav1.Object { return view(keepCustom(obj.(O))) }
	}
	return k
}

// keepCustom drops what is large and nobody reads.
func keepCustom(o interface {
	metav1.Object
	runtime.Object
}) metav1.Object {
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	o.SetManagedFields(nil)
	if annotations := o.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		if delete(annotations, corev1.LastAppliedConfigAnnotation); len(annotations) == 0 {
			o.SetAnnotations(nil)
		}
	}
	return o
}

// clearMeta leaves of metadata what translation may read.
func clearMeta(o metav1.Object) {
	o.SetResourceVersion("")
	o.SetManagedFields(nil)
	o.SetAnnotations(nil)
	o.SetFinalizers(nil)
	o.SetOwnerReferences(nil)
	o.SetGenerateName("")
	o.SetSelfLink("")
}

// seen is what translation gets of a kept object.
func (k *kind) seen(o metav1.Object) metav1.Object {
	if k.view == nil || partial(o) {
		return o
	}
	return k.view(o)
}

// same says that two kept objects are one to translation.
func (k *kind) same(a, b metav1.Object) bool {
	return equality.Semantic.DeepEqual(k.seen(a), k.seen(b))
}

// namespaced reports whether objects of the kind are in namespaces.
func (k *kind) namespaced() bool {
	return k != namespaceKind && k != classKind && k != definitionMetadata
}

func (k *kind) id(n name) ID { return ID{k.group, k.name, n.Namespace, n.Name} }

// scheme has every version of every kind, as the Go type of its first version.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	for _, k := range kinds {
		for _, version := range k.versions {
			gv := schema.GroupVersion{Group: k.group, Version: version}
			if k.known != nil {
				s.AddKnownTypeWithName(gv.WithKind(k.name), k.known)
				s.AddKnownTypeWithName(gv.WithKind(k.name+"List"), k.list)
			}
			metav1.AddToGroupVersion(s, gv)
		}
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Group: crdGroup, Version: "v1"})
	return s
}()
