package translate

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/policy"
)

// policyGateways finds the Gateways to which policies of a kind apply that target backends: those that reach the targets.
type policyGateways struct {
	kind     *kind.Kind
	gateways *gateways

	byTarget  *incremental.Index[policy.Target, targetGateway, struct{}]
	unnamedBy *incremental.Index[name, name, []name] // policies by a Gateway for which their status has no room
}

// newPolicyGateways returns the policyGateways of the policies with those targets.
func newPolicyGateways(e *incremental.Engine, k *kind.Kind, targets *incremental.Collection[name, []policy.Target], gateways *gateways, listeners *listeners, routes *routes,
	collectors *incremental.Index[policy.Target, name, *apisx.XTelemetryPolicy], telemetryPolicies *telemetryPolicies) *policyGateways {
	pg := &policyGateways{kind: k, gateways: gateways}
	pg.declareGatewaysByTarget(e, targets, listeners, routes, collectors, telemetryPolicies)
	pg.declareUnnamed(e, targets)
	return pg
}

// policyTargets returns the targets of policies.
func policyTargets[P metav1.Object](e *incremental.Engine, k *kind.Kind, policies *incremental.Collection[name, P], of func(name, P) []policy.Target) *incremental.Collection[name, []policy.Target] {
	return incremental.Map(e, k.Name+" targets", policies,
		func(_ *incremental.View, n name, p P) ([]policy.Target, bool) { return of(n, p), true }, slices.Equal[[]policy.Target])
}

// policyWinners returns the policies of a kind that are in force, by their targets. Each is computed once, however many policies
// have the same target: any user may create thousands.
func policyWinners[V any](e *incremental.Engine, k *kind.Kind, byTarget *incremental.Index[policy.Target, name, V], ages *incremental.Collection[name, int64]) *incremental.Collection[policy.Target, name] {
	return incremental.Map(e, k.Name+" in force", incremental.Keys(byTarget, "targets with "+k.Name),
		func(v *incremental.View, target policy.Target, _ struct{}) (name, bool) {
			var attached []policy.Policy[name]
			for _, n := range incremental.Lookup(v, byTarget, target) {
				created, _ := incremental.Fetch(v, ages, n)
				attached = append(attached, policy.Policy[name]{Name: types.NamespacedName(n), Created: created, Spec: n})
			}
			winner, ok := policy.Winner(attached)
			return winner.Spec, ok
		}, same[name])
}

// targetBuckets returns the buckets of targets of policies in force. A reader that needs to know for each Service and each of its
// ports whether a policy is in force reads the bucket of the Service first, so that the thousands of Services without a policy need
// no memory. A policy affects the readers of its bucket, which are few.
func targetBuckets(k *kind.Kind, winners *incremental.Collection[policy.Target, name]) *incremental.Collection[targetBucket, struct{}] {
	byBucket := incremental.NewIndex(winners, k.Name+" in force by bucket", func(t policy.Target, _ name) []targetBucket { return []targetBucket{bucketOf(t)} })
	return incremental.Keys(byBucket, "buckets with "+k.Name+" in force")
}

// targetBucket is a hash of the object that a policy targets.
type targetBucket uint8

func (b targetBucket) Compare(o targetBucket) int { return cmp.Compare(b, o) }

func bucketOf(t policy.Target) targetBucket {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Namespace + "/" + t.Name)) // a hash never returns an error
	sum := h.Sum32()
	return targetBucket(sum ^ sum>>8 ^ sum>>16 ^ sum>>24)
}

// targetRoute is a route that refers to an object as a backend, or a Gateway that does by one of its listeners or by the
// XTelemetryPolicy for it.
type targetRoute struct {
	Target policy.Target
	Route  kindName
}

func (r targetRoute) Compare(o targetRoute) int {
	return cmp.Or(r.Target.Compare(o.Target), r.Route.Compare(o.Route))
}

// targetGateway is a Gateway that reaches an object through a route or a listener.
type targetGateway struct {
	Target  policy.Target
	Gateway name
}

func (g targetGateway) Compare(o targetGateway) int {
	return cmp.Or(g.Target.Compare(o.Target), g.Gateway.Compare(o.Gateway))
}

