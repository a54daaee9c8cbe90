package writer

import (
	"errors"
	"maps"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestFailureReasons: whatever an API server says, the reasons that are counted are bounded.
func TestFailureReasons(t *testing.T) {
	status := func(reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: reason}}
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("connection refused"), "Unreachable"}, {status("Forbidden"), "Forbidden"}, {status("WordOfAWebhook"), "Other"}, {status(""), "Unreachable"},
	} {
		expect(t, c.err.Error(), failureReason(c.err), c.want)
	}
}

// TestConditions: objects are counted once for each condition and status, listeners apart from them, until nobody runs.
func TestConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		condition := func(of string, status metav1.ConditionStatus) []metav1.Condition {
			return []metav1.Condition{{Type: of, Status: status, Reason: "R", ObservedGeneration: 1}}
		}
		routes := func(statuses ...metav1.ConditionStatus) *gwv1.RouteStatus {
			var all gwv1.RouteStatus
			for _, status := range statuses {
				all.Parents = append(all.Parents, gwv1.RouteParentStatus{Conditions: condition("Accepted", status)})
			}
			return &all
		}
		gw, a, b, gone := key("Gateway", "gw"), key("HTTPRoute", "a"), key("HTTPRoute", "b"), key("HTTPRoute", "gone")
		s.start(t)
		s.Publish([]Change{
			{Key: gw, Generation: 1, Desired: &gwv1.GatewayStatus{Conditions: condition("Programmed", "True"), Listeners: []gwv1.ListenerStatus{
				{Name: "http", Conditions: condition("Programmed", "False")}, {Name: "https", Conditions: condition("Programmed", "False")},
			}}},
			{Key: a, Desired: routes("True", "True"), Generation: 1}, {Key: b, Desired: routes("True", "False"), Generation: 1}, {Key: gone, Desired: routes("True"), Generation: 1}, {Key: gone},
		})
		synctest.Wait()
		want := map[Condition]int{{"Gateway", "Programmed", "True"}: 1, {"Listener", "Programmed", "False"}: 2, {"HTTPRoute", "Accepted", "True"}: 2, {"HTTPRoute", "Accepted", "False"}: 1}
		if got := s.Conditions(); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		s.end()
		expect(t, "conditions at the end", len(s.Conditions()), 0)
	})
}

// TestAwayForWhatHasGone: an API server that nobody asks any more is not said to be away.
func TestAwayForWhatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		s.addRoute(web, 1)
		s.setFail(func(*http.Request) (int, metav1.StatusReason) { return 503, metav1.StatusReasonServiceUnavailable })
		s.start(t)
		defer s.end()
		s.Publish([]Change{wanted(web, 1, "Accepted")})
		time.Sleep(time.Minute)
		expect(t, "away", s.Stats().Away, time.Minute)
		s.remove(web)
		s.see(web)
		s.Publish([]Change{{Key: web}})
		time.Sleep(time.Minute)
		expect(t, "away without anything to write", s.Stats().Away, 0)
	})
}
