package translate

import (
	"cmp"
	"slices"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// Connections tell nothing that could choose among the routes of their listener, so all of them go to one: the oldest. The others are accepted and
// counted all the same, and take over when it goes (https://gateway-api.sigs.k8s.io/guides/api-design/#conflicts).

// declareL4Routes chooses the route of each listener of connections.
func (rs *routes) declareL4Routes(e *incremental.Engine) {
	rs.l4Routes = incremental.NewIndex(rs.attachments, "routes of connections by listener",
		func(k kindName, a *attachment) []listenerKey {
			if rk := routeKindOf(k.Kind); rk == nil || !rk.connections || a.Invalid {
				return nil
			}
			return a.Listeners
		})
	rs.l4Chosen = incremental.Map(e, "chosen route of connections", incremental.Keys(rs.l4Routes, "listeners with routes of connections"),
		func(v *incremental.View, k listenerKey, _ struct{}) (kindName, bool) {
			return rs.oldest(v, incremental.Lookup(v, rs.l4Routes, k)), true
		}, same[kindName])
}

// oldest returns the route that was created first, or the first by name of those that were created at the same time.
func (rs *routes) oldest(v *incremental.View, routes []kindName) kindName {
	created := func(k kindName) int64 {
		a, _ := incremental.Fetch(v, rs.attachments, k)
		return a.Created
	}
	return slices.MinFunc(routes, func(a, b kindName) int {
		return cmp.Or(cmp.Compare(created(a), created(b)), a.Name.Compare(b.Name), cmp.Compare(a.Kind, b.Kind))
	})
}

// l4RouteConfig is a route of connections as far as a listener that is served has it as its only one.
func (rs *routes) l4RouteConfig(v *incremental.View, k kindName, c *compiled, a *attachment) (*config.Resource, bool) {
	r := &config.L4Route{Key: c.Route.Key, Namespace: c.Route.Namespace, Name: c.Route.Name, CreatedUnixNano: c.Route.CreatedUnixNano}
	for _, rule := range c.Route.Rules { // one, or none
		r.BackendRefs = rule.BackendRefs
	}
	for i, l := range a.Listeners {
		chosen, _ := incremental.Fetch(v, rs.l4Chosen, l)
		if _, served := incremental.Fetch(v, rs.listenerStates.served, l); served && chosen == k {
			r.Attachments = append(r.Attachments, &config.Attachment{Listener: l.String(), Hostnames: a.Hosts[i].Hostnames})
		}
	}
	slices.SortFunc(r.Attachments, func(a, b *config.Attachment) int { return cmp.Compare(a.Listener, b.Listener) })
	return &config.Resource{Kind: &config.Resource_L4Route{L4Route: r}}, len(r.Attachments) > 0
}

// passedOver says which listeners of a parent give their connections to another route than this one.
func (rst *routeStatuses) passedOver(v *incremental.View, k kindName, a *attachment, p parent) (notes []*condition.Problem) {
	if !routeKindOf(k.Kind).connections || p.Problem != nil {
		return nil
	}
	on, _, _ := rst.admissions.parentObject(v, &routeFacts{Kind: k.Kind, Name: k.Name}, p.Ref)
	for _, c := range rst.admissions.candidates(v, on, p.Ref) {
		if _, attached := slices.BinarySearchFunc(a.Listeners, c.key, listenerKey.Compare); !attached {
			continue
		}
		if chosen, _ := incremental.Fetch(v, rst.routes.l4Chosen, c.key); chosen != k {
			notes = append(notes, condition.NewProblem("", "", "attach this route to another listener, or delete that one",
				"all connections to listener %q of %s go to %s, which comes first by age and name", c.key.Name, on, chosen))
		}
	}
	return notes
}
