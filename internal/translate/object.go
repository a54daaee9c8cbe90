package translate

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
)

// Kind is a kind of object that translation reads.
type Kind string

// The kinds.
const (
	KindGatewayClass          Kind = "GatewayClass"
	KindGateway               Kind = "Gateway"
	KindListenerSet           Kind = "ListenerSet"
	KindXListenerSet          Kind = "XListenerSet"
	KindHTTPRoute             Kind = "HTTPRoute"
	KindGRPCRoute             Kind = "GRPCRoute"
	KindTLSRoute              Kind = "TLSRoute"
	KindTCPRoute              Kind = "TCPRoute"
	KindUDPRoute              Kind = "UDPRoute"
	KindReferenceGrant        Kind = "ReferenceGrant"
	KindBackendTLSPolicy      Kind = "BackendTLSPolicy"
	KindXBackendTrafficPolicy Kind = "XBackendTrafficPolicy"
	KindBackendTrafficPolicy  Kind = "BackendTrafficPolicy"
	KindXTelemetryPolicy      Kind = "XTelemetryPolicy"
	KindXBackend              Kind = "XBackend"
	KindHTTPFilter            Kind = "HTTPFilter"
	KindNamespace             Kind = "Namespace"
	KindService               Kind = "Service"
	KindEndpointSlice         Kind = "EndpointSlice"
	KindSecret                Kind = "Secret"
)

// ListenerFault reports that the data plane cannot serve a listener, for example because its port is in use.
type ListenerFault struct {
	Message string
	// Remedy is what to do if the port cannot be bound; "" stands for the usual remedy for a port in use.
	Remedy string
	// Others is set if other proxies serve the listener. Then it remains accepted and programmed, with the message.
	Others bool
	// Refused is set if the listener itself cannot be served, regardless of its port.
	Refused bool
}

// RouteFault reports that a proxy cannot apply a route, and continues with the previous version.
type RouteFault struct{ Message string }

// routeFaultKey identifies a route at a Gateway.
type routeFaultKey struct {
	Route   string // config.Route.key
	Gateway name
}

func (k routeFaultKey) Compare(o routeFaultKey) int {
	return cmp.Or(cmp.Compare(k.Route, o.Route), k.Gateway.Compare(o.Gateway))
}

// listenerFaultKey identifies a listener at the proxies of merged Gateways.
type listenerFaultKey struct {
	Listener listenerKey
	Proxies  name
}

func (k listenerFaultKey) Compare(o listenerFaultKey) int {
	return cmp.Or(k.Listener.Compare(o.Listener), k.Proxies.Compare(o.Proxies))
}

// AddressFault reports that an address of a Gateway's spec.addresses cannot be bound.
type AddressFault struct{ Message string }

// inputs contains the objects as they were received, without the parts that translation does not read.
type inputs struct {
	stores map[string]*store // by kind
	// changed call f with each object with a status that the last Commit has replaced by another version or another object.
	changed []func(f func(k kindName, old, now metav1.Object))

	classes             *incremental.Input[name, *gwv1.GatewayClass]
	gateways            *incremental.Input[name, *gwv1.Gateway]
	listenerSets        *incremental.Input[kindName, metav1.Object]
	routes              *incremental.Input[kindName, metav1.Object]
	grants              *incremental.Input[name, *gwv1.ReferenceGrant]
	policies            *incremental.Input[name, *gwv1.BackendTLSPolicy]
	trafficPolicies     *incremental.Input[name, *gwx.XBackendTrafficPolicy]
	backendTraffic      *incremental.Input[name, *eg.BackendTrafficPolicy]
	telemetryPolicies   *incremental.Input[name, *apisx.XTelemetryPolicy]
	httpFilters         *incremental.Input[name, *v1alpha1.HTTPFilter]
	xbackends           *incremental.Input[name, *apisx.XBackend]
	namespaces          *incremental.Input[name, *corev1.Namespace]
	services            *incremental.Input[name, *corev1.Service]
	endpointSlices      *incremental.Input[name, *discoveryv1.EndpointSlice]
	authorities         *incremental.Input[kindName, metav1.Object] // objects that may contain authorities
	secrets             *incremental.Input[name, *corev1.Secret]
	listenerFaults      *incremental.Input[listenerKey, ListenerFault]      // reported by proxies of the Gateway itself
	mergedFaults        *incremental.Input[listenerFaultKey, ListenerFault] // reported by other proxies
	routeFaults         *incremental.Input[routeFaultKey, RouteFault]
	addressFaults       *incremental.Input[addressKey, AddressFault]
	rateLimitFaults     *incremental.Input[name, string] // by Gateway
	parameters          *incremental.Input[name, *v1alpha1.GatewayParameters]
	undecodedParameters *incremental.Input[name, undecodedParameters] // those that exist and cannot be decoded
	undecodedPolicies   *incremental.Input[name, undecodedPolicy]     // those that exist and cannot be decoded
	// undecodedTraffic has an entry for each policy in backendTraffic that stands for one that cannot be decoded.
	undecodedTraffic *incremental.Input[name, undecodedTraffic]

	infrastructures *incremental.Input[name, Infrastructure]
	installed       *incremental.Input[name, Installed] // under the empty name
	tickets         *incremental.Input[name, Tickets]   // under the empty name

	unread *incremental.Input[name, bool] // Secrets that could not be read; true if that is forbidden
	absent *incremental.Input[name, bool] // needed Secrets that do not exist
	// invalidSecrets are Secrets in files that exist and were rejected; Upsert got a *kind.Undecoded for them.
	invalidSecrets *incremental.Input[name, bool]
	last           *incremental.Input[listenerKey, servedSecrets]
}

