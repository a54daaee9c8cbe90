package kind

import (
	"cmp"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	"github.com/moongate-dev/moongate/internal/intern"
)

// builtin adds a kind that every cluster has, in version v1; clear is nil if it has no status.
func builtin[T any, O object[T]](k Kind, clear func(O)) Typed[O] {
	k.Versions = []string{"v1"}
	k.view = viewOf(clear)
	return add[T, O](&k)
}

// optional adds a kind without a status that a cluster may not serve, although it has no CustomResourceDefinition.
func optional[T any, O object[T]](k Kind, list runtime.Object) Typed[O] {
	k.Optional, k.list = true, list
	k.view = viewOf[T, O](nil)
	return add[T, O](&k)
}

// custom adds a kind of a CustomResourceDefinition; status is nil if it has no status.
func custom[T, S any, O object[T]](k Kind, list runtime.Object, status func(O) *S) Typed[O] {
	if k.Group == "" {
		k.Group = gwv1.GroupName
	}
	k.Custom, k.Optional, k.Cluster, k.list = true, true, Watched, list
	var clear func(O)
	if status != nil {
		k.status = func(o metav1.Object) any { return status(o.(O)) }
		clear = func(o O) {
			var none S
			*status(o) = none
		}
		k.renew = func(known, obj metav1.Object) metav1.Object {
			renewed, o := *known.(O), obj.(O)
			copyUnviewed(O(&renewed), o)
			*status(&renewed) = *status(o)
			return O(&renewed)
		}
	}
	k.view = viewOf(clear)
	if status != nil {
		k.keep = func(o runtime.Object) metav1.Object { return keepCustom(o.(O)) }
	} else {
		k.keep = func(o runtime.Object) metav1.Object { return k.view(keepCustom(o.(O))) }
	}
	return add[T, O](&k)
}

// route adds a kind of route.
func route[T any, O object[T]](k Kind, list runtime.Object, parts func(O) (*gwv1.CommonRouteSpec, *gwv1.RouteStatus)) Typed[O] {
	k.Namespaced, k.shared = true, true
	k.parents = func(o metav1.Object) []gwv1.ParentReference {
		spec, _ := parts(o.(O))
		return spec.ParentRefs
	}
	k.defaultScope = func(o metav1.Object) gwv1.GatewayDefaultScope {
		spec, _ := parts(o.(O))
		return spec.UseDefaultGateways
	}
	typed := custom(k, list, func(o O) *gwv1.RouteStatus {
		_, status := parts(o)
		return status
	})
	typed.keep = func(o runtime.Object) metav1.Object {
		// A decoded list has room for four elements and most have one; a copy has no unused room.
		kept := keepCustom(o.(O)).(O).DeepCopyObject().(O)
		sharedByRoutes.share(parts(kept))
		return kept
	}
	return typed
}

// routeSharing makes equal parts of routes share memory.
type routeSharing struct {
	mu          sync.Mutex
	parents     intern.Values[[]gwv1.ParentReference]
	conditions  intern.Values[[]metav1.Condition]
	refs        intern.Values[*gwv1.ParentReference]
	controllers intern.Values[gwv1.GatewayController]
}

var sharedByRoutes routeSharing

func (s *routeSharing) share(spec *gwv1.CommonRouteSpec, status *gwv1.RouteStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spec.ParentRefs = s.parents.Of(spec.ParentRefs)
	for i := range status.Parents {
		p := &status.Parents[i]
		p.ParentRef, p.ControllerName = *s.refs.Of(&p.ParentRef), s.controllers.Of(p.ControllerName)
		p.Conditions = s.conditions.Of(p.Conditions)
	}
}

// policy adds a kind of policy.
func policy[T any, O object[T]](k Kind, list runtime.Object, status func(O) *gwv1.PolicyStatus) Typed[O] {
	k.Namespaced, k.shared = true, true
	return custom(k, list, status)
}

// backend adds a kind of backend whose status has an entry for each Gateway, like that of policies.
func backend[T any, O object[T]](k Kind, list runtime.Object, status func(O) *apisx.BackendStatus) Typed[O] {
	k.Namespaced, k.shared = true, true
	return custom(k, list, status)
}

func add[T any, O object[T]](k *Kind) Typed[O] {
	k.goType = reflect.TypeFor[O]()
	byName[k.Name], byType[k.goType] = k, k
	all = append(all, k)
	slices.SortFunc(all, func(a, b *Kind) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name)) })
	return Typed[O]{k}
}

// viewOf returns Kind.view; clear may be nil. An object without what views omit is its own view, as most of those from files:
// neither is modified, so a copy would only cost memory.
func viewOf[T any, O object[T]](clear func(O)) func(metav1.Object) metav1.Object {
	return func(obj metav1.Object) metav1.Object {
		seen := *obj.(O)
		o := O(&seen)
		copyUnviewed(o, unset)
		if clear != nil {
			clear(o)
		}
		if reflect.DeepEqual(o, obj) {
			return obj
		}
		return o
	}
}

// unset is metadata without any value.
var unset metav1.Object = &metav1.ObjectMeta{}

// copyUnviewed copies the metadata that views omit.
func copyUnviewed(to, from metav1.Object) {
	to.SetResourceVersion(from.GetResourceVersion())
	to.SetManagedFields(from.GetManagedFields())
	to.SetAnnotations(from.GetAnnotations())
	to.SetFinalizers(from.GetFinalizers())
	to.SetOwnerReferences(from.GetOwnerReferences())
	to.SetGenerateName(from.GetGenerateName())
	to.SetSelfLink(from.GetSelfLink())
}

// keepCustom drops the metadata that nobody reads. It keeps the resourceVersion and the finalizers, which views omit too: statuses are
// written with the former, and the finalizer of a GatewayClass is added to those that are there.
func keepCustom(o interface {
	metav1.Object
	runtime.Object
}) metav1.Object {
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	o.SetManagedFields(nil)
	o.SetAnnotations(nil)
	o.SetOwnerReferences(nil)
	o.SetGenerateName("")
	o.SetSelfLink("")
	return o
}
