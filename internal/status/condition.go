package status

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defined are the condition types of the Gateway API, at whatever place it has
// them, past ones included. Only these may we remove.
var defined = map[string]bool{
	"Accepted": true, "AddressesAssigned": true, "Conflicted": true, "Detached": true,
	"InsecureFrontendValidationMode": true, "OverlappingTLSConfig": true, "PartiallyInvalid": true,
	"Programmed": true, "Ready": true, "ResolvedRefs": true, "Scheduled": true, "SupportedVersion": true,
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
		case w == nil && !defined[e.Type]:
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
func stale(have, want []metav1.Condition) bool {
	var newest int64
	for _, w := range want {
		newest = max(newest, w.ObservedGeneration)
	}
	if newest == 0 {
		return false // nothing is wanted: the relation ended
	}
	for _, h := range have {
		if defined[h.Type] && h.ObservedGeneration > newest {
			return true
		}
	}
	return false
}
