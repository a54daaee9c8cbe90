package deliver

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
)

// TestLateAnswer: what a stream says after another took its place, or after its epoch, counts for nothing.
func TestLateAnswer(t *testing.T) {
	r := NewRemote(RemoteOptions{AnswerLimit: time.Hour})
	r.Apply(&Change{Config: &config.Update{}, Complete: true})
	r.Lead("epoch", &Withheld{})
	r.mu.Lock()
	l := &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: "n/gw/l", Gateway: "n/gw"}}}
	r.parts.Apply(&config.Update{Generation: 1, Upserts: []*config.Resource{l}})
	g := r.gateway("n/gw")
	ended := 0
	end := func(error) { ended++ }
	older := r.enter(g, &Caller{Pod: "pod"}, &wire.Hello{}, end)
	r.mu.Unlock()
	if _, d, err := r.next(older); err != nil || !d.Full {
		t.Fatal(d, err)
	}
	r.mu.Lock()
	newer := r.enter(g, &Caller{Pod: "pod"}, &wire.Hello{}, end)
	r.mu.Unlock()

	ack := &wire.Ack{Epoch: "epoch", Generation: 1, Listeners: []*wire.Fault{{Resource: &wire.ResourceId{Key: "n/gw/l"}, Message: "taken"}}}
	late := func(s *stream, what string) {
		t.Helper()
		if err := r.answer(s, ack); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		reports := r.Reports()
		faulty := slices.ContainsFunc(reports, func(report Report) bool { return len(report.Listeners) > 0 })
		if p := g.pods["pod"]; p != nil && (p.answered || p.listeners != nil) || faulty {
			t.Errorf("%s: %+v, reports %+v", what, p, reports)
		}
	}
	late(older, "after another stream")
	if _, _, err := r.next(newer); err != nil {
		t.Fatal(err)
	}
	r.Standby()
	late(newer, "after the epoch")
	if ended != 2 {
		t.Errorf("%d streams were ended, want 2", ended)
	}
	r.Lead("next", &Withheld{})
	if err := r.answer(newer, ack); err != nil {
		t.Errorf("in the next epoch: %v", err)
	}
}

// TestConfiguredAfterRefusal: a proxy that has refused a generation asks for everything, without an epoch, and serves what it had. While it is not known
// what its Gateway may serve it keeps that; only one that has nothing is sent what was translated without.
func TestConfiguredAfterRefusal(t *testing.T) {
	r := NewRemote(RemoteOptions{})
	l := &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: "n/gw/l", Gateway: "n/gw"}}}
	undecided := Withheld{Undecided: map[string]bool{"n/gw": true}}
	r.Apply(&Change{Config: &config.Update{Generation: 8, Upserts: []*config.Resource{l}}, Withheld: undecided, Complete: true})
	r.Lead("epoch", &undecided)
	for hello, sent := range map[*wire.Hello]bool{
		{}: true, {Generation: 7}: false, {Epoch: "before", Generation: 7}: false,
	} {
		r.mu.Lock()
		s := r.enter(r.gateway("n/gw"), &Caller{Pod: "pod"}, hello, func(error) {})
		r.mu.Unlock()
		if _, d, err := r.next(s); err != nil || (d != nil) != sent {
			t.Errorf("%v: sent %v, error %v", hello, d, err)
		}
	}
}

// silent is a stream whose peer sends nothing before it ends.
type silent struct {
	wire.Delivery_StreamServer
	ended chan struct{}
}

func (s silent) Recv() (*wire.FromProxy, error) {
	<-s.ended
	return nil, context.Canceled
}

// TestStreamWithoutHello: who says nothing is not waited for.
func TestStreamWithoutHello(t *testing.T) {
	s := silent{ended: make(chan struct{})}
	defer close(s.ended)
	if _, err := receiveFirst(s, time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("ended with %v", err)
	}
}

// TestRefusalOfOneThatIsOverdue: why a proxy refuses its configuration is reported, also where it was given up before it said so.
func TestRefusalOfOneThatIsOverdue(t *testing.T) {
	r := NewRemote(RemoteOptions{AnswerLimit: time.Minute})
	told := 0
	r.Notify(func() { told++ }, func(string) {})
	l := &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: "n/gw/l", Gateway: "n/gw"}}}
	r.Apply(&Change{Config: &config.Update{Generation: 1, Upserts: []*config.Resource{l}}, Complete: true})
	r.Lead("epoch", &Withheld{})
	r.SetReady("n/gw", []string{"pod"})
	r.mu.Lock()
	s := r.enter(r.gateway("n/gw"), &Caller{Pod: "pod"}, &wire.Hello{}, func(error) {})
	r.mu.Unlock()
	if _, _, err := r.next(s); err != nil {
		t.Fatal(err)
	}
	if late := r.Expire(time.Now().Add(time.Hour)); !slices.Equal(late, []string{"n/gw"}) {
		t.Fatalf("late: %v", late)
	}
	r.Reports()
	for range 2 { // the second time it is no news
		if err := r.answer(s, &wire.Ack{Error: "cannot read it"}); err != nil {
			t.Fatal(err)
		}
	}
	reports := r.Reports()
	if told != 1 || len(reports) != 1 || len(reports[0].Overdue) != 1 || !strings.Contains(reports[0].Overdue[0], "cannot read it") {
		t.Errorf("told %d times: %+v", told, reports)
	}
}
