// Package status merges the statuses that this controller computes into those that objects have. It exists because objects are
// shared: other controllers write entries too, and every writer must leave the rest unchanged.
//
// What belongs to this controller is identified by name: in the statuses of routes and policies the entries with its controllerName,
// elsewhere (a GatewayClass, Gateway or ListenerSet has one controller) everything except conditions of types that the Gateway API
// does not define. Those, and entries of other controllers, keep their place and content. All functions are pure: they do not modify
// their arguments, and they report whether a merge changes anything.
//
// It imports neither translate, proxy nor source.
package status

import (
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
)

// The maximum lengths of the lists, by the CRDs. Nothing is added beyond them: an API server would reject the whole status.
const (
	MaxParents          = 32
	MaxAncestors        = 16 // of policies
	MaxBackendAncestors = 32 // of XBackends
	maxConditions       = 8
)

// Merger merges statuses for one controller.
type Merger struct {
	// ControllerName identifies the entries of this controller.
	ControllerName gwv1.GatewayController
	// Now is the lastTransitionTime of conditions that change, in whole seconds as in Kubernetes.
	Now time.Time
	// Unknown reports whether it is not known what a parent or ancestor is: an entry of this controller for it is kept even if it is
	// not wanted. Nil means never.
	Unknown func(gwv1.ParentReference) bool
	// generation is that of the existing object; 0 if unknown. An observedGeneration that is greater cannot be correct, and is
	// ignored.
	generation int64
	// policy is set while entries of a policy are merged.
	policy bool
}

// Merge returns object's status with desired merged into it, and whether that differs. The object must be of a kind with a status;
// desired is a *GatewayClassStatus, *GatewayStatus, *ListenerSetStatus, *RouteStatus (for every kind of route), *PolicyStatus (for
// every kind of policy) or *BackendStatus (for XBackends), of which the last three contain only entries of this controller, or
// *v1alpha1.GatewayParametersStatus for GatewayParameters; for XListenerSets a *ListenerSetStatus of their group. Its
// lastTransitionTime is ignored. If it is nil, the object is no longer managed, and what belongs to this controller is removed,
// except entries whose parent is Unknown. The result has the type of desired. ok is false if the types of object and desired do not
// match.
//
// A desired status with an older observedGeneration than the existing one changes nothing.
func (m Merger) Merge(object metav1.Object, desired any) (merged any, changed, ok bool) {
	m.generation = object.GetGeneration()
	switch s := kind.StatusOf(object).(type) {
	case *gwv1.GatewayClassStatus:
		return apply(*s, desired, m.GatewayClass)
	case *gwv1.GatewayStatus:
		return apply(*s, desired, m.Gateway)
	case *gwv1.ListenerSetStatus:
		return apply(*s, desired, m.ListenerSet)
	case *gwx.ListenerSetStatus:
		return apply(*s, desired, m.XListenerSet)
	case *gwv1.PolicyStatus:
		return apply(*s, desired, m.Policy)
	case *apisx.BackendStatus:
		return apply(*s, desired, m.Backend)
	case *v1alpha1.GatewayParametersStatus:
		return apply(*s, desired, m.GatewayParameters)
	case *gwv1.RouteStatus:
		if unknown := m.Unknown; unknown != nil { // of a parent that the route no longer names, the entry must be removed
			parents, defaults := kind.ParentsOf(object), kind.DefaultScopeOf(object) != ""
			m.Unknown = func(ref gwv1.ParentReference) bool {
				named := defaults && ref.SectionName == nil && ref.Port == nil || slices.ContainsFunc(parents, func(p gwv1.ParentReference) bool { return sameRef(&p, &ref) })
				return named && unknown(ref)
			}
		}
		return apply(*s, desired, m.Route)
	}
	return nil, false, false
}

func apply[S any](existing S, desired any, merge func(S, *S) (S, bool)) (any, bool, bool) {
	d, ok := desired.(*S)
	if !ok && !isNil(desired) {
		return nil, false, false
	}
	merged, changed := merge(existing, d)
	return &merged, changed, true
}

// GatewayClass merges; if desired is nil, the class is no longer managed, and the result is the status that it would have without
// this controller.
func (m Merger) GatewayClass(existing gwv1.GatewayClassStatus, desired *gwv1.GatewayClassStatus) (gwv1.GatewayClassStatus, bool) {
	if desired == nil {
		if !written(existing.Conditions) {
			return existing, false
		}
		desired = &gwv1.GatewayClassStatus{Conditions: pending("Accepted")}
	}
	if m.stale(existing.Conditions, desired.Conditions) {
		return existing, false
	}
	merged := *desired
	merged.Conditions = m.conditions(existing.Conditions, desired.Conditions)
	return merged, !reflect.DeepEqual(existing, merged)
}

// Gateway merges; if desired is nil, the Gateway is no longer managed, and the result is the status that it would have without this
// controller.
func (m Merger) Gateway(existing gwv1.GatewayStatus, desired *gwv1.GatewayStatus) (gwv1.GatewayStatus, bool) {
	return mergeWithListeners(m, existing, desired,
		func(s *gwv1.GatewayStatus) (*[]metav1.Condition, *[]gwv1.ListenerStatus) {
			return &s.Conditions, &s.Listeners
		},
		func(l *gwv1.ListenerStatus) (gwv1.SectionName, *[]metav1.Condition) { return l.Name, &l.Conditions })
}

