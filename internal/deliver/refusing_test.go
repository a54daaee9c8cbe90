package deliver

import (
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
)

// TestRefusingIsBounded: a generation that is refused again and again is sent more and more rarely, a new one soon, and what was
// refused before an acknowledgement does not count.
func TestRefusingIsBounded(t *testing.T) {
	k, now := podKey{"n/gw", "pod"}, time.Now()
	var f refusing
	sent := 0
	for end := now.Add(time.Hour); now.Before(end); now = now.Add(f.wait(k, 1, now)) {
		sent++
		f.note(k, 1, "why", now)
	}
	if sent > 18 {
		t.Errorf("sent %d times within an hour", sent)
	}
	f.note(k, 1, "why", now)
	if wait := f.wait(k, 1, now); wait != maxRefusedPause {
		t.Errorf("the same generation waits for %v", wait)
	}
	if wait := f.wait(k, 2, now); wait != refusedPause {
		t.Errorf("a new generation waits for %v", wait)
	}
	if f.note(k, 2, "why", now); f.wait(k, 2, now) != refusedPause {
		t.Error("the first refusal of a new generation continues the old pauses")
	}
	if f.forget(k); f.wait(k, 2, now) > 0 {
		t.Error("after an acknowledgement it still waits")
	}
	for i := range 1000 {
		now = now.Add(time.Minute)
		f.note(podKey{"n/gw", string(rune('a' + i))}, 1, "why", now)
	}
	if len(f.of) > 20 {
		t.Errorf("%d pods are remembered", len(f.of))
	}
}

// TestRefusingOutlastsStreams: a proxy ends its stream when it has refused, and is not sent everything again on each new one.
func TestRefusingOutlastsStreams(t *testing.T) {
	r := NewRemote(RemoteOptions{})
	edit := func(generation uint64, key string) {
		l := &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: key, Gateway: "n/gw"}}}
		r.Apply(&Change{Config: &config.Update{Generation: generation, Upserts: []*config.Resource{l}}, Complete: true})
	}
	edit(1, "n/gw/a")
	r.Lead("epoch", &Withheld{})
	r.SetReady("n/gw", []string{"pod"})
	enter := func() *stream {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.enter(r.gateway("n/gw"), &Caller{Pod: "pod"}, &wire.Hello{}, func(error) {})
	}
	sends := func(s *stream) bool {
		t.Helper()
		_, delta, err := r.next(s)
		if err != nil {
			t.Fatal(err)
		}
		return delta != nil
	}
	refuse := func(s *stream) {
		t.Helper()
		if err := r.answer(s, &wire.Ack{Error: "cannot read it"}); err != nil {
			t.Fatal(err)
		}
	}
	passed := func(d time.Duration) { // since the last refusal
		r.mu.Lock()
		defer r.mu.Unlock()
		for k, g := range r.refusing.of {
			g.at = time.Now().Add(-d)
			r.refusing.of[k] = g
		}
	}
	s := enter()
	if !sends(s) {
		t.Fatal("nothing is sent at first")
	}
	refuse(s)
	r.leave(s)
	r.mu.Lock()
	delete(s.gateway.pods, "pod") // as one that is not ready
	r.mu.Unlock()
	if s = enter(); sends(s) {
		t.Error("everything is sent again on the next stream at once")
	}
	if got := s.gateway.pods["pod"].refusal; got != "cannot read it" {
		t.Errorf("while nothing is sent, the reason is %q", got)
	}
	if passed(refusedPause); !sends(s) {
		t.Error("it is not sent after the pause")
	}
	refuse(s)
	if passed(refusedPause); sends(s) {
		t.Error("after the second refusal the pause is no longer")
	}
	if edit(2, "n/gw/b"); !sends(s) {
		t.Error("a new configuration waits for longer")
	}
	if err := r.answer(s, &wire.Ack{Epoch: "epoch", Generation: 2}); err != nil {
		t.Fatal(err)
	}
	if edit(3, "n/gw/c"); !sends(s) {
		t.Error("after an acknowledgement it still waits")
	}
}
