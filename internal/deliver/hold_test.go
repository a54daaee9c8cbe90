package deliver

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestHold: a newer status takes the place of the one that is held without beginning the wait anew, a status that
// concerns nobody goes out at once, and so does the word that an object is not ours any more.
func TestHold(t *testing.T) {
	var published []translate.StatusChange
	r := NewRemote(RemoteOptions{Publish: func(s []translate.StatusChange) { published = append(published, s...) }, HoldLimit: time.Minute})
	r.epoch = "epoch"
	r.parts.Apply(&config.Update{Generation: 1, Upserts: []*config.Resource{
		{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: "n/gw/l", Gateway: "n/gw"}}}}})
	g := r.gateway("n/gw")
	g.pods["pod"] = &pod{ready: true}
	other := gwv1.Namespace("n")
	route := translate.StatusChange{Object: translate.ObjectKey{Kind: "HTTPRoute", Namespace: "m", Name: "r"}, Generation: 1,
		Status: &gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{{ParentRef: gwv1.ParentReference{Namespace: &other, Name: "gw"}},
			{ParentRef: gwv1.ParentReference{Name: "unknown"}}}}}
	start := time.Now()
	step := func(at time.Duration, do func(now time.Time), want ...int64) {
		t.Helper()
		published = nil
		do(start.Add(at))
		r.publish()
		if len(published) != len(want) {
			t.Fatalf("after %s: published %v, want generations %v", at, published, want)
		}
		for i, s := range published {
			if s.Generation != want[i] {
				t.Errorf("after %s: published %v, want generations %v", at, published, want)
			}
		}
	}
	newer := route
	newer.Generation = 2
	step(0, func(now time.Time) { r.hold(route, now) })
	step(50*time.Second, func(now time.Time) { r.hold(newer, now) })
	step(59*time.Second, r.releaseOld)
	step(60*time.Second, r.releaseOld, 2)
	if len(r.held) > 0 || len(g.holding) > 0 {
		t.Errorf("still held: %v, %v", r.held, g.holding)
	}

	step(0, func(now time.Time) { r.hold(route, now) })
	gone := translate.StatusChange{Object: route.Object}
	step(0, func(now time.Time) { r.hold(gone, now) }, 0)
	foreign := translate.StatusChange{Object: route.Object, Generation: 5, Status: &gwv1.RouteStatus{}}
	step(0, func(now time.Time) { r.hold(foreign, now) }, 5)
	step(time.Hour, r.releaseOld)

	policy := translate.StatusChange{Object: translate.ObjectKey{Kind: "BackendTLSPolicy", Namespace: "n", Name: "p"}, Generation: 7,
		Status: &gwv1.PolicyStatus{Ancestors: []gwv1.PolicyAncestorStatus{{AncestorRef: gwv1.ParentReference{Name: "gw"}}}}}
	step(0, func(now time.Time) { r.hold(policy, now) })
	g.pods["pod"].answered, g.pods["pod"].acked = true, 1
	step(0, func(time.Time) { r.release(g) }, 7)
}

// TestHoldUntilOpen: a Gateway is not called programmed before its Services have the ports of its listeners, and not for what
// runs under the class that it had before. What says that it is not programmed waits for nothing of that.
func TestHoldUntilOpen(t *testing.T) {
	http, https := translate.ProxyPort{Port: 80}, translate.ProxyPort{Port: 443}
	both := []translate.ProxyPort{http, https}
	for _, c := range []struct {
		what           string
		infrastructure *translate.Infrastructure
		hold           bool
		programmed     metav1.ConditionStatus
		out            bool
	}{
		{"all is there", &translate.Infrastructure{Class: "c", Ports: both}, false, metav1.ConditionTrue, true},
		{"a port is missing", &translate.Infrastructure{Class: "c", Ports: both[:1]}, false, metav1.ConditionTrue, false},
		{"every port is missing", &translate.Infrastructure{Class: "c", Ports: both[:0]}, false, metav1.ConditionTrue, false},
		{"a port of the same number is", &translate.Infrastructure{Ports: []translate.ProxyPort{http, {Port: 443, UDP: true}}}, false, metav1.ConditionTrue, false},
		{"it is missing, and the status says more", &translate.Infrastructure{Class: "c", Ports: both[:1]}, false, metav1.ConditionFalse, true},
		{"no Service is needed", &translate.Infrastructure{Class: "c"}, false, metav1.ConditionTrue, true},
		{"it is of another class", &translate.Infrastructure{Class: "b", Ports: both}, false, metav1.ConditionTrue, false},
		{"nothing will be done about it", &translate.Infrastructure{Class: "b"}, true, metav1.ConditionTrue, true},
		{"nothing is known", nil, false, metav1.ConditionTrue, true},
	} {
		published := 0
		r := NewRemote(RemoteOptions{Publish: func(s []translate.StatusChange) { published += len(s) }})
		r.epoch = "epoch"
		g := r.gateway("n/gw")
		g.spec, g.infrastructure = &translate.ProxySpec{Class: "c", Ports: both, Hold: c.hold}, c.infrastructure
		s := translate.StatusChange{Object: translate.ObjectKey{Kind: "Gateway", Namespace: "n", Name: "gw"}, Generation: 1,
			Status: &gwv1.GatewayStatus{Conditions: []metav1.Condition{{Type: string(gwv1.GatewayConditionProgrammed), Status: c.programmed}}}}
		r.hold(s, time.Now())
		r.publish()
		if out := published == 1; out != c.out {
			t.Errorf("%s: published %v, want %v", c.what, out, c.out)
		}
		g.infrastructure = &translate.Infrastructure{Class: "c", Ports: both}
		r.release(g)
		r.publish()
		if published != 1 || len(r.held)+len(g.holding) > 0 {
			t.Errorf("%s: published %d times once it has come true, still held %v", c.what, published, r.held)
		}
	}
}

