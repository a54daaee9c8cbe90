package kube

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
)

// Before v1.7.0 of the Gateway API the session persistence of rules had other fields (GEP-1619), which the Go types no longer have.
// A cluster with the CRDs of such a version still serves them.

// readFormerSessions adds to HTTPRoutes and GRPCRoutes, or to a list of them, what data has in the former fields. The present ones
// take precedence.
func readFormerSessions(obj runtime.Object, data []byte) {
	switch obj.(type) {
	case *gwv1.HTTPRoute, *gwv1.HTTPRouteList, *gwv1.GRPCRoute, *gwv1.GRPCRouteList:
	default:
		return
	}
	if !bytes.Contains(data, []byte(`"sessionName"`)) && !bytes.Contains(data, []byte(`"cookieConfig"`)) {
		return
	}
	type route struct {
		Spec struct {
			Rules []struct {
				SessionPersistence *gwx.SessionPersistence `json:"sessionPersistence"`
			} `json:"rules"`
		} `json:"spec"`
	}
	var read struct {
		route
		Items []route `json:"items"`
	}
	if json.Unmarshal(data, &read) != nil {
		return
	}
	routes := append(read.Items, read.route) // a list has no spec, and a route no items
	for i, rules := range sessionsOf(obj) {
		for j, s := range rules {
			if i < len(routes) && j < len(routes[i].Spec.Rules) && s != nil {
				kind.ReadFormerSession(s, routes[i].Spec.Rules[j].SessionPersistence)
			}
		}
	}
}

// sessionsOf returns the session persistence of each rule of each route in a route or a list.
func sessionsOf(obj runtime.Object) (routes [][]*gwv1.SessionPersistence) {
	ofHTTP := func(r *gwv1.HTTPRoute) {
		var rules []*gwv1.SessionPersistence
		for i := range r.Spec.Rules {
			//lint:ignore SA1019 routes still have the deprecated field, and it must not be passed over
			rules = append(rules, r.Spec.Rules[i].SessionPersistence)
		}
		routes = append(routes, rules)
	}
	ofGRPC := func(r *gwv1.GRPCRoute) {
		var rules []*gwv1.SessionPersistence
		for i := range r.Spec.Rules {
			//lint:ignore SA1019 as above
			rules = append(rules, r.Spec.Rules[i].SessionPersistence)
		}
		routes = append(routes, rules)
	}
	switch o := obj.(type) {
	case *gwv1.HTTPRoute:
		ofHTTP(o)
	case *gwv1.HTTPRouteList:
		for i := range o.Items {
			ofHTTP(&o.Items[i])
		}
	case *gwv1.GRPCRoute:
		ofGRPC(o)
	case *gwv1.GRPCRouteList:
		for i := range o.Items {
			ofGRPC(&o.Items[i])
		}
	}
	return routes
}
