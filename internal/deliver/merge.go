package deliver

import (
	"cmp"
	"slices"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate"
)

// merge makes one Result of two that follow each other: the later word on each thing counts. Wants are left out.
func merge(a, b *translate.Result) translate.Result {
	out := translate.Result{
		Statuses: later(a.Statuses, b.Statuses, func(s translate.StatusChange) translate.ObjectKey { return s.Object }, translate.ObjectKey.Compare),
		Plans: later(a.Plans, b.Plans, func(p translate.PlanChange) [2]string { return [2]string{p.Namespace, p.Name} },
			func(x, y [2]string) int { return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1])) }),
		Stats: b.Stats,
	}
	out.Stats.Runs += a.Stats.Runs
	type step struct {
		id       config.ID
		resource *config.Resource // nil for one that is gone
	}
	steps := func(u *config.Update) (out []step) {
		for _, r := range u.Upserts {
			out = append(out, step{r.ID(), r})
		}
		for _, id := range u.Removals {
			out = append(out, step{id: id})
		}
		return out
	}
	out.Config.Generation = b.Config.Generation
	for _, s := range later(steps(&a.Config), steps(&b.Config), func(s step) config.ID { return s.id }, config.CompareID) {
		if s.resource != nil {
			out.Config.Upserts = append(out.Config.Upserts, s.resource)
		} else {
			out.Config.Removals = append(out.Config.Removals, s.id)
		}
	}
	return out
}

// later are the values of both, those of b where keys are equal, sorted by key.
func later[V any, K comparable](a, b []V, key func(V) K, compare func(K, K) int) []V {
	if len(a) == 0 {
		return b
	}
	newer := make(map[K]struct{}, len(b))
	for _, v := range b {
		newer[key(v)] = struct{}{}
	}
	out := slices.Clone(b)
	for _, v := range a {
		if _, is := newer[key(v)]; !is {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(x, y V) int { return compare(key(x), key(y)) })
	return out
}
