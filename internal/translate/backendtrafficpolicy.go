package translate

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/backendtraffic"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/policy"
)

// A BackendTrafficPolicy is attached to a Gateway, a ListenerSet or a route, or to a section of one, and concerns the rules of routes below that. Of
// those that concern a rule on a listener the most specific is in force: that for the rule, the route, the listener, then the object that has the listener,
// then its Gateway. With a mergeType that of a rule or route is merged onto the closest above the route.

// reasonPolicyInvalid is the word of config.Failure.reason for rules whose policy cannot be carried out.
const reasonPolicyInvalid = "policy_invalid"

// readPolicy is what a BackendTrafficPolicy, or two that are merged, ask for.
type readPolicy struct {
	*backendtraffic.Compiled                    // nil where it is invalid
	Invalid                  *condition.Problem // why it cannot be carried out
	Fields                   []string           // backendtraffic.Fields
}

func (p *readPolicy) same(o *readPolicy) bool {
	return sameDeeply(p.Invalid, o.Invalid) && slices.Equal(p.Fields, o.Fields) && (p.Compiled == nil) == (o.Compiled == nil) && (p.Compiled == nil ||
		sameMessage(p.Backend, o.Backend) && sameMessage(p.Rule.Retry, o.Rule.Retry) && p.Rule.RequestTimeout == o.Rule.RequestTimeout && sameMessage(p.Rule.Traffic, o.Rule.Traffic) &&
			p.ByService == o.ByService && p.IPv4Only == o.IPv4Only && sameDeeply(p.Notes, o.Notes))
}

// backendTrafficPolicies are BackendTrafficPolicies, without what they do to routes.
type backendTrafficPolicies struct {
	o          *Options
	objects    *incremental.Collection[name, *eg.BackendTrafficPolicy]
	namespaces *namespaces
	grants     *grants
	gateways   *incremental.Collection[name, *gwv1.Gateway]
	sets       *incremental.Collection[kindName, metav1.Object]
	routes     *incremental.Collection[kindName, metav1.Object]

	selectable targetIndexes

	targets  *incremental.Collection[name, []policyTarget]
	byTarget *incremental.Index[policy.Target, name, []policyTarget]
	byObject *incremental.Index[policy.Target, name, []policyTarget] // by the object of a target, whatever the section
	winners  *incremental.Collection[policy.Target, name]
	all      *incremental.Collection[name, *readPolicy]
	ofRoutes *incremental.Collection[kindName, *routePolicies] // those for a route or its rules

	concerned *incremental.Index[name, policy.Target, name] // Gateways with policies for themselves, or for listeners or ListenerSets of theirs
}

// policyTarget is a target of a policy.
type policyTarget struct {
	policy.Target
	Field string // that has it, such as spec.targetRefs[0]
}

// kindNamespace is the objects of a kind in a namespace.
type kindNamespace struct {
	Kind      Kind
	Namespace string
}

func (k kindNamespace) Compare(o kindNamespace) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace))
}

// targetIndexes find the objects that selectors select.
type targetIndexes struct {
	gateways *incremental.Index[kindNamespace, name, *gwv1.Gateway]
	sets     *incremental.Index[kindNamespace, kindName, metav1.Object]
	routes   *incremental.Index[kindNamespace, kindName, metav1.Object]
	// namespaces are those with objects of a kind.
	gatewayNamespaces, setNamespaces, routeNamespaces *incremental.Index[Kind, kindNamespace, struct{}]
}

