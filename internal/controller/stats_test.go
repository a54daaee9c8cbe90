package controller

import (
	"testing"

	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestStats: metrics have what the parts of the controller know, and conditions from the replica that leads alone.
func TestStats(t *testing.T) {
	server := newStatusServer(t)
	s := &site{t: t, statusServer: server, replicas: [2]*campaigner{newCampaigner(t, server, "a"), newCampaigner(t, server, "b")}}
	a, b := s.replicas[0], s.replicas[1]
	s.apply(className(), gatewayOf("gw", "moongate", 1), routeTo("web", "gw"), routeTo("lost", "nowhere"))
	s.reached("gw", "192.0.2.1")
	a.begin(t)
	accepted := observe.ObjectCondition{Kind: "HTTPRoute", Type: "Accepted", Status: "True"}
	testkit.Eventually(t, "the route is counted", func() bool { return a.Stats().Conditions[accepted] == 1 })
	testkit.Eventually(t, "its status is written", func() bool { return a.Stats().StatusWrites["HTTPRoute"] > 0 && a.writer.Idle() })
	stats := a.Stats()
	if !stats.Leading || stats.WriteAway != 0 || len(stats.StatusFailures) != 0 || len(stats.Reconciled) != 2 {
		t.Errorf("%+v", stats)
	}
	if _, ok := stats.Reconciled["select"]; !ok {
		t.Errorf("%+v", stats.Reconciled)
	}
	if stats := b.Stats(); stats.Leading || stats.Conditions != nil || len(stats.StatusWrites) != 0 {
		t.Errorf("the replica that does not lead has %+v", stats)
	}
	server.Stop()
	s.apply(gatewayOf("new", "moongate", 1), routeTo("web", "new"))
	testkit.Eventually(t, "a status cannot be written", func() bool {
		stats := a.Stats()
		return stats.WriteAway > 0 && stats.StatusFailures[observe.StatusFailure{Kind: "HTTPRoute", Reason: "Unreachable"}] > 0
	})
}

// TestLagging: a proxy that refuses everything from its start is not counted as one that serves the current configuration.
func TestLagging(t *testing.T) {
	fault := map[string]string{"n/gw/l": "port 80 is taken"}
	for what, c := range map[string]struct {
		proxy deliver.RemoteProxy
		want  bool
	}{
		"current":                     {deliver.RemoteProxy{Ready: true, Connected: true, Acked: 3}, false},
		"overdue":                     {deliver.RemoteProxy{Ready: true, Overdue: true}, true},
		"refuses before it was ready": {deliver.RemoteProxy{Connected: true, Error: "cannot read it"}, true},
		"cannot serve a listener":     {deliver.RemoteProxy{Ready: true, Acked: 3, Listeners: fault}, true},
		"cannot apply a resource":     {deliver.RemoteProxy{Ready: true, Acked: 3, Rejected: fault}, true},
	} {
		if got := lagging(&c.proxy); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
