package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/policy"
)

// Conditions and reasons of BackendTrafficPolicies beside Accepted.
const (
	conditionOverridden = "Overridden"
	conditionMerged     = "Merged"
	conditionWarning    = "Warning"
	conditionAggregated = "Aggregated"

	reasonDeprecatedField = "DeprecatedField"
)

// backendTrafficStatuses are what BackendTrafficPolicies say.
type backendTrafficStatuses struct {
	o         *Options
	policies  *backendTrafficPolicies
	gateways  *gateways
	listeners *listeners
	routes    *routes
	objects   *incremental.Collection[kindName, metav1.Object] // routes

	routesBelow  *incremental.Index[policy.Target, kindName, []policy.Target]      // routes with policies, by what is above them
	targetsBelow *incremental.Index[policy.Target, policy.Target, []policy.Target] // listeners and ListenerSets with policies, by what is above them
	all          *incremental.Collection[name, *status[gwv1.PolicyStatus]]
}

func newBackendTrafficStatuses(e *incremental.Engine, o *Options, in *inputs, policies *backendTrafficPolicies, gateways *gateways, listeners *listeners, routes *routes) *backendTrafficStatuses {
	bs := &backendTrafficStatuses{o: o, policies: policies, gateways: gateways, listeners: listeners, routes: routes, objects: in.routes.Collection}
	bs.declareBelow(e)
	bs.all = incremental.Map(e, "BackendTrafficPolicy status", policies.objects,
		func(v *incremental.View, n name, p *eg.BackendTrafficPolicy) (*status[gwv1.PolicyStatus], bool) {
			s := bs.status(v, n, p)
			return s, len(s.Status.Ancestors) > 0
		}, sameDeeply[*status[gwv1.PolicyStatus]])
	return bs
}

// declareBelow finds what is more specific than a target.
func (bs *backendTrafficStatuses) declareBelow(e *incremental.Engine) {
	aboveRoutes := incremental.Map(e, "what is above routes with BackendTrafficPolicies", bs.policies.ofRoutes,
		func(v *incremental.View, k kindName, _ *routePolicies) (above []policy.Target, _ bool) {
			a, _ := incremental.Fetch(v, bs.routes.attachments, k)
			if a == nil || a.Invalid {
				return nil, false
			}
			for _, l := range a.Listeners {
				above = append(above, levelsAbove(l)...)
			}
			slices.SortFunc(above, policy.Target.Compare)
			return slices.Compact(above), true
		}, slices.Equal[[]policy.Target])
	itself := func(targets []policy.Target) []policy.Target { return targets }
	bs.routesBelow = incremental.NewIndex(aboveRoutes, "routes with BackendTrafficPolicies by what is above them", func(_ kindName, above []policy.Target) []policy.Target { return itself(above) })
	aboveTargets := incremental.Map(e, "what is above listeners with BackendTrafficPolicies", bs.policies.winners,
		func(v *incremental.View, t policy.Target, _ name) (above []policy.Target, _ bool) {
			if t.Section != "" {
				above = append(above, t.Whole())
			}
			if Kind(t.Kind) == KindListenerSet {
				if set, managed := incremental.Fetch(v, bs.listeners.sets, kindName{KindListenerSet, name{t.Namespace, t.Name}}); managed {
					above = append(above, gatewayTarget(set.Gateway))
				}
			}
			return above, len(above) > 0 && routeKindOf(Kind(t.Kind)) == nil
		}, slices.Equal[[]policy.Target])
	bs.targetsBelow = incremental.NewIndex(aboveTargets, "listeners with BackendTrafficPolicies by what is above them", func(_ policy.Target, above []policy.Target) []policy.Target { return itself(above) })
}

// trafficAncestor is an entry of the status of a BackendTrafficPolicy.
type trafficAncestor struct {
	Ref      gwv1.ParentReference
	outcomes []policy.Outcome
	// overridden and merged are what says that other policies are in force, or merged onto this one, and mergedWith onto which one this is merged.
	overridden below
	merged     []string
	mergedWith []string
	invalid    *condition.Problem // of what the policy is merged with
}

// below are the more specific targets that have policies of their own.
type below struct{ listeners, sets, routes, rules []string }