func newBackendTrafficPolicies(e *incremental.Engine, o *Options, in *inputs, namespaces *namespaces, grants *grants) *backendTrafficPolicies {
	bp := &backendTrafficPolicies{o: o, objects: in.backendTraffic.Collection, namespaces: namespaces, grants: grants,
		gateways: in.gateways.Collection, sets: in.listenerSets.Collection, routes: in.routes.Collection}
	bp.declareSelectable()
	bp.targets = backendTrafficTargets(e, bp)
	bp.byTarget = incremental.NewIndex(bp.targets, "BackendTrafficPolicies by target", func(_ name, targets []policyTarget) (keys []policy.Target) {
		for _, t := range targets {
			keys = append(keys, t.Target)
		}
		return keys
	})
	bp.byObject = incremental.NewIndex(bp.targets, "BackendTrafficPolicies by object", func(_ name, targets []policyTarget) (keys []policy.Target) {
		for _, t := range targets {
			keys = append(keys, t.Whole())
		}
		return keys
	})
	ages := incremental.Map(e, "BackendTrafficPolicy age", bp.objects,
		func(_ *incremental.View, _ name, p *eg.BackendTrafficPolicy) (int64, bool) { return createdOf(p), true }, same[int64])
	bp.winners = policyWinners(e, kind.BackendTrafficPolicy.Kind, bp.byTarget, ages)
	bp.all = incremental.Map(e, "BackendTrafficPolicy", bp.objects,
		func(_ *incremental.View, n name, p *eg.BackendTrafficPolicy) (*readPolicy, bool) {
			return bp.compile(&p.Spec, policyPair{Child: n}), true
		}, (*readPolicy).same)
	bp.declareOfRoutes(e)
	return bp
}

// declareAbove finds the Gateways that have policies above routes: of most nobody asks for more.
func (bp *backendTrafficPolicies) declareAbove(e *incremental.Engine, listeners *listeners) {
	gateways := incremental.Map(e, "Gateways of BackendTrafficPolicies above routes", bp.winners,
		func(v *incremental.View, t policy.Target, _ name) (name, bool) {
			n := name{t.Namespace, t.Name}
			switch Kind(t.Kind) {
			case KindGateway:
				return n, true
			case KindListenerSet:
				set, attached := incremental.Fetch(v, listeners.sets, kindName{KindListenerSet, n})
				if attached {
					return set.Gateway, true
				}
			}
			return name{}, false
		}, same[name])
	bp.concerned = incremental.NewIndex(gateways, "BackendTrafficPolicies above routes by Gateway", func(_ policy.Target, gateway name) []name { return []name{gateway} })
}

// above returns the policy in force above the routes of a listener, that which is closest to them.
func (bp *backendTrafficPolicies) above(v *incremental.View, k listenerKey) (n name, ok bool) {
	if incremental.Count(v, bp.concerned, k.Gateway) == 0 {
		return name{}, false
	}
	for _, target := range levelsAbove(k) {
		if winner, ok := incremental.Fetch(v, bp.winners, target); ok {
			return winner, true
		}
	}
	return name{}, false
}

// levelsAbove are the targets above the routes of a listener, the closest first. Those of a ListenerSet are not concerned by what is for listeners of the Gateway's own.
func levelsAbove(k listenerKey) []policy.Target {
	owner := objectTarget(k.Owner())
	section := owner
	section.Section = k.Name
	if k.Set == "" {
		return []policy.Target{section, owner}
	}
	return []policy.Target{section, owner, gatewayTarget(k.Gateway)}
}

// objectTarget is an object of the Gateway API as policies name it.
func objectTarget(k kindName) policy.Target {
	return policy.Target{Group: kind.Named(string(k.Kind)).Group, Kind: string(k.Kind), Namespace: k.Name.Namespace, Name: k.Name.Name}
}

func (bp *backendTrafficPolicies) declareSelectable() {
	s := &bp.selectable
	s.gateways = incremental.NewIndex(bp.gateways, "Gateways by namespace", func(n name, _ *gwv1.Gateway) []kindNamespace { return []kindNamespace{{KindGateway, n.Namespace}} })
	byKind := func(k kindName, _ metav1.Object) []kindNamespace { return []kindNamespace{{k.Kind, k.Name.Namespace}} }
	s.sets = incremental.NewIndex(bp.sets, "ListenerSets by namespace", byKind)
	s.routes = incremental.NewIndex(bp.routes, "routes by namespace", byKind)
	kindOf := func(k kindNamespace, _ struct{}) []Kind { return []Kind{k.Kind} }
	s.gatewayNamespaces = incremental.NewIndex(incremental.Keys(s.gateways, "namespaces with Gateways"), "namespaces with Gateways by kind", kindOf)
	s.setNamespaces = incremental.NewIndex(incremental.Keys(s.sets, "namespaces with ListenerSets"), "namespaces with ListenerSets by kind", kindOf)
	s.routeNamespaces = incremental.NewIndex(incremental.Keys(s.routes, "namespaces with routes"), "namespaces with routes by kind", kindOf)
}

