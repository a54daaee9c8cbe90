package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/policy"
)

// Conditions and reasons of BackendTrafficPolicies in addition to Accepted.
const (
	conditionOverridden = "Overridden"
	conditionMerged     = "Merged"
	conditionWarning    = "Warning"
	conditionAggregated = "Aggregated"
	conditionDegraded   = "Degraded" // not in Envoy Gateway, which does not report a Redis server that is unavailable

	reasonDeprecatedField  = "DeprecatedField"
	reasonRedisUnavailable = "RedisUnavailable"
)

// backendTrafficStatuses computes the statuses of BackendTrafficPolicies.
type backendTrafficStatuses struct {
	o         *Options
	policies  *backendTrafficPolicies
	gateways  *gateways
	listeners *listeners
	routes    *routes
	objects   *incremental.Collection[kindName, metav1.Object] // routes
	faults    *incremental.Collection[name, string]            // why the Redis server of global rate limits is unavailable, by Gateway

	aboveRoutes  *incremental.Collection[kindName, aboveRoute]                     // the levels above routes with policies
	routesBelow  *incremental.Index[policy.Target, kindName, aboveRoute]           // these routes, by a level above them
	targetsBelow *incremental.Index[policy.Target, policy.Target, []policy.Target] // listeners and ListenerSets with policies, by a level above them
	all          *incremental.Collection[name, *status[gwv1.PolicyStatus]]
	unattached   *incremental.Collection[name, *condition.Problem] // malformed selectors of policies without a status
}

func newBackendTrafficStatuses(e *incremental.Engine, o *Options, in *inputs, policies *backendTrafficPolicies, gateways *gateways, listeners *listeners, routes *routes) *backendTrafficStatuses {
	bs := &backendTrafficStatuses{o: o, policies: policies, gateways: gateways, listeners: listeners, routes: routes, objects: in.routes.Collection, faults: in.rateLimitFaults.Collection}
	bs.declareBelow(e)
	bs.all = incremental.Map(e, "BackendTrafficPolicy status", policies.objects,
		func(v *incremental.View, n name, p *eg.BackendTrafficPolicy) (*status[gwv1.PolicyStatus], bool) {
			if _, undecoded := incremental.Fetch(v, policies.undecoded, n); undecoded { // this version cannot write the status of an object that it cannot decode
				return nil, false
			}
			s := bs.status(v, n, p)
			return s, len(s.Status.Ancestors) > 0
		}, sameDeeply[*status[gwv1.PolicyStatus]])
	// Other policies without a status need no report: their targets do not exist, or belong to another controller.
	bs.unattached = incremental.Map(e, "malformed selectors of BackendTrafficPolicies without a status", policies.objects,
		func(v *incremental.View, n name, p *eg.BackendTrafficPolicy) (*condition.Problem, bool) {
			malformed := malformedSelector(&p.Spec)
			if malformed == nil {
				return nil, false
			}
			_, reported := incremental.Fetch(v, bs.all, n)
			return malformed, !reported
		}, sameDeeply[*condition.Problem])
	return bs
}

