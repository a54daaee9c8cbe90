package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/api/v1alpha1"
)

// Part is a part of a status that has its own conditions: the object as a whole, one of its listeners, or an entry for a parent or
// ancestor.
type Part struct {
	Listener   gwv1.SectionName      // "" if none
	Ref        *gwv1.ParentReference // the parent or ancestor, nil if none
	Conditions []metav1.Condition
}

// Parts returns the parts of a status, which is as returned by kind.StatusOf or accepted by Merge. It returns the entries for
// parents and ancestors of the controller, or of all controllers if it is "".
func Parts(status any, controller gwv1.GatewayController) (parts []Part) {
	whole := func(conditions []metav1.Condition) { parts = append(parts, Part{Conditions: conditions}) }
	listener := func(name gwv1.SectionName, conditions []metav1.Condition) {
		parts = append(parts, Part{Listener: name, Conditions: conditions})
	}
	entry := func(ref *gwv1.ParentReference, of gwv1.GatewayController, conditions []metav1.Condition) {
		if controller == "" || of == controller {
			parts = append(parts, Part{Ref: ref, Conditions: conditions})
		}
	}
	switch s := status.(type) {
	case *gwv1.GatewayClassStatus:
		whole(s.Conditions)
	case *v1alpha1.GatewayParametersStatus:
		whole(s.Conditions)
	case *gwv1.GatewayStatus:
		whole(s.Conditions)
		for _, l := range s.Listeners {
			listener(l.Name, l.Conditions)
		}
	case *gwv1.ListenerSetStatus:
		whole(s.Conditions)
		for _, l := range s.Listeners {
			listener(l.Name, l.Conditions)
		}
	case *gwx.ListenerSetStatus:
		whole(s.Conditions)
		for _, l := range s.Listeners {
			listener(l.Name, l.Conditions)
		}
	case *gwv1.RouteStatus:
		for i := range s.Parents {
			p := &s.Parents[i]
			entry(&p.ParentRef, p.ControllerName, p.Conditions)
		}
	case *gwv1.PolicyStatus:
		for i := range s.Ancestors {
			a := &s.Ancestors[i]
			entry(&a.AncestorRef, a.ControllerName, a.Conditions)
		}
	case *apisx.BackendStatus:
		for i := range s.Ancestors {
			a := &s.Ancestors[i]
			entry(&a.AncestorRef, a.ControllerName, a.Conditions)
		}
	}
	return parts
}