// ListenerSet is Gateway for the status of a ListenerSet.
func (m Merger) ListenerSet(existing gwv1.ListenerSetStatus, desired *gwv1.ListenerSetStatus) (gwv1.ListenerSetStatus, bool) {
	return mergeWithListeners(m, existing, desired,
		func(s *gwv1.ListenerSetStatus) (*[]metav1.Condition, *[]gwv1.ListenerEntryStatus) {
			return &s.Conditions, &s.Listeners
		},
		func(l *gwv1.ListenerEntryStatus) (gwv1.SectionName, *[]metav1.Condition) {
			return l.Name, &l.Conditions
		})
}

// XListenerSet is Gateway for the status of an XListenerSet.
func (m Merger) XListenerSet(existing gwx.ListenerSetStatus, desired *gwx.ListenerSetStatus) (gwx.ListenerSetStatus, bool) {
	return mergeWithListeners(m, existing, desired,
		func(s *gwx.ListenerSetStatus) (*[]metav1.Condition, *[]gwx.ListenerEntryStatus) {
			return &s.Conditions, &s.Listeners
		},
		func(l *gwx.ListenerEntryStatus) (gwv1.SectionName, *[]metav1.Condition) { return l.Name, &l.Conditions })
}

// mergeWithListeners merges the status of an object with listeners; parts returns its conditions and listeners, and view the name
// and conditions of a listener.
func mergeWithListeners[S, L any](m Merger, existing S, desired *S,
	parts func(*S) (*[]metav1.Condition, *[]L), of func(*L) (gwv1.SectionName, *[]metav1.Condition)) (S, bool) {
	before, listenersBefore := parts(&existing)
	if desired == nil {
		if !written(*before) && len(*listenersBefore) == 0 {
			return existing, false
		}
		desired = new(S)
		conditions, _ := parts(desired)
		*conditions = pending("Accepted", "Programmed")
	}
	merged := *desired
	conditions, listeners := parts(&merged)
	if m.stale(*before, *conditions) {
		return existing, false
	}
	*conditions = m.conditions(*before, *conditions)
	*listeners = mergeListeners(m, *listenersBefore, *listeners, of)
	return merged, !reflect.DeepEqual(existing, merged)
}

// GatewayParameters merges; if desired is nil, no object of this controller uses them any longer.
func (m Merger) GatewayParameters(existing v1alpha1.GatewayParametersStatus, desired *v1alpha1.GatewayParametersStatus) (v1alpha1.GatewayParametersStatus, bool) {
	var want []metav1.Condition
	if desired != nil {
		want = desired.Conditions
	}
	if m.stale(existing.Conditions, want) {
		return existing, false
	}
	merged := v1alpha1.GatewayParametersStatus{Conditions: m.conditions(existing.Conditions, want)}
	return merged, len(existing.Conditions)+len(merged.Conditions) > 0 && !reflect.DeepEqual(existing, merged)
}

// Route merges the parents of a route of any kind; if desired is nil, none belongs to this controller.
func (m Merger) Route(existing gwv1.RouteStatus, desired *gwv1.RouteStatus) (gwv1.RouteStatus, bool) {
	var want []gwv1.RouteParentStatus
	if desired != nil {
		want = desired.Parents
	}
	parents, changed := mergeEntries(m, existing.Parents, want, MaxParents, func(p *gwv1.RouteParentStatus) entry {
		return entry{ref: &p.ParentRef, controller: &p.ControllerName, conditions: &p.Conditions}
	})
	return gwv1.RouteStatus{Parents: parents}, changed
}

// Policy merges the ancestors of a policy; if desired is nil, none belongs to this controller.
func (m Merger) Policy(existing gwv1.PolicyStatus, desired *gwv1.PolicyStatus) (gwv1.PolicyStatus, bool) {
	var want []gwv1.PolicyAncestorStatus
	if desired != nil {
		want = desired.Ancestors
	}
	m.policy = true
	ancestors, changed := mergeEntries(m, existing.Ancestors, want, MaxAncestors, func(a *gwv1.PolicyAncestorStatus) entry {
		return entry{ref: &a.AncestorRef, controller: &a.ControllerName, conditions: &a.Conditions}
	})
	return gwv1.PolicyStatus{Ancestors: ancestors}, changed
}

// Backend merges the ancestors of an XBackend; if desired is nil, none belongs to this controller.
func (m Merger) Backend(existing apisx.BackendStatus, desired *apisx.BackendStatus) (apisx.BackendStatus, bool) {
	var want []apisx.BackendAncestorStatus
	if desired != nil {
		want = desired.Ancestors
	}
	ancestors, changed := mergeEntries(m, existing.Ancestors, want, MaxBackendAncestors, func(a *apisx.BackendAncestorStatus) entry {
		return entry{ref: &a.AncestorRef, controller: &a.ControllerName, conditions: &a.Conditions}
	})
	return apisx.BackendStatus{Ancestors: ancestors}, changed
}