// declareBelow finds the targets with policies that are more specific than a target.
func (bs *backendTrafficStatuses) declareBelow(e *incremental.Engine) {
	bs.aboveRoutes = incremental.Map(e, "what is above routes with BackendTrafficPolicies", bs.policies.ofRoutes,
		func(v *incremental.View, k kindName, _ *routePolicies) (above aboveRoute, _ bool) {
			a, _ := incremental.Fetch(v, bs.routes.attachments, k)
			if _, refused := incremental.Fetch(v, bs.routes.refused, k); a == nil || a.Invalid || refused {
				return above, false
			}
			for _, l := range a.Listeners {
				above.Targets = append(above.Targets, levelsAbove(l)...)
				if t, _, ok := bs.policies.closest(v, l); ok {
					above.Closest = append(above.Closest, t)
				}
			}
			above.Targets, above.Closest = distinctTargets(above.Targets), distinctTargets(above.Closest)
			return above, true
		}, sameDeeply[aboveRoute])
	bs.routesBelow = incremental.NewIndex(bs.aboveRoutes, "routes with BackendTrafficPolicies by what is above them", func(_ kindName, above aboveRoute) []policy.Target { return above.Targets })
	aboveTargets := incremental.Map(e, "what is above listeners with BackendTrafficPolicies", bs.policies.winners,
		func(v *incremental.View, t policy.Target, _ name) (above []policy.Target, _ bool) {
			if t.Section != "" {
				above = append(above, t.Whole())
			}
			if Kind(t.Kind) == KindListenerSet {
				if set, managed := incremental.Fetch(v, bs.listeners.sets, kindName{KindListenerSet, name{t.Namespace, t.Name}}); managed && set.Refused == nil {
					above = append(above, gatewayTarget(set.Gateway))
				}
			}
			return above, len(above) > 0 && routeKindOf(Kind(t.Kind)) == nil
		}, slices.Equal[[]policy.Target])
	bs.targetsBelow = incremental.NewIndex(aboveTargets, "listeners with BackendTrafficPolicies by what is above them", func(_ policy.Target, above []policy.Target) []policy.Target { return above })
}

// aboveRoute contains the levels above a route with policies; each list is sorted, without duplicates.
type aboveRoute struct {
	Targets []policy.Target
	Closest []policy.Target // those whose policies are in force above it, at most one for each listener
}

func distinctTargets(targets []policy.Target) []policy.Target {
	slices.SortFunc(targets, policy.Target.Compare)
	return slices.Compact(targets)
}

// trafficAncestor is an entry of the status of a BackendTrafficPolicy before it is written as a condition.
type trafficAncestor struct {
	Ref      gwv1.ParentReference
	outcomes []policy.Outcome
	// overridden lists where more specific policies are in force, merged where such policies are merged onto this one, and
	// mergedWith the policies that this one is merged onto.
	overridden below
	merged     below
	mergedWith []string
	asMerged   *readPolicy // the result of the policy as it is merged there; nil if it is not merged
	notes      []string    // settings without effect there
}

// below lists the more specific targets that have their own policies.
type below struct{ listeners, sets, routes, rules []string }

func (b *below) empty() bool { return b.String() == "" }

// String lists them for a message.
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

// maxBracketed is the maximum number of names in a message.
const maxBracketed = 16

func bracketed(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	if more := len(names) - maxBracketed; more > 0 {
		names = append(slices.Clone(names[:maxBracketed]), fmt.Sprintf("and %d others", more))
	}
	return "[" + strings.Join(names, " ") + "]"
}

// ancestorKey identifies an ancestor of a status. All fields of its reference are set, except the section and the port.
type ancestorKey struct {
	Namespace, Name, Kind, Group, Section string
	Port                                  gwv1.PortNumber
}

func keyOf(ref *gwv1.ParentReference) ancestorKey {
	return ancestorKey{string(ptr.Deref(ref.Namespace, "")), string(ref.Name), string(ptr.Deref(ref.Kind, "")), string(ptr.Deref(ref.Group, "")), string(ptr.Deref(ref.SectionName, "")), ptr.Deref(ref.Port, 0)}
}

func (k ancestorKey) Compare(o ancestorKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name), cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Group, o.Group),
		cmp.Compare(k.Section, o.Section), cmp.Compare(k.Port, o.Port))
}

// trafficAncestors collects the entries of a status without duplicates: a policy that selects many routes may have thousands, and a
// status has room for few.
type trafficAncestors struct {
	list  []*trafficAncestor
	byKey map[ancestorKey]*trafficAncestor
}