// declareGatewaysByTarget finds the Gateways that reach the backends with policies; for other backends they are not needed. A policy
// reads these and not the routes, of which a backend may have thousands.
func (pg *policyGateways) declareGatewaysByTarget(e *incremental.Engine, targets *incremental.Collection[name, []policy.Target], listeners *listeners, routes *routes,
	collectors *incremental.Index[policy.Target, name, *apisx.XTelemetryPolicy], telemetryPolicies *telemetryPolicies) {
	of := " of " + pg.kind.Name
	whole := incremental.NewIndex(targets, "objects that are targets"+of,
		func(_ name, targets []policy.Target) (objects []policy.Target) {
			for _, target := range targets {
				objects = append(objects, target.Whole())
			}
			return objects
		})
	objects := incremental.Keys(whole, "targets"+of)
	through := func(target policy.Target, route kindName) targetRoute { return targetRoute{target, route} }
	toServices := incremental.Members(routes.referrers, "routes to target Services"+of, objects, through)
	toOthers := incremental.Members(routes.others, "routes to other targets"+of, objects, through)
	direct := incremental.FlatMap(e, "Gateways that name targets"+of, objects,
		func(v *incremental.View, target policy.Target, _ struct{}) (all []incremental.Entry[targetRoute, struct{}]) {
			// A referrer without a grant must not appear in the statuses of a backend's policies.
			grants := telemetryPolicies.backendRefs.grants
			gateways := listeners.referringTo(v, target, grants)
			for _, n := range incremental.Lookup(v, collectors, target) {
				if !grants.permitted(v, telemetryReferrer(n), target.Group, target.Kind, name{target.Namespace, target.Name}) {
					continue
				}
				gateways = append(gateways, telemetryPolicies.gatewaysOf(v, n, pg.gateways)...)
			}
			slices.SortFunc(gateways, name.Compare)
			for _, gateway := range slices.Compact(gateways) {
				all = append(all, incremental.Entry[targetRoute, struct{}]{Key: targetRoute{target, kindName{KindGateway, gateway}}})
			}
			return all
		}, same[struct{}])
	routesToTargets := incremental.Union(e, "routes to targets"+of, toServices, toOthers, direct)
	gateways := incremental.Map(e, "Gateways of routes to targets"+of, routesToTargets,
		func(v *incremental.View, r targetRoute, _ struct{}) ([]name, bool) {
			if r.Route.Kind == KindGateway {
				return []name{r.Route.Name}, true
			}
			a, _ := incremental.Fetch(v, routes.attachments, r.Route)
			if a == nil {
				return nil, false
			}
			of := a.reaching(pg.kind == kind.XBackend.Kind)
			return of, len(of) > 0
		}, slices.Equal[[]name])
	reached := incremental.NewIndex(gateways, "routes by target and Gateway"+of, func(r targetRoute, gateways []name) (keys []targetGateway) {
		for _, gw := range gateways {
			keys = append(keys, targetGateway{r.Target, gw})
		}
		return keys
	})
	pg.byTarget = incremental.NewIndex(incremental.Keys(reached, "Gateways of targets"+of), "Gateways by target"+of,
		func(g targetGateway, _ struct{}) []policy.Target { return []policy.Target{g.Target} })
}

// declareUnnamed finds the Gateways to which a policy applies and for which its status has no room. Their own statuses report the
// policy, as GEP-2648 suggests. The policy is in force there too: to reach Services without its TLS settings or limits would be
// worse than an incomplete status.
func (pg *policyGateways) declareUnnamed(e *incremental.Engine, targets *incremental.Collection[name, []policy.Target]) {
	unnamed := incremental.Map(e, pg.kind.Name+"'s Gateways without a place", targets,
		func(v *incremental.View, _ name, targets []policy.Target) (gateways []name, _ bool) {
			var all []policy.Ancestor
			for _, target := range targets {
				all = append(all, pg.reaching(v, target)...)
			}
			_, beyond := policy.Ancestors(all, policy.MaxAncestors)
			for _, a := range beyond {
				gateways = append(gateways, name(a.Gateway))
			}
			return gateways, len(gateways) > 0
		}, slices.Equal[[]name])
	pg.unnamedBy = incremental.NewIndex(unnamed, pg.kind.Name+" by Gateway that it does not name", func(_ name, gateways []name) []name { return gateways })
}

// unnamedPolicies reports which policies apply to a Gateway without naming it; "" if none.
func (pg *policyGateways) unnamedPolicies(v *incremental.View, gw name) string {
	var names []string
	for _, n := range incremental.Lookup(v, pg.unnamedBy, gw) {
		names = append(names, n.String())
	}
	if names == nil {
		return ""
	}
	return fmt.Sprintf("%s %s is for backends of this Gateway, and its status has room for %d Gateways, which are older", pg.kind.Name, condition.Some(names), policy.MaxAncestors)
}

func isService(t policy.Target) bool {
	return t.Group == corev1.GroupName && t.Kind == string(KindService)
}

// outcomes returns the Gateways that a policy's status names, and for each the outcomes of the targets that it reaches. A target
// that does not exist, or cannot be a target, is reported on all Gateways.
func (pg *policyGateways) outcomes(v *incremental.View, targets []policy.Target, of func(target policy.Target, field string) policy.Outcome) ([]policy.Ancestor, map[policy.Ancestor][]policy.Outcome) {
	var all []policy.Ancestor
	outcomes := make([]policy.Outcome, len(targets))
	reachedBy := make([][]policy.Ancestor, len(targets))
	for i, target := range targets {
		reachedBy[i] = pg.reaching(v, target)
		all = append(all, reachedBy[i]...)
	}
	if len(all) == 0 {
		return nil, nil
	}
	for i, target := range targets {
		outcomes[i] = of(target, fmt.Sprintf("spec.targetRefs[%d]", i))
	}
	named, _ := policy.Ancestors(all, policy.MaxAncestors)
	byGateway := map[policy.Ancestor][]policy.Outcome{}
	for _, a := range named {
		for i, o := range outcomes {
			if slices.Contains(reachedBy[i], a) || len(reachedBy[i]) == 0 && o.Missing != nil {
				byGateway[a] = append(byGateway[a], o)
			}
		}
	}
	return named, byGateway
}

// reaching returns the Gateways that reach a target through a route, without duplicates.
func (pg *policyGateways) reaching(v *incremental.View, target policy.Target) (all []policy.Ancestor) {
	for _, g := range incremental.Lookup(v, pg.byTarget, target.Whole()) {
		gw, _ := incremental.Fetch(v, pg.gateways.managed, g.Gateway)
		all = append(all, policy.Ancestor{Gateway: types.NamespacedName(g.Gateway), Created: gw.Created})
	}
	slices.SortFunc(all, policy.Ancestor.Compare)
	return all
}
