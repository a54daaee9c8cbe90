package deliver

import (
	"slices"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestMerge: of two translations that follow each other, the later word on each thing counts.
func TestMerge(t *testing.T) {
	listener := func(key string, port uint32) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: key, Port: port}}}
	}
	status := func(name string, generation int64) translate.StatusChange {
		return translate.StatusChange{Object: translate.ObjectKey{Name: name}, Generation: generation}
	}
	first := translate.Result{
		Config:   config.Update{Generation: 3, Upserts: []*config.Resource{listener("a", 1), listener("c", 1)}, Removals: []config.ID{listener("b", 1).ID(), listener("d", 1).ID()}},
		Statuses: []translate.StatusChange{status("a", 1), status("c", 1)},
		Plans:    []translate.PlanChange{{Name: "a"}, {Name: "b"}},
	}
	first.Stats.Runs = 2
	second := translate.Result{
		Config:   config.Update{Generation: 4, Upserts: []*config.Resource{listener("b", 2), listener("c", 2)}, Removals: []config.ID{listener("a", 2).ID()}},
		Statuses: []translate.StatusChange{status("b", 2), status("c", 2)},
		Plans:    []translate.PlanChange{{Name: "a", Plan: &translate.Plan{}}},
	}
	second.Stats.Runs = 3
	got := merge(&first, &second)
	if u := got.Config; u.Generation != 4 || len(u.Upserts) != 2 || u.Upserts[0].GetListener().Port != 2 || u.Upserts[1].GetListener().Key != "c" || u.Upserts[1].GetListener().Port != 2 {
		t.Errorf("config %v", u)
	}
	if want := []config.ID{listener("a", 1).ID(), listener("d", 1).ID()}; !slices.Equal(got.Config.Removals, want) {
		t.Errorf("removals %v, want %v", got.Config.Removals, want)
	}
	if s := got.Statuses; len(s) != 3 || s[0].Generation != 1 || s[1].Generation != 2 || s[2].Generation != 2 {
		t.Errorf("statuses %v", s)
	}
	if p := got.Plans; len(p) != 2 || p[0].Plan == nil || p[1].Name != "b" || got.Stats.Runs != 5 {
		t.Errorf("plans %v, %d runs", p, got.Stats.Runs)
	}
}