func (as *trafficAncestors) of(ref gwv1.ParentReference) *trafficAncestor {
	k := keyOf(&ref)
	a := as.byKey[k]
	if a == nil {
		a = &trafficAncestor{Ref: ref}
		as.list = append(as.list, a)
		if as.byKey == nil {
			as.byKey = map[ancestorKey]*trafficAncestor{}
		}
		as.byKey[k] = a
	}
	return a
}

// ancestorRef returns a reference to an object, or to a section of it.
func ancestorRef(k kindName, section string) gwv1.ParentReference {
	ref := gwv1.ParentReference{Group: new(gwv1.Group(kind.Named(string(k.Kind)).Group)), Kind: new(gwv1.Kind(k.Kind)), Namespace: new(gwv1.Namespace(k.Name.Namespace)), Name: gwv1.ObjectName(k.Name.Name)}
	if section != "" {
		ref.SectionName = new(gwv1.SectionName(section))
	}
	return ref
}

func (bs *backendTrafficStatuses) status(v *incremental.View, n name, p *eg.BackendTrafficPolicy) *status[gwv1.PolicyStatus] {
	s := &status[gwv1.PolicyStatus]{Generation: generationOf(p)}
	read, ok := incremental.Fetch(v, bs.policies.all, n)
	if !ok { // reading it panicked
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
				bs.onListeners(v, n, p, t, k, &ancestors)
			}
		case k.Kind == KindListenerSet:
			if set, managed := incremental.Fetch(v, bs.listeners.sets, k); managed && set.Refused == nil {
				bs.onListeners(v, n, p, t, k, &ancestors)
			}
		case routeKindOf(k.Kind) != nil:
			bs.onRoute(v, n, p, t, k, &ancestors)
		}
	}
	entries := make([]ancestorEntry, len(ancestors.list))
	for i, a := range ancestors.list {
		entries[i] = bs.entry(v, s.Generation, p, read, a)
	}
	s.Status.Ancestors = aggregated(s.Generation, entries)
	return s
}

// onListeners adds a target that is a Gateway or ListenerSet, or one of their listeners.
func (bs *backendTrafficStatuses) onListeners(v *incremental.View, n name, p *eg.BackendTrafficPolicy, t policyTarget, k kindName, ancestors *trafficAncestors) {
	a := ancestors.of(ancestorRef(k, t.Section))
	o := policy.Outcome{Field: t.Field, Target: t.Target}
	if t.Section != "" && !bs.exists(v, t.Target) {
		o.Missing = policy.NotFound(t.Field+".sectionName", t.Target, "correct the name, or add the listener")
	}
	o = bs.lost(v, n, o)
	a.add(o)
	if o.Missing == nil && o.Lost == nil && o.Blocked == nil {
		bs.below(v, n, t.Target, a)
		a.notes = append(a.notes, bs.withoutEffectBelow(v, n, t.Target)...)
	}
}

// withoutEffectBelow returns notes about settings of a policy that have no effect on the routes of listeners for connections or
// datagrams.
func (bs *backendTrafficStatuses) withoutEffectBelow(v *incremental.View, n name, t policy.Target) (notes []string) {
	read, _ := incremental.Fetch(v, bs.policies.all, n)
	if read == nil || read.Compiled == nil {
		return nil
	}
	if len(read.WithoutEffect(tcpRoutes)) == 0 && len(read.WithoutEffect(udpRoutes)) == 0 { // the listeners need not be read
		return nil
	}
	on := map[bool][]string{} // listeners, by whether they are for datagrams
	for _, k := range bs.listenersOf(v, t) {
		l, _ := incremental.Fetch(v, bs.listeners.all, k)
		if l == nil || len(l.Kinds) == 0 {
			continue
		}
		rk := routeKindOf(Kind(l.Kinds[0].Kind))
		if rk == nil || !rk.connections { // all kinds of a listener are of one protocol
			continue
		}
		if above, ok := bs.policies.above(v, k); ok && above == n {
			text := k.Name
			if k.Set != "" && Kind(t.Kind) == KindGateway {
				text = k.Owner().Name.String() + "/" + text
			}
			on[rk.udp] = append(on[rk.udp], text)
		}
	}
	for _, rk := range []*routeKind{tcpRoutes, udpRoutes} {
		if none := read.WithoutEffect(rk); len(none) > 0 && len(on[rk.udp]) > 0 {
			notes = append(notes, fmt.Sprintf("%s: no effect on listeners %s, whose %ss are not looked into", strings.Join(none, ", "), bracketed(on[rk.udp]), rk.unit()))
		}
	}
	return notes
}

