package translate

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/policy"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// trafficPolicy is the result of an XBackendTrafficPolicy by itself.
type trafficPolicy struct {
	Budget   *config.RetryBudget        // nil if it does not limit retries
	Sessions *config.SessionPersistence // nil if it has no session persistence
	Invalid  *condition.Problem         // why it cannot be applied
}

func (p *trafficPolicy) same(o *trafficPolicy) bool {
	return sameMessage(p.Budget, o.Budget) && sameMessage(p.Sessions, o.Sessions) && sameDeeply(p.Invalid, o.Invalid)
}

// trafficPolicies contains XBackendTrafficPolicies, without their effect on routes.
type trafficPolicies struct {
	objects *incremental.Collection[name, *gwx.XBackendTrafficPolicy]

	targets  *incremental.Collection[name, []policy.Target]
	byTarget *incremental.Index[policy.Target, name, []policy.Target]
	winners  *incremental.Collection[policy.Target, name]
	// buckets are those that contain targets of winners.
	buckets *incremental.Collection[targetBucket, struct{}]
	all     *incremental.Collection[name, *trafficPolicy]
}

func newTrafficPolicies(e *incremental.Engine, objects *incremental.Collection[name, *gwx.XBackendTrafficPolicy]) *trafficPolicies {
	tp := &trafficPolicies{objects: objects}
	tp.targets = policyTargets(e, kind.XBackendTrafficPolicy.Kind, objects, func(n name, p *gwx.XBackendTrafficPolicy) []policy.Target {
		return policy.ObjectTargets(n.Namespace, p.Spec.TargetRefs)
	})
	tp.byTarget = incremental.NewIndex(tp.targets, "XBackendTrafficPolicies by target", func(_ name, targets []policy.Target) []policy.Target { return targets })
	ages := incremental.Map(e, "XBackendTrafficPolicy age", objects,
		func(_ *incremental.View, _ name, p *gwx.XBackendTrafficPolicy) (int64, bool) {
			return createdOf(p), true
		}, same[int64])
	tp.winners = policyWinners(e, kind.XBackendTrafficPolicy.Kind, tp.byTarget, ages)
	tp.buckets = targetBuckets(kind.XBackendTrafficPolicy.Kind, tp.winners)
	tp.all = incremental.Map(e, "XBackendTrafficPolicy", objects,
		func(_ *incremental.View, n name, p *gwx.XBackendTrafficPolicy) (*trafficPolicy, bool) {
			return readTrafficPolicy(n, &p.Spec), true
		}, (*trafficPolicy).same)
	return tp
}

// The defaults of a retryConstraint, which the API server would set.
const (
	defaultRetryPercent     = 20
	defaultRetryInterval    = 10 * time.Second
	defaultMinRetries       = 10
	defaultMinRetryInterval = time.Second
)

// readTrafficPolicy validates a policy without its targets.
func readTrafficPolicy(n name, spec *gwx.BackendTrafficPolicySpec) *trafficPolicy {
	p := &trafficPolicy{}
	source := kind.XBackendTrafficPolicy.Name + " " + n.String()
	if c := spec.RetryConstraint; c != nil {
		p.readRetries(c, source)
	}
	if sp := spec.SessionPersistence; sp != nil {
		var wrong *condition.Problem
		if p.Sessions, wrong = rule.SessionPersistence(sp, "spec.sessionPersistence", source); wrong != nil {
			p.invalid(wrong.Field, wrong.Remedy, "%s", wrong.What)
		}
	}
	if p.Invalid != nil {
		p.Budget, p.Sessions = nil, nil
	}
	return p
}

// readRetries validates a retryConstraint.
func (p *trafficPolicy) readRetries(c *gwx.RetryConstraint, source string) {
	budget, least := ptr.Deref(c.Budget, gwx.BudgetDetails{}), ptr.Deref(c.MinRetryRate, gwx.RequestRate{})
	p.Budget = &config.RetryBudget{
		Policy:           source,
		Percent:          uint32(ptr.Deref(budget.Percent, defaultRetryPercent)),
		IntervalNanos:    p.duration(budget.Interval, defaultRetryInterval, time.Second, "spec.retryConstraint.budget.interval"),
		MinRetries:       uint32(ptr.Deref(least.Count, defaultMinRetries)),
		MinIntervalNanos: p.duration(least.Interval, defaultMinRetryInterval, 1, "spec.retryConstraint.minRetryRate.interval"),
	}
}

