package listener

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// reasonInvalidTLSConfig is the reason of condition Programmed of a listener that terminates TLS and refers to no certificate. The implementer's guide names it, the API
// has no constant for it.
const reasonInvalidTLSConfig gwv1.ListenerConditionReason = "InvalidTLSConfig"

// Programmed returns that condition. refused is why the listener is not accepted, waits why no client can reach it even if it is valid;
// nil if there is no reason.
func (l *Listener) Programmed(refused *condition.Problem, servable bool, waits *condition.Problem) metav1.Condition {
	refuse := func(r gwv1.ListenerConditionReason, message string) metav1.Condition {
		return condition.False(gwv1.ListenerConditionProgrammed, r, message)
	}
	switch {
	case refused != nil:
		return refuse(gwv1.ListenerReasonInvalid, "the listener is not accepted; see condition Accepted")
	case l.Pending:
		return refuse(gwv1.ListenerReasonPending, "the Gateway waits for its GatewayClass")
	case l.Refused:
		return refuse(gwv1.ListenerReasonInvalid, "the Gateway is not accepted; see its condition Accepted")
	case l.Unserved:
		return refuse(gwv1.ListenerReasonInvalid, "the Gateway has no address; see its condition Programmed")
	case !servable && l.Terminates() && len(l.Certificates) == 0:
		return refuse(reasonInvalidTLSConfig, "the listener has no certificate; see condition ResolvedRefs")
	case !servable:
		return refuse(gwv1.ListenerReasonInvalid, "references do not resolve; see condition ResolvedRefs")
	case waits != nil:
		return refuse(gwv1.ListenerConditionReason(waits.Reason), waits.String())
	}
	return condition.True(gwv1.ListenerConditionProgrammed, gwv1.ListenerReasonProgrammed)
}

// Conditions returns all conditions of a listener; each problem is nil if there is none. refs are the problems of references, the
// first of which determines the reason.
func (l *Listener) Conditions(refused *condition.Problem, refs []*condition.Problem, conflict, overlap *condition.Problem, program metav1.Condition, notes ...*condition.Problem) []metav1.Condition {
	accepted := condition.True(gwv1.ListenerConditionAccepted, gwv1.ListenerReasonAccepted)
	all := slices.Clone(l.Notes)
	for _, n := range notes {
		all = append(all, n.String())
	}
	accepted.Message = condition.Sentences(all)
	if refused != nil {
		accepted = condition.False(gwv1.ListenerConditionAccepted, refused.Reason, refused.String())
	}
	resolved := condition.True(gwv1.ListenerConditionResolvedRefs, gwv1.ListenerReasonResolvedRefs)
	if len(refs) > 0 {
		resolved = condition.False(gwv1.ListenerConditionResolvedRefs, refs[0].Reason, condition.List(refs))
	}
	out := []metav1.Condition{accepted, program, resolved}
	for _, negative := range []struct {
		kind gwv1.ListenerConditionType
		p    *condition.Problem
	}{{gwv1.ListenerConditionConflicted, conflict}, {gwv1.ListenerConditionOverlappingTLSConfig, overlap}} {
		if negative.p != nil {
			c := condition.True(negative.kind, negative.p.Reason)
			c.Message = negative.p.String()
			out = append(out, c)
		}
	}
	return out
}
