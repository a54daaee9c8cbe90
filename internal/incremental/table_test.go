package incremental

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

type tableTestEntry struct{ key, value int }

func (e *tableTestEntry) id() int { return e.key }

// TestTable compares a table with a map while both grow and shrink.
func TestTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var table table[int, *tableTestEntry]
	want := map[int]*tableTestEntry{}
	if table.get(1) != nil {
		t.Error("an empty table has an entry")
	}
	table.remove(1)
	for step := range 40_000 {
		k := random.IntN(3000)
		// It grows for 10,000 steps, and shrinks for 10,000.
		if grow := step/10_000%2 == 0; grow == (random.IntN(4) > 0) {
			if want[k] == nil {
				want[k] = &tableTestEntry{k, step}
				table.add(want[k])
			}
		} else {
			table.remove(k)
			delete(want, k)
		}
		if table.n != len(want) || table.get(k) != want[k] {
			t.Fatalf("step %d: %d entries and %v at %d, want %d and %v", step, table.n, table.get(k), k, len(want), want[k])
		}
		if step%500 > 0 {
			continue
		}
		for k, e := range want {
			if table.get(k) != e {
				t.Fatalf("step %d: %v at %d, want %v", step, table.get(k), k, e)
			}
		}
		got := map[int]*tableTestEntry{}
		for e := range table.all() {
			got[e.key] = e
		}
		if !maps.Equal(got, want) {
			t.Fatalf("step %d: all yields %d entries of %d", step, len(got), len(want))
		}
	}
	for _, k := range slices.Collect(maps.Keys(want)) {
		table.remove(k)
	}
	if len(table.cells) != leastCells {
		t.Errorf("an empty table has %d cells", len(table.cells))
	}
	if n := testing.AllocsPerRun(100, func() { table.get(1) }); n > 0 {
		t.Errorf("a look allocates %v times", n)
	}
}