func (b *below) empty() bool { return b.String() == "" }

// String lists them.
func (b *below) String() string {
	var parts []string
	for _, p := range []struct {
		kind  string
		names []string
	}{{"listeners", b.listeners}, {"listenersets", b.sets}, {"routes", b.routes}, {"route rules", b.rules}} {
		if len(p.names) > 0 {
			parts = append(parts, "these "+p.kind+": "+bracketed(p.names))
		}
	}
	switch n := len(parts); n {
	case 0, 1:
		return strings.Join(parts, "")
	default:
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
}

// maxBracketed bounds the names in a message.
const maxBracketed = 16

func bracketed(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	if more := len(names) - maxBracketed; more > 0 {
		names = append(slices.Clone(names[:maxBracketed]), fmt.Sprintf("and %d others", more))
	}
	return "[" + strings.Join(names, " ") + "]"
}

// trafficAncestors are the entries of a status, each once.
type trafficAncestors []*trafficAncestor

func (as *trafficAncestors) of(ref gwv1.ParentReference) *trafficAncestor {
	for _, a := range *as {
		if sameDeeply(a.Ref, ref) {
			return a
		}
	}
	a := &trafficAncestor{Ref: ref}
	*as = append(*as, a)
	return a
}

// ancestorRef names an object, or a section of it.
func ancestorRef(k kindName, section string) gwv1.ParentReference {
	ref := gwv1.ParentReference{Group: new(gwv1.Group(gwv1.GroupName)), Kind: new(gwv1.Kind(k.Kind)), Namespace: new(gwv1.Namespace(k.Name.Namespace)), Name: gwv1.ObjectName(k.Name.Name)}
	if section != "" {
		ref.SectionName = new(gwv1.SectionName(section))
	}
	return ref
}

func (bs *backendTrafficStatuses) status(v *incremental.View, n name, p *eg.BackendTrafficPolicy) *status[gwv1.PolicyStatus] {
	s := &status[gwv1.PolicyStatus]{Generation: generationOf(p)}
	read, ok := incremental.Fetch(v, bs.policies.all, n)
	if !ok { // reading it has panicked
		return s
	}
	targets, _ := incremental.Fetch(v, bs.policies.targets, n)
	var ancestors trafficAncestors
	for _, t := range targets {
		k := kindName{Kind(t.Kind), name{t.Namespace, t.Name}}
		switch {
		case t.Group != gwv1.GroupName:
		case k.Kind == KindGateway:
			if _, managed := incremental.Fetch(v, bs.gateways.managed, k.Name); managed {
				bs.onListeners(v, n, t, k, &ancestors)
			}
		case k.Kind == KindListenerSet:
			if set, managed := incremental.Fetch(v, bs.listeners.sets, k); managed && set.Refused == nil {
				bs.onListeners(v, n, t, k, &ancestors)
			}
		case routeKindOf(k.Kind) != nil:
			bs.onRoute(v, n, p, t, k, &ancestors)
		}
	}
	entries := make([]ancestorEntry, len(ancestors))
	for i, a := range ancestors {
		entries[i] = bs.entry(s.Generation, p, read, a)
	}
	s.Status.Ancestors = aggregated(s.Generation, entries)
	return s
}

// onListeners adds a target that is an object with listeners, or one of these.
func (bs *backendTrafficStatuses) onListeners(v *incremental.View, n name, t policyTarget, k kindName, ancestors *trafficAncestors) {
	a := ancestors.of(ancestorRef(k, t.Section))
	o := policy.Outcome{Field: t.Field, Target: t.Target}
	if t.Section != "" && !bs.exists(v, t.Target) {
		o.Missing = policy.NotFound(t.Field+".sectionName", t.Target, "correct the name, or add the listener")
	}
	a.add(bs.lost(v, n, o))
	if o.Missing == nil {
		bs.below(v, n, t.Target, a)
	}
}

// exists reports whether a section of a Gateway or ListenerSet is a listener.
func (bs *backendTrafficStatuses) exists(v *incremental.View, t policy.Target) bool {
	n := name{t.Namespace, t.Name}
	l := listenerKey{Gateway: n, Name: t.Section}
	if k := (kindName{KindListenerSet, n}); Kind(t.Kind) == KindListenerSet {
		set, managed := incremental.Fetch(v, bs.listeners.sets, k)
		if !managed {
			return false
		}
		l.Gateway, l.Set = set.Gateway, setOf(k)
	}
	_, exists := incremental.Fetch(v, bs.listeners.all, l)
	return exists
}

// lost notes which policy is in force in the place of n.
func (bs *backendTrafficStatuses) lost(v *incremental.View, n name, o policy.Outcome) policy.Outcome {
	if winner, _ := incremental.Fetch(v, bs.policies.winners, o.Target); o.Missing == nil && winner != n {
		o.Lost = (*types.NamespacedName)(&winner)
	}
	return o
}

func (a *trafficAncestor) add(o policy.Outcome) { a.outcomes = append(a.outcomes, o) }

// below gathers what is more specific than an object with listeners, or one of these, and has policies of its own.
func (bs *backendTrafficStatuses) below(v *incremental.View, n name, t policy.Target, a *trafficAncestor) {
	for _, other := range incremental.Lookup(v, bs.targetsBelow, t) {
		if winner, _ := incremental.Fetch(v, bs.policies.winners, other); winner == n || other.Section != "" && !bs.exists(v, other) {
			continue
		}
		switch {
		case Kind(other.Kind) == KindListenerSet && other.Section == "":
			a.overridden.sets = append(a.overridden.sets, other.Namespace+"/"+other.Name)
		case Kind(other.Kind) == KindListenerSet:
			a.overridden.listeners = append(a.overridden.listeners, other.Namespace+"/"+other.Name+"/"+other.Section)
		default:
			a.overridden.listeners = append(a.overridden.listeners, other.Section)
		}
	}
	for _, route := range incremental.Lookup(v, bs.routesBelow, t) {
		rp, _ := incremental.Fetch(v, bs.policies.ofRoutes, route)
		if rp == nil {
			continue
		}
		for _, own := range append([]rulePolicy{{"", rp.Route}}, rp.Rules...) {
			if own.Policy == (name{}) || own.Policy == n {
				continue
			}
			p, _ := incremental.Fetch(v, bs.policies.objects, own.Policy)
			switch {
			case p == nil:
			case p.Spec.MergeType != nil:
				a.merged = append(a.merged, route.Name.String())
			case own.Rule != "":
				a.overridden.rules = append(a.overridden.rules, route.Name.String()+"/"+own.Rule)
			default:
				a.overridden.routes = append(a.overridden.routes, route.Name.String())
			}
		}
	}
}

// onRoute adds a target that is a route, or a rule of one.
func (bs *backendTrafficStatuses) onRoute(v *incremental.View, n name, p *eg.BackendTrafficPolicy, t policyTarget, k kindName, ancestors *trafficAncestors) {
	attached, _ := incremental.Fetch(v, bs.routes.attachments, k)
	object, _ := incremental.Fetch(v, bs.objects, k)
	if attached == nil || object == nil {
		return // of a route that is not there, or of no Gateway that is managed here
	}
	o := policy.Outcome{Field: t.Field, Target: t.Target}
	if t.Section != "" && !hasRule(k.Kind, object, t.Section) {
		o.Missing = policy.NotFound(t.Field+".sectionName", t.Target, "correct the name, or give the rule that name")
	}
	o = bs.lost(v, n, o)
	if p.Spec.MergeType != nil && o.Missing == nil && o.Lost == nil && len(attached.Listeners) > 0 {
		for _, l := range attached.Listeners {
			a := ancestors.of(ancestorRef(l.Owner(), l.Name))
			a.add(o)
			if above, ok := bs.policies.above(v, l); ok && above != n {
				a.mergedWith = append(a.mergedWith, above.String())
				if merged := bs.policies.read(v, policyPair{n, above}); merged != nil && merged.Invalid != nil {
					a.invalid = merged.Invalid
				}
			}
		}
		return
	}
	var rules []string
	if rp, _ := incremental.Fetch(v, bs.policies.ofRoutes, k); rp != nil && t.Section == "" {
		for _, r := range rp.Rules {
			if r.Policy != n {
				rules = append(rules, k.Name.String()+"/"+r.Rule)
			}
		}
	}
	for _, parent := range attached.Parents {
		ref := parent.Ref
		ref.Group, ref.Kind = new(value(ref.Group, gwv1.Group(gwv1.GroupName))), new(value(ref.Kind, gwv1.Kind(KindGateway)))
		ref.Namespace = new(value(ref.Namespace, gwv1.Namespace(k.Name.Namespace)))
		a := ancestors.of(ref)
		a.add(o)
		a.overridden.rules = append(a.overridden.rules, rules...)
	}
}

// ancestorEntry is an entry of a status with what it is sorted by.
type ancestorEntry struct {
	gwv1.PolicyAncestorStatus
	rank int // 0 failed, 1 overridden, 2 others
}

// entry is what the status says of an ancestor.
func (bs *backendTrafficStatuses) entry(generation int64, p *eg.BackendTrafficPolicy, read *readPolicy, a *trafficAncestor) ancestorEntry {
	invalid := read.Invalid
	if invalid == nil {
		invalid = a.invalid
	}
	var notes []string
	if invalid == nil {
		for _, n := range read.Notes {
			notes = append(notes, n.String())
		}
	}
	accepted := policy.Accepted(invalid, a.outcomes, notes...)
	e := ancestorEntry{rank: 2}
	conditions := []metav1.Condition{accepted}
	add := func(kind, reason, message string) {
		c := condition.True(kind, reason)
		c.Message = message
		conditions = append(conditions, c)
	}
	inForce := accepted.Status == metav1.ConditionTrue
	if inForce && !a.overridden.empty() {
		e.rank = 1
		add(conditionOverridden, conditionOverridden, "This policy is being overridden by other backendTrafficPolicies for "+a.overridden.String())
	}
	switch {
	case inForce && len(a.mergedWith) > 0:
		slices.Sort(a.mergedWith)
		add(conditionMerged, conditionMerged, "Merged with policy "+strings.Join(slices.Compact(a.mergedWith), ", "))
	case inForce && len(a.merged) > 0:
		add(conditionMerged, conditionMerged, "This policy is being merged by other backendTrafficPolicies for these routes: "+bracketed(a.merged))
	}
	var deprecated []string
	if p.Spec.TargetRef != nil {
		deprecated = append(deprecated, "spec.targetRef is deprecated: use spec.targetRefs")
	}
	if len(p.Spec.Compression) > 0 {
		deprecated = append(deprecated, "spec.compression is deprecated: use spec.compressor")
	}
	if deprecated != nil {
		add(conditionWarning, reasonDeprecatedField, strings.Join(deprecated, ". "))
	}
	if !inForce {
		e.rank = 0
	}
	e.PolicyAncestorStatus = gwv1.PolicyAncestorStatus{AncestorRef: a.Ref, ControllerName: gwv1.GatewayController(bs.o.ControllerName), Conditions: condition.Observed(generation, conditions...)}
	return e
}

// aggregated are the entries that a status has room for: those that tell of failures come first, and the last one says that there are others.
func aggregated(generation int64, entries []ancestorEntry) (out []gwv1.PolicyAncestorStatus) {
	text := func(e *ancestorEntry) string {
		r := &e.AncestorRef
		return strings.Join([]string{string(value(r.Namespace, "")), string(r.Name), string(value(r.Kind, "")), string(value(r.SectionName, "")), fmt.Sprint(value(r.Port, 0))}, "/")
	}
	more := len(entries) > policy.MaxAncestors
	slices.SortStableFunc(entries, func(a, b ancestorEntry) int {
		if more && a.rank != b.rank {
			return cmp.Compare(a.rank, b.rank)
		}
		return cmp.Compare(text(&a), text(&b))
	})
	for i := range entries[:min(len(entries), policy.MaxAncestors)] {
		out = append(out, entries[i].PolicyAncestorStatus)
	}
	if more {
		last := &out[len(out)-1]
		c := condition.True(conditionAggregated, conditionAggregated)
		c.Message = fmt.Sprintf("Ancestors have been aggregated because there are %d and a status has room for %d.", len(entries), policy.MaxAncestors)
		last.Conditions = append(last.Conditions, condition.Observed(generation, c)...)
	}
	return out
}
