package translate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/backendtraffic"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/policy"
)

// A BackendTrafficPolicy targets a Gateway, a ListenerSet or a route, or a section of one, and applies to the rules of routes below
// its target. If several apply to a rule on a listener, the most specific is in force: the policy for the rule, the route, the
// listener, then the object that contains the listener, then its Gateway. With a mergeType, a policy for a rule or route is merged
// onto the closest one above the route.

// reasonPolicyInvalid is the config.Failure.reason of rules whose policy cannot be applied.
const reasonPolicyInvalid = "policy_invalid"

// readPolicy is the result of reading a BackendTrafficPolicy, or two that are merged.
type readPolicy struct {
	*backendtraffic.Compiled                    // nil if it is invalid
	Invalid                  *condition.Problem // why it cannot be applied
	Fields                   []string           // backendtraffic.Fields
	// backendtraffic.WithoutEffect of connections, and of datagrams
	ConnectionsIgnore, DatagramsIgnore []string
}

// WithoutEffect returns the settings that have no effect on L4 routes of a kind.
func (p *readPolicy) WithoutEffect(rk *routeKind) []string {
	if rk.udp {
		return p.DatagramsIgnore
	}
	return p.ConnectionsIgnore
}

func (p *readPolicy) same(o *readPolicy) bool {
	return sameDeeply(p.Invalid, o.Invalid) && slices.Equal(p.Fields, o.Fields) &&
		slices.Equal(p.ConnectionsIgnore, o.ConnectionsIgnore) && slices.Equal(p.DatagramsIgnore, o.DatagramsIgnore) && (p.Compiled == nil) == (o.Compiled == nil) && (p.Compiled == nil ||
		sameMessage(p.Backend, o.Backend) && sameMessage(p.Rule.Retry, o.Rule.Retry) && p.Rule.RequestTimeout == o.Rule.RequestTimeout && sameMessage(p.Rule.Traffic, o.Rule.Traffic) &&
			p.ByService == o.ByService && p.IPv4Only == o.IPv4Only && sameDeeply(p.Notes, o.Notes) &&
			p.Expressions == o.Expressions && p.LongDistinct == o.LongDistinct && p.SharedLongDistinct == o.SharedLongDistinct)
}

// backendTrafficPolicies contains BackendTrafficPolicies, without their effect on routes.
type backendTrafficPolicies struct {
	redises    *redises
	objects    *incremental.Collection[name, *eg.BackendTrafficPolicy]
	undecoded  *incremental.Collection[name, undecodedTraffic] // policies that cannot be decoded
	namespaces *namespaces
	grants     *grants
	gateways   *incremental.Collection[name, *gwv1.Gateway]
	sets       *incremental.Collection[kindName, metav1.Object]
	routes     *incremental.Collection[kindName, metav1.Object]
	configMaps *incremental.Collection[kindName, metav1.Object] // and others, see inputs.authorities

	selectable targetIndexes

	targets  *incremental.Collection[name, []policyTarget]
	byTarget *incremental.Index[policy.Target, name, []policyTarget]
	winners  *incremental.Collection[policy.Target, name]
	all      *incremental.Collection[name, *readPolicy]
	merging  *incremental.Collection[name, struct{}]           // those with a mergeType
	merged   *incremental.Collection[policyPair, *readPolicy]  // merged policies, as they are in force for routes
	ofRoutes *incremental.Collection[kindName, *routePolicies] // those for a route or its rules

	concerned *incremental.Collection[name, struct{}] // Gateways with policies for themselves, or for their listeners or ListenerSets
}

// policyTarget is a target of a policy.
type policyTarget struct {
	policy.Target
	Field string // of the policy that contains it, such as spec.targetRefs[0]
}

// kindNamespace identifies the objects of a kind in a namespace.
type kindNamespace struct {
	Kind      Kind
	Namespace string
}

func (k kindNamespace) Compare(o kindNamespace) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace))
}

