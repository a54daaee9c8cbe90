package translate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// What is not supported yet is said in the object's status, never passed over.

// kindUnsupported is the problem of a route of a kind that no listener takes yet.
func kindUnsupported(kind Kind, gateway name, field string) *condition.Problem {
	if routeKindOf(kind) != nil {
		return nil
	}
	return condition.NewProblem(gwv1.RouteReasonNotAllowedByListeners, field, "use an HTTPRoute",
		"Gateway %s does not serve it: %s is not supported yet", gateway, kind)
}

// unsupportedRoute are the conditions of a route of such a kind.
func unsupportedRoute(kind Kind, p parent) []metav1.Condition {
	return []metav1.Condition{
		condition.False(gwv1.RouteConditionAccepted, p.Problem.Reason, p.Problem.String()),
		condition.Unknown(gwv1.RouteConditionResolvedRefs, gwv1.RouteReasonPending, "references are not looked at: "+string(kind)+" is not supported yet"),
	}
}
