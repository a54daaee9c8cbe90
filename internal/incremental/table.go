package incremental

import (
	"hash/maphash"
	"iter"
)

// table finds entries by their keys. An entry contains its key; a map would store each key a second time, with room for up to twice
// as many, and keys are most of the size of entries. The zero value is empty.
type table[K comparable, E entry[K]] struct {
	seed  maphash.Seed
	cells []E // length is a power of two; an entry is in the first cell that was free from that of its hash on, with wraparound
	n     int // number of entries
}

// entry is a pointer; the zero value is a free cell.
type entry[K comparable] interface {
	comparable
	id() K
}

// leastCells is the length of a table with few entries.
const leastCells = 8

// place returns the cell of k's entry, or the free one where it would be. There must be at least one cell.
func (t *table[K, E]) place(k K) int {
	var free E
	i := t.home(k)
	for t.cells[i] != free && t.cells[i].id() != k {
		i = t.next(i)
	}
	return i
}

func (t *table[K, E]) home(k K) int {
	return int(maphash.Comparable(t.seed, k) & uint64(len(t.cells)-1)) //nolint:gosec // less than the length
}

func (t *table[K, E]) next(i int) int { return (i + 1) & (len(t.cells) - 1) }

// get returns the entry of k, zero if there is none.
func (t *table[K, E]) get(k K) (e E) {
	if t.n == 0 {
		return e
	}
	return t.cells[t.place(k)]
}

// add adds an entry; there must be none with its key.
func (t *table[K, E]) add(e E) {
	if 4*(t.n+1) > 3*len(t.cells) {
		t.resize(max(leastCells, 2*len(t.cells)))
	}
	t.cells[t.place(e.id())] = e
	t.n++
}

// remove removes the entry of k, if there is one.
func (t *table[K, E]) remove(k K) {
	var free E
	if t.get(k) == free {
		return
	}
	t.n--
	hole := t.place(k)
	t.cells[hole] = free
	// Later entries, up to a free cell, are moved up unless they would be before the cell of their hash.
	for i := t.next(hole); t.cells[i] != free; i = t.next(i) {
		home := t.home(t.cells[i].id())
		if between := (i-home)&(len(t.cells)-1) >= (i-hole)&(len(t.cells)-1); between {
			t.cells[hole], t.cells[i] = t.cells[i], free
			hole = i
		}
	}
	if len(t.cells) > leastCells && 8*t.n < len(t.cells) {
		t.resize(len(t.cells) / 2)
	}
}

func (t *table[K, E]) resize(n int) {
	old := t.cells
	if old == nil {
		t.seed = maphash.MakeSeed()
	}
	t.cells = make([]E, n)
	var free E
	for _, e := range old {
		if e != free {
			t.cells[t.place(e.id())] = e
		}
	}
}

// all yields the entries in no particular order. The table must not be changed during the iteration.
func (t *table[K, E]) all() iter.Seq[E] {
	return func(yield func(E) bool) {
		var free E
		for _, e := range t.cells {
			if e != free && !yield(e) {
				return
			}
		}
	}
}