// targetIndexes finds the objects that selectors select. Labels are stored apart from the objects, so that other edits of these do
// not cause policies to be translated again. Labels of routes of a kind are stored only if a policy selects that kind.
type targetIndexes struct {
	gatewayLabels          *incremental.Collection[name, map[string]string]
	setLabels, routeLabels *incremental.Collection[kindName, map[string]string]
	gateways               *incremental.Index[kindNamespace, name, map[string]string]
	sets                   *incremental.Index[kindNamespace, kindName, map[string]string]
	routes                 *incremental.Index[kindNamespace, kindName, metav1.Object]
	// The namespaces that contain objects of a kind.
	gatewayNamespaces, setNamespaces, routeNamespaces *incremental.Index[Kind, kindNamespace, struct{}]
}

func newBackendTrafficPolicies(e *incremental.Engine, in *inputs, namespaces *namespaces, routeNamespaces *routeNamespaces, grants *grants, redises *redises) *backendTrafficPolicies {
	bp := &backendTrafficPolicies{redises: redises, objects: in.backendTraffic.Collection, undecoded: in.undecodedTraffic.Collection, namespaces: namespaces, grants: grants,
		gateways: in.gateways.Collection, sets: in.listenerSets.Collection, routes: in.routes.Collection, configMaps: in.authorities.Collection}
	bp.declareSelectable(e, routeNamespaces)
	bp.targets = backendTrafficTargets(e, bp)
	bp.byTarget = incremental.NewIndex(bp.targets, "BackendTrafficPolicies by target", func(_ name, targets []policyTarget) (keys []policy.Target) {
		for _, t := range targets {
			keys = append(keys, t.Target)
		}
		return keys
	})
	ages := incremental.Map(e, "BackendTrafficPolicy age", bp.objects,
		func(v *incremental.View, n name, p *eg.BackendTrafficPolicy) (int64, bool) {
			if bp.anywhere(v, n) {
				return math.MinInt64, true
			}
			return createdOf(p), true
		}, same[int64])
	bp.winners = policyWinners(e, kind.BackendTrafficPolicy.Kind, bp.byTarget, ages)
	read := incremental.Map(e, "BackendTrafficPolicy", bp.objects,
		func(v *incremental.View, n name, p *eg.BackendTrafficPolicy) (*readPolicy, bool) {
			if u, is := incremental.Fetch(v, bp.undecoded, n); is {
				return &readPolicy{Invalid: condition.NewProblem(gwv1.PolicyReasonInvalid, "", unreadableRemedy, "it cannot be read: %s", u.Error)}, true
			}
			if invalid := unreadable(&p.Spec); invalid != nil {
				return &readPolicy{Invalid: invalid}, true
			}
			return bp.compile(v, &p.Spec, policyPair{Child: n}, n, n.Namespace), true
		}, (*readPolicy).same)
	bp.all = bp.declareShares(e, read, ages)
	bp.merging = incremental.Map(e, "BackendTrafficPolicy with a mergeType", bp.objects,
		func(_ *incremental.View, _ name, p *eg.BackendTrafficPolicy) (struct{}, bool) {
			return struct{}{}, p.Spec.MergeType != nil
		}, same[struct{}])
	bp.declareOfRoutes(e)
	return bp
}

// undecodedTraffic is what can be read of a BackendTrafficPolicy that cannot be decoded, except its targets.
type undecodedTraffic struct {
	Error string
	// Anywhere is set if one of its targets cannot be read either: it may be for any Gateway, ListenerSet or route of its namespace,
	// or a section of one.
	Anywhere bool
}

