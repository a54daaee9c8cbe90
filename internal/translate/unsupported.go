package translate

import (
	"slices"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// What is not supported yet is said in the object's status, never passed over.

// otherRoute is a route of a kind that is not served yet.
type otherRoute struct {
	Generation int64
	Parents    []gwv1.ParentReference
}

// supportedRoutes are the kinds of route that listeners take.
var supportedRoutes = []Kind{KindHTTPRoute}

// kindUnsupported is the problem of a route of a kind that no listener takes yet.
func kindUnsupported(kind Kind, gateway name, field string) *condition.Problem {
	if slices.Contains(supportedRoutes, kind) {
		return nil
	}
	return condition.NewProblem(gwv1.RouteReasonNotAllowedByListeners, field, "use an HTTPRoute",
		"Gateway %s does not serve it: %s is not supported yet", gateway, kind)
}

func (t *Translator) declareOtherRouteStatuses() {
	t.otherStatuses = incremental.Map(t.engine, "other route status", t.in.otherRoutes.Collection,
		func(v *incremental.View, k kindName, r otherRoute) (*status[gwv1.RouteStatus], bool) {
			a := t.attach(v, &routeFacts{Kind: k.Kind, Name: k.Name, Parents: r.Parents})
			s := &status[gwv1.RouteStatus]{Generation: r.Generation}
			for _, p := range a.Parents {
				s.Status.Parents = append(s.Status.Parents, t.parentStatus(p, r.Generation,
					condition.False(gwv1.RouteConditionAccepted, p.Problem.Reason, p.Problem.String()),
					condition.Unknown(gwv1.RouteConditionResolvedRefs, gwv1.RouteReasonPending, "references are not looked at: "+string(k.Kind)+" is not supported yet")))
			}
			return s, len(a.Parents) > 0
		}, sameDeeply[*status[gwv1.RouteStatus]])
}

func (t *Translator) declareListenerSetStatuses() {
	t.setStatuses = incremental.Map(t.engine, "ListenerSet status", t.in.listenerSets.Collection,
		func(v *incremental.View, n name, ls *gwv1.ListenerSet) (*status[gwv1.ListenerSetStatus], bool) {
			if _, ours := incremental.Fetch(v, t.managedListenerSets, n); !ours {
				return nil, false
			}
			p := condition.NewProblem(gwv1.ListenerSetReasonNotAllowed, "spec.parentRef", "move its listeners to the Gateway",
				"ListenerSets are not supported yet")
			generation := generationOf(ls)
			return &status[gwv1.ListenerSetStatus]{generation, gwv1.ListenerSetStatus{Conditions: condition.Observed(generation,
				condition.False(gwv1.ListenerSetConditionAccepted, p.Reason, p.String()),
				condition.False(gwv1.ListenerSetConditionProgrammed, p.Reason, p.String()))}}, true
		}, sameDeeply[*status[gwv1.ListenerSetStatus]])
}