// newInputs declares the inputs.
func newInputs(e *incremental.Engine) *inputs {
	in := &inputs{stores: map[string]*store{}}
	in.classes = objects(in, e, kind.GatewayClass)
	in.gateways = objects(in, e, kind.Gateway)
	in.listenerSets = incremental.NewInput[kindName](e, "ListenerSets", sameDeeply[metav1.Object])
	in.routes = incremental.NewInput[kindName](e, "routes", sameDeeply[metav1.Object])
	in.grants = objects(in, e, kind.ReferenceGrant)
	in.policies = objects(in, e, kind.BackendTLSPolicy)
	in.trafficPolicies = objects(in, e, kind.XBackendTrafficPolicy)
	in.backendTraffic = objects(in, e, kind.BackendTrafficPolicy)
	in.telemetryPolicies = objects(in, e, kind.XTelemetryPolicy)
	in.httpFilters = objects(in, e, kind.HTTPFilter)
	in.xbackends = objects(in, e, kind.XBackend)
	in.namespaces = objects(in, e, kind.Namespace)
	in.services = objects(in, e, kind.Service)
	in.endpointSlices = objects(in, e, kind.EndpointSlice)
	in.secrets = objects(in, e, kind.Secret)
	in.authorities = incremental.NewInput[kindName](e, "objects with authorities", sameDeeply[metav1.Object])
	in.parameters = objects(in, e, kind.GatewayParameters)
	in.undecodedParameters = incremental.NewInput[name](e, "undecoded GatewayParameters", sameDeeply[undecodedParameters])
	in.undecodedPolicies = incremental.NewInput[name](e, "undecoded BackendTLSPolicy", sameDeeply[undecodedPolicy])
	in.undecodedTraffic = incremental.NewInput[name](e, "undecoded BackendTrafficPolicy", same[undecodedTraffic])
	in.listenerFaults = incremental.NewInput[listenerKey](e, "listener faults", same[ListenerFault])
	in.mergedFaults = incremental.NewInput[listenerFaultKey](e, "listener faults of merged Gateways", same[ListenerFault])
	in.routeFaults = incremental.NewInput[routeFaultKey](e, "route faults", same[RouteFault])
	in.addressFaults = incremental.NewInput[addressKey](e, "address faults", same[AddressFault])

	in.rateLimitFaults = incremental.NewInput[name](e, "rate limit faults", same[string])
	in.infrastructures = incremental.NewInput[name](e, "infrastructure", sameDeeply[Infrastructure])
	in.installed = incremental.NewInput[name](e, "installed", sameDeeply[Installed])
	in.tickets = incremental.NewInput[name](e, "tickets", sameDeeply[Tickets])

	in.unread = incremental.NewInput[name](e, "unread Secret", same[bool])
	in.invalidSecrets = incremental.NewInput[name](e, "invalid Secret", same[bool])
	in.absent = incremental.NewInput[name](e, "absent Secret", same[bool])
	in.last = incremental.NewInput[listenerKey](e, "last certificates", sameDeeply[servedSecrets])
	for _, k := range routeKindsOfAPI() {
		in.storeKind(k, in.routes)
	}
	for _, k := range kind.ListenerSets() {
		in.storeKind(k, in.listenerSets)
	}
	noteChanges(in, in.routes, itself)
	noteChanges(in, in.listenerSets, itself)
	for _, k := range authoritiesKinds() {
		in.storeKind(k, in.authorities)
	}
	parameters := in.stores[kind.GatewayParameters.Name]
	parameters.also(in.undecodedParameters.Delete)
	parameters.undecoded = func(n name, u *kind.Undecoded) {
		in.parameters.Delete(n)
		in.undecodedParameters.Set(n, undecodedParameters{u.Error, u.DeniedEndpoints, u.Locked, u.RedisSecret, u.RedisKey})
	}
	policies := in.stores[kind.BackendTLSPolicy.Name]
	policies.also(in.undecodedPolicies.Delete)
	policies.undecoded = func(n name, u *kind.Undecoded) {
		in.policies.Delete(n)
		in.undecodedPolicies.Set(n, undecodedPolicy{u.Error, createdOf(u), u.Targets})
	}
	traffic := in.stores[kind.BackendTrafficPolicy.Name]
	traffic.also(in.undecodedTraffic.Delete)
	traffic.undecoded = func(n name, u *kind.Undecoded) {
		p, undecoded := undecodedTrafficOf(u)
		if p == nil {
			in.backendTraffic.Delete(n)
			in.undecodedTraffic.Delete(n)
			return
		}
		in.backendTraffic.Set(n, p)
		in.undecodedTraffic.Set(n, undecoded)
	}
	return in
}