// undecodedTrafficOf returns a policy in place of one that cannot be decoded: it has the same targets and is invalid, so that their
// requests fail instead of passing without the limits that it may contain. It returns nil if there are no targets.
func undecodedTrafficOf(u *kind.Undecoded) (*eg.BackendTrafficPolicy, undecodedTraffic) {
	p := &eg.BackendTrafficPolicy{ObjectMeta: u.ObjectMeta, Spec: eg.BackendTrafficPolicySpec{TargetRefs: u.TrafficTargets, TargetSelectors: u.TargetSelectors}}
	if !u.AnyTraffic {
		if len(u.TrafficTargets)+len(u.TargetSelectors) == 0 {
			return nil, undecodedTraffic{}
		}
		return p, undecodedTraffic{Error: u.Error}
	}
	for _, k := range []Kind{KindGateway, KindListenerSet, KindHTTPRoute, KindGRPCRoute} { // other kinds have no requests that could fail
		p.Spec.TargetSelectors = append(p.Spec.TargetSelectors, eg.TargetSelector{Kind: gwv1.Kind(k)})
	}
	return p, undecodedTraffic{Error: u.Error, Anywhere: true}
}

// anywhere reports whether the targets of a policy are unknown. Such a policy precedes all others, including those for sections of
// any object that it may be for.
func (bp *backendTrafficPolicies) anywhere(v *incremental.View, n name) bool {
	u, _ := incremental.Fetch(v, bp.undecoded, n)
	return u.Anywhere
}

// unreadable returns the part of a policy that cannot be understood, or nil.
func unreadable(spec *eg.BackendTrafficPolicySpec) *condition.Problem {
	u := spec.Unread
	if u.Field == "" {
		return malformedSelector(spec)
	}
	const compare = "compare it with the documentation of the version that runs here"
	switch {
	case u.Type != "":
		return condition.NewProblem(gwv1.PolicyReasonInvalid, u.Field, compare, "it cannot be a %s", u.Type)
	case u.Error != "":
		return condition.NewProblem(gwv1.PolicyReasonInvalid, u.Field, compare, "it cannot be read: %s", u.Error)
	}
	return condition.NewProblem(gwv1.PolicyReasonInvalid, u.Field, "remove it, or use a version that knows it", "it is not known")
}

// malformedSelector returns what is wrong with a selector of a policy, or nil. A malformed selector selects nothing.
func malformedSelector(spec *eg.BackendTrafficPolicySpec) *condition.Problem {
	for i := range spec.TargetSelectors {
		s := &spec.TargetSelectors[i]
		if _, err := labelSelectorOf(s); err != nil {
			return condition.NewProblem(gwv1.PolicyReasonInvalid, indexed("spec.targetSelectors", i), "correct matchLabels and matchExpressions", "%v", err)
		}
		if s.Namespaces != nil && s.Namespaces.From == "Selector" {
			if _, err := metav1.LabelSelectorAsSelector(s.Namespaces.Selector); err != nil {
				return condition.NewProblem(gwv1.PolicyReasonInvalid, indexed("spec.targetSelectors", i)+".namespaces.selector", "correct matchLabels and matchExpressions", "%v", err)
			}
		}
	}
	return nil
}

// labelSelectorOf returns the selector for the labels of targets.
func labelSelectorOf(s *eg.TargetSelector) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: s.MatchLabels, MatchExpressions: s.MatchExpressions})
}

// declareAbove finds the Gateways that have policies above routes. Most have none, and their listeners are not examined further.
func (bp *backendTrafficPolicies) declareAbove(e *incremental.Engine, listeners *listeners) {
	gateways := incremental.Map(e, "Gateways of BackendTrafficPolicies above routes", bp.winners,
		func(v *incremental.View, t policy.Target, _ name) (name, bool) {
			n := name{t.Namespace, t.Name}
			switch Kind(t.Kind) {
			case KindGateway:
				return n, true
			case KindListenerSet:
				set, attached := incremental.Fetch(v, listeners.sets, kindName{KindListenerSet, n})
				if attached && set.Refused == nil {
					return set.Gateway, true
				}
			}
			return name{}, false
		}, same[name])
	byGateway := incremental.NewIndex(gateways, "BackendTrafficPolicies above routes by Gateway", func(_ policy.Target, gateway name) []name { return []name{gateway} })
	bp.concerned = incremental.Keys(byGateway, "Gateways with BackendTrafficPolicies above routes") // and not their number, which each policy changes
}