// backendTrafficTargets are the targets of BackendTrafficPolicies, selected ones among them.
func backendTrafficTargets(e *incremental.Engine, bp *backendTrafficPolicies) *incremental.Collection[name, []policyTarget] {
	return incremental.Map(e, "BackendTrafficPolicy targets", bp.objects,
		func(v *incremental.View, n name, p *eg.BackendTrafficPolicy) (all []policyTarget, _ bool) {
			refs, field := p.Spec.TargetRefs, func(i int) string { return indexed("spec.targetRefs", i) }
			if p.Spec.TargetRef != nil {
				refs, field = []eg.PolicyTargetReference{*p.Spec.TargetRef}, func(int) string { return "spec.targetRef" }
			}
			for i, ref := range refs {
				if string(value(ref.Namespace, gwv1.Namespace(n.Namespace))) != n.Namespace {
					continue // a policy is for its own namespace
				}
				all = append(all, policyTarget{policy.Targets(n.Namespace, []gwv1.LocalPolicyTargetReferenceWithSectionName{ref.LocalPolicyTargetReferenceWithSectionName})[0], field(i)})
			}
			named := map[policy.Target]bool{}
			for _, t := range all {
				named[t.Target] = true
			}
			for i := range p.Spec.TargetSelectors {
				for _, t := range bp.selected(v, n, &p.Spec.TargetSelectors[i]) {
					if !named[t] {
						named[t] = true
						all = append(all, policyTarget{t, indexed("spec.targetSelectors", i)})
					}
				}
			}
			return all, true
		}, slices.Equal[[]policyTarget])
}

// selected are the objects that a selector selects, as far as the policy may be for them.
func (bp *backendTrafficPolicies) selected(v *incremental.View, n name, s *eg.TargetSelector) (all []policy.Target) {
	k := Kind(s.Kind)
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: s.MatchLabels, MatchExpressions: s.MatchExpressions})
	if err != nil {
		return nil
	}
	for _, namespace := range bp.searched(v, n, k, s.Namespaces) {
		in := kindNamespace{k, namespace}
		take := func(object name, set map[string]string) {
			if selector.Matches(labels.Set(set)) && bp.grants.permitted(v, referrer{kind.BackendTrafficPolicy.Group, string(KindBackendTrafficPolicy), n}, gwv1.GroupName, string(k), object) {
				all = append(all, objectTarget(kindName{k, object}))
			}
		}
		switch {
		case k == KindGateway:
			for _, object := range incremental.Lookup(v, bp.selectable.gateways, in) {
				gw, _ := incremental.Fetch(v, bp.gateways, object)
				take(object, gw.Labels)
			}
		case k == KindListenerSet:
			for _, object := range incremental.Lookup(v, bp.selectable.sets, in) {
				set, _ := incremental.Fetch(v, bp.sets, object)
				take(object.Name, set.GetLabels())
			}
		case routeKindOf(k) != nil:
			for _, object := range incremental.Lookup(v, bp.selectable.routes, in) {
				route, _ := incremental.Fetch(v, bp.routes, object)
				take(object.Name, route.GetLabels())
			}
		}
	}
	return all
}

// searched are the namespaces that a selector of a policy looks for objects of a kind in, sorted.
func (bp *backendTrafficPolicies) searched(v *incremental.View, n name, k Kind, in *eg.TargetSelectorNamespaces) (namespaces []string) {
	if in == nil || in.From == "Same" || in.From == "" {
		return []string{n.Namespace}
	}
	from := bp.selectable.routeNamespaces
	switch k {
	case KindGateway:
		from = bp.selectable.gatewayNamespaces
	case KindListenerSet:
		from = bp.selectable.setNamespaces
	}
	for _, with := range incremental.Lookup(v, from, k) {
		if in.From == "All" || bp.namespaces.selects(v, in.Selector, with.Namespace) {
			namespaces = append(namespaces, with.Namespace)
		}
	}
	return namespaces
}

// routePolicies are the policies in force for a route as a whole, and for its rules.
type routePolicies struct {
	Route name // the zero name: none
	Rules []rulePolicy
}