// duration reads a duration, which must be at least least and at most one hour; an older CRD may not have checked it.
func (p *trafficPolicy) duration(d *gwv1.Duration, absent, least time.Duration, field string) int64 {
	if d == nil {
		return int64(absent)
	}
	length, err := time.ParseDuration(string(*d))
	if err != nil || length < least || length > time.Hour {
		p.invalid(field, fmt.Sprintf("write one from %s to 1h", max(least, time.Millisecond)), "%q is no duration that can be used", *d)
	}
	return int64(length)
}

// invalid records a problem unless there is one already: one is enough to act on.
func (p *trafficPolicy) invalid(field, remedy, format string, args ...any) {
	p.Invalid = cmp.Or(p.Invalid, condition.NewProblem(gwv1.PolicyReasonInvalid, field, remedy, format, args...))
}

// inForce returns the policy in force for a Service or an XBackend; the zero value if there is none.
func (tp *trafficPolicies) inForce(v *incremental.View, target policy.Target) trafficPolicy {
	if _, some := incremental.Fetch(v, tp.buckets, bucketOf(target)); !some {
		return trafficPolicy{}
	}
	if winner, ok := incremental.Fetch(v, tp.winners, target); ok {
		if p, ok := incremental.Fetch(v, tp.all, winner); ok { // else reading it panicked
			return *p
		}
	}
	return trafficPolicy{}
}

// trafficPolicyStatuses computes the statuses of XBackendTrafficPolicies: one entry for each Gateway that reaches their targets.
type trafficPolicyStatuses struct {
	o         *Options
	services  *services
	xbackends *xbackends
	policies  *trafficPolicies
	gateways  *policyGateways

	all *incremental.Collection[name, *status[gwv1.PolicyStatus]]
}

func newTrafficPolicyStatuses(e *incremental.Engine, o *Options, services *services, xbackends *xbackends, policies *trafficPolicies, gateways *policyGateways) *trafficPolicyStatuses {
	ts := &trafficPolicyStatuses{o: o, services: services, xbackends: xbackends, policies: policies, gateways: gateways}
	ts.all = incremental.Map(e, "XBackendTrafficPolicy status", policies.objects,
		func(v *incremental.View, n name, p *gwx.XBackendTrafficPolicy) (*status[gwv1.PolicyStatus], bool) {
			s := ts.status(v, n, p)
			return s, len(s.Status.Ancestors) > 0
		}, sameDeeply[*status[gwv1.PolicyStatus]])
	return ts
}

func (ts *trafficPolicyStatuses) status(v *incremental.View, n name, p *gwx.XBackendTrafficPolicy) *status[gwv1.PolicyStatus] {
	s := &status[gwv1.PolicyStatus]{Generation: generationOf(p)}
	read, ok := incremental.Fetch(v, ts.policies.all, n)
	if !ok { // readTrafficPolicy panicked
		return s
	}
	targets, _ := incremental.Fetch(v, ts.policies.targets, n)
	named, outcomes := ts.gateways.outcomes(v, targets, func(target policy.Target, field string) policy.Outcome { return ts.outcome(v, n, read, target, field) })
	for _, a := range named {
		s.Status.Ancestors = append(s.Status.Ancestors, a.Status(ts.o.ControllerName, s.Generation, policy.Accepted(read.Invalid, outcomes[a])))
	}
	return s
}

// outcome returns the outcome of one of a policy's targets.
func (ts *trafficPolicyStatuses) outcome(v *incremental.View, policyName name, read *trafficPolicy, target policy.Target, field string) policy.Outcome {
	o := policy.Outcome{Field: field, Target: target}
	n, exists := name{target.Namespace, target.Name}, false
	switch {
	case isService(target):
		_, exists = incremental.Fetch(v, ts.services.all, n)
	case isXBackend(target):
		_, exists = incremental.Fetch(v, ts.xbackends.objects, n)
	default:
		o.Missing = condition.NewProblem(gwv1.PolicyReasonInvalid, field+".kind", "name a Service or an XBackend", "%s of group %q cannot be a backend", target.Kind, target.Group)
		return o
	}
	if !exists {
		o.Missing = policy.NotFound(field+".name", target, "create it or correct the name")
	} else if winner, _ := incremental.Fetch(v, ts.policies.winners, target); winner != policyName {
		o.Lost = (*types.NamespacedName)(&winner)
	} else if isXBackend(target) && read.Sessions != nil {
		// An XBackend itself can have sessionPersistence only if it is of type EndpointSelector.
		if x, used := incremental.Fetch(v, ts.xbackends.all, n); used && x.Hostname != "" {
			o.Note = condition.NewProblem("", field+".name", "configure it in rules", "sessionPersistence does not apply to %s, which is not of type EndpointSelector", target).String()
		}
	}
	return o
}
