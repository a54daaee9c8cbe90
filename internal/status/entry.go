package status

import (
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// entry contains what the entries of routes (parents) and policies (ancestors) have in common.
type entry struct {
	ref        *gwv1.ParentReference
	controller *gwv1.GatewayController
	conditions *[]metav1.Condition
}

// mergeEntries replaces the entries of this controller in a list: those that stay keep their place, those that are no longer wanted
// are removed unless m.Unknown reports true, and new ones are added at the end, as far as limit allows.
func mergeEntries[E any](m Merger, existing, want []E, limit int, view func(*E) entry) ([]E, bool) {
	if staleEntries(m, existing, want, view) {
		return existing, false
	}
	merged := make([]E, 0, len(existing)+len(want)) // never nil: the CRDs require the list
	placed := make([]bool, len(want))
	for _, e := range existing {
		v := view(&e)
		if *v.controller != m.ControllerName {
			merged = append(merged, e)
			continue
		}
		i := slices.IndexFunc(want, func(w E) bool { return sameRef(view(&w).ref, v.ref) })
		switch {
		case i >= 0 && !placed[i] && m.Unknown != nil && m.Unknown(*v.ref) && notFound(view(&want[i])):
			placed[i] = true
			merged = append(merged, e) // it exists, and cannot be read
		case i >= 0 && !placed[i]:
			placed[i] = true
			merged = append(merged, finish(m, want[i], view, *v.conditions))
		case i < 0 && m.Unknown != nil && m.Unknown(*v.ref):
			merged = append(merged, e)
		}
	}
	for i, w := range want {
		if m.Unknown != nil && notFound(view(&w)) && m.Unknown(*view(&w).ref) {
			continue
		}
		if !placed[i] && len(merged) < limit {
			merged = append(merged, finish(m, w, view, nil))
		}
	}
	return merged, len(existing) != len(merged) || len(merged) > 0 && !reflect.DeepEqual(existing, merged)
}

// notFound reports whether an entry says that its parent or ancestor does not exist.
func notFound(v entry) bool {
	return slices.ContainsFunc(*v.conditions, func(c metav1.Condition) bool { return c.Reason == string(gwv1.PolicyReasonTargetNotFound) })
}

// finish returns a wanted entry whose conditions are merged with those of the existing one.
func finish[E any](m Merger, w E, view func(*E) entry, before []metav1.Condition) E {
	v := view(&w)
	*v.controller = m.ControllerName
	*v.conditions = m.conditions(before, *v.conditions)
	if FallsBack(*v.conditions) {
		keepGeneration(*v.conditions, before)
	}
	return w
}

// staleEntries reports whether want is older than the existing entries of this controller.
func staleEntries[E any](m Merger, existing, want []E, view func(*E) entry) bool {
	var have, wanted []metav1.Condition
	for _, e := range existing {
		if v := view(&e); *v.controller == m.ControllerName {
			have = append(have, *v.conditions...)
		}
	}
	for _, w := range want {
		wanted = append(wanted, *view(&w).conditions...)
	}
	return m.stale(have, wanted)
}

// sameRef compares references with the defaults that the CRDs set.
func sameRef(a, b *gwv1.ParentReference) bool {
	return ptr.Deref(a.Group, gwv1.GroupName) == ptr.Deref(b.Group, gwv1.GroupName) &&
		ptr.Deref(a.Kind, "Gateway") == ptr.Deref(b.Kind, "Gateway") &&
		ptr.Deref(a.Namespace, "") == ptr.Deref(b.Namespace, "") &&
		a.Name == b.Name &&
		ptr.Deref(a.SectionName, "") == ptr.Deref(b.SectionName, "") &&
		ptr.Deref(a.Port, 0) == ptr.Deref(b.Port, 0)
}
