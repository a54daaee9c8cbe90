package status

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// defined are the condition types of the Gateway API, of all objects and all versions. This controller may remove only these.
var defined = map[string]bool{
	"Accepted": true, "AddressesAssigned": true, "Conflicted": true, "DefaultGateway": true, "Detached": true,
	"InsecureFrontendValidationMode": true, "OverlappingTLSConfig": true, "PartiallyInvalid": true,
	"Programmed": true, "Ready": true, "ResolvedRefs": true, "Scheduled": true, "SupportedVersion": true,
}

// definedOfPolicies are the condition types of BackendTrafficPolicies (gateway.envoyproxy.io, and Degraded of Moongate itself) that
// this controller may also remove from its entries in the status of a policy, because what they report may end.
var definedOfPolicies = map[string]bool{"Overridden": true, "Merged": true, "Warning": true, "Aggregated": true, "Degraded": true}

// defines reports whether this controller may remove conditions of a type.
func (m Merger) defines(conditionType string) bool {
	return defined[conditionType] || m.policy && definedOfPolicies[conditionType]
}

// conditions merges by type: a condition that stays keeps its place, and its lastTransitionTime while its status is the same.
func (m Merger) conditions(existing, want []metav1.Condition) []metav1.Condition {
	merged := make([]metav1.Condition, 0, max(len(existing), len(want)))
	for _, e := range existing {
		w := find(want, e.Type)
		switch {
		case w != nil && find(merged, e.Type) == nil:
			merged = append(merged, m.transition(*w, &e))
		case w == nil && !m.defines(e.Type):
			merged = append(merged, e)
		}
	}
	for _, w := range want {
		if find(merged, w.Type) == nil && len(merged) < maxConditions {
			merged = append(merged, m.transition(w, nil))
		}
	}
	if len(merged) == 0 {
		return nil
	}
	return merged
}

// FallsBack reports whether the conditions of a route for a parent say that an earlier version of the route is served.
func FallsBack(conditions []metav1.Condition) bool {
	c := find(conditions, string(gwv1.RouteConditionPartiallyInvalid))
	return c != nil && c.Status == metav1.ConditionTrue && strings.HasPrefix(c.Message, "Fall Back")
}

// keepGeneration sets the observedGeneration of Accepted to what it was before. The Gateway API requires that of a route of which an
// earlier version is served, and only the status still has that generation.
func keepGeneration(conditions, before []metav1.Condition) {
	accepted, was := find(conditions, string(gwv1.RouteConditionAccepted)), find(before, string(gwv1.RouteConditionAccepted))
	if accepted != nil && was != nil && accepted.Status == metav1.ConditionTrue && was.Status == metav1.ConditionTrue {
		accepted.ObservedGeneration = min(accepted.ObservedGeneration, was.ObservedGeneration)
	}
}

func (m Merger) transition(c metav1.Condition, before *metav1.Condition) metav1.Condition {
	if before != nil && before.Status == c.Status {
		c.LastTransitionTime = before.LastTransitionTime
	} else {
		c.LastTransitionTime = metav1.NewTime(m.Now.UTC().Truncate(time.Second))
	}
	return c
}

func find(list []metav1.Condition, conditionType string) *metav1.Condition {
	for i := range list {
		if list[i].Type == conditionType {
			return &list[i]
		}
	}
	return nil
}

// stale reports whether the existing conditions of this controller were computed from a later generation than those in want.
func (m Merger) stale(have, want []metav1.Condition) bool {
	var newest int64
	for _, w := range want {
		newest = max(newest, w.ObservedGeneration)
	}
	if newest == 0 {
		return false // nothing is wanted: the object is no longer managed
	}
	for _, h := range have {
		possible := m.generation == 0 || h.ObservedGeneration <= m.generation
		if m.defines(h.Type) && h.ObservedGeneration > newest && possible {
			return true
		}
	}
	return false
}

// pending returns the conditions of an object without a controller, which are the defaults of the CRDs.
func pending(types ...string) []metav1.Condition {
	conditions := make([]metav1.Condition, len(types))
	for i, t := range types {
		conditions[i] = metav1.Condition{Type: t, Status: metav1.ConditionUnknown, Reason: "Pending", Message: "Waiting for controller"}
	}
	return conditions
}

// written reports whether a controller has set conditions of the Gateway API.
func written(conditions []metav1.Condition) bool {
	for _, c := range conditions {
		if defined[c.Type] {
			return true
		}
	}
	return false
}

// mergeListeners merges the conditions of each wanted listener with those of the existing one with its name.
func mergeListeners[L any](m Merger, existing, want []L, view func(*L) (gwv1.SectionName, *[]metav1.Condition)) []L {
	var merged []L
	for _, l := range want {
		name, conditions := view(&l)
		var before []metav1.Condition
		for i := range existing {
			if n, have := view(&existing[i]); n == name {
				before = *have
			}
		}
		*conditions = m.conditions(before, *conditions)
		merged = append(merged, l)
	}
	return merged
}
