package deliver

import (
	"slices"
	"testing"
	"time"

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
