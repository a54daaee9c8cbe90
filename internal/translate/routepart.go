package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
)

// routePart is a Resource of a route. A route has several where BackendTrafficPolicies have it carried out in different ways on different listeners; each listener has one.
type routePart struct {
	Route kindName
	Part  int // from 0
}

func (p routePart) Compare(o routePart) int {
	return cmp.Or(p.Route.Compare(o.Route), cmp.Compare(p.Part, o.Part))
}

func (p routePart) String() string { return fmt.Sprintf("%s, part %d", p.Route, p.Part) }

// key is that of the Resource.
func (p routePart) key(route string) string {
	if p.Part == 0 {
		return route
	}
	return config.RoutePartKey(route, p.Part)
}

// policed are attachments with which a route is carried out in the same way.
type policed struct {
	by          []policyPair // for each rule
	attachments []*config.Attachment
}

// groups sorts attachments of a route by the policies in force for its rules there.
func (bp *backendTrafficPolicies) groups(v *incremental.View, rp *routePolicies, attachments []*config.Attachment, rules []string) []*policed {
	var groups []*policed
	for _, a := range attachments {
		by := make([]policyPair, len(rules))
		for i, rule := range rules {
			if i > 0 && (rp == nil || len(rp.Rules) == 0) {
				by[i] = by[0]
				continue
			}
			by[i] = bp.inForce(v, rp, rule, parseListenerKey(a.Listener))
		}
		i := slices.IndexFunc(groups, func(g *policed) bool { return slices.Equal(g.by, by) })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &policed{by: by})
		}
		groups[i].attachments = append(groups[i].attachments, a)
	}
	// What a listener has does not depend on the names of others, so far as that can be.
	slices.SortStableFunc(groups, func(a, b *policed) int {
		return slices.CompareFunc(a.by, b.by, func(a, b policyPair) int { return strings.Compare(a.String(), b.String()) })
	})
	return groups
}

// routeParts are the Resources of a route of requests.
func (rs *routes) routeParts(v *incremental.View, k kindName, r *config.Route) (parts []incremental.Entry[routePart, *config.Resource]) {
	names := make([]string, len(r.Rules))
	for i, rl := range r.Rules {
		names[i] = rl.Name
	}
	rp, _ := incremental.Fetch(v, rs.backendTraffic.ofRoutes, k)
	for i, g := range rs.backendTraffic.groups(v, rp, r.Attachments, names) {
		part := routePart{k, i}
		out := &config.Route{Key: part.key(r.Key), Namespace: r.Namespace, Name: r.Name, CreatedUnixNano: r.CreatedUnixNano, Attachments: g.attachments, Rules: r.Rules}
		for j, by := range g.by {
			if p := rs.backendTraffic.read(v, by); p != nil {
				if &out.Rules[0] == &r.Rules[0] {
					out.Rules = slices.Clone(r.Rules)
				}
				hidden := rs.backendTraffic.hidden(v, rp, parseListenerKey(g.attachments[0].Listener), by, p)
				out.Rules[j] = p.forRule(r.Rules[j], by, hidden)
			}
		}
		parts = append(parts, incremental.Entry[routePart, *config.Resource]{Key: part, Value: &config.Resource{Kind: &config.Resource_Route{Route: out}}})
	}
	return parts
}

// l4RouteParts are the Resources of a route of connections or datagrams. What a policy asks for that cannot be carried out changes nothing for these.
func (rs *routes) l4RouteParts(v *incremental.View, k kindName, r *config.L4Route) (parts []incremental.Entry[routePart, *config.Resource]) {
	rp, _ := incremental.Fetch(v, rs.backendTraffic.ofRoutes, k)
	rules := []string{""}
	if rp != nil && len(rp.Rules) > 0 {
		rules[0] = rs.ruleName(v, k)
	}
	for i, g := range rs.backendTraffic.groups(v, rp, r.Attachments, rules) {
		part := routePart{k, i}
		out := &config.L4Route{Key: part.key(r.Key), Namespace: r.Namespace, Name: r.Name, CreatedUnixNano: r.CreatedUnixNano, Attachments: g.attachments,
			BackendRefs: r.BackendRefs, PassthroughBackendRefs: r.PassthroughBackendRefs}
		if p := rs.backendTraffic.read(v, g.by[0]); p != nil && p.Invalid == nil && p.Backends() {
			out = proto.CloneOf(out)
			p.reroute(out.BackendRefs, g.by[0])
			p.reroute(out.PassthroughBackendRefs, g.by[0])
		}
		parts = append(parts, incremental.Entry[routePart, *config.Resource]{Key: part, Value: &config.Resource{Kind: &config.Resource_L4Route{L4Route: out}}})
	}
	return parts
}

// ruleName is that of the only rule of a route of connections.
func (rs *routes) ruleName(v *incremental.View, k kindName) string {
	if c, _ := incremental.Fetch(v, rs.compiled, k); c != nil {
		for _, rl := range c.Route.Rules {
			return rl.Name
		}
	}
	return ""
}