// above returns the closest policy in force above the routes of a listener.
func (bp *backendTrafficPolicies) above(v *incremental.View, k listenerKey) (n name, ok bool) {
	_, n, ok = bp.closest(v, k)
	return n, ok
}

// closest returns the result of above, and the target that the policy is attached to.
func (bp *backendTrafficPolicies) closest(v *incremental.View, k listenerKey) (target policy.Target, n name, ok bool) {
	if _, concerned := incremental.Fetch(v, bp.concerned, k.Gateway); !concerned {
		return policy.Target{}, name{}, false
	}
	for _, level := range levelsAbove(k) {
		if winner, is := incremental.Fetch(v, bp.winners, level); is && (!ok || bp.anywhere(v, winner)) {
			target, n, ok = level, winner, true
		}
	}
	return target, n, ok
}

// levelsAbove returns the targets above the routes of a listener, the closest first. Policies for listeners of the Gateway itself do
// not apply to those of a ListenerSet.
func levelsAbove(k listenerKey) []policy.Target {
	owner := objectTarget(k.Owner())
	section := owner
	section.Section = k.Name
	if k.Set == "" {
		return []policy.Target{section, owner}
	}
	return []policy.Target{section, owner, gatewayTarget(k.Gateway)}
}

// objectTarget returns the target by which policies refer to an object of the Gateway API.
func objectTarget(k kindName) policy.Target {
	return policy.Target{Group: kind.Named(string(k.Kind)).Group, Kind: string(k.Kind), Namespace: k.Name.Namespace, Name: k.Name.Name}
}

func labelsOf[K incremental.Key[K], O metav1.Object](e *incremental.Engine, what string, objects *incremental.Collection[K, O]) *incremental.Collection[K, map[string]string] {
	return incremental.Map(e, what, objects, func(_ *incremental.View, _ K, o O) (map[string]string, bool) { return o.GetLabels(), true }, maps.Equal[map[string]string])
}

func (bp *backendTrafficPolicies) declareSelectable(e *incremental.Engine, routes *routeNamespaces) {
	s := &bp.selectable
	s.gatewayLabels = labelsOf(e, "Gateway labels", bp.gateways)
	s.setLabels = labelsOf(e, "ListenerSet labels", bp.sets)
	selecting := incremental.NewIndex(bp.objects, "BackendTrafficPolicies by kind that they select", func(_ name, p *eg.BackendTrafficPolicy) (kinds []Kind) {
		for _, selector := range p.Spec.TargetSelectors {
			kinds = append(kinds, Kind(selector.Kind))
		}
		return kinds
	})
	s.routeLabels = mapRoutesWhere(e, routes, "route labels", func(v *incremental.View, k kindNamespace) bool { return incremental.Count(v, selecting, k.Kind) > 0 },
		func(_ *incremental.View, _ kindName, o metav1.Object) (map[string]string, bool) {
			return o.GetLabels(), true
		}, maps.Equal[map[string]string])
	s.gateways = incremental.NewIndex(s.gatewayLabels, "Gateways by namespace", func(n name, _ map[string]string) []kindNamespace { return []kindNamespace{{KindGateway, n.Namespace}} })
	byKind := func(k kindName, _ map[string]string) []kindNamespace {
		return []kindNamespace{{k.Kind, k.Name.Namespace}}
	}
	s.sets = incremental.NewIndex(s.setLabels, "ListenerSets by namespace", byKind)
	s.routes = routes.routes
	kindOf := func(k kindNamespace, _ struct{}) []Kind { return []Kind{k.Kind} }
	s.gatewayNamespaces = incremental.NewIndex(incremental.Keys(s.gateways, "namespaces with Gateways"), "namespaces with Gateways by kind", kindOf)
	s.setNamespaces = incremental.NewIndex(incremental.Keys(s.sets, "namespaces with ListenerSets"), "namespaces with ListenerSets by kind", kindOf)
	s.routeNamespaces = incremental.NewIndex(routes.all, "namespaces with routes by kind", kindOf)
}