// TestDeadline: who is behind is overdue once, and for the whole of HoldLimit nobody is.
func TestDeadline(t *testing.T) {
	r := NewRemote(RemoteOptions{HoldLimit: time.Minute})
	r.epoch = "epoch"
	r.parts.Apply(&config.Update{Generation: 1, Upserts: []*config.Resource{
		{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: "n/gw/l", Gateway: "n/gw"}}}}})
	g := r.gateway("n/gw")
	start := time.Now()
	r.setReady(g, []string{"here", "away"}, start)
	g.pods["here"].answered, g.pods["here"].acked = true, 1
	r.owe(g, start.Add(time.Second))
	if sentences(g.overdue(time.Minute)) != "" || r.markOverdue(g, start.Add(59*time.Second)) {
		t.Error("overdue too early")
	}
	if !r.markOverdue(g, start.Add(time.Minute)) || r.markOverdue(g, start.Add(2*time.Minute)) {
		t.Error("it must be overdue, and found once")
	}
	if want := "proxy away has not been connected to the controller for 1m0s and serves what it last had; see kubectl logs -n n away, or delete the pod"; sentences(g.overdue(time.Minute)) != want {
		t.Errorf("overdue %q", g.overdue(time.Minute))
	}
	if !g.serves(1) || g.pods["here"].overdue {
		t.Error("the overdue one is waited for, or the other is overdue")
	}
	r.setReady(g, nil, start)
	if len(g.pods) > 0 || !g.serves(99) {
		t.Errorf("pods %v", g.pods)
	}
}

// TestUnlistedHoldsStatus: while it is not known what runs for a Gateway, its status is not published, however long that lasts, and those
// of its routes are. Afterwards the newest one is, once it is served.
func TestUnlistedHoldsStatus(t *testing.T) {
	var published []translate.StatusChange
	unlisted := map[string]bool{"n": true}
	r := NewRemote(RemoteOptions{Publish: func(s []translate.StatusChange) { published = append(published, s...) }, HoldLimit: time.Minute,
		Unlisted: func(namespace string) bool { return unlisted[namespace] }})
	r.epoch = "epoch"
	for _, name := range []string{"n/gw", "m/gw"} {
		r.gateway(name).spec = &translate.ProxySpec{}
	}
	change := func(kind, namespace string, generation int64, status any) translate.StatusChange {
		return translate.StatusChange{Object: translate.ObjectKey{Kind: kind, Namespace: namespace, Name: "gw"}, Generation: generation, Status: status}
	}
	start := time.Now()
	for _, c := range []translate.StatusChange{
		change("Gateway", "n", 1, &gwv1.GatewayStatus{}), change("Gateway", "m", 1, &gwv1.GatewayStatus{}),
		change("HTTPRoute", "n", 1, &gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{{ParentRef: gwv1.ParentReference{Name: "gw"}}}}),
	} {
		r.hold(c, start)
	}
	expect := func(after time.Duration, want ...string) {
		t.Helper()
		r.release(r.gateway("n/gw"))
		r.releaseOld(start.Add(after))
		r.publish()
		var got []string
		for _, c := range published {
			got = append(got, fmt.Sprint(c.Object.Kind, " ", c.Object.Namespace, " ", c.Generation))
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %s: published %q, want %q", after, got, want)
		}
		published = nil
	}
	expect(time.Hour, "Gateway m 1", "HTTPRoute n 1")
	r.gateway("n/gw").pods["pod"] = &pod{ready: true} // which is known now, and has acknowledged nothing
	r.hold(change("Gateway", "n", 2, &gwv1.GatewayStatus{}), start.Add(time.Hour))
	clear(unlisted)
	expect(time.Hour)
	expect(time.Hour+time.Minute, "Gateway n 2")
}
