package status

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestTransitions: what a person should look at, and that it is over, is told once; what waits is neither.
func TestTransitions(t *testing.T) {
	type conditions = []metav1.Condition
	is := func(of string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: of, Status: status, Reason: reason, Message: message}
	}
	route := func(parents ...conditions) *gwv1.RouteStatus {
		s := &gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{{ControllerName: "example.com/other", ParentRef: gwv1.ParentReference{Name: "theirs"}, Conditions: conditions{is("Accepted", "False", "Theirs", "")}}}}
		for i, c := range parents {
			s.Parents = append(s.Parents, gwv1.RouteParentStatus{ControllerName: "ours", ParentRef: gwv1.ParentReference{Name: gwv1.ObjectName("gw" + string(rune('0'+i)))}, Conditions: c})
		}
		return s
	}
	gateway := func(own conditions, listeners ...conditions) *gwv1.GatewayStatus {
		s := &gwv1.GatewayStatus{Conditions: own}
		for i, c := range listeners {
			s.Listeners = append(s.Listeners, gwv1.ListenerStatus{Name: gwv1.SectionName("l" + string(rune('0'+i))), Conditions: c})
		}
		return s
	}
	missing, refused := is("ResolvedRefs", "False", "BackendNotFound", "x is not there"), is("ResolvedRefs", "False", "RefNotPermitted", "not allowed")
	resolved, partly := is("ResolvedRefs", "True", "ResolvedRefs", ""), is("PartiallyInvalid", "True", "UnsupportedValue", "rule 1 is dropped")
	pending := is("Programmed", "False", "Pending", "no proxy is ready")
	for _, c := range []struct {
		name          string
		before, after any
		want          []Transition
	}{
		{"new and good", route(), route(conditions{resolved}), nil},
		{"new and bad", route(), route(conditions{missing}), []Transition{{true, "BackendNotFound", "x is not there"}}},
		{"turned bad", route(conditions{resolved}), route(conditions{missing}), []Transition{{true, "BackendNotFound", "x is not there"}}},
		{"stays bad", route(conditions{missing}), route(conditions{is("ResolvedRefs", "False", "BackendNotFound", "y is not there")}), nil},
		{"for another reason", route(conditions{missing}), route(conditions{refused}), []Transition{{true, "RefNotPermitted", "not allowed"}}},
		{"good again", route(conditions{missing}), route(conditions{resolved}), []Transition{{false, "ResolvedRefs", "ResolvedRefs is True"}}},
		{"ended", route(conditions{missing}), route(), nil},
		{"bad where True", route(conditions{resolved}), route(conditions{resolved, partly}), []Transition{{true, "UnsupportedValue", "rule 1 is dropped"}}},
		{"gone", route(conditions{partly}), route(conditions{}), []Transition{{false, "Recovered", "PartiallyInvalid no longer applies"}}},
		{"a part of the parents", route(conditions{resolved}, conditions{resolved}), route(conditions{resolved}, conditions{missing}), []Transition{{true, "BackendNotFound", "Gateway gw1: x is not there"}}},
		{"many parents", route(conditions{}, conditions{}, conditions{}, conditions{}, conditions{}), route(conditions{missing}, conditions{missing}, conditions{missing}, conditions{missing}, conditions{missing}),
			[]Transition{{true, "BackendNotFound", "Gateway gw0, Gateway gw1, Gateway gw2, and 2 more: x is not there"}}},
		{"listeners", gateway(nil, conditions{}, conditions{}), gateway(nil, conditions{resolved}, conditions{refused}), []Transition{{true, "RefNotPermitted", "listener l1: not allowed"}}},
		{"waits", gateway(nil), gateway(conditions{pending, is("Accepted", "Unknown", "Pending", "")}), nil},
		{"waited", gateway(conditions{pending}), gateway(conditions{is("Programmed", "True", "Programmed", "")}), nil},
		{"has no address yet", gateway(conditions{pending}), gateway(conditions{is("AddressesAssigned", "False", "NotAssigned", "none"), is("Programmed", "False", "AddressNotAssigned", "none")}), nil},
		{"has lost its address", gateway(conditions{is("AddressesAssigned", "True", "AddressesAssigned", ""), is("Programmed", "True", "Programmed", "")}),
			gateway(conditions{is("AddressesAssigned", "False", "NotAssigned", "none"), is("Programmed", "False", "AddressNotAssigned", "none")}), []Transition{{true, "NotAssigned", "none"}}},
		{"not ours to judge", gateway(nil), gateway(conditions{is("example.com/Healthy", "False", "Bad", ""), is("Overridden", "True", "Overridden", "")}), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Transitions(c.before, c.after, "ours"); !slices.Equal(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if got := Transitions(c.after, c.after, "ours"); len(got) != 0 {
				t.Errorf("told again: %+v", got)
			}
		})
	}
}
