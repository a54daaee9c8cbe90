package cli

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestProblemsByKind: what is missing because a manifest is wrong is counted by kinds of which there are only so many.
func TestProblemsByKind(t *testing.T) {
	s := newObjectStore(controllerName)
	if got := s.problemsByKind(); len(got) != 0 {
		t.Errorf("before anything is read: %v", got)
	}
	route := kind.ObjectKey{Kind: "HTTPRoute", Name: "a"}
	s.change(files.Change{Problems: []files.Problem{
		{Object: route}, {Object: route}, {}, {Object: kind.ObjectKey{Kind: "Typo"}},
		{Object: kind.ObjectKey{Kind: "Deployment"}, Ignored: true}, {Object: kind.ObjectKey{Kind: "VirtualService"}, Ignored: true, Warning: true},
	}})
	if got, want := s.problemsByKind(), map[string]int{"HTTPRoute": 2, "": 1, "(other)": 2}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestUnserved: a Gateway with one listener that is served is ready, whatever is wrong beside it; of another it is said why nothing of it is.
func TestUnserved(t *testing.T) {
	condition := func(of string, is bool, reason, message string) metav1.Condition {
		c := metav1.Condition{Type: of, Status: metav1.ConditionFalse, Reason: reason, Message: message}
		if is {
			c.Status = metav1.ConditionTrue
		}
		return c
	}
	listener := func(n gwv1.SectionName, accepted, programmed bool) gwv1.ListenerStatus {
		reason := gwv1.ListenerReasonAccepted
		if !accepted {
			reason = gwv1.ListenerReasonPortUnavailable
		}
		return gwv1.ListenerStatus{Name: n, Conditions: []metav1.Condition{condition("Accepted", accepted, string(reason), "port 80 is taken"), condition("Programmed", programmed, "", "")}}
	}
	gateway := func(accepted bool, message string, listeners ...gwv1.ListenerStatus) *gwv1.GatewayStatus {
		return &gwv1.GatewayStatus{Listeners: listeners, Conditions: []metav1.Condition{condition("Accepted", accepted, "", ""), condition("Programmed", false, "", message)}}
	}
	key := kind.Gateway.Key("default", "web")
	for name, test := range map[string]struct {
		status *gwv1.GatewayStatus
		set    bool // a ListenerSet has a listener that is served
		want   string
	}{
		"one of two addresses":     {gateway(true, "address 10.99.99.99 cannot be used", listener("http", true, true)), false, ""},
		"no address":               {gateway(true, "address 10.99.99.99 cannot be used", listener("http", true, false)), false, "Gateway default/web is not served: address 10.99.99.99 cannot be used"},
		"its only port is taken":   {gateway(false, "the Gateway is not accepted", listener("http", false, false)), false, "Gateway default/web is not served: listener http: port 80 is taken"},
		"one of two ports":         {gateway(true, "", listener("http", false, false), listener("https", true, true)), false, ""},
		"refused":                  {gateway(false, "the Gateway is not accepted"), false, ""},
		"a ListenerSet has others": {gateway(false, "the Gateway is not accepted", listener("http", false, false)), true, ""},
	} {
		s := newObjectStore(controllerName)
		gw := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		set := &gwv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "more"}, Spec: gwv1.ListenerSetSpec{ParentRef: gwv1.ParentGatewayReference{Name: "web"}}}
		s.change(files.Change{Upserts: []files.Object{{ID: key, Object: gw}, {ID: kind.KeyOf(set), Object: set}}})
		changes := []translate.StatusChange{{Object: key, Status: test.status}}
		if test.set {
			changes = append(changes, translate.StatusChange{Object: kind.KeyOf(set),
				Status: &gwv1.ListenerSetStatus{Listeners: []gwv1.ListenerEntryStatus{{Name: "x", Conditions: []metav1.Condition{condition("Programmed", true, "", "")}}}}})
		}
		s.publish(changes)
		got := ""
		if err := s.unserved(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		s.change(files.Change{Deletes: []kind.ObjectKey{key}})
		if err := s.unserved(); err != nil {
			t.Errorf("%s: after its end: %v", name, err)
		}
	}
}
