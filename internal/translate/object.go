package translate

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
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
		classes:             objects(t, kind.GatewayClass),
		gateways:            objects(t, kind.Gateway),
		listenerSets:        objects(t, kind.ListenerSet),
		routes:              incremental.NewInput[kindName](e, "routes", sameDeeply[metav1.Object]),
		grants:              objects(t, kind.ReferenceGrant),
		policies:            objects(t, kind.BackendTLSPolicy),
		namespaces:          objects(t, kind.Namespace),
		services:            objects(t, kind.Service),
		endpointSlices:      objects(t, kind.EndpointSlice),
		secrets:             objects(t, kind.Secret),
		parameters:          objects(t, kind.GatewayParameters),
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
	for _, k := range routes() {
		key := func(n name) kindName { return kindName{Kind(k.Name), n} }
		t.stores[k.Name] = &store{
			kind:   k,
			set:    func(n name, o metav1.Object) { t.in.routes.Set(key(n), o) },
			remove: func(n name) { t.in.routes.Delete(key(n)) },
		}
	}
	secrets := t.stores[kind.Secret.Name]
	secrets.remove, secrets.set = t.deleteSecret, func(n name, o metav1.Object) {
		t.in.unread.Delete(n)
		t.in.absent.Delete(n)
		t.in.secrets.Set(n, o.(*corev1.Secret))
	}
	parameters := t.stores[kind.GatewayParameters.Name]
	parameters.also(t.in.undecodedParameters.Delete)
	parameters.undecoded = func(n name, u *kind.Undecoded) {
		t.in.parameters.Delete(n)
		t.in.undecodedParameters.Set(n, undecodedParameters{u.Error, u.DeniedEndpoints})
	}
	policies := t.stores[kind.BackendTLSPolicy.Name]
	policies.also(t.in.undecodedPolicies.Delete)
	policies.undecoded = func(n name, u *kind.Undecoded) {
		t.in.policies.Delete(n)
		t.in.undecodedPolicies.Set(n, undecodedPolicy{u.Error, u.Targets})
	}
}

// routes are the kinds of routes.
func routes() []*kind.Kind {
	return slices.DeleteFunc(slices.Clone(kind.All()), func(k *kind.Kind) bool { return !k.Route() })
}

// store takes the objects of one kind in.
type store struct {
	kind *kind.Kind
	set  func(n name, o metav1.Object)
	// remove removes an object; one that is not there is no error.
	remove func(n name)
	// undecoded takes what stands for an object that cannot be decoded, and removes the object; nil for a kind that closes nothing.
	undecoded func(n name, u *kind.Undecoded)
}

// objects declares the input of a kind.
func objects[O metav1.Object](t *Translator, k kind.Typed[O]) *incremental.Input[name, O] {
	in := incremental.NewInput[name](t.engine, k.Name, sameDeeply[O])
	t.stores[k.Name] = &store{
		kind:   k.Kind,
		set:    func(n name, o metav1.Object) { in.Set(n, o.(O)) },
		remove: in.Delete,
	}
	return in
}

// also has f called with the name of each object of the kind that is set or removed.
func (s *store) also(f func(name)) {
	set, remove := s.set, s.remove
	s.set = func(n name, o metav1.Object) { f(n); set(n, o) }
	s.remove = func(n name) { f(n); remove(n) }
}

func sameDeeply[V any](a, b V) bool { return equality.Semantic.DeepEqual(a, b) }

// Upsert adds or replaces an object and says whether its kind is one that
// translation reads. The object is not modified and must not be afterwards.
func (t *Translator) Upsert(obj metav1.Object) bool {
	switch o := obj.(type) {
	case *UnreadSecret:
		t.in.absent.Delete(nameOf(o))
		t.in.unread.Set(nameOf(o), o.Forbidden)
		return true
	case *kind.Undecoded:
		s := t.stores[o.Kind]
		if s == nil || s.undecoded == nil {
			return false
		}
		s.undecoded(nameOf(o), o)
		return true
	}
	k := kind.Of(obj)
	if k == nil || t.stores[k.Name] == nil {
		return false
	}
	// Without what changes on every write, our own status writes among them, so that those wake nothing.
	t.stores[k.Name].set(nameOf(obj), k.View(obj))
	return true
}

// Delete removes an object; one that is not there is no error.
func (t *Translator) Delete(kind Kind, namespace, objectName string) {
	if s := t.stores[string(kind)]; s != nil {
		s.remove(name{namespace, objectName})
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
