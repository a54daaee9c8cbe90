package status

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// defined are the condition types of the Gateway API, at whatever place it has
// them, past ones included. Only these may we remove.
var defined = map[string]bool{
	"Accepted": true, "AddressesAssigned": true, "Conflicted": true, "DefaultGateway": true, "Detached": true,
	"InsecureFrontendValidationMode": true, "OverlappingTLSConfig": true, "PartiallyInvalid": true,
	"Programmed": true, "Ready": true, "ResolvedRefs": true, "Scheduled": true, "SupportedVersion": true,
}

// definedOfPolicies are, in our entries of the status of a policy, those of BackendTrafficPolicy beside them (gateway.envoyproxy.io, and Degraded, which is our own): what they tell of may end.
var definedOfPolicies = map[string]bool{"Overridden": true, "Merged": true, "Warning": true, "Aggregated": true, "Degraded": true}

// defines reports whether conditions of a type are ours to remove.
func (m Merger) defines(conditionType string) bool {
	return defined[conditionType] || m.policy && definedOfPolicies[conditionType]
}

// conditions merges by type: a condition that stays keeps its place, and its
// lastTransitionTime while its status is the same.
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

// stale says that the conditions of ours that an object has were computed from a
// later generation than those we want.
func (m Merger) stale(have, want []metav1.Condition) bool {
	var newest int64
	for _, w := range want {
		newest = max(newest, w.ObservedGeneration)
	}
	if newest == 0 {
		return false // nothing is wanted: the relation ended
	}
	for _, h := range have {
		possible := m.generation == 0 || h.ObservedGeneration <= m.generation
		if m.defines(h.Type) && h.ObservedGeneration > newest && possible {
			return true
		}
	}
	return false
}

// pending are the conditions of an object that nobody looks after, as the CRDs'
// defaults have them.
func pending(types ...string) []metav1.Condition {
	conditions := make([]metav1.Condition, len(types))
	for i, t := range types {
		conditions[i] = metav1.Condition{Type: t, Status: metav1.ConditionUnknown, Reason: "Pending", Message: "Waiting for controller"}
	}
	return conditions
}

// written says that some controller has set conditions of the Gateway API.
func written(conditions []metav1.Condition) bool {
	for _, c := range conditions {
		if defined[c.Type] {
			return true
		}
	}
	return false
}

// mergeListeners gives each wanted listener what stays of the conditions that one of its name has.
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