// routeKindsOfAPI returns the kinds of routes, supported or not.
func routeKindsOfAPI() []*kind.Kind {
	return slices.DeleteFunc(slices.Clone(kind.All()), func(k *kind.Kind) bool { return !k.Route() })
}

// store is the input for the objects of one kind.
type store struct {
	kind *kind.Kind
	// get returns an object as of the last Commit.
	get func(n name) (metav1.Object, bool)
	set func(n name, o metav1.Object)
	// remove removes an object; it does nothing if there is none.
	remove func(n name)
	// undecoded removes the object and sets what stands for an object that cannot be decoded; nil for kinds for which that has no
	// effect.
	undecoded func(n name, u *kind.Undecoded)
}

// objects declares the input of a kind.
func objects[O metav1.Object](in *inputs, e *incremental.Engine, k kind.Typed[O]) *incremental.Input[name, O] {
	all := incremental.NewInput[name](e, k.Name, sameDeeply[O])
	in.stores[k.Name] = &store{
		kind:   k.Kind,
		get:    func(n name) (metav1.Object, bool) { return all.Get(n) },
		set:    func(n name, o metav1.Object) { all.Set(n, o.(O)) },
		remove: all.Delete,
	}
	if k.HasStatus() {
		noteChanges(in, all, func(n name) kindName { return kindName{Kind(k.Name), n} })
	}
	return all
}

// storeKind makes an input accept the objects of a kind, in addition to those of other kinds.
func (in *inputs) storeKind(k *kind.Kind, all *incremental.Input[kindName, metav1.Object]) {
	key := func(n name) kindName { return kindName{Kind(k.Name), n} }
	in.stores[k.Name] = &store{
		kind:   k,
		get:    func(n name) (metav1.Object, bool) { return all.Get(key(n)) },
		set:    func(n name, o metav1.Object) { all.Set(key(n), o) },
		remove: func(n name) { all.Delete(key(n)) },
	}
}

// noteChanges adds an input to inputs.changed; object returns the object of a key.
func noteChanges[K incremental.Key[K], O metav1.Object](in *inputs, all *incremental.Input[K, O], object func(K) kindName) {
	in.changed = append(in.changed, func(f func(k kindName, old, now metav1.Object)) {
		for _, ch := range all.Changes() {
			if !ch.Added && !ch.Deleted {
				f(object(ch.Key), ch.Old, ch.New)
			}
		}
	})
}

