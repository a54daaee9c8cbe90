package deliver

import (
	"slices"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestDeadline: who is behind is overdue once, and for the whole of AnswerLimit nobody is.
func TestDeadline(t *testing.T) {
	r := NewRemote(RemoteOptions{AnswerLimit: time.Minute})
	r.epoch = "epoch"
	r.parts.Apply(&config.Update{Generation: 1, Upserts: []*config.Resource{
		{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: "n/gw/l", Gateway: "n/gw"}}}}})
	g := r.gateway("n/gw")
	start := time.Now()
	r.setReady(g, []string{"here", "away"}, start)
	g.pods["here"].answered, g.pods["here"].acked = true, 1
	r.owe(g, start.Add(time.Second))
	if len(g.overdue(time.Minute)) > 0 || r.markOverdue(g, start.Add(59*time.Second)) {
		t.Error("overdue too early")
	}
	if !r.markOverdue(g, start.Add(time.Minute)) || r.markOverdue(g, start.Add(2*time.Minute)) {
		t.Error("it must be overdue, and found once")
	}
	if want := "proxy away has not been connected to the controller for 1m0s and serves what it last had; see kubectl logs -n n away, or delete the pod"; !slices.Equal(g.overdue(time.Minute), []string{want}) {
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
