package translate

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/incremental"
)

// Kind is a kind of object that translation reads.
type Kind string

// The kinds.
const (
	KindGatewayClass     Kind = "GatewayClass"
	KindGateway          Kind = "Gateway"
	KindListenerSet      Kind = "ListenerSet"
	KindHTTPRoute        Kind = "HTTPRoute"
	KindGRPCRoute        Kind = "GRPCRoute"
	KindTLSRoute         Kind = "TLSRoute"
	KindTCPRoute         Kind = "TCPRoute"
	KindUDPRoute         Kind = "UDPRoute"
	KindReferenceGrant   Kind = "ReferenceGrant"
	KindBackendTLSPolicy Kind = "BackendTLSPolicy"
	KindNamespace        Kind = "Namespace"
	KindService          Kind = "Service"
	KindEndpointSlice    Kind = "EndpointSlice"
	KindSecret           Kind = "Secret"
)

// ListenerFault says that the data plane cannot serve a listener, for example
// because its port is taken.
type ListenerFault struct {
	Message string
	// Others says that other proxies serve the listener. Then it stays accepted and programmed, with the message.
	Others bool
	// Refused says that the listener itself cannot be carried out, whatever its port.
	Refused bool
}

// RouteFault says that a proxy cannot carry out a route as it is, and goes on with the version before.
type RouteFault struct{ Message string }

// routeFaultKey is a route at a Gateway.
type routeFaultKey struct {
	Route   string // config.Route.key
	Gateway name
}

func (k routeFaultKey) Compare(o routeFaultKey) int {
	return cmp.Or(cmp.Compare(k.Route, o.Route), k.Gateway.Compare(o.Gateway))
}

// AddressFault says that an address of a Gateway's spec.addresses cannot be bound.
type AddressFault struct{ Message string }

func (t *Translator) declareInputs() {
	e := t.engine
	t.in = inputs{
		classes:             objects[*gwv1.GatewayClass](e, KindGatewayClass),
		gateways:            objects[*gwv1.Gateway](e, KindGateway),
		listenerSets:        objects[*gwv1.ListenerSet](e, KindListenerSet),
		httpRoutes:          objects[*gwv1.HTTPRoute](e, KindHTTPRoute),
		otherRoutes:         incremental.NewInput[kindName](e, "other routes", sameDeeply[otherRoute]),
		grants:              objects[*gwv1.ReferenceGrant](e, KindReferenceGrant),
		policies:            objects[*gwv1.BackendTLSPolicy](e, KindBackendTLSPolicy),
		namespaces:          objects[*corev1.Namespace](e, KindNamespace),
		services:            objects[*corev1.Service](e, KindService),
		endpointSlices:      objects[*discoveryv1.EndpointSlice](e, KindEndpointSlice),
		secrets:             objects[*corev1.Secret](e, KindSecret),
		parameters:          objects[*v1alpha1.GatewayParameters](e, KindGatewayParameters),
		undecodedParameters: incremental.NewInput[name](e, "undecoded GatewayParameters", sameDeeply[undecodedParameters]),
		undecodedPolicies:   incremental.NewInput[name](e, "undecoded BackendTLSPolicy", sameDeeply[undecodedPolicy]),
		listenerFaults:      incremental.NewInput[listenerKey](e, "listener faults", same[ListenerFault]),
		routeFaults:         incremental.NewInput[routeFaultKey](e, "route faults", same[RouteFault]),
		addressFaults:       incremental.NewInput[addressKey](e, "address faults", same[AddressFault]),

		infrastructures: incremental.NewInput[name](e, "infrastructure", sameDeeply[Infrastructure]),
		installed:       incremental.NewInput[name](e, "installed", sameDeeply[Installed]),
		tickets:         incremental.NewInput[name](e, "tickets", sameDeeply[Tickets]),

		unread: incremental.NewInput[name](e, "unread Secret", same[bool]),
		absent: incremental.NewInput[name](e, "absent Secret", same[bool]),
		last:   incremental.NewInput[listenerKey](e, "last certificates", slices.Equal[[]name]),
	}
}

func objects[O metav1.Object](e *incremental.Engine, kind Kind) *incremental.Input[name, O] {
	return incremental.NewInput[name](e, string(kind), sameDeeply[O])
}

func sameDeeply[V any](a, b V) bool { return equality.Semantic.DeepEqual(a, b) }

