package policy

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// Outcome is the outcome of one of a policy's targets.
type Outcome struct {
	Field  string // such as spec.targetRefs[0]
	Target Target
	// Missing is why the policy is not attached to the target, or nil.
	Missing *condition.Problem
	// Blocked is why no policy is in force for the target, or nil.
	Blocked *condition.Problem
	// Lost is the policy that is in force for the target instead, or nil.
	Lost *types.NamespacedName
	// Note is what the policy does not do for a target for which it is in force, or "".
	Note string
}

// problem returns why the policy is not in force for the target, or nil.
func (o *Outcome) problem() *condition.Problem {
	switch {
	case o.Missing != nil:
		return o.Missing
	case o.Blocked != nil:
		return o.Blocked
	case o.Lost != nil:
		return condition.NewProblem(gwv1.PolicyReasonConflicted, o.Field, "remove one of both, or attach them to different targets",
			"%s is in force for %s, because it is older or comes first by name", o.Lost, o.Target)
	}
	return nil
}

// String returns the target for a message.
func (t Target) String() string {
	s := fmt.Sprintf("%s %s/%s", t.Kind, t.Namespace, t.Name)
	if t.Section != "" {
		s += fmt.Sprintf(", section %q", t.Section)
	}
	return s
}

// NotFound returns the problem of a target that does not exist: a policy for a section never applies to the whole object instead.
func NotFound(field string, t Target, remedy string) *condition.Problem {
	return condition.NewProblem(gwv1.PolicyReasonTargetNotFound, field, remedy, "%s does not exist", t)
}

// Accepted returns that condition of a policy with those outcomes. invalid is why it cannot be applied to any target, or nil; notes
// are added if it is accepted. A policy is accepted if it is in force for at least one of its targets; the message reports the
// others.
func Accepted(invalid *condition.Problem, outcomes []Outcome, notes ...string) metav1.Condition {
	var problems []*condition.Problem
	reason := ""
	for i := range outcomes {
		p := outcomes[i].problem()
		if p == nil {
			if n := outcomes[i].Note; n != "" {
				notes = append(slices.Clone(notes), n)
			}
			continue
		}
		problems = append(problems, p)
		if reason == "" || p.Reason == string(gwv1.PolicyReasonConflicted) {
			reason = p.Reason
		}
	}
	nowhere := len(problems) > 0 && len(problems) == len(outcomes)
	switch {
	case invalid != nil && nowhere && reason == string(gwv1.PolicyReasonConflicted): // which a policy without precedence must say, valid or not
		return condition.False(gwv1.PolicyConditionAccepted, reason, condition.List(append(problems, invalid)))
	case invalid != nil:
		return condition.False(gwv1.PolicyConditionAccepted, invalid.Reason, invalid.String())
	case nowhere:
		return condition.False(gwv1.PolicyConditionAccepted, reason, condition.List(problems))
	}
	c := condition.True(gwv1.PolicyConditionAccepted, gwv1.PolicyReasonAccepted)
	if len(problems) > 0 {
		notes = slices.Insert(slices.Clone(notes), 0, condition.List(problems))
	}
	c.Message = condition.Sentences(notes)
	return c
}

// MaxAncestors is the maximum length of status.ancestors that the API server allows.
const MaxAncestors = 16

// MaxBackendAncestors is the same for XBackends.
const MaxBackendAncestors = 32

// Ancestor is a Gateway to whose requests a policy applies.
type Ancestor struct {
	Gateway types.NamespacedName
	Created int64 // in nanoseconds since the epoch
}

// Compare orders the oldest first, then the first by namespace and name: a new Gateway does not displace another from a status.
func (a Ancestor) Compare(o Ancestor) int {
	return cmp.Or(cmp.Compare(a.Created, o.Created), CompareNames(a.Gateway, o.Gateway))
}

// Ancestors splits all into those that a status with that room names, and the others. GEP-2648 suggests to report the latter on the
// objects to which the policy applies.
func Ancestors(all []Ancestor, room int) (named, beyond []Ancestor) {
	all = slices.Clone(all)
	slices.SortFunc(all, Ancestor.Compare)
	all = slices.Compact(all)
	n := min(len(all), room)
	return all[:n], all[n:]
}

// Status returns an entry of status.ancestors.
func (a Ancestor) Status(controller string, generation int64, conditions ...metav1.Condition) gwv1.PolicyAncestorStatus {
	group, kind, namespace := gwv1.Group(gwv1.GroupName), gwv1.Kind("Gateway"), gwv1.Namespace(a.Gateway.Namespace)
	return gwv1.PolicyAncestorStatus{
		AncestorRef:    gwv1.ParentReference{Group: &group, Kind: &kind, Namespace: &namespace, Name: gwv1.ObjectName(a.Gateway.Name)},
		ControllerName: gwv1.GatewayController(controller),
		Conditions:     condition.Observed(generation, conditions...),
	}
}
