package translate

import (
	"cmp"
	"fmt"
	"slices"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// maxLongDistinct limits, for the policies of a namespace, the global rate limits that count values separately for longer than an
// hour. A limit that is counted for each route counts once per targetRef. Redis remembers each value for the period of its limit.
const maxLongDistinct = 256

// trafficShare is how much of the limits of a namespace a policy uses.
type trafficShare struct {
	expressions  int // the size of its regular expressions, which each proxy has once for all routes
	longDistinct int
}

// beyond returns which limit of the namespace the policy exceeds when the others use used, or nil.
func (s trafficShare) beyond(used trafficShare) *condition.Problem {
	switch {
	case used.expressions+s.expressions > rule.MaxShareSize:
		return condition.NewProblem(gwv1.PolicyReasonInvalid, "spec.rateLimit", "shorten its regular expressions, or have it in another namespace",
			"there is no room for its regular expressions, of size %d when compiled: with those of older BackendTrafficPolicies of its namespace they would exceed %d", s.expressions, rule.MaxShareSize)
	case used.longDistinct+s.longDistinct > maxLongDistinct:
		return condition.NewProblem(gwv1.PolicyReasonInvalid, "spec.rateLimit.global.rules", "use a unit of Hour or shorter, set shared: true, or have the policy for fewer targets",
			"it has %s with type Distinct and a unit longer than Hour, of all targets together: with those of older BackendTrafficPolicies of its namespace they would exceed %d",
			limits(s.longDistinct), maxLongDistinct)
	}
	return nil
}

func limits(n int) string {
	if n == 1 {
		return "1 limit"
	}
	return fmt.Sprintf("%d limits", n)
}

// declareShares returns the policies, and marks those invalid that exceed the limits of their namespace. Each namespace has its own
// limits. Older policies come first, so that a new policy cannot stop what is served.
func (bp *backendTrafficPolicies) declareShares(e *incremental.Engine, read *incremental.Collection[name, *readPolicy], ages *incremental.Collection[name, int64]) *incremental.Collection[name, *readPolicy] {
	byNamespace := incremental.NewIndex(read, "BackendTrafficPolicies with a share by namespace", func(n name, p *readPolicy) []kindNamespace {
		if p.Compiled == nil || p.Expressions == 0 && p.LongDistinct == 0 && p.SharedLongDistinct == 0 {
			return nil
		}
		return []kindNamespace{{KindBackendTrafficPolicy, n.Namespace}}
	})
	excess := incremental.FlatMap(e, "BackendTrafficPolicies beyond their share", incremental.Keys(byNamespace, "namespaces with a share of BackendTrafficPolicies"),
		func(v *incremental.View, in kindNamespace, _ struct{}) []incremental.Entry[name, *condition.Problem] {
			return bp.beyondShare(v, read, ages, incremental.Lookup(v, byNamespace, in))
		}, sameDeeply[*condition.Problem])
	return incremental.Map(e, "BackendTrafficPolicy within its share", read,
		func(v *incremental.View, n name, p *readPolicy) (*readPolicy, bool) {
			if invalid, is := incremental.Fetch(v, excess, n); is {
				return &readPolicy{Invalid: invalid, Fields: p.Fields}, true
			}
			return p, true
		}, (*readPolicy).same)
}

// beyondShare returns the policies of a namespace that exceed its limits. A policy after a rejected one that fits into the rest is
// accepted.
func (bp *backendTrafficPolicies) beyondShare(v *incremental.View, read *incremental.Collection[name, *readPolicy], ages *incremental.Collection[name, int64], policies []name) (excess []incremental.Entry[name, *condition.Problem]) {
	type sized struct {
		name
		trafficShare
		created int64
	}
	all := make([]sized, 0, len(policies))
	var total trafficShare
	for _, n := range policies {
		p, _ := incremental.Fetch(v, read, n)
		created, _ := incremental.Fetch(v, ages, n)
		s := trafficShare{expressions: p.Expressions, longDistinct: p.SharedLongDistinct}
		if p.LongDistinct > 0 {
			object, _ := incremental.Fetch(v, bp.objects, n)
			s.longDistinct += p.LongDistinct * max(1, len(object.Spec.TargetRefs)) // selected targets do not count: other users decide how many these are
		}
		all = append(all, sized{n, s, created})
		total.expressions, total.longDistinct = total.expressions+s.expressions, total.longDistinct+s.longDistinct
	}
	if (trafficShare{}).beyond(total) == nil {
		return nil
	}
	slices.SortFunc(all, func(a, b sized) int { return cmp.Or(cmp.Compare(a.created, b.created), a.name.precedence(b.name)) })
	var used trafficShare
	for _, p := range all {
		if problem := p.beyond(used); problem != nil {
			excess = append(excess, incremental.Entry[name, *condition.Problem]{Key: p.name, Value: problem})
			continue
		}
		used.expressions, used.longDistinct = used.expressions+p.expressions, used.longDistinct+p.longDistinct
	}
	return excess
}
