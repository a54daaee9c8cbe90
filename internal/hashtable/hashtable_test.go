package hashtable

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

type testEntry struct{ key, value int }

func (e *testEntry) ID() int { return e.key }

// TestTable compares a table with a map while both grow and shrink.
func TestTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var table Table[int, *testEntry]
	want := map[int]*testEntry{}
	if table.Get(1) != nil {
		t.Error("an empty table has an entry")
	}
	table.Remove(1)
	for step := range 40_000 {
		k := random.IntN(3000)
		// It grows for 10,000 steps, and shrinks for 10,000.
		if grow := step/10_000%2 == 0; grow == (random.IntN(4) > 0) {
			want[k] = &testEntry{k, step} // may replace one
			table.Set(want[k])
		} else {
			table.Remove(k)
			delete(want, k)
		}
		if table.Len() != len(want) || table.Get(k) != want[k] {
			t.Fatalf("step %d: %d entries and %v at %d, want %d and %v", step, table.Len(), table.Get(k), k, len(want), want[k])
		}
		if step%500 > 0 {
			continue
		}
		for k, e := range want {
			if table.Get(k) != e {
				t.Fatalf("step %d: %v at %d, want %v", step, table.Get(k), k, e)
			}
		}
		got := map[int]*testEntry{}
		for e := range table.All() {
			got[e.key] = e
		}
		if !maps.Equal(got, want) {
			t.Fatalf("step %d: all yields %d entries of %d", step, len(got), len(want))
		}
	}
	for _, k := range slices.Collect(maps.Keys(want)) {
		table.Remove(k)
	}
	if len(table.cells) != leastCells {
		t.Errorf("an empty table has %d cells", len(table.cells))
	}
	if n := testing.AllocsPerRun(100, func() { table.Get(1) }); n > 0 {
		t.Errorf("a look allocates %v times", n)
	}
}
