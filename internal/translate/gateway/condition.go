package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// The condition that reports that a Gateway is a default Gateway (GEP-3793). Package v1 has no constants for it, and the reason is
// not standardized.
const (
	conditionDefaultGateway gwv1.GatewayConditionType   = "DefaultGateway"
	reasonDefaultScope      gwv1.GatewayConditionReason = "DefaultScope"
)

// Summary collects the states of listeners, and of other objects, that determine the conditions of their Gateway.
type Summary struct {
	accepted, refused, unresolved []string
	programmed                    int
	notes                         []string
	reference                     *condition.Problem
}

// Unresolved records what is wrong with a reference of the Gateway itself, nil if nothing. The first one is reported.
func (s *Summary) Unresolved(p *condition.Problem) { s.reference = cmp.Or(s.reference, p) }

// Note adds a sentence to the message of condition Accepted, unless it is "".
func (s *Summary) Note(text string) {
	if text != "" {
		s.notes = append(s.notes, text)
	}
}

// Add adds a listener with the states of its conditions.
func (s *Summary) Add(listener string, accepted, resolved, programmed bool) {
	if accepted {
		s.accepted = append(s.accepted, listener)
	} else {
		s.refused = append(s.refused, listener)
	}
	if !resolved {
		s.unresolved = append(s.unresolved, listener)
	}
	if programmed {
		s.programmed++
	}
}

// Conditions returns the conditions of the Gateway. unreached is why clients cannot reach it, or nil; lagging reports which proxies
// do not serve the current configuration, "" if none.
func (g *Gateway) Conditions(sum *Summary, unreached *condition.Problem, lagging string) []metav1.Condition {
	accepted := g.accepted(sum)
	programmed := g.programmed(accepted, sum, unreached)
	if programmed.Status == metav1.ConditionTrue {
		programmed.Message = lagging
	}
	out := []metav1.Condition{accepted, programmed, resolved(sum)}
	if g.DefaultScope != "" {
		c := condition.True(conditionDefaultGateway, reasonDefaultScope)
		c.Message = fmt.Sprintf("Gateway has default scope %s: routes with useDefaultGateways %[1]s are attached, as far as its listeners allow them", g.DefaultScope)
		out = append(out, c)
	}
	if len(g.Insecure) > 0 {
		c := condition.True(gwv1.GatewayConditionInsecureFrontendValidationMode, gwv1.GatewayReasonConfigurationChanged)
		c.Message = strings.Join(g.Insecure, ", ") + ": clients may be served without a valid certificate; use " + string(gwv1.AllowValidOnly)
		out = append(out, c)
	}
	return out
}

func (g *Gateway) accepted(sum *Summary) metav1.Condition {
	switch {
	case g.Pending != nil:
		return condition.Unknown(gwv1.GatewayConditionAccepted, gwv1.GatewayReasonPending, g.Pending.String())
	case g.Refused != nil:
		return condition.False(gwv1.GatewayConditionAccepted, g.Refused.Reason, g.Refused.String())
	}
	c := condition.True(gwv1.GatewayConditionAccepted, gwv1.GatewayReasonAccepted)
	notes := append(slices.Clone(g.Notes), sum.notes...)
	if len(sum.refused) > 0 || len(sum.accepted) == 0 {
		c.Reason = string(gwv1.GatewayReasonListenersNotValid)
		notes = append(notes, sum.message())
	}
	if len(sum.accepted) == 0 {
		c.Status = metav1.ConditionFalse
	}
	c.Message = strings.Join(notes, ". ")
	return c
}

func (s *Summary) message() string {
	if len(s.refused) == 0 {
		return "spec.listeners: there is no listener; add one"
	}
	valid := "no listener is valid"
	if len(s.accepted) > 0 {
		valid = "accepted: " + condition.Quoted(s.accepted)
	}
	return "spec.listeners: not valid: " + condition.Quoted(s.refused) + "; " + valid + "; see status.listeners"
}

func (g *Gateway) programmed(accepted metav1.Condition, sum *Summary, unreached *condition.Problem) metav1.Condition {
	refuse := func(r gwv1.GatewayConditionReason, message string) metav1.Condition {
		return condition.False(gwv1.GatewayConditionProgrammed, r, message)
	}
	switch {
	case g.Pending != nil:
		return refuse(gwv1.GatewayReasonPending, g.Pending.String())
	case accepted.Status != metav1.ConditionTrue:
		return refuse(gwv1.GatewayReasonInvalid, "the Gateway is not accepted; see condition Accepted")
	case unreached != nil:
		return refuse(gwv1.GatewayConditionReason(unreached.Reason), unreached.String())
	case sum.programmed == 0:
		return refuse(gwv1.GatewayReasonInvalid, "spec.listeners: no listener can be served; see status.listeners")
	}
	return condition.True(gwv1.GatewayConditionProgrammed, gwv1.GatewayReasonProgrammed)
}

func resolved(sum *Summary) metav1.Condition {
	switch {
	case sum.reference != nil:
		return condition.False(gwv1.GatewayConditionResolvedRefs, sum.reference.Reason, sum.reference.String())
	case len(sum.unresolved) > 0:
		return condition.False(gwv1.GatewayConditionResolvedRefs, gwv1.GatewayReasonListenersNotResolved,
			"spec.listeners: references do not resolve: "+condition.Quoted(sum.unresolved)+"; see status.listeners")
	}
	return condition.True(gwv1.GatewayConditionResolvedRefs, gwv1.GatewayReasonResolvedRefs)
}
