package translate

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/policy"
)

// policyGateways are the Gateways that BackendTLSPolicies concern: those that reach their targets.
type policyGateways struct {
	gateways *gateways

	byService *incremental.Index[name, serviceGateway, struct{}]
	unnamedBy *incremental.Index[name, name, []name] // policies by a Gateway that their status has no place for
}

func newPolicyGateways(e *incremental.Engine, policyObjects *incremental.Collection[name, *gwv1.BackendTLSPolicy], gateways *gateways, routes *routes) *policyGateways {
	pg := &policyGateways{gateways: gateways}
	pg.declareGatewaysByService(e, policyObjects, routes)
	pg.declareUnnamed(e, policyObjects)
	return pg
}

// serviceRoute is a route that refers to a Service.
type serviceRoute struct {
	Service name
	Route   kindName
}

func (r serviceRoute) Compare(o serviceRoute) int {
	return cmp.Or(r.Service.Compare(o.Service), r.Route.Compare(o.Route))
}

// serviceGateway is a Gateway that reaches a Service through a route.
type serviceGateway struct{ Service, Gateway name }

func (g serviceGateway) Compare(o serviceGateway) int {
	return cmp.Or(g.Service.Compare(o.Service), g.Gateway.Compare(o.Gateway))
}

// declareGatewaysByService finds the Gateways that reach the Services with policies: of most Services nobody asks for them. A
// policy reads them and not the routes, of which a Service may have thousands.
func (pg *policyGateways) declareGatewaysByService(e *incremental.Engine, policyObjects *incremental.Collection[name, *gwv1.BackendTLSPolicy], routes *routes) {
	targets := incremental.NewIndex(policyObjects, "BackendTLSPolicies by Service",
		func(n name, p *gwv1.BackendTLSPolicy) (services []name) {
			for _, target := range policy.Targets(n.Namespace, p.Spec.TargetRefs) {
				if isService(target) {
					services = append(services, name{target.Namespace, target.Name})
				}
			}
			return services
		})
	routesToServices := incremental.FlatMap(e, "routes to Services with policies", incremental.Keys(targets, "Services with policies"),
		func(v *incremental.View, svc name, _ struct{}) (all []incremental.Entry[serviceRoute, struct{}]) {
			for _, route := range incremental.Lookup(v, routes.referrers, svc) {
				all = append(all, incremental.Entry[serviceRoute, struct{}]{Key: serviceRoute{svc, route}})
			}
			return all
		}, same[struct{}])
	gateways := incremental.Map(e, "Gateways of routes to Services with policies", routesToServices,
		func(v *incremental.View, r serviceRoute, _ struct{}) ([]name, bool) {
			a, _ := incremental.Fetch(v, routes.attachments, r.Route)
			if a == nil {
				return nil, false
			}
			of := a.policed()
			return of, len(of) > 0
		}, slices.Equal[[]name])
	reached := incremental.NewIndex(gateways, "routes by Service with policies and Gateway", func(r serviceRoute, gateways []name) (keys []serviceGateway) {
		for _, gw := range gateways {
			keys = append(keys, serviceGateway{r.Service, gw})
		}
		return keys
	})
	pg.byService = incremental.NewIndex(incremental.Keys(reached, "Gateways of Services with policies"), "Gateways by Service with policies",
		func(g serviceGateway, _ struct{}) []name { return []name{g.Service} })
}

// declareUnnamed finds the Gateways that a policy concerns and its status has no place for. They say so themselves, as GEP-2648 has
// it; the policy is in force there all the same, since to reach its Services without TLS would be worse than to say less.
func (pg *policyGateways) declareUnnamed(e *incremental.Engine, policyObjects *incremental.Collection[name, *gwv1.BackendTLSPolicy]) {
	unnamed := incremental.Map(e, "BackendTLSPolicy's Gateways without a place", policyObjects,
		func(v *incremental.View, n name, p *gwv1.BackendTLSPolicy) (gateways []name, _ bool) {
			var all []policy.Ancestor
			for _, target := range policy.Targets(n.Namespace, p.Spec.TargetRefs) {
				all = append(all, pg.reaching(v, target)...)
			}
			_, beyond := policy.Ancestors(all)
			for _, a := range beyond {
				gateways = append(gateways, name(a.Gateway))
			}
			return gateways, len(gateways) > 0
		}, slices.Equal[[]name])
	pg.unnamedBy = incremental.NewIndex(unnamed, "policies by Gateway that they do not name", func(_ name, gateways []name) []name { return gateways })
}

// unnamedPolicies says which policies concern a Gateway and do not name it; "" for none.
func (pg *policyGateways) unnamedPolicies(v *incremental.View, gw name) string {
	var names []string
	for _, n := range incremental.Lookup(v, pg.unnamedBy, gw) {
		names = append(names, n.String())
	}
	if names == nil {
		return ""
	}
	return fmt.Sprintf("BackendTLSPolicy %s is for backends of this Gateway, and its status has room for %d Gateways, which are older", condition.Some(names), policy.MaxAncestors)
}

func isService(t policy.Target) bool {
	return t.Group == corev1.GroupName && t.Kind == string(KindService)
}

// reaching are those that reach a Service through a route, each once.
func (pg *policyGateways) reaching(v *incremental.View, target policy.Target) (all []policy.Ancestor) {
	if !isService(target) {
		return nil
	}
	for _, g := range incremental.Lookup(v, pg.byService, name{target.Namespace, target.Name}) {
		gw, _ := incremental.Fetch(v, pg.gateways.managed, g.Gateway)
		all = append(all, policy.Ancestor{Gateway: types.NamespacedName(g.Gateway), Created: gw.Created})
	}
	slices.SortFunc(all, policy.Ancestor.Compare)
	return all
}
