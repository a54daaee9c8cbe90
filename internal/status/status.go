// Package status merges the statuses that we want into those that objects have.
// It exists because objects are shared: other controllers write entries beside
// ours, and every writer must leave the rest as it found it.
//
// What is ours is known by name: in the statuses of routes and policies the
// entries with our controllerName, elsewhere (a GatewayClass, Gateway or
// ListenerSet has one controller) everything but the conditions of types that
// the Gateway API does not define. Those, and foreign entries, keep their place
// and content. All functions are pure: they modify nothing that they are given,
// and a merge that changes nothing says so.
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

// The bounds of the lists, by the CRDs. Beyond them nothing is added: an API
// server would refuse the whole status.
const (
	maxConditions       = 8
	maxParents          = 32
	maxAncestors        = 16 // of policies
	maxBackendAncestors = 32
)

// Merger merges on behalf of one controller.
type Merger struct {
	// ControllerName marks our entries.
	ControllerName gwv1.GatewayController
	// Now is the lastTransitionTime of conditions that change; of full seconds, as
	// Kubernetes keeps them.
	Now time.Time
	// Unknown reports whether it is not known what a parent or ancestor is: an entry of ours for it stays as it is where none is
	// wanted. Nil is never.
	Unknown func(gwv1.ParentReference) bool
	// generation of the object that is merged into; 0 where unknown. Nothing can have
	// observed a later one: who says so does not keep us from writing.
	generation int64
	// policy says that entries of a policy are merged.
	policy bool
}

// Merge returns object's status with desired in it, and whether that is another
// one. The object is of a kind with a status; desired is a
// *GatewayClassStatus, *GatewayStatus, *ListenerSetStatus, *RouteStatus (for
// every kind of route), *PolicyStatus (for every kind of policy) or *BackendStatus (for XBackends), of which the last three hold our entries
// only, or *v1alpha1.GatewayParametersStatus for one of those; lastTransitionTime
// is ignored; for XListenerSets a *ListenerSetStatus of their group; nil ends our relation to the object, but for entries whose parent is Unknown.
// The result has desired's type. ok is false if object and desired do not go
// together.
//
// A desired status that is older by its observedGeneration than what the object
// has changes nothing.
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
		if unknown := m.Unknown; unknown != nil { // of a parent that the route does not name any more nothing is to be said
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

// GatewayClass merges; desired nil: the class is no longer ours, and its status
// becomes the one that it would have without us.
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

// Gateway merges; desired nil: the Gateway is no longer ours, and its status
// becomes the one that it would have without us.
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

// mergeWithListeners merges the status of an object with listeners; parts are its conditions and listeners, of the name and conditions of a listener.
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

// GatewayParameters merges; desired nil: nothing of ours uses them any more.
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

// Route merges the parents of a route of any kind; desired nil: none is ours.
func (m Merger) Route(existing gwv1.RouteStatus, desired *gwv1.RouteStatus) (gwv1.RouteStatus, bool) {
	var want []gwv1.RouteParentStatus
	if desired != nil {
		want = desired.Parents
	}
	parents, changed := mergeEntries(m, existing.Parents, want, maxParents, func(p *gwv1.RouteParentStatus) entry {
		return entry{ref: &p.ParentRef, controller: &p.ControllerName, conditions: &p.Conditions}
	})
	return gwv1.RouteStatus{Parents: parents}, changed
}

// Policy merges the ancestors of a policy; desired nil: none is ours.
func (m Merger) Policy(existing gwv1.PolicyStatus, desired *gwv1.PolicyStatus) (gwv1.PolicyStatus, bool) {
	var want []gwv1.PolicyAncestorStatus
	if desired != nil {
		want = desired.Ancestors
	}
	m.policy = true
	ancestors, changed := mergeEntries(m, existing.Ancestors, want, maxAncestors, func(a *gwv1.PolicyAncestorStatus) entry {
		return entry{ref: &a.AncestorRef, controller: &a.ControllerName, conditions: &a.Conditions}
	})
	return gwv1.PolicyStatus{Ancestors: ancestors}, changed
}

// Backend merges the ancestors of an XBackend; desired nil: none is ours.
func (m Merger) Backend(existing apisx.BackendStatus, desired *apisx.BackendStatus) (apisx.BackendStatus, bool) {
	var want []apisx.BackendAncestorStatus
	if desired != nil {
		want = desired.Ancestors
	}
	ancestors, changed := mergeEntries(m, existing.Ancestors, want, maxBackendAncestors, func(a *apisx.BackendAncestorStatus) entry {
		return entry{ref: &a.AncestorRef, controller: &a.ControllerName, conditions: &a.Conditions}
	})
	return apisx.BackendStatus{Ancestors: ancestors}, changed
}