// rulePolicy is the policy in force for rules of a name.
type rulePolicy struct {
	Rule   string
	Policy name
}

// of returns the policy for a rule, the zero name for none.
func (rp *routePolicies) of(rule string) name {
	if rp == nil {
		return name{}
	}
	for _, r := range rp.Rules {
		if r.Rule == rule && rule != "" {
			return r.Policy
		}
	}
	return rp.Route
}

func (bp *backendTrafficPolicies) declareOfRoutes(e *incremental.Engine) {
	byRoute := incremental.NewIndex(bp.targets, "BackendTrafficPolicies by route", func(_ name, targets []policyTarget) (routes []kindName) {
		for _, t := range targets {
			if k := Kind(t.Kind); t.Group == gwv1.GroupName && routeKindOf(k) != nil {
				routes = append(routes, kindName{k, name{t.Namespace, t.Name}})
			}
		}
		return routes
	})
	bp.ofRoutes = incremental.Map(e, "BackendTrafficPolicies of a route", incremental.Keys(byRoute, "routes with BackendTrafficPolicies"),
		func(v *incremental.View, k kindName, _ struct{}) (*routePolicies, bool) {
			object, exists := incremental.Fetch(v, bp.routes, k)
			if !exists {
				return nil, false
			}
			rp := &routePolicies{}
			whole := objectTarget(k)
			rp.Route, _ = incremental.Fetch(v, bp.winners, whole)
			sections := map[string]bool{}
			for _, n := range incremental.Lookup(v, byRoute, k) {
				targets, _ := incremental.Fetch(v, bp.targets, n)
				for _, t := range targets {
					if t.Section == "" || t.Whole() != whole || sections[t.Section] || !hasRule(k.Kind, object, t.Section) {
						continue
					}
					sections[t.Section] = true
					if winner, ok := incremental.Fetch(v, bp.winners, t.Target); ok {
						rp.Rules = append(rp.Rules, rulePolicy{t.Section, winner})
					}
				}
			}
			slices.SortFunc(rp.Rules, func(a, b rulePolicy) int { return cmp.Compare(a.Rule, b.Rule) })
			return rp, true
		}, sameDeeply[*routePolicies])
}

// hasRule reports whether a route has a rule of that name.
func hasRule(k Kind, route metav1.Object, rule string) bool {
	for _, spec := range routeKindOf(k).rules(route) {
		if spec.Name != nil && string(*spec.Name) == rule {
			return true
		}
	}
	return false
}

// policyPair is the policy in force for a rule on a listener, and the one that it is merged onto. The zero value is none.
type policyPair struct {
	Child  name
	Parent name // the zero name: none
}

// String is what stands in keys of Backends: names have no "+".
func (p policyPair) String() string {
	both := func(n name) string { return n.Namespace + "/" + n.Name }
	switch {
	case p == policyPair{}:
		return ""
	case p.Parent == name{}:
		return both(p.Child)
	}
	return both(p.Child) + "+" + both(p.Parent)
}

// parsePolicyPair undoes String.
func parsePolicyPair(s string) (p policyPair) {
	parse := func(s string) (n name) {
		n.Namespace, n.Name, _ = strings.Cut(s, "/")
		return n
	}
	child, parent, merged := strings.Cut(s, "+")
	if p.Child = parse(child); merged {
		p.Parent = parse(parent)
	}
	return p
}

// source names the policies, for people.
func (p policyPair) source() string {
	s := string(KindBackendTrafficPolicy) + " " + p.Child.String()
	if p.Parent != (name{}) {
		s += ", merged with " + p.Parent.String()
	}
	return s
}

// inForce is the policy for a rule of a route on a listener.
func (bp *backendTrafficPolicies) inForce(v *incremental.View, rp *routePolicies, rule string, l listenerKey) policyPair {
	child := rp.of(rule)
	if child == (name{}) {
		above, _ := bp.above(v, l)
		return policyPair{Child: above}
	}
	if p, _ := incremental.Fetch(v, bp.objects, child); p == nil || p.Spec.MergeType == nil {
		return policyPair{Child: child}
	}
	above, _ := bp.above(v, l)
	if above == child { // a selector may have it be for both
		above = name{}
	}
	return policyPair{child, above}
}

