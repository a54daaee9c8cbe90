package deliver

import (
	"slices"
	"strings"
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

// TestNothingIsOwedWithoutConfiguration: what a Gateway's pods owed while there was nothing to serve does not count once there is.
func TestNothingIsOwedWithoutConfiguration(t *testing.T) {
	r := NewRemote(RemoteOptions{AnswerLimit: time.Minute})
	r.epoch = "epoch"
	g := r.gateway("n/gw")
	start := time.Now()
	r.setReady(g, []string{"pod"}, start)
	r.owe(g, start)
	g.runs = true
	r.owe(g, start.Add(time.Hour))
	if r.markOverdue(g, start.Add(time.Hour+59*time.Second)) || !r.markOverdue(g, start.Add(time.Hour+time.Minute)) {
		t.Error("a pod owes from when its Gateway has something to serve")
	}
}

// TestRetainingProxyThatLeaves: a proxy that keeps what it has owes nothing while it is connected, and does once it is not.
func TestRetainingProxyThatLeaves(t *testing.T) {
	r := NewRemote(RemoteOptions{AnswerLimit: time.Minute})
	r.epoch = "epoch"
	g := r.gateway("n/gw")
	g.runs, g.undecided = true, true
	s := &stream{gateway: g, pod: "pod", configured: true, full: true}
	g.pods["pod"] = &pod{ready: true, stream: s}
	r.owe(g, time.Now())
	if !g.pods["pod"].behind.IsZero() {
		t.Error("it owes while it is connected")
	}
	r.leave(s)
	if g.pods["pod"].behind.IsZero() {
		t.Error("nobody waits for it when it is gone, and it is never given up")
	}
}

// TestReportsByKind: what a proxy cannot carry out is reported of the listener or route that it is, and else of the Gateway.
func TestReportsByKind(t *testing.T) {
	r := NewRemote(RemoteOptions{})
	g := r.gateway("n/gw")
	g.pods["pod"] = &pod{ready: true, podAnswers: podAnswers{podFaults: podFaults{heard: true, rejected: map[config.ID]string{
		{Kind: config.KindListener, Key: "n/gw/l"}:        "no such protocol",
		{Kind: config.KindRoute, Key: "HTTPRoute/n/r"}:    "no such filter",
		{Kind: config.KindL4Route, Key: "TCPRoute/n/t"}:   "no such mode",
		{Kind: config.KindBackend, Key: "Service/n/s/80"}: "no such protocol of a backend",
		{}: "of a kind that is not known",
	}}}}
	r.stale["n/gw"] = struct{}{}
	reports := r.Reports()
	if len(reports) != 1 || len(reports[0].Rejected) != 5 || len(reports[0].Others) != 2 || !reports[0].Listeners["n/gw/l"].Refused {
		t.Fatalf("%+v", reports)
	}
	for key, want := range map[string]string{"HTTPRoute/n/r": "no such filter", "TCPRoute/n/t": "no such mode"} {
		if got := reports[0].Routes[key]; !strings.Contains(got, "proxy pod cannot carry out") || !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q", key, got)
		}
	}
	if again := r.Reports(); len(again) != 0 {
		t.Errorf("the same again: %+v", again)
	}
}

// TestUnavailableStaysTheSame: what is said of a Redis that proxies do not reach is not written anew for each proxy that finds it away or back: policies without number may say it.
func TestUnavailableStaysTheSame(t *testing.T) {
	g := &gateway{name: "n/gw", pods: map[string]*pod{"a": {}, "b": {}, "c": {}}}
	for i, step := range []struct{ a, b, c, want string }{
		{"", "", "", ""},
		{"", "timeout", "", "A proxy reports: timeout"},
		{"refused", "timeout", "", "A proxy reports: timeout"},
		{"refused", "timeout", "timeout", "A proxy reports: timeout"},
		{"refused", "", "timeout", "A proxy reports: timeout"},
		{"refused", "", "", "A proxy reports: refused"},
		{"refused", "timeout", "", "A proxy reports: refused"},
		{"", "", "", ""},
	} {
		g.pods["a"].unavailable, g.pods["b"].unavailable, g.pods["c"].unavailable = step.a, step.b, step.c
		if got := g.unavailable(); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}
