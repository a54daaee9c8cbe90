package match

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPmapIsAMap compares with a Go map, for hashes of every quality.
func TestPmapIsAMap(t *testing.T) {
	for _, mask := range []uint64{^uint64(0), 0xff, 0x1f, 1, 0, 0xf << 60, 0x1f << 55} {
		t.Run(fmt.Sprintf("mask %x", mask), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, mask))
			hash := func(key int) uint64 { return uint64(key) * 0x9e3779b97f4a7c15 & mask }
			var m pmap[int]
			want := map[string]int{}
			older, olderWant := m, maps.Clone(want)
			var by *owner // changes in place between two copies, or not at all
			for i := range 4000 {
				n := rng.IntN(200)
				key := fmt.Sprint(n)
				if rng.IntN(2) == 0 {
					m.setHash(leaf[int]{hash(n), key, i}, by)
					want[key] = i
				} else {
					m = m.withoutHash(hash(n), key)
					delete(want, key)
				}
				if m.n != len(want) {
					t.Fatalf("n is %d, want %d", m.n, len(want))
				}
				if i%100 == 0 {
					checkPmap(t, m, want, hash)
					checkPmap(t, older, olderWant, hash)
					older, olderWant = m, maps.Clone(want)
					if by = nil; rng.IntN(4) > 0 {
						by = &owner{}
					}
				}
			}
			for n := range 200 {
				m = m.withoutHash(hash(n), fmt.Sprint(n))
			}
			if m.root != nil || m.n != 0 {
				t.Errorf("emptied map is %+v", m)
			}
		})
	}
}

func checkPmap(t *testing.T, m pmap[int], want map[string]int, hash func(int) uint64) {
	t.Helper()
	if got := maps.Collect(m.all()); !maps.Equal(got, want) {
		t.Fatalf("entries %v, want %v", got, want)
	}
	for n := range 200 {
		key := fmt.Sprint(n)
		v := m.findHash(hash(n), []byte(key))
		if w, ok := want[key]; ok != (v != nil) || ok && *v != w {
			t.Fatalf("find(%s) is wrong", key)
		}
	}
	checkCanonical(t, m.root, true)
}

// checkCanonical tests what find relies on where n is 1, and that no node is empty.
func checkCanonical(t *testing.T, n *node[int], root bool) {
	t.Helper()
	if n == nil {
		return
	}
	if !root && len(n.kids) == 0 && len(n.leaves) < 2 {
		t.Fatalf("a node below the root has %d leaves and no kids", len(n.leaves))
	}
	for _, kid := range n.kids {
		checkCanonical(t, kid, false)
	}
}

func TestPmapSortsAndStops(t *testing.T) {
	var m pmap[int]
	var keys []string
	for i := range 100 {
		key := fmt.Sprintf("%03d", i)
		keys = append(keys, key)
		m = m.with(key, i)
	}
	var got []string
	for _, l := range m.sorted() {
		got = append(got, l.key)
	}
	if !slices.Equal(got, keys) {
		t.Errorf("sorted is %v", got)
	}
	n := 0
	for range m.all() {
		if n++; n == 10 {
			break
		}
	}
	if n != 10 {
		t.Errorf("all went on after the end of the loop: %d", n)
	}
}