// listenersOf returns the listeners of a Gateway, those of its ListenerSets included, or of a ListenerSet, or the one that the target
// names, which may not exist.
func (bs *backendTrafficStatuses) listenersOf(v *incremental.View, t policy.Target) []listenerKey {
	k := kindName{Kind(t.Kind), name{t.Namespace, t.Name}}
	gateway, set := k.Name, ""
	if k.Kind == KindListenerSet {
		attached, managed := incremental.Fetch(v, bs.listeners.sets, k)
		if !managed {
			return nil
		}
		gateway, set = attached.Gateway, setOf(k)
	}
	if t.Section != "" {
		return []listenerKey{{Gateway: gateway, Set: set, Name: t.Section}}
	}
	if k.Kind == KindListenerSet {
		return incremental.Lookup(v, bs.listeners.setSpecsByOwner, k)
	}
	return slices.Concat(incremental.Lookup(v, bs.listeners.ownByGateway, gateway), incremental.Lookup(v, bs.listeners.setSpecsByGateway, gateway))
}

// exists reports whether the listener that a target names exists in the Gateway or ListenerSet.
func (bs *backendTrafficStatuses) exists(v *incremental.View, t policy.Target) bool {
	for _, k := range bs.listenersOf(v, t) {
		if _, exists := incremental.Fetch(v, bs.listeners.all, k); exists {
			return true
		}
	}
	return false
}

// lost adds to an outcome the policy that is in force instead of n, or that requests fail because of a policy that cannot be read.
func (bs *backendTrafficStatuses) lost(v *incremental.View, n name, o policy.Outcome) policy.Outcome {
	if whole, _ := incremental.Fetch(v, bs.policies.winners, o.Target.Whole()); o.Missing == nil && bs.policies.anywhere(v, whole) {
		u, _ := incremental.Fetch(v, bs.policies.undecoded, whole)
		o.Blocked = condition.NewProblem(gwv1.PolicyReasonConflicted, o.Field, unreadableRemedy,
			"requests are answered with 500, because BackendTrafficPolicy %s, which may be the one for %s, cannot be read: %s", whole, o.Target, u.Error)
		return o
	}
	if winner, _ := incremental.Fetch(v, bs.policies.winners, o.Target); o.Missing == nil && winner != n {
		o.Lost = (*types.NamespacedName)(&winner)
	}
	return o
}

func (a *trafficAncestor) add(o policy.Outcome) { a.outcomes = append(a.outcomes, o) }

// below collects the targets that are more specific than a Gateway, ListenerSet or listener and have their own policies.
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
		above, _ := incremental.Fetch(v, bs.aboveRoutes, route)
		_, closest := slices.BinarySearchFunc(above.Closest, t, policy.Target.Compare)
		for _, own := range append([]rulePolicy{{"", rp.Route}}, rp.Rules...) {
			if own.Policy == (name{}) || own.Policy == n {
				continue
			}
			p, _ := incremental.Fetch(v, bs.policies.objects, own.Policy)
			read, _ := incremental.Fetch(v, bs.policies.all, own.Policy)
			if p == nil || read == nil {
				continue
			}
			list := &a.overridden
			if p.Spec.MergeType != nil && read.Invalid == nil {
				if !closest { // it is merged onto another policy
					continue
				}
				if pair := bs.policies.read(v, policyPair{own.Policy, n}); pair == nil || pair.Invalid != nil {
					continue
				}
				list = &a.merged
			}
			if own.Rule != "" {
				list.rules = append(list.rules, route.Name.String()+"/"+own.Rule)
			} else {
				list.routes = append(list.routes, route.Name.String())
			}
		}
	}
}

