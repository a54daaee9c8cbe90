package translate_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestManyDefaultGateways: however many Gateways somebody makes default ones, what a route costs is bounded, and of its entries those of Gateways that
// serve it come first.
func TestManyDefaultGateways(t *testing.T) {
	const foreign = 200
	w := newWorld()
	class := &gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "moongate"}, Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}}
	w.Upsert(class)
	add := func(namespace, name string, age time.Duration, from gwv1.FromNamespaces) {
		w.Upsert(&gwv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
			Spec: gwv1.GatewaySpec{GatewayClassName: "moongate", DefaultScope: gwv1.GatewayDefaultScopeAll, Listeners: []gwv1.Listener{{
				Name: "http", Port: 80, Protocol: gwv1.HTTPProtocolType, AllowedRoutes: &gwv1.AllowedRoutes{Namespaces: &gwv1.RouteNamespaces{From: &from}},
			}}},
		})
	}
	for i := range foreign {
		add("foreign", fmt.Sprintf("g%03d", i), 0, gwv1.NamespacesFromSame)
	}
	add("infra", "web", time.Hour, gwv1.NamespacesFromAll)
	w.Upsert(&gwv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app"},
		Spec: gwv1.HTTPRouteSpec{CommonRouteSpec: gwv1.CommonRouteSpec{UseDefaultGateways: gwv1.GatewayDefaultScopeAll}, Rules: []gwv1.HTTPRouteRule{{}}}})
	parents := func() []gwv1.RouteParentStatus {
		for _, s := range w.Commit().Statuses {
			if s, is := s.Status.(*gwv1.RouteStatus); is {
				return s.Parents
			}
		}
		return nil
	}
	first := parents()
	if len(first) != 64 || first[0].ParentRef.Name != "web" || first[0].Conditions[0].Status != metav1.ConditionTrue || first[1].Conditions[0].Status != metav1.ConditionFalse {
		t.Fatalf("%d entries, the first of %s: %v", len(first), first[0].ParentRef.Name, first[0].Conditions)
	}
	// An older one that lets the route in takes the place of a younger one.
	add("infra", "zz-old", 2*time.Hour, gwv1.NamespacesFromAll)
	if got := parents(); len(got) != 64 || got[0].ParentRef.Name != "zz-old" || got[1].ParentRef.Name != "web" {
		t.Errorf("%d entries, the first of %s and %s", len(got), got[0].ParentRef.Name, got[1].ParentRef.Name)
	}
}
