package translate

import (
	"slices"

	"github.com/moongate-dev/moongate/internal/incremental"
)

// HasStatus says whether translation wants a status of the object, as of the last Commit: who
// starts anew can tell by it which entries of ours are left from before.
func (t *Translator) HasStatus(o ObjectKey) bool {
	n := name{o.Namespace, o.Name}
	switch kind := Kind(o.Kind); kind {
	case KindGatewayClass:
		return has(t.classStatuses, n)
	case KindGateway:
		return has(t.gatewayStates, n)
	case KindListenerSet:
		return has(t.setStatuses, n)
	case KindHTTPRoute:
		return has(t.routeStatuses, n)
	case KindBackendTLSPolicy:
		return has(t.policyStatuses, n)
	case KindGatewayParameters:
		return has(t.parametersStatuses, n)
	default:
		return has(t.otherStatuses, kindName{kind, n})
	}
}

// Failing reports whether a function panicked on behalf of the object, as of the last Commit: then it is not known what it should be
// now. What is made of a Gateway depends on its GatewayClass, so a Gateway is failing while that is.
func (t *Translator) Failing(o ObjectKey) bool {
	n := name{o.Namespace, o.Name}
	if t.failed[kindName{Kind(o.Kind), n}] {
		return true
	}
	if gw, ok := t.in.gateways.Get(n); ok && Kind(o.Kind) == KindGateway {
		return t.failed[kindName{KindGatewayClass, name{"", string(gw.Spec.GatewayClassName)}}]
	}
	return false
}

func has[K incremental.Key[K], V any](c *incremental.Collection[K, V], k K) bool {
	_, ok := c.Get(k)
	return ok
}

// WantedBy returns the Gateways, as "<namespace>/<name>", whose listeners refer to a Secret, as of the last Commit.
func (t *Translator) WantedBy(secret ObjectKey) (gateways []string) {
	for _, k := range t.secretUsers.Get(name{secret.Namespace, secret.Name}) {
		gateways = append(gateways, k.Gateway.String())
	}
	return slices.Compact(gateways) // sorted by Gateway
}

// Undecided returns the Gateways, as "<namespace>/<name>", of which a listener refers to a Secret of another namespace that cannot be read, as
// of the last Commit: nobody knows whether a ReferenceGrant permits that.
func (t *Translator) Undecided() (gateways []string) {
	for n := range t.unreadNamespaces.All() {
		for _, k := range t.abroad.Get(n.Name) {
			gateways = append(gateways, k.Gateway.String())
		}
	}
	return gateways
}
