package translate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
)

// routeNamespaces indexes routes by namespace, for functions that concern few namespaces: the others need no memory for these
// functions.
type routeNamespaces struct {
	objects *incremental.Collection[kindName, metav1.Object]
	routes  *incremental.Index[kindNamespace, kindName, metav1.Object]
	all     *incremental.Collection[kindNamespace, struct{}]
}

func newRouteNamespaces(e *incremental.Engine, routeObjects *incremental.Collection[kindName, metav1.Object]) *routeNamespaces {
	routes := incremental.NewIndex(routeObjects, "routes by namespace", func(k kindName, _ metav1.Object) []kindNamespace {
		return []kindNamespace{{k.Kind, k.Name.Namespace}}
	})
	return &routeNamespaces{routeObjects, routes, incremental.Keys(routes, "namespaces with routes")}
}

// mapRoutesWhere is incremental.Map for the routes of those kinds and namespaces for which concerns returns true.
func mapRoutesWhere[V any](e *incremental.Engine, rn *routeNamespaces, name string, concerns func(*incremental.View, kindNamespace) bool,
	fn func(*incremental.View, kindName, metav1.Object) (V, bool), equal func(a, b V) bool) *incremental.Collection[kindName, V] {
	namespaces := incremental.Map(e, name+", namespaces", rn.all,
		func(v *incremental.View, k kindNamespace, _ struct{}) (struct{}, bool) {
			return struct{}{}, concerns(v, k)
		}, same[struct{}])
	members := incremental.Members(rn.routes, name+", routes", namespaces, func(_ kindNamespace, k kindName) kindName { return k })
	return incremental.Map(e, name, members, func(v *incremental.View, k kindName, _ struct{}) (value V, ok bool) {
		o, exists := incremental.Join(v, rn.objects)
		if !exists {
			return value, false
		}
		return fn(v, k, o)
	}, equal)
}