// onRoute adds a target that is a route, or a rule of one.
func (bs *backendTrafficStatuses) onRoute(v *incremental.View, n name, p *eg.BackendTrafficPolicy, t policyTarget, k kindName, ancestors *trafficAncestors) {
	attached, _ := incremental.Fetch(v, bs.routes.attachments, k)
	object, _ := incremental.Fetch(v, bs.objects, k)
	if attached == nil || object == nil {
		return // the route does not exist, or none of its Gateways is managed by this controller
	}
	o := policy.Outcome{Field: t.Field, Target: t.Target}
	if t.Section != "" && !hasRule(k.Kind, object, t.Section) {
		o.Missing = policy.NotFound(t.Field+".sectionName", t.Target, "correct the name, or give the rule that name")
	}
	o = bs.lost(v, n, o)
	read, _ := incremental.Fetch(v, bs.policies.all, n)
	notes := bs.withoutEffect(v, read, k)
	var rules []string
	if rp, _ := incremental.Fetch(v, bs.policies.ofRoutes, k); rp != nil && t.Section == "" {
		for _, r := range rp.Rules {
			if r.Policy != n {
				rules = append(rules, k.Name.String()+"/"+r.Rule)
			}
		}
	}
	if p.Spec.MergeType != nil && o.Missing == nil && o.Lost == nil && o.Blocked == nil && len(attached.Listeners) > 0 {
		for _, l := range attached.Listeners {
			a := ancestors.of(ancestorRef(l.Owner(), l.Name))
			a.add(o)
			a.overridden.rules = append(a.overridden.rules, rules...)
			above, ok := bs.policies.above(v, l)
			if !ok || above == n {
				a.notes = append(a.notes, notes...)
				continue
			}
			a.mergedWith = append(a.mergedWith, above.String())
			a.asMerged = bs.policies.read(v, policyPair{n, above})
			for _, note := range bs.withoutEffect(v, a.asMerged, k) {
				if !slices.Contains(notes, note) {
					note += ", as merged with " + above.String()
				}
				a.notes = append(a.notes, note)
			}
		}
		return
	}
	for _, parent := range attached.Parents {
		ref := parent.Ref
		ref.Group, ref.Kind = new(ptr.Deref(ref.Group, gwv1.Group(gwv1.GroupName))), new(ptr.Deref(ref.Kind, gwv1.Kind(KindGateway)))
		ref.Namespace = new(ptr.Deref(ref.Namespace, gwv1.Namespace(k.Name.Namespace)))
		a := ancestors.of(ref)
		a.add(o)
		a.notes = append(a.notes, notes...)
		a.overridden.rules = append(a.overridden.rules, rules...)
	}
}

// withoutEffect returns notes about settings of a policy that have no effect on a route, and about settings of the route that the
// policy replaces.
func (bs *backendTrafficStatuses) withoutEffect(v *incremental.View, read *readPolicy, k kindName) (notes []string) {
	rk := routeKindOf(k.Kind)
	if read == nil || read.Compiled == nil {
		return nil
	}
	if read.ByService {
		compiled, _ := incremental.Fetch(v, bs.routes.compiled, k)
		persists := func(r *config.Rule) bool { return r.SessionPersistence != nil }
		if compiled != nil && slices.ContainsFunc(compiled.Route.Rules, persists) {
			notes = append(notes, fmt.Sprintf("spec.routingType: sessions of %s %s do not persist: the Service chooses the endpoint of each request", k.Kind, k.Name))
		}
	}
	if !rk.connections {
		return notes
	}
	if none := read.WithoutEffect(rk); len(none) > 0 {
		notes = append(notes, fmt.Sprintf("%s: no effect on %s %s, whose %ss are not looked into", strings.Join(none, ", "), k.Kind, k.Name, rk.unit()))
	}
	return notes
}

