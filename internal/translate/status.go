package translate

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
)

// StatusChange is the part of one object's status that this controller writes.
type StatusChange struct {
	Object kind.ObjectKey
	// Status is a *GatewayClassStatus, *GatewayStatus, *ListenerSetStatus, *RouteStatus (every kind of route) or *PolicyStatus of
	// gateway-api v1, or a *BackendStatus of its XBackends; the last three contain only the entries of this controller. For kinds of
	// Moongate itself it is a *GatewayParametersStatus of moongate.dev/v1alpha1, for XListenerSets a *ListenerSetStatus of
	// gateway.networking.x-k8s.io/v1alpha1. It is nil if the object is no longer managed.
	Status any
	// Generation is the metadata.generation for which Status was computed; 0 if Status is nil.
	Generation int64
	// UID is that of the object for which Status was computed: another object with the same name may have the same generation. It is
	// "" if Status is nil, and in manifests without one.
	UID types.UID
	// Gateways are those, as "<namespace>/<name>", whose proxies must have applied the configuration before Status is true; sorted,
	// distinct. Merged Gateways are represented by the name of their proxies.
	Gateways []string
}

// status is a desired status and the generation for which it was computed.
type status[S any] struct {
	Generation int64
	Status     S
}

// reports contains the statuses of all kinds.
type reports struct {
	// changes append what the last Commit changed.
	changes []func([]StatusChange) []StatusChange
	// all append the statuses of all objects, disregarding panics.
	all []func([]StatusChange) []StatusChange
	// current returns, by kind, the status of an object and the generation for which it was computed; nil if the object is not
	// managed.
	current map[Kind]func(kindName) (any, int64)
}

// report registers a collection as the statuses of a kind.
func report[S any](t *Translator, k *kind.Kind, c *incremental.Collection[name, *status[S]]) {
	reportAll(t, []*kind.Kind{k}, c, func(n name) kindName { return kindName{Kind(k.Name), n} }, func(k kindName) name { return k.Name })
}

// reportAll registers a collection as the statuses of several kinds; object returns the object of a key.
func reportAll[K incremental.Key[K], S any](t *Translator, kinds []*kind.Kind, c *incremental.Collection[K, *status[S]], object func(K) kindName, key func(kindName) K) {
	t.reports.changes = append(t.reports.changes, func(out []StatusChange) []StatusChange {
		for _, ch := range c.Changes() {
			change := StatusChange{Object: statusKey(object(ch.Key))}
			if !ch.Deleted {
				change.Status, change.Generation = &ch.New.Status, ch.New.Generation
			}
			out = append(out, change)
		}
		return out
	})
	t.reports.all = append(t.reports.all, func(out []StatusChange) []StatusChange {
		for k, s := range c.All() {
			out = append(out, StatusChange{Object: statusKey(object(k)), Status: &s.Status, Generation: s.Generation})
		}
		return out
	})
	for _, k := range kinds {
		t.reports.current[Kind(k.Name)] = func(k kindName) (any, int64) {
			if s, ok := c.Get(key(k)); ok {
				return &s.Status, s.Generation
			}
			return nil, 0
		}
	}
}

// itself is for collections whose keys are the objects.
func itself(k kindName) kindName { return k }

func (t *Translator) statusChanges() (out []StatusChange) {
	for _, changes := range t.reports.changes {
		out = changes(out)
	}
	return t.completed(t.addReplaced(t.addFailing(out)))
}

// Statuses returns the statuses of all objects that are managed, as of the last Commit, sorted by object.
func (t *Translator) Statuses() (out []StatusChange) {
	for _, all := range t.reports.all {
		out = all(out)
	}
	out = slices.DeleteFunc(out, func(c StatusChange) bool {
		return t.failed[kindName{Kind(c.Object.Kind), name{c.Object.Namespace, c.Object.Name}}]
	})
	for k := range t.failed {
		if s, generation := t.failingStatus(k); s != nil {
			out = append(out, StatusChange{Object: statusKey(k), Status: s, Generation: generation})
		}
	}
	return t.completed(out)
}