// Upsert adds or replaces an object and says whether its kind is one that
// translation reads. The object is not modified and must not be afterwards.
func (t *Translator) Upsert(obj metav1.Object) bool {
	switch o := obj.(type) {
	case *gwv1.GatewayClass:
		set(t.in.classes, o, func(o *gwv1.GatewayClass) { o.Status = gwv1.GatewayClassStatus{} })
	case *gwv1.Gateway:
		set(t.in.gateways, o, func(o *gwv1.Gateway) { o.Status = gwv1.GatewayStatus{} })
	case *gwv1.ListenerSet:
		set(t.in.listenerSets, o, func(o *gwv1.ListenerSet) { o.Status = gwv1.ListenerSetStatus{} })
	case *gwv1.HTTPRoute:
		set(t.in.httpRoutes, o, func(o *gwv1.HTTPRoute) { o.Status = gwv1.HTTPRouteStatus{} })
	case *gwv1.GRPCRoute:
		t.setOther(KindGRPCRoute, o, o.Spec.ParentRefs)
	case *gwv1.TLSRoute:
		t.setOther(KindTLSRoute, o, o.Spec.ParentRefs)
	case *gwv1.TCPRoute:
		t.setOther(KindTCPRoute, o, o.Spec.ParentRefs)
	case *gwv1.UDPRoute:
		t.setOther(KindUDPRoute, o, o.Spec.ParentRefs)
	case *gwv1.ReferenceGrant:
		set(t.in.grants, o, nil)
	case *gwv1beta1.ReferenceGrant:
		set(t.in.grants, (*gwv1.ReferenceGrant)(o), nil)
	case *gwv1.BackendTLSPolicy:
		t.in.undecodedPolicies.Delete(nameOf(o))
		set(t.in.policies, o, func(o *gwv1.BackendTLSPolicy) { o.Status = gwv1.PolicyStatus{} })
	case *corev1.Namespace:
		set(t.in.namespaces, o, func(o *corev1.Namespace) { o.Status = corev1.NamespaceStatus{} })
	case *corev1.Service:
		set(t.in.services, o, func(o *corev1.Service) { o.Status = corev1.ServiceStatus{} })
	case *discoveryv1.EndpointSlice:
		set(t.in.endpointSlices, o, nil)
	case *corev1.Secret:
		t.in.unread.Delete(nameOf(o))
		t.in.absent.Delete(nameOf(o))
		set(t.in.secrets, o, nil)
	case *UnreadSecret:
		t.in.absent.Delete(nameOf(o))
		t.in.unread.Set(nameOf(o), o.Forbidden)
	case *v1alpha1.GatewayParameters:
		t.in.undecodedParameters.Delete(nameOf(o))
		set(t.in.parameters, o, func(o *v1alpha1.GatewayParameters) { o.Status = v1alpha1.GatewayParametersStatus{} })
	case *Undecoded:
		switch Kind(o.Kind) {
		case KindGatewayParameters:
			t.in.parameters.Delete(nameOf(o))
			t.in.undecodedParameters.Set(nameOf(o), undecodedParameters{o.Error, o.DeniedEndpoints})
		case KindBackendTLSPolicy:
			t.in.policies.Delete(nameOf(o))
			t.in.undecodedPolicies.Set(nameOf(o), undecodedPolicy{o.Error, o.Targets})
		default:
			return false
		}
	default:
		return false
	}
	return true
}

// set stages a copy without what changes on every write (our own status writes
// among them), so that those wake nothing.
func set[T any, O interface {
	*T
	metav1.Object
}](in *incremental.Input[name, O], obj O, clearStatus func(O)) {
	kept := *obj
	o := O(&kept)
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	if clearStatus != nil {
		clearStatus(o)
	}
	in.Set(nameOf(o), o)
}

func (t *Translator) setOther(kind Kind, o metav1.Object, parents []gwv1.ParentReference) {
	t.in.otherRoutes.Set(kindName{kind, nameOf(o)}, otherRoute{generationOf(o), parents})
}

// Delete removes an object; one that is not there is no error.
func (t *Translator) Delete(kind Kind, namespace, objectName string) {
	n := name{namespace, objectName}
	switch kind {
	case KindGatewayClass:
		t.in.classes.Delete(n)
	case KindGateway:
		t.in.gateways.Delete(n)
	case KindListenerSet:
		t.in.listenerSets.Delete(n)
	case KindHTTPRoute:
		t.in.httpRoutes.Delete(n)
	case KindGRPCRoute, KindTLSRoute, KindTCPRoute, KindUDPRoute:
		t.in.otherRoutes.Delete(kindName{kind, n})
	case KindReferenceGrant:
		t.in.grants.Delete(n)
	case KindBackendTLSPolicy:
		t.in.policies.Delete(n)
		t.in.undecodedPolicies.Delete(n)
	case KindNamespace:
		t.in.namespaces.Delete(n)
	case KindService:
		t.in.services.Delete(n)
	case KindEndpointSlice:
		t.in.endpointSlices.Delete(n)
	case KindSecret:
		t.deleteSecret(n)
	case KindGatewayParameters:
		t.in.parameters.Delete(n)
		t.in.undecodedParameters.Delete(n)
	}
}

// SetListenerFault reports a fact of run time about the listener with that
// config key; nil clears it.
func (t *Translator) SetListenerFault(key string, fault *ListenerFault) {
	k := parseListenerKey(key)
	if fault == nil {
		t.in.listenerFaults.Delete(k)
		return
	}
	t.in.listenerFaults.Set(k, *fault)
}

// SetRouteFault reports that a proxy of a Gateway cannot carry out the route with that config key; nil clears it.
func (t *Translator) SetRouteFault(route, gatewayNamespace, gatewayName string, fault *RouteFault) {
	k := routeFaultKey{route, name{gatewayNamespace, gatewayName}}
	if fault == nil {
		t.in.routeFaults.Delete(k)
		return
	}
	t.in.routeFaults.Set(k, *fault)
}

// SetAddressFault reports that an address of a Gateway cannot be bound; nil clears it.
func (t *Translator) SetAddressFault(gatewayNamespace, gatewayName, address string, fault *AddressFault) {
	k := addressKey{name{gatewayNamespace, gatewayName}, address}
	if fault == nil {
		t.in.addressFaults.Delete(k)
		return
	}
	t.in.addressFaults.Set(k, *fault)
}
