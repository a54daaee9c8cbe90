package translate

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// ReasonInternalError is the reason of the condition Accepted of an object on which translation has panicked. If the object was
// translated before, the earlier result stays in force and the condition is True; a new object is not accepted.
const ReasonInternalError = "InternalError"

// reportPanics makes the engine continue if a function panics.
func (t *Translator) reportPanics() {
	if t.options.Panicked == nil {
		return
	}
	t.engine.Panicked = func(p incremental.Panic, v any) {
		t.options.Panicked(p.Function, fmt.Sprint(p.Key), v)
	}
}

// failing returns the objects on which functions have panicked, if they have a status.
func (t *Translator) failing() map[kindName]bool {
	var out map[kindName]bool
	for p := range t.engine.Panics() {
		k, ok := objectOf(p)
		if !ok {
			continue
		}
		if out == nil {
			out = map[kindName]bool{}
		}
		out[k] = true
	}
	return out
}

// objectOf returns the object whose status reports the panic of a function.
func objectOf(p incremental.Panic) (kindName, bool) {
	switch k := p.Key.(type) {
	case kindName:
		return k, true
	case listenerKey:
		return k.Owner(), true
	case policyPair:
		return kindName{KindBackendTrafficPolicy, k.Child}, true
	case name:
		var found *kind.Kind // the longest prefix: "Gateway" is a prefix of "GatewayClass"
		for _, kind := range kind.All() {
			if strings.HasPrefix(p.Function, kind.Name) && (found == nil || len(kind.Name) > len(found.Name)) {
				found = kind
			}
		}
		if found != nil && found.HasStatus() {
			return kindName{Kind(found.Name), k}, true
		}
		if strings.HasPrefix(p.Function, mergedSpec) {
			return kindName{KindGatewayClass, k}, true
		}
		for _, f := range []string{"listener", "proxy spec", "ticket keys"} {
			if strings.HasPrefix(p.Function, f) {
				return kindName{KindGateway, k}, true
			}
		}
	}
	return kindName{}, false
}

// addFailing adds changes of the statuses of objects whose functions have started or stopped to panic.
func (t *Translator) addFailing(out []StatusChange) []StatusChange {
	now := t.failing()
	for k := range t.failed {
		if !now[k] && !slices.ContainsFunc(out, func(c StatusChange) bool { return c.Object == statusKey(k) }) {
			s, generation := t.currentStatus(k)
			out = append(out, StatusChange{Object: statusKey(k), Status: s, Generation: generation})
		}
	}
	for k := range now {
		s, generation := t.failingStatus(k)
		change := StatusChange{Object: statusKey(k), Status: s, Generation: generation}
		at := slices.IndexFunc(out, func(c StatusChange) bool { return c.Object == change.Object })
		switch {
		case at >= 0:
			out[at] = change
		case !t.failed[k] && s != nil:
			out = append(out, change)
		}
	}
	t.failed = now
	return out
}

// failingStatus returns the present status with the panic in the condition Accepted, or a status with that condition alone; nil if
// it is not known that the object is managed by this controller.
func (t *Translator) failingStatus(k kindName) (any, int64) {
	present, generation := t.currentStatus(k)
	fresh := condition.False(gwv1.GatewayConditionAccepted, ReasonInternalError,
		"The controller failed on this object, which is a defect of it: its log has more. Please report it.")
	withFailure := func(list []metav1.Condition) []metav1.Condition {
		list = slices.Clone(list)
		for i := range list {
			if c := &list[i]; c.Type == fresh.Type {
				c.Reason = ReasonInternalError
				c.Message = "The controller failed on a change of this object or of what it refers to, which is a defect of it: its log has more. " +
					"What was understood last stays in force. Please report it."
				return list
			}
		}
		return append(list, fresh)
	}
	switch s := present.(type) {
	case *gwv1.GatewayClassStatus:
		c := *s
		c.Conditions = withFailure(s.Conditions)
		return &c, generation
	case *gwv1.GatewayStatus:
		c := *s
		c.Conditions = withFailure(s.Conditions)
		return &c, generation
	case *gwv1.ListenerSetStatus:
		c := *s
		c.Conditions = withFailure(s.Conditions)
		return &c, generation
	case *gwx.ListenerSetStatus:
		c := *s
		c.Conditions = withFailure(s.Conditions)
		return &c, generation
	case *v1alpha1.GatewayParametersStatus:
		c := *s
		c.Conditions = withFailure(s.Conditions)
		return &c, generation
	case *gwv1.RouteStatus:
		c := *s
		c.Parents = slices.Clone(s.Parents)
		for i := range c.Parents {
			c.Parents[i].Conditions = withFailure(c.Parents[i].Conditions)
		}
		return &c, generation
	case *apisx.BackendStatus:
		c := *s
		c.Ancestors = slices.Clone(s.Ancestors)
		for i := range c.Ancestors {
			c.Ancestors[i].Conditions = withFailure(c.Ancestors[i].Conditions)
		}
		return &c, generation
	case *gwv1.PolicyStatus:
		c := *s
		c.Ancestors = slices.Clone(s.Ancestors)
		for i := range c.Ancestors {
			c.Ancestors[i].Conditions = withFailure(c.Ancestors[i].Conditions)
		}
		return &c, generation
	}
	return t.freshStatus(k, fresh)
}

// freshStatus returns the status of an object that was never translated.
func (t *Translator) freshStatus(k kindName, accepted metav1.Condition) (any, int64) {
	switch k.Kind {
	case KindGatewayClass:
		if c, ok := t.in.classes.Get(k.Name); ok && string(c.Spec.ControllerName) == t.options.ControllerName {
			return &gwv1.GatewayClassStatus{Conditions: condition.Observed(c.Generation, accepted)}, c.Generation
		}
	case KindGateway:
		if g, ok := t.in.gateways.Get(k.Name); ok {
			if _, managed := t.gatewayClasses.all.Get(name{"", string(g.Spec.GatewayClassName)}); managed {
				return &gwv1.GatewayStatus{Conditions: condition.Observed(g.Generation, accepted)}, g.Generation
			}
		}
	default:
		if r, ok := t.in.routes.Get(k); ok {
			return t.freshRouteStatus(k.Name.Namespace, r, accepted)
		}
	}
	return nil, 0
}

// freshRouteStatus returns a status for the parents that are Gateways of this controller.
func (t *Translator) freshRouteStatus(namespace string, r metav1.Object, accepted metav1.Condition) (any, int64) {
	s, generation, refs := &gwv1.RouteStatus{}, r.GetGeneration(), slices.Clone(kind.ParentsOf(r))
	if scope := kind.DefaultScopeOf(r); scope != "" {
		first, _ := t.gateways.defaults.Get(defaultScope(scope))
		for _, gw := range first {
			refs = append(refs, gatewayRef(gw))
		}
	}
	for _, ref := range refs {
		n := name{namespace, string(ref.Name)}
		if ref.Namespace != nil {
			n.Namespace = string(*ref.Namespace)
		}
		if ref.Kind != nil && string(*ref.Kind) != string(KindGateway) {
			continue
		}
		if _, managed := t.gateways.managed.Get(n); managed {
			s.Parents = append(s.Parents, gwv1.RouteParentStatus{ParentRef: ref, ControllerName: gwv1.GatewayController(t.options.ControllerName),
				Conditions: condition.Observed(generation, accepted)})
		}
	}
	if len(s.Parents) == 0 {
		return nil, 0
	}
	return s, generation
}
