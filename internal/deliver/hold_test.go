package deliver

import (
	"testing"
	"time"

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
	if g.waiting(time.Minute) != "" || r.markOverdue(g, start.Add(59*time.Second)) {
		t.Error("overdue too early")
	}
	if !r.markOverdue(g, start.Add(time.Minute)) || r.markOverdue(g, start.Add(2*time.Minute)) {
		t.Error("it must be overdue, and found once")
	}
	if want := "proxy away has not been connected to the controller for 1m0s and serves what it last had; see kubectl logs -n n away, or delete the pod"; g.waiting(time.Minute) != want {
		t.Errorf("waiting %q", g.waiting(time.Minute))
	}
	if !g.serves(1) || g.pods["here"].overdue {
		t.Error("the overdue one is waited for, or the other is overdue")
	}
	r.setReady(g, nil, start)
	if len(g.pods) > 0 || !g.serves(99) {
		t.Errorf("pods %v", g.pods)
	}
}