// backendTrafficTargets returns the targets of BackendTrafficPolicies, including the selected ones.
func backendTrafficTargets(e *incremental.Engine, bp *backendTrafficPolicies) *incremental.Collection[name, []policyTarget] {
	return incremental.Map(e, "BackendTrafficPolicy targets", bp.objects,
		func(v *incremental.View, n name, p *eg.BackendTrafficPolicy) (all []policyTarget, _ bool) {
			add := func(ref *eg.PolicyTargetReference, field string) {
				if string(ptr.Deref(ref.Namespace, gwv1.Namespace(n.Namespace))) != n.Namespace {
					return // a policy applies only to its own namespace
				}
				all = append(all, policyTarget{policy.Targets(n.Namespace, []gwv1.LocalPolicyTargetReferenceWithSectionName{ref.LocalPolicyTargetReferenceWithSectionName})[0], field})
			}
			if p.Spec.TargetRef != nil {
				add(p.Spec.TargetRef, "spec.targetRef")
			}
			for i := range p.Spec.TargetRefs {
				add(&p.Spec.TargetRefs[i], indexed("spec.targetRefs", i))
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

// selected returns the objects that a selector selects and that the policy is permitted to target.
func (bp *backendTrafficPolicies) selected(v *incremental.View, n name, s *eg.TargetSelector) (all []policy.Target) {
	k := Kind(s.Kind)
	selector, err := labelSelectorOf(s)
	if err != nil {
		return nil // the policy is invalid, see unreadable
	}
	for _, in := range bp.searched(v, n, k, s.Namespaces) {
		at := kindNamespace{k, in.namespace}
		take := func(object name, set map[string]string) {
			if selector.Matches(labels.Set(set)) {
				all = append(all, objectTarget(kindName{k, object}))
			}
		}
		ofKind := func(objects []kindName, of *incremental.Collection[kindName, map[string]string]) {
			for _, object := range objects {
				if in.granted.allows(object.Name.Name) {
					set, _ := incremental.Fetch(v, of, object)
					take(object.Name, set)
				}
			}
		}
		switch {
		case k == KindGateway:
			for _, object := range incremental.Lookup(v, bp.selectable.gateways, at) {
				if in.granted.allows(object.Name) {
					set, _ := incremental.Fetch(v, bp.selectable.gatewayLabels, object)
					take(object, set)
				}
			}
		case k == KindListenerSet:
			ofKind(incremental.Lookup(v, bp.selectable.sets, at), bp.selectable.setLabels)
		case routeKindOf(k) != nil:
			ofKind(incremental.Lookup(v, bp.selectable.routes, at), bp.selectable.routeLabels)
		}
	}
	return all
}

// searchedNamespace is a namespace in which a selector looks for objects, and the objects in it that it may select.
type searchedNamespace struct {
	namespace string
	granted   granted
}

// searched returns the namespaces in which a selector of a policy looks for objects of a kind, sorted. Namespaces that grant it
// nothing are left out before any of their objects are read.
func (bp *backendTrafficPolicies) searched(v *incremental.View, n name, k Kind, in *eg.TargetSelectorNamespaces) (all []searchedNamespace) {
	if in == nil || in.From == "Same" || in.From == "" {
		return []searchedNamespace{{n.Namespace, granted{all: true}}}
	}
	from := bp.selectable.routeNamespaces
	switch k {
	case KindGateway:
		from = bp.selectable.gatewayNamespaces
	case KindListenerSet:
		from = bp.selectable.setNamespaces
	}
	by := referrer{kind.BackendTrafficPolicy.Group, string(KindBackendTrafficPolicy), n}
	for _, with := range incremental.Lookup(v, from, k) {
		g := bp.grants.granted(v, by, gwv1.GroupName, string(k), with.Namespace)
		if !g.none() && (in.From == "All" || bp.namespaces.selects(v, in.Selector, with.Namespace)) {
			all = append(all, searchedNamespace{with.Namespace, g})
		}
	}
	return all
}

// routePolicies contains the policies in force for a route as a whole, and for its rules.
type routePolicies struct {
	Route name // the zero name if none
	Rules []rulePolicy
}

// rulePolicy is the policy in force for the rules with a name.
type rulePolicy struct {
	Rule   string
	Policy name
}

// of returns the policy for a rule, or the zero name if there is none.
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
	routeOf := func(t policy.Target) (kindName, bool) {
		k := Kind(t.Kind)
		return kindName{k, name{t.Namespace, t.Name}}, t.Group == gwv1.GroupName && routeKindOf(k) != nil
	}
	byRoute := incremental.NewIndex(bp.winners, "targets of BackendTrafficPolicies by route", func(t policy.Target, _ name) []kindName {
		if k, is := routeOf(t); is {
			return []kindName{k}
		}
		return nil
	})
	// Only policies for rules are examined one by one: a policy may select as many routes as exist, but no selector selects a rule.
	rulesByRoute := incremental.NewIndex(bp.winners, "rules with BackendTrafficPolicies by route", func(t policy.Target, _ name) []kindName {
		if k, is := routeOf(t); is && t.Section != "" {
			return []kindName{k}
		}
		return nil
	})
	bp.ofRoutes = incremental.Map(e, "BackendTrafficPolicies of a route", incremental.Keys(byRoute, "routes with BackendTrafficPolicies"),
		func(v *incremental.View, k kindName, _ struct{}) (*routePolicies, bool) {
			object, exists := incremental.Fetch(v, bp.routes, k)
			if !exists {
				return nil, false
			}
			rp := &routePolicies{}
			rp.Route, _ = incremental.Fetch(v, bp.winners, objectTarget(k))
			if bp.anywhere(v, rp.Route) {
				return rp, true
			}
			for _, t := range incremental.Lookup(v, rulesByRoute, k) {
				if hasRule(k.Kind, object, t.Section) {
					winner, _ := incremental.Fetch(v, bp.winners, t)
					rp.Rules = append(rp.Rules, rulePolicy{t.Section, winner})
				}
			}
			return rp, true
		}, sameDeeply[*routePolicies])
}

// hasRule reports whether a route has a rule with that name.
func hasRule(k Kind, route metav1.Object, rule string) bool {
	for _, spec := range routeKindOf(k).rules(route) {
		if spec.Name != nil && string(*spec.Name) == rule {
			return true
		}
	}
	return false
}

// policyPair is the policy in force for a rule on a listener, and the policy that it is merged onto. The zero value means none.
type policyPair struct {
	Child  name
	Parent name // the zero name if it is not merged
}

// String returns the form that is used in keys of Backends: names contain no "+".
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

// parsePolicyPair is the inverse of String.
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

// source names the policies in text.
func (p policyPair) source() string {
	s := string(KindBackendTrafficPolicy) + " " + p.Child.String()
	if p.Parent != (name{}) {
		s += ", merged with " + p.Parent.String()
	}
	return s
}

// Compare orders pairs.
func (p policyPair) Compare(o policyPair) int {
	return cmp.Or(p.Child.Compare(o.Child), p.Parent.Compare(o.Parent))
}

// inForce returns the policy for a rule of a route on a listener.
func (bp *backendTrafficPolicies) inForce(v *incremental.View, rp *routePolicies, rule string, l listenerKey) policyPair {
	child := rp.of(rule)
	if child == (name{}) {
		above, _ := bp.above(v, l)
		return policyPair{Child: above}
	}
	if _, merges := incremental.Fetch(v, bp.merging, child); !merges {
		return policyPair{Child: child}
	}
	above, _ := bp.above(v, l)
	if above == child { // a selector may have selected both targets
		above = name{}
	}
	return policyPair{child, above}
}

// declareMerged merges the pairs of policies that are in force for rules of routes, each pair once, however many rules and listeners
// use it.
func (bp *backendTrafficPolicies) declareMerged(e *incremental.Engine, attachments *incremental.Collection[kindName, *attachment]) {
	pairs := incremental.Map(e, "pairs of BackendTrafficPolicies of a route", bp.ofRoutes,
		func(v *incremental.View, k kindName, rp *routePolicies) (all []policyPair, _ bool) {
			var children []name
			for _, r := range append([]rulePolicy{{Policy: rp.Route}}, rp.Rules...) {
				if _, merges := incremental.Fetch(v, bp.merging, r.Policy); merges {
					children = append(children, r.Policy)
				}
			}
			if len(children) == 0 {
				return nil, false
			}
			a, _ := incremental.Fetch(v, attachments, k)
			if a == nil {
				return nil, false
			}
			for _, l := range a.Listeners {
				above, ok := bp.above(v, l)
				for _, child := range children {
					if ok && child != above {
						all = append(all, policyPair{child, above})
					}
				}
			}
			slices.SortFunc(all, policyPair.Compare)
			all = slices.Compact(all)
			return all, len(all) > 0
		}, slices.Equal[[]policyPair])
	routes := incremental.NewIndex(pairs, "routes by pair of BackendTrafficPolicies", func(_ kindName, all []policyPair) []policyPair { return all })
	bp.merged = incremental.Map(e, "merged BackendTrafficPolicies", incremental.Keys(routes, "pairs of BackendTrafficPolicies"),
		func(v *incremental.View, p policyPair, _ struct{}) (*readPolicy, bool) {
			read := bp.merge(v, p)
			return read, read != nil
		}, (*readPolicy).same)
}

// read returns the result of a policy, or of two that are merged; nil if there is none, and for a policy whose reading panicked.
func (bp *backendTrafficPolicies) read(v *incremental.View, p policyPair) (read *readPolicy) {
	if p.Parent == (name{}) {
		read, _ = incremental.Fetch(v, bp.all, p.Child)
	} else {
		read, _ = incremental.Fetch(v, bp.merged, p)
	}
	return read
}

// merge returns the result of two policies, one merged onto the other; nil if the reading of one panicked.
func (bp *backendTrafficPolicies) merge(v *incremental.View, p policyPair) *readPolicy {
	child, ok := incremental.Fetch(v, bp.objects, p.Child)
	parent, also := incremental.Fetch(v, bp.objects, p.Parent)
	if !ok || !also {
		return nil
	}
	var global []*config.RateLimit // of both policies
	var alone [2]*readPolicy
	for i, n := range []name{p.Child, p.Parent} {
		read, _ := incremental.Fetch(v, bp.all, n)
		switch {
		case read == nil || read.Invalid != nil && n == p.Child:
			return read
		case read.Invalid != nil:
			invalid := *read.Invalid
			invalid.What += ", in " + p.Parent.String() + ", which it is merged onto"
			return &readPolicy{Invalid: &invalid}
		}
		alone[i] = read
		global = append(global, read.Rule.Traffic.RateLimits.GetGlobal()...)
	}
	merged, err := backendtraffic.Merge(&child.Spec, &parent.Spec)
	if err != nil {
		return &readPolicy{Invalid: condition.NewProblem(gwv1.PolicyReasonInvalid, "spec.mergeType", "use JSONMerge, or remove it", "it cannot be merged with %s: %v", p.Parent, err)}
	}
	limitsOf := p.Parent
	if backendtraffic.HasLocalLimits(&child.Spec.Settings) {
		limitsOf = p.Child
	}
	bodiesIn := p.Parent.Namespace // the namespace of the policy whose responseOverride is in force
	if len(child.Spec.ResponseOverride) > 0 {
		bodiesIn = p.Child.Namespace
	}
	if len(global) > config.MaxGlobalRateLimits {
		return &readPolicy{Invalid: condition.NewProblem(gwv1.PolicyReasonInvalid, "spec.rateLimit.global.rules", fmt.Sprintf("leave at most %d in both policies", config.MaxGlobalRateLimits),
			"with those of %s, which it is merged onto, there are %d rules, all of which would be asked for each request", p.Parent, len(global))}
	}
	read := bp.compile(v, merged, p, limitsOf, bodiesIn)
	if read.Invalid == nil {
		read.Invalid = backendtraffic.CheckGlobalLimits(global)
	}
	if read.Invalid != nil {
		read.Compiled = nil
		read.Invalid.What += ", as merged with " + p.Parent.String()
		return read
	}
	if limits := read.Rule.Traffic.RateLimits; limits != nil {
		limits.Global = global
	} else if len(global) > 0 {
		read.Rule.Traffic.RateLimits = &config.RateLimits{Global: global}
	}
	read.Notes = mergedNotes(read.Notes, alone[0].Notes, alone[1].Notes, p.Parent)
	return read
}

// mergedNotes returns the notes of a policy that is merged onto parent: those of the merged result, and those of settings that are
// not merged, because each policy keeps its own rate limits.
func mergedNotes(merged, own, above []*condition.Problem, parent name) (all []*condition.Problem) {
	ofEach := func(n *condition.Problem) bool {
		return strings.HasPrefix(n.Field, "spec.rateLimit.global") || n.Field == "spec.rateLimit.local"
	}
	add := func(n *condition.Problem, where string) {
		all = append(all, &condition.Problem{Field: n.Field, What: n.What + where, Remedy: n.Remedy})
	}
	for _, n := range merged {
		switch {
		case ofEach(n):
		case slices.ContainsFunc(own, func(o *condition.Problem) bool { return *o == *n }):
			add(n, "")
		default:
			add(n, ", as merged with "+parent.String())
		}
	}
	for _, n := range own {
		if ofEach(n) {
			add(n, "")
		}
	}
	for _, n := range above {
		if ofEach(n) {
			add(n, ", in "+parent.String()+", which it is merged onto")
		}
	}
	return all
}

// hidden returns the settings of more general policies than those in force for a rule on a listener that the policies in force do
// not contain.
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

// compile compiles the settings of a policy. limitsOf is the policy whose local rate limits are in force, and bodiesIn the namespace
// of the ConfigMaps with bodies of responses.
func (bp *backendTrafficPolicies) compile(v *incremental.View, spec *eg.BackendTrafficPolicySpec, by policyPair, limitsOf name, bodiesIn string) *readPolicy {
	configMap := func(n string) *corev1.ConfigMap {
		o, _ := incremental.Fetch(v, bp.configMaps, kindName{Kind(kind.ConfigMap.Name), name{bodiesIn, n}})
		cm, _ := o.(*corev1.ConfigMap)
		return cm
	}
	read := &readPolicy{Fields: backendtraffic.Fields(spec)}
	read.ConnectionsIgnore, read.DatagramsIgnore = backendtraffic.WithoutEffect(spec, read.Fields, false), backendtraffic.WithoutEffect(spec, read.Fields, true)
	read.Compiled, read.Invalid = backendtraffic.Compile(spec, by.source(), limitsOf.String(), configMap)
	return read
}

// countsGlobally reports whether there are global rate limits, for which a Gateway needs a Redis server.
func (p *readPolicy) countsGlobally() bool {
	return p.Invalid == nil && len(p.Rule.Traffic.RateLimits.GetGlobal()) > 0
}

// forRule returns a rule of a route with the policy applied; refused is set if the policy cannot be applied at these listeners.
func (p *readPolicy) forRule(route kindName, r *config.Rule, by policyPair, hidden []*config.HiddenPolicy, refused bool) *config.Rule {
	out := proto.CloneOf(r)
	if p.Invalid != nil || refused {
		out.Failure = &config.Failure{Status: 500, Reason: reasonPolicyInvalid}
		out.Traffic = &config.RuleTraffic{Policy: by.source()}
		return out
	}
	if out.Traffic = backendtraffic.ForRule(p.Rule.Traffic, string(route.Kind), route.Name.Namespace, route.Name.Name, r.Name); len(hidden) > 0 {
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

// reroute changes references so that they refer to the Backends that are reached as the policy configures.
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