// completed sets the UIDs and the Gateways, and sorts. The proxies that serve a Gateway may change while a status does not.
func (t *Translator) completed(out []StatusChange) []StatusChange {
	for i := range out {
		if out[i].Status != nil {
			out[i].UID = t.in.uid(out[i].Object)
		}
		out[i].Gateways = t.proxiesOf(t.gatewaysThatServe(&out[i]))
	}
	slices.SortFunc(out, func(a, b StatusChange) int { return a.Object.Compare(b.Object) })
	return out
}

// addReplaced adds the statuses of objects that were replaced by others with the same name, even if these statuses are the same: who
// writes statuses must not give one object the status that was computed for another.
func (t *Translator) addReplaced(out []StatusChange) []StatusChange {
	replaced := t.in.replaced()
	if len(replaced) == 0 {
		return out
	}
	there := make(map[kind.ObjectKey]bool, len(out))
	for _, c := range out {
		there[c.Object] = true
	}
	for _, k := range replaced {
		if there[statusKey(k)] {
			continue
		}
		s, generation := t.currentStatus(k)
		if t.failed[k] {
			s, generation = t.failingStatus(k)
		}
		if s != nil {
			out = append(out, StatusChange{Object: statusKey(k), Status: s, Generation: generation})
		}
	}
	return out
}

// proxiesOf returns the proxies of Gateways, both as "<namespace>/<name>"; sorted, distinct.
func (t *Translator) proxiesOf(gateways []string) []string {
	for i, gateway := range gateways {
		namespace, n, _ := strings.Cut(gateway, "/")
		if g, _ := t.gateways.managed.Get(name{namespace, n}); g.Merged != (name{}) {
			gateways[i] = g.Merged.String()
		}
	}
	slices.Sort(gateways)
	return slices.Compact(gateways)
}

// gatewaysThatServe returns the Gateways from which StatusChange.Gateways is computed.
func (t *Translator) gatewaysThatServe(c *StatusChange) (gateways []string) {
	n := name{c.Object.Namespace, c.Object.Name}
	switch s := c.Status.(type) {
	case *gwv1.GatewayStatus:
		gateways = []string{n.String()}
	case *gwv1.ListenerSetStatus, *gwx.ListenerSetStatus:
		if set, managed := t.listeners.sets.Get(kindName{Kind(c.Object.Kind), n}); managed {
			gateways = []string{set.Gateway.String()}
		}
	case *gwv1.RouteStatus:
		a, _ := t.routes.attachments.Get(kindName{Kind(c.Object.Kind), n})
		if a == nil {
			return nil // no proxy gets the route
		}
		for _, gw := range a.Gateways {
			gateways = append(gateways, gw.String())
		}
	case *gwv1.PolicyStatus:
		for _, a := range s.Ancestors {
			ancestor := name{string(ptr.Deref(a.AncestorRef.Namespace, "")), string(a.AncestorRef.Name)}
			if k := Kind(ptr.Deref(a.AncestorRef.Kind, gwv1.Kind(KindGateway))); k != KindGateway {
				set, _ := t.listeners.sets.Get(kindName{k, ancestor})
				if set == nil {
					continue
				}
				ancestor = set.Gateway
			}
			gateways = append(gateways, ancestor.String())
		}
		slices.Sort(gateways)
		gateways = slices.Compact(gateways)
	case *apisx.BackendStatus:
		for _, a := range s.Ancestors {
			gateways = append(gateways, name{string(ptr.Deref(a.AncestorRef.Namespace, "")), string(a.AncestorRef.Name)}.String())
		}
		slices.Sort(gateways)
	}
	return gateways
}

// currentStatus returns the status of an object, disregarding panics; nil if it is not managed.
func (t *Translator) currentStatus(k kindName) (any, int64) {
	if current := t.reports.current[k.Kind]; current != nil {
		return current(k)
	}
	return nil, 0
}

func statusKey(k kindName) kind.ObjectKey {
	return kind.Named(string(k.Kind)).Key(k.Name.Namespace, k.Name.Name)
}