// read returns what a policy, or two that are merged, ask for; nil for none, and for one of which reading has panicked.
func (bp *backendTrafficPolicies) read(v *incremental.View, p policyPair) *readPolicy {
	if p.Parent == (name{}) {
		read, _ := incremental.Fetch(v, bp.all, p.Child)
		return read
	}
	child, ok := incremental.Fetch(v, bp.objects, p.Child)
	parent, also := incremental.Fetch(v, bp.objects, p.Parent)
	if !ok || !also {
		return nil
	}
	for _, n := range []name{p.Child, p.Parent} {
		if alone, _ := incremental.Fetch(v, bp.all, n); alone == nil || alone.Invalid != nil {
			return alone
		}
	}
	merged, err := backendtraffic.Merge(&child.Spec, &parent.Spec)
	if err != nil {
		return &readPolicy{Invalid: condition.NewProblem(gwv1.PolicyReasonInvalid, "spec.mergeType", "use JSONMerge, or remove it", "it cannot be merged with %s: %v", p.Parent, err)}
	}
	read := bp.compile(merged, p)
	if read.Invalid != nil {
		read.Invalid.What += ", as merged with " + p.Parent.String()
	}
	return read
}

// hidden is what more general policies than those in force for a rule on a listener say that these do not.
func (bp *backendTrafficPolicies) hidden(v *incremental.View, rp *routePolicies, l listenerKey, by policyPair, in *readPolicy) (all []*config.HiddenPolicy) {
	var levels []name
	if rp != nil {
		levels = append(levels, rp.Route)
	}
	for _, target := range levelsAbove(l) {
		winner, _ := incremental.Fetch(v, bp.winners, target)
		levels = append(levels, winner)
	}
	seen := map[name]bool{{}: true, by.Child: true, by.Parent: true}
	for _, n := range levels {
		if seen[n] {
			continue
		}
		seen[n] = true
		other, _ := incremental.Fetch(v, bp.all, n)
		if other == nil || other.Invalid != nil {
			continue
		}
		h := &config.HiddenPolicy{Policy: n.String()}
		for _, field := range other.Fields {
			if _, set := slices.BinarySearch(in.Fields, field); !set {
				h.Fields = append(h.Fields, field)
			}
		}
		if len(h.Fields) > 0 {
			all = append(all, h)
		}
	}
	return all
}

// compile reads the settings of policies.
func (bp *backendTrafficPolicies) compile(spec *eg.BackendTrafficPolicySpec, by policyPair) *readPolicy {
	read := &readPolicy{Fields: backendtraffic.Fields(spec)}
	read.Compiled, read.Invalid = backendtraffic.Compile(spec, by.source())
	if read.Invalid == nil && bp.o.Cluster && read.Backend.GetLoadBalancer().GetPreferLocalZone() != nil {
		read.Notes = append(read.Notes, condition.NewProblem("", "spec.loadBalancer.zoneAware.preferLocal", "", "it changes nothing: proxies in a cluster do not know their zone"))
	}
	return read
}

// forRule returns a rule as the policy has it carried out.
func (p *readPolicy) forRule(r *config.Rule, by policyPair, hidden []*config.HiddenPolicy) *config.Rule {
	out := proto.CloneOf(r)
	if p.Invalid != nil {
		out.Failure = &config.Failure{Status: 500, Reason: reasonPolicyInvalid}
		return out
	}
	if out.Traffic = p.Rule.Traffic; len(hidden) > 0 {
		out.Traffic = proto.CloneOf(out.Traffic)
		out.Traffic.Hidden = hidden
	}
	if out.Retry == nil {
		out.Retry = p.Rule.Retry
	}
	if out.RequestTimeoutNanos == 0 {
		out.RequestTimeoutNanos = p.Rule.RequestTimeout
	}
	p.reroute(out.BackendRefs, by)
	return out
}

// reroute has references lead to Backends that are spoken to as the policy says.
func (p *readPolicy) reroute(refs []*config.BackendRef, by policyPair) {
	if !p.Backends() {
		return
	}
	for _, ref := range refs {
		if ref.Backend != "" {
			ref.Backend = config.ByPolicy(ref.Backend, by.String())
		}
	}
}
