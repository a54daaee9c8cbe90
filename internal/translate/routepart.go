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

// routePart is a Resource of a route. A route has several if BackendTrafficPolicies apply to it differently on different listeners;
// each listener has one.
type routePart struct {
	Route kindName
	Part  int // from 0
}

func (p routePart) Compare(o routePart) int {
	return cmp.Or(p.Route.Compare(o.Route), cmp.Compare(p.Part, o.Part))
}

func (p routePart) String() string { return fmt.Sprintf("%s, part %d", p.Route, p.Part) }

// partKey returns the key of the i-th Resource of a route.
func partKey(route string, i int) string {
	if i == 0 {
		return route
	}
	return config.RoutePartKey(route, i)
}

// policed is a group of attachments at which the same policies apply to the rules of a route, and hide the same settings.
type policed struct {
	rules       []policedRule
	attachments []*config.Attachment
}

// policedRule is a rule with its policies.
type policedRule struct {
	by     policyPair
	read   *readPolicy            // nil if none
	hidden []*config.HiddenPolicy // settings that the policies in force hide
	// refused is set if the Gateway has no Redis server for the global limits of the policy.
	refused bool
}

func (r *policedRule) compare(o *policedRule) int {
	return cmp.Or(strings.Compare(r.by.String(), o.by.String()), compareBool(r.refused, o.refused), slices.CompareFunc(r.hidden, o.hidden, func(a, b *config.HiddenPolicy) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), slices.Compare(a.Fields, b.Fields))
	}))
}

func (g *policed) compare(o *policed) int {
	return slices.CompareFunc(g.rules, o.rules, func(a, b policedRule) int { return a.compare(&b) })
}

// groups groups the attachments of a route by the policies in force for its rules there, and by the settings that these hide.
func (bp *backendTrafficPolicies) groups(v *incremental.View, rp *routePolicies, attachments []*config.Attachment, rules []string) []*policed {
	var groups []*policed
	reads := map[policyPair]*readPolicy{}
	for _, a := range attachments {
		g, l := &policed{rules: make([]policedRule, len(rules))}, parseListenerKey(a.Listener)
		for i, rule := range rules {
			r := &g.rules[i]
			if i > 0 && (rp == nil || len(rp.Rules) == 0) {
				*r = g.rules[0]
				continue
			}
			r.by = bp.inForce(v, rp, rule, l)
			var known bool
			if r.read, known = reads[r.by]; !known { // two policies are not merged again for each attachment
				r.read = bp.read(v, r.by)
				reads[r.by] = r.read
			}
			if r.read != nil && r.read.Invalid == nil {
				r.hidden = bp.hidden(v, rp, l, r.by, r.read)
			}
			if r.read != nil && r.read.countsGlobally() {
				_, p := bp.redises.of(v, l.Gateway)
				r.refused = p != nil
			}
		}
		i := slices.IndexFunc(groups, func(o *policed) bool { return o.compare(g) == 0 })
		if i < 0 {
			i = len(groups)
			groups = append(groups, g)
		}
		groups[i].attachments = append(groups[i].attachments, a)
	}
	// As far as possible, the part of a listener does not depend on the names of other listeners.
	slices.SortStableFunc(groups, (*policed).compare)
	return groups
}

// routeParts returns the Resources of a route of requests.
func (rs *routes) routeParts(v *incremental.View, k kindName, r *config.Route) (parts []*config.Resource) {
	names := make([]string, len(r.Rules))
	for i, rl := range r.Rules {
		names[i] = rl.Name
	}
	rp, _ := incremental.Join(v, rs.backendTraffic.ofRoutes)
	for i, g := range rs.backendTraffic.groups(v, rp, r.Attachments, names) {
		out := &config.Route{Key: partKey(r.Key, i), Namespace: r.Namespace, Name: r.Name, CreatedUnixNano: r.CreatedUnixNano, Attachments: g.attachments, Rules: r.Rules}
		for j, p := range g.rules {
			if p.read != nil {
				if &out.Rules[0] == &r.Rules[0] {
					out.Rules = slices.Clone(r.Rules)
				}
				out.Rules[j] = p.read.forRule(k, r.Rules[j], p.by, p.hidden, p.refused)
			}
		}
		parts = append(parts, &config.Resource{Kind: &config.Resource_Route{Route: out}})
	}
	return parts
}

// l4RouteParts returns the Resources of an L4 route. A policy that cannot be applied has no effect on these.
func (rs *routes) l4RouteParts(v *incremental.View, k kindName, r *config.L4Route) (parts []*config.Resource) {
	rp, _ := incremental.Join(v, rs.backendTraffic.ofRoutes)
	rules := []string{""}
	if rp != nil && len(rp.Rules) > 0 {
		rules[0] = rs.ruleName(v)
	}
	for i, g := range rs.backendTraffic.groups(v, rp, r.Attachments, rules) {
		out := &config.L4Route{Key: partKey(r.Key, i), Namespace: r.Namespace, Name: r.Name, CreatedUnixNano: r.CreatedUnixNano, Attachments: g.attachments,
			BackendRefs: r.BackendRefs, PassthroughBackendRefs: r.PassthroughBackendRefs}
		if p := g.rules[0]; p.read != nil && p.read.Invalid == nil && !p.refused {
			if p.read.Backends() {
				out = proto.CloneOf(out)
				p.read.reroute(out.BackendRefs, p.by)
				p.read.reroute(out.PassthroughBackendRefs, p.by)
			}
			out.Traffic = &config.RuleTraffic{Policy: p.by.source(), Hidden: p.hidden}
		}
		parts = append(parts, &config.Resource{Kind: &config.Resource_L4Route{L4Route: out}})
	}
	return parts
}

// ruleName returns the name of the only rule of the L4 route that the function runs for.
func (rs *routes) ruleName(v *incremental.View) string {
	if c, _ := incremental.Join(v, rs.compiled); c != nil {
		for _, rl := range c.Route.Rules {
			return rl.Name
		}
	}
	return ""
}
