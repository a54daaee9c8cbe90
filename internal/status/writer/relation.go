package writer

import (
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

// abandoned reports whether an object that this controller no longer manages has no other controller either: only then may this
// controller clear what it wrote. In routes and policies each entry names its controller, so the result is always true. swept is set
// if the object was found by Sweep.
func (w *Writer) abandoned(object metav1.Object, swept bool, unknown func(gwv1.ParentReference) bool) bool {
	switch o := object.(type) {
	case *gwv1.GatewayClass:
		return false // its controllerName never changes: it belongs to another controller, or will be managed again
	case *gwv1.Gateway:
		return w.withoutClass(o) && !unknown(gwv1.ParentReference{Name: gwv1.ObjectName(o.Name)})
	}
	if ref, is := kind.ParentGatewayOf(object); is {
		k := kind.Of(object)
		group, of := gwv1.Group(k.Group), gwv1.Kind(k.Name)
		return w.abandonedSet(object.GetNamespace(), ref, swept) && !unknown(gwv1.ParentReference{Group: &group, Kind: &of, Name: gwv1.ObjectName(object.GetName())})
	}
	return true
}

// abandonedSet is abandoned for a ListenerSet in a namespace, or an object of another kind like it. The status of a swept one may
// belong to another controller, unless the Gateway is known not to exist.
func (w *Writer) abandonedSet(namespace string, ref gwv1.ParentGatewayReference, swept bool) bool {
	if ref.Kind != nil && *ref.Kind != "Gateway" || ref.Group != nil && *ref.Group != gwv1.GroupName {
		return !swept
	}
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	parent, _ := w.options.Objects.Get(kind.ObjectKey{Group: gwv1.GroupName, Kind: "Gateway", Namespace: namespace, Name: string(ref.Name)})
	gateway, exists := parent.(*gwv1.Gateway)
	if !exists {
		return !swept || w.options.Watched == nil || w.options.Watched(namespace)
	}
	return !swept && w.withoutClass(gateway)
}

const (
	// unknownPoll is the interval in which an object is checked while it is not known what its parent is.
	unknownPoll = 10 * time.Second
	// knownAfter is how long a parent must have been known before an entry of this controller for it is removed: a wanted entry
	// comes only after the parent was translated and is served.
	knownAfter = time.Minute
)

// parent is the object that a ParentReference names, disregarding the section; the zero value stands for all Gateways.
type parent struct{ kind, namespace, name string }

// unknown returns Options.Unknown for an object of a namespace. It records in a whether a parent was unknown, and continues to
// report so for a while.
func (w *Writer) unknown(a *attempt, namespace string) func(gwv1.ParentReference) bool {
	a.kept = false
	return func(ref gwv1.ParentReference) bool {
		if w.options.Unknown == nil {
			return false
		}
		p := parent{"Gateway", namespace, string(ref.Name)}
		if ref.Kind != nil {
			p.kind = string(*ref.Kind)
		}
		if ref.Namespace != nil {
			p.namespace = string(*ref.Namespace)
		}
		return a.lately(p, w.options.Unknown(namespace, ref), w.options.Now())
	}
}

// lately reports whether a parent is unknown, or was until a short while ago.
func (a *attempt) lately(p parent, unknown bool, now time.Time) bool {
	if unknown {
		if a.unknown == nil {
			a.unknown = map[parent]time.Time{}
		}
		a.unknown[p] = now
	}
	last, was := a.unknown[p]
	if was && now.Sub(last) < knownAfter {
		a.kept = true
		return true
	}
	if was {
		delete(a.unknown, p)
		a.stored = nil // the kept entry is not part of what must be written now
	}
	return false
}

// withoutClass reports whether no controller can manage a Gateway: its class does not exist.
func (w *Writer) withoutClass(g *gwv1.Gateway) bool {
	_, ok := w.options.Objects.Get(classKey(string(g.Spec.GatewayClassName)))
	return !ok
}

func classKey(name string) kind.ObjectKey {
	return kind.ObjectKey{Group: gwv1.GroupName, Kind: "GatewayClass", Name: name}
}

// finalizerPatch returns the patch that adds or removes the finalizer of a managed class, which it has while Gateways name it; nil
// if nothing must change. An unread Gateway may name it.
func (w *Writer) finalizerPatch(a *attempt, object metav1.Object) []byte {
	class, ok := object.(*gwv1.GatewayClass)
	if !ok || class.Spec.ControllerName != w.options.ControllerName {
		return nil
	}
	w.mu.Lock()
	used, swept := w.users[class.Name] > 0, w.swept
	w.mu.Unlock()
	finalizers := slices.Clone(class.Finalizers)
	has := slices.Contains(finalizers, gwv1.GatewayClassFinalizerGatewaysExist)
	switch {
	case used && !has && class.DeletionTimestamp == nil: // no finalizer may be added to an object that is being deleted
		finalizers = append(finalizers, gwv1.GatewayClassFinalizerGatewaysExist)
	case !used && has && swept && !a.lately(parent{}, w.options.GatewaysUnread != nil && w.options.GatewaysUnread(), w.options.Now()):
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == gwv1.GatewayClassFinalizerGatewaysExist })
	default:
		return nil
	}
	body, _ := json.Marshal(map[string]any{"metadata": map[string]any{ // strings can always be encoded as JSON
		"resourceVersion": class.ResourceVersion, "finalizers": finalizers,
	}})
	return body
}
