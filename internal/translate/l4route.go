package translate

import (
	"cmp"
	"slices"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// Connections and datagrams carry nothing that could select among the routes of their listener, except a server name with TLS. So
// all of those for one hostname go to one route: the one whose own hostname is the most specific
// (GatewayRouteHostnameIntersectionPrecedence), then the oldest. The others are accepted and counted too, and take over when it is
// removed (https://gateway-api.sigs.k8s.io/guides/api-design/#conflicts).

// listenerHost is a hostname that L4 routes have on a listener, config.Hostname.effective.
type listenerHost struct {
	Listener listenerKey
	Hostname string
}

func (h listenerHost) Compare(o listenerHost) int {
	return cmp.Or(h.Listener.Compare(o.Listener), cmp.Compare(h.Hostname, o.Hostname))
}

// declareL4Routes selects the route of each hostname on L4 listeners.
func (rs *routes) declareL4Routes(e *incremental.Engine) {
	rs.l4Routes = incremental.NewIndex(rs.attachments, "routes of connections by listener and hostname",
		func(k kindName, a *attachment) (hosts []listenerHost) {
			if !routeKindOf(k.Kind).connections || a.Invalid {
				return nil
			}
			for i, l := range a.Listeners {
				for _, h := range a.Hosts[i].Hostnames {
					hosts = append(hosts, listenerHost{l, h.Effective})
				}
			}
			return hosts
		})
	rs.l4Chosen = incremental.Map(e, "chosen route of connections", incremental.Keys(rs.l4Routes, "listeners and hostnames with routes of connections"),
		func(v *incremental.View, h listenerHost, _ struct{}) (kindName, bool) {
			return rs.first(v, h, incremental.Lookup(v, rs.l4Routes, h)), true
		}, same[kindName])
}

// first returns the route whose own hostname is the most specific; of these the one that was created first, and of these the first
// by name.
func (rs *routes) first(v *incremental.View, h listenerHost, routes []kindName) kindName {
	return slices.MinFunc(routes, func(a, b kindName) int {
		x, _ := incremental.Fetch(v, rs.attachments, a)
		y, _ := incremental.Fetch(v, rs.attachments, b)
		return cmp.Or(listener.CompareHostnames(x.original(h), y.original(h)), cmp.Compare(x.Created, y.Created), a.Name.precedence(b.Name), cmp.Compare(a.Kind, b.Kind))
	})
}

// original returns the route's own hostname that resulted in the given hostname on a listener.
func (a *attachment) original(h listenerHost) string {
	at, _ := slices.BinarySearchFunc(a.Listeners, h.Listener, listenerKey.Compare)
	hostnames := a.Hosts[at].Hostnames
	i, _ := slices.BinarySearchFunc(hostnames, h.Hostname, func(x *config.Hostname, effective string) int { return cmp.Compare(x.Effective, effective) })
	return hostnames[i].Original
}

// l4RouteConfig returns an L4 route with the listeners that are served and on which it is the selected route; nil if there are none.
func (rs *routes) l4RouteConfig(v *incremental.View, k kindName, c *compiled, a *attachment) *config.L4Route {
	r := &config.L4Route{Key: c.Route.Key, Namespace: c.Route.Namespace, Name: c.Route.Name, CreatedUnixNano: c.Route.CreatedUnixNano}
	for i, l := range a.Listeners {
		key, served := incremental.Fetch(v, rs.listenerStates.served, l)
		if !served {
			continue
		}
		at := &config.Attachment{Listener: key}
		for _, h := range a.Hosts[i].Hostnames {
			if chosen, _ := incremental.Fetch(v, rs.l4Chosen, listenerHost{l, h.Effective}); chosen == k {
				at.Hostnames = append(at.Hostnames, h)
			}
		}
		if len(at.Hostnames) == 0 {
			continue
		}
		r.Attachments = append(r.Attachments, at)
		if a.Hosts[i].Passthrough {
			r.PassthroughBackendRefs = c.Passthrough
			continue
		}
		for _, rule := range c.Route.Rules { // one or none
			r.BackendRefs = rule.BackendRefs
		}
	}
	slices.SortFunc(r.Attachments, func(a, b *config.Attachment) int { return cmp.Compare(a.Listener, b.Listener) })
	if len(r.Attachments) == 0 {
		return nil
	}
	return r
}

// passedOver reports the listeners of a parent on which another route than this one is selected. Listeners that are not served, such
// as conflicted ones, select none.
func (rst *routeStatuses) passedOver(v *incremental.View, k kindName, a *attachment, p parent) (notes []*condition.Problem) {
	rk := routeKindOf(k.Kind)
	if !rk.connections || p.Problem != nil {
		return nil
	}
	on, _, _ := rst.admissions.parentObject(v, &routeFacts{Kind: k.Kind, Name: k.Name}, p.Ref)
	for _, c := range rst.admissions.candidates(v, on, p.Ref) {
		at, attached := slices.BinarySearchFunc(a.Listeners, c.key, listenerKey.Compare)
		if _, served := incremental.Fetch(v, rst.routes.listenerStates.served, c.key); !attached || !served {
			continue
		}
		for _, h := range a.Hosts[at].Hostnames {
			if chosen, _ := incremental.Fetch(v, rst.routes.l4Chosen, listenerHost{c.key, h.Effective}); chosen != k {
				notes = append(notes, lostTo(rk, chosen, c.key, on, h))
			}
		}
	}
	return notes
}

// lostTo reports that another route is selected for a hostname of a listener.
func lostTo(rk *routeKind, chosen kindName, l listenerKey, on parentObject, h *config.Hostname) *condition.Problem {
	if h.Effective == "" {
		return condition.NewProblem("", "", "attach this route to another listener, or delete that one",
			"all %ss to listener %q of %s go to %s, which comes first by age and name", rk.unit(), l.Name, on, chosen)
	}
	return condition.NewProblem("", "", "give this route another hostname or listener, or delete that one",
		"connections for %q to listener %q of %s go to %s, which comes first by its hostname, age and name", h.Effective, l.Name, on, chosen)
}
