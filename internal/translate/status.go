package translate

import (
	"cmp"
	"slices"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/incremental"
)

// ObjectKey names an object that has a status.
type ObjectKey struct{ Group, Kind, Namespace, Name string }

// Compare orders by kind, namespace and name.
func (k ObjectKey) Compare(o ObjectKey) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Group, o.Group),
		cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// StatusChange is what one object's status should be as far as it is ours.
type StatusChange struct {
	Object ObjectKey
	// Status is a *GatewayClassStatus, *GatewayStatus, *ListenerSetStatus,
	// *RouteStatus (every kind of route) or *PolicyStatus of gateway-api v1; for the
	// last two it holds our entries only. Of our own kinds it is a *GatewayParametersStatus of
	// moongate.dev/v1alpha1. Nil where the object is no longer ours.
	Status any
	// Generation is the metadata.generation that Status was computed for; 0 with nil.
	Generation int64
}

// status is a desired status and the generation it was computed for.
type status[S any] struct {
	Generation int64
	Status     S
}

func (t *Translator) declareStatuses() {
	t.declareGatewayClassStatuses()
	t.declareGatewayStatuses()
	t.declareListenerSetStatuses()
	t.declareHTTPRouteStatuses()
	t.declareOtherRouteStatuses()
	t.declareBackendTLSPolicyStatuses()
	t.declareGatewayParametersStatuses()
}

func (t *Translator) statusChanges() []StatusChange {
	var out []StatusChange
	of := func(kind Kind) func(name) kindName { return func(n name) kindName { return kindName{kind, n} } }
	report(&out, t.classStatuses, of(KindGatewayClass))
	report(&out, t.gatewayStates, of(KindGateway))
	report(&out, t.setStatuses, of(KindListenerSet))
	report(&out, t.routeStatuses, of(KindHTTPRoute))
	report(&out, t.otherStatuses, func(k kindName) kindName { return k })
	report(&out, t.policyStatuses, of(KindBackendTLSPolicy))
	report(&out, t.parametersStatuses, of(KindGatewayParameters))
	out = t.tellFailing(out)
	slices.SortFunc(out, func(a, b StatusChange) int { return a.Object.Compare(b.Object) })
	return out
}

func report[K incremental.Key[K], S any](out *[]StatusChange, c *incremental.Collection[K, *status[S]], keyOf func(K) kindName) {
	for _, ch := range c.Changes() {
		change := StatusChange{Object: statusKey(keyOf(ch.Key))}
		if !ch.Deleted {
			change.Status, change.Generation = &ch.New.Status, ch.New.Generation
		}
		*out = append(*out, change)
	}
}

func statusKey(k kindName) ObjectKey {
	group := gwv1.GroupName
	if k.Kind == KindGatewayParameters {
		group = v1alpha1.GroupName
	}
	return ObjectKey{group, string(k.Kind), k.Name.Namespace, k.Name.Name}
}
