package deliver

import (
	"slices"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
)

// TestSharedLimit: one of merged Gateways that wants another unknown Secret again and again does not keep the others from being served for long, nor does the owner of a ListenerSet
// keep others of its Gateway; a Gateway alone waits as long as it takes, and so does what nothing was sent to.
func TestSharedLimit(t *testing.T) {
	const shared, alone, sets = "infra/gatewayclass:c", "n/gw", "n/sets"
	r := NewRemote(RemoteOptions{AnswerLimit: time.Hour, SharedLimit: 20 * time.Millisecond})
	listener := func(key, gateway, merged string) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: key, Gateway: gateway, Merged: merged}}}
	}
	all := []*config.Resource{listener("n/a/l", "n/a", shared), listener("n/gw/l", alone, ""), listener("n/sets/l", sets, "")}
	r.Apply(&Change{Config: &config.Update{Generation: 1, Upserts: all}, Complete: true})
	apply := func(unknown bool) {
		w := Withheld{}
		if unknown {
			w.Unknown, w.Shared = map[string]bool{shared: true, alone: true, sets: true}, map[string]bool{sets: true}
		}
		r.Apply(&Change{Config: &config.Update{}, Withheld: w})
	}
	expect := func(what string, sharedWaits, aloneWaits bool) {
		t.Helper()
		for name, want := range map[string]bool{shared: sharedWaits, sets: sharedWaits, alone: aloneWaits} {
			if awaits, _ := r.Withholds(name); awaits != want {
				t.Errorf("%s: %s waits: %v", what, name, awaits)
			}
		}
	}
	r.Lead("epoch", &Withheld{})
	apply(true)
	time.Sleep(30 * time.Millisecond)
	apply(true)
	expect("nothing was sent", true, true)
	apply(false)
	expect("all is known", false, false)
	for _, name := range []string{shared, alone, sets} {
		r.mu.Lock()
		s := r.enter(r.gateway(name), &Caller{Pod: "pod"}, &wire.Hello{}, func(error) {})
		r.mu.Unlock()
		if _, d, err := r.next(s); err != nil || d == nil {
			t.Fatal(name, d, err)
		}
	}
	apply(true)
	expect("at first", true, true)
	time.Sleep(30 * time.Millisecond)
	apply(true)
	expect("for long", false, true)
	apply(false)
	apply(true)
	expect("anew", true, true)
}

// TestMergedStatus: a Gateway that was merged is shown while it has proxies of its own, and no longer.
func TestMergedStatus(t *testing.T) {
	r := NewRemote(RemoteOptions{})
	listener := &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: "n/gw/l", Gateway: "n/gw", Merged: "infra/gatewayclass:c"}}}
	r.Apply(&Change{Config: &config.Update{Generation: 1, Upserts: []*config.Resource{listener}}, Gateways: map[string]bool{"infra/gatewayclass:c": true, "n/gw": false}, Complete: true})
	r.SetPods("n", "gw", map[string]string{"pod": "uid"})
	shown := func() (names []string) {
		for _, g := range r.Status().Gateways {
			names = append(names, g.Gateway)
		}
		return names
	}
	if got := shown(); !slices.Equal(got, []string{"infra/gatewayclass:c", "n/gw"}) {
		t.Errorf("while it has a proxy: %q", got)
	}
	r.SetPods("n", "gw", nil)
	if got := shown(); !slices.Equal(got, []string{"infra/gatewayclass:c"}) {
		t.Errorf("without: %q", got)
	}
}
