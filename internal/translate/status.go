package translate

import (
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
)

// StatusChange is what one object's status should be as far as this controller writes it.
type StatusChange struct {
	Object kind.ObjectKey
	// Status is a *GatewayClassStatus, *GatewayStatus, *ListenerSetStatus,
	// *RouteStatus (every kind of route) or *PolicyStatus of gateway-api v1, or a *BackendStatus of its XBackends; for the
	// last three it holds our entries only. Of our own kinds it is a *GatewayParametersStatus of
	// moongate.dev/v1alpha1, of XListenerSets a *ListenerSetStatus of gateway.networking.x-k8s.io/v1alpha1. Nil where the object is no longer managed.
	Status any
	// Generation is the metadata.generation that Status was computed for; 0 with nil.
	Generation int64
	// Gateways are those, as "<namespace>/<name>", whose proxies must serve what Status says before it is true; sorted, distinct. Those that are served together
	// are one, with the name of its proxies.
	Gateways []string
}

// status is a desired status and the generation it was computed for.
type status[S any] struct {
	Generation int64
	Status     S
}

// reports is what is reported on objects.
type reports struct {
	// changes append what the last Commit changed.
	changes []func([]StatusChange) []StatusChange
	// current returns, by kind, what an object's status should be and the generation it was computed for; nil where the object is not managed.
	current map[Kind]func(kindName) (any, int64)
}

// report has a collection be the statuses of a kind.
func report[S any](t *Translator, k *kind.Kind, c *incremental.Collection[name, *status[S]]) {
	reportAll(t, []*kind.Kind{k}, c, func(n name) kindName { return kindName{Kind(k.Name), n} }, func(k kindName) name { return k.Name })
}

// reportAll has a collection be the statuses of several kinds, whose objects are named by its keys.
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
	for _, k := range kinds {
		t.reports.current[Kind(k.Name)] = func(k kindName) (any, int64) {
			if s, ok := c.Get(key(k)); ok {
				return &s.Status, s.Generation
			}
			return nil, 0
		}
	}
}

// itself is for collections whose keys name the objects.
func itself(k kindName) kindName { return k }

func (t *Translator) statusChanges() (out []StatusChange) {
	for _, changes := range t.reports.changes {
		out = changes(out)
	}
	out = t.tellFailing(out)
	for i := range out {
		out[i].Gateways = t.Serving(&out[i])
	}
	slices.SortFunc(out, func(a, b StatusChange) int { return a.Object.Compare(b.Object) })
	return out
}

// Serving is StatusChange.Gateways of a status as of the last Commit: which proxies serve a Gateway may change while the status stays.
func (t *Translator) Serving(c *StatusChange) []string { return t.proxiesOf(t.gatewaysThatServe(c)) }

// proxiesOf names the proxies of Gateways, both as "<namespace>/<name>"; sorted, distinct.
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

// gatewaysThatServe returns the Gateways that StatusChange.Gateways is of.
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
			return nil // no proxy has anything of it
		}
		for _, gw := range a.Gateways {
			gateways = append(gateways, gw.String())
		}
	case *gwv1.PolicyStatus:
		for _, a := range s.Ancestors {
			ancestor := name{string(value(a.AncestorRef.Namespace, "")), string(a.AncestorRef.Name)}
			if k := Kind(value(a.AncestorRef.Kind, gwv1.Kind(KindGateway))); k != KindGateway {
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
			gateways = append(gateways, name{string(value(a.AncestorRef.Namespace, "")), string(a.AncestorRef.Name)}.String())
		}
		slices.Sort(gateways)
	}
	return gateways
}

// currentStatus is what the object's status should be if nothing had panicked; nil where it is not managed.
func (t *Translator) currentStatus(k kindName) (any, int64) {
	if current := t.reports.current[k.Kind]; current != nil {
		return current(k)
	}
	return nil, 0
}

func statusKey(k kindName) kind.ObjectKey {
	return kind.Named(string(k.Kind)).Key(k.Name.Namespace, k.Name.Name)
}