// ancestorEntry is an entry of a status with its sort keys.
type ancestorEntry struct {
	gwv1.PolicyAncestorStatus
	key  ancestorKey
	rank int // 0 failed, 1 overridden, 2 others
}

// entry returns the entry of a status for an ancestor.
func (bs *backendTrafficStatuses) entry(v *incremental.View, generation int64, p *eg.BackendTrafficPolicy, read *readPolicy, a *trafficAncestor) ancestorEntry {
	if read.Invalid == nil && a.asMerged != nil {
		read = a.asMerged
	}
	invalid := read.Invalid
	if gateway, known := bs.gatewayOf(v, &a.Ref); known && read.countsGlobally() {
		_, invalid = bs.policies.redises.of(v, gateway)
	}
	var notes []string
	if invalid == nil {
		for _, n := range read.Notes {
			notes = append(notes, n.String())
		}
		notes = append(notes, a.notes...)
	}
	accepted := policy.Accepted(invalid, a.outcomes, notes...)
	e := ancestorEntry{key: keyOf(&a.Ref), rank: 2}
	conditions := []metav1.Condition{accepted}
	add := func(conditionType, reason, message string) {
		c := condition.True(conditionType, reason)
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
	case inForce && !a.merged.empty():
		add(conditionMerged, conditionMerged, "This policy is being merged by other backendTrafficPolicies for "+a.merged.String())
	}
	if gateway, known := bs.gatewayOf(v, &a.Ref); known && inForce && read.countsGlobally() {
		if fault, is := incremental.Fetch(v, bs.faults, bs.gateways.proxiesOf(v, gateway)); is {
			add(conditionDegraded, reasonRedisUnavailable, "Global rate limits cannot be decided. "+fault)
		} else if unread := bs.policies.redises.unread(v, gateway); unread != "" {
			add(conditionDegraded, reasonRedisUnavailable, unread)
		}
	}
	var deprecated []string
	if p.Spec.TargetRef != nil {
		deprecated = append(deprecated, "spec.targetRef is deprecated: use spec.targetRefs")
	}
	if len(p.Spec.Compression) > 0 {
		deprecated = append(deprecated, "spec.compression is deprecated: use spec.compressor")
	}
	if t := p.Spec.Telemetry; t != nil && t.Tracing != nil && len(t.Tracing.CustomTags) > 0 {
		deprecated = append(deprecated, "spec.telemetry.tracing.customTags is deprecated: use spec.telemetry.tracing.tags")
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

// gatewayOf returns the Gateway that an ancestor is, or belongs to; ok is false if it belongs to none.
func (bs *backendTrafficStatuses) gatewayOf(v *incremental.View, ancestor *gwv1.ParentReference) (name, bool) {
	n := name{string(ptr.Deref(ancestor.Namespace, "")), string(ancestor.Name)}
	k := Kind(ptr.Deref(ancestor.Kind, ""))
	if k == KindGateway {
		return n, true
	}
	set, managed := incremental.Fetch(v, bs.listeners.sets, kindName{k, n})
	if !managed {
		return name{}, false
	}
	return set.Gateway, true
}

// aggregated returns the entries that a status has room for: those that report failures come first, and the last one reports that
// there are others.
func aggregated(generation int64, entries []ancestorEntry) (out []gwv1.PolicyAncestorStatus) {
	more := len(entries) > policy.MaxAncestors
	slices.SortFunc(entries, func(a, b ancestorEntry) int {
		if more && a.rank != b.rank {
			return cmp.Compare(a.rank, b.rank)
		}
		return a.key.Compare(b.key)
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