// replaced returns the objects that the last Commit has replaced by others with the same name.
func (in *inputs) replaced() (all []kindName) {
	for _, changed := range in.changed {
		changed(func(k kindName, old, now metav1.Object) {
			if old.GetUID() != now.GetUID() {
				all = append(all, k)
			}
		})
	}
	return all
}

// uid returns the UID of an object as of the last Commit, "" if it is not known.
func (in *inputs) uid(key kind.ObjectKey) types.UID {
	if s := in.stores[key.Kind]; s != nil {
		if o, ok := s.get(name{key.Namespace, key.Name}); ok {
			return o.GetUID()
		}
	}
	return ""
}

// also calls f with the name of each object of the kind that is set or removed.
func (s *store) also(f func(name)) {
	set, remove := s.set, s.remove
	s.set = func(n name, o metav1.Object) { f(n); set(n, o) }
	s.remove = func(n name) { f(n); remove(n) }
}

func sameDeeply[V any](a, b V) bool { return equality.Semantic.DeepEqual(a, b) }

// Upsert adds or replaces an object and reports whether translation reads its kind. The object is not modified, and the caller must
// not modify it afterwards.
func (t *Translator) Upsert(obj metav1.Object) bool {
	switch o := obj.(type) {
	case *UnreadSecret:
		t.in.absent.Delete(nameOf(o))
		t.in.unread.Set(nameOf(o), o.Forbidden)
		return true
	case *kind.Undecoded:
		s := t.in.stores[o.Kind]
		if s == nil || s.undecoded == nil {
			return false
		}
		s.undecoded(nameOf(o), o)
		return true
	}
	k := kind.Of(obj)
	if k == nil || t.in.stores[k.Name] == nil {
		return false
	}
	// View removes what changes on every write, including status writes by this controller, so that these do not cause a
	// translation.
	t.in.stores[k.Name].set(nameOf(obj), k.View(obj))
	return true
}

// Delete removes an object; it does nothing if there is none.
func (t *Translator) Delete(kind Kind, namespace, objectName string) {
	if s := t.in.stores[string(kind)]; s != nil {
		s.remove(name{namespace, objectName})
	}
}

// SetListenerFault sets a fault at run time of the listener with that config key. gatewayNamespace and gatewayName are those of the
// proxies that report it, which may be about to be replaced by others; a nil fault clears it.
func (t *Translator) SetListenerFault(key, gatewayNamespace, gatewayName string, fault *ListenerFault) {
	k := listenerFaultKey{parseListenerKey(key), name{gatewayNamespace, gatewayName}}
	own := k.Proxies == k.Listener.Gateway
	switch {
	case fault == nil && own:
		t.in.listenerFaults.Delete(k.Listener)
	case fault == nil:
		t.in.mergedFaults.Delete(k)
	case own:
		t.in.listenerFaults.Set(k.Listener, *fault)
	default:
		t.in.mergedFaults.Set(k, *fault)
	}
}

// SetRouteFault sets that a proxy of a Gateway cannot apply the route with that config key; nil clears it.
func (t *Translator) SetRouteFault(route, gatewayNamespace, gatewayName string, fault *RouteFault) {
	k := routeFaultKey{route, name{gatewayNamespace, gatewayName}}
	if fault == nil {
		t.in.routeFaults.Delete(k)
		return
	}
	t.in.routeFaults.Set(k, *fault)
}

// SetRateLimitFault sets that proxies of a Gateway cannot reach the Redis server of its global rate limits. The message is a
// sentence; "" clears it.
func (t *Translator) SetRateLimitFault(gatewayNamespace, gatewayName, message string) {
	n := name{gatewayNamespace, gatewayName}
	if message == "" {
		t.in.rateLimitFaults.Delete(n)
		return
	}
	t.in.rateLimitFaults.Set(n, message)
}

// SetAddressFault sets that an address of a Gateway cannot be bound; nil clears it.
func (t *Translator) SetAddressFault(gatewayNamespace, gatewayName, address string, fault *AddressFault) {
	k := addressKey{name{gatewayNamespace, gatewayName}, address}
	if fault == nil {
		t.in.addressFaults.Delete(k)
		return
	}
	t.in.addressFaults.Set(k, *fault)
}
