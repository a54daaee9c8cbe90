// Package hashtable finds values that contain their keys. It exists because a map would store each key a second time, with room for
// up to twice as many, and keys are most of what thousands of small values occupy.
//
// It imports the standard library only.
package hashtable

import (
	"hash/maphash"
	"iter"
)

// Table finds entries by their keys. The zero value is empty. It is not safe for concurrent use if one goroutine changes it.
type Table[K comparable, E Entry[K]] struct {
	seed  maphash.Seed
	cells []E // length is a power of two; an entry is in the first cell that was free from that of its hash on, with wraparound
	n     int // number of entries
}

// Entry is a pointer; the zero value is a free cell.
type Entry[K comparable] interface {
	comparable
	// ID returns the key, which never changes.
	ID() K
}

// leastCells is the length of a table with few entries.
const leastCells = 8

// place returns the cell of k's entry, or the free one where it would be. There must be at least one cell.
func (t *Table[K, E]) place(k K) int {
	var free E
	i := t.home(k)
	for t.cells[i] != free && t.cells[i].ID() != k {
		i = t.next(i)
	}
	return i
}

func (t *Table[K, E]) home(k K) int {
	return int(maphash.Comparable(t.seed, k) & uint64(len(t.cells)-1)) //nolint:gosec // less than the length
}

func (t *Table[K, E]) next(i int) int { return (i + 1) & (len(t.cells) - 1) }

// Len returns the number of entries.
func (t *Table[K, E]) Len() int { return t.n }

// Get returns the entry of k, zero if there is none.
func (t *Table[K, E]) Get(k K) (e E) {
	if t.n == 0 {
		return e
	}
	return t.cells[t.place(k)]
}

// Set adds an entry, or replaces the one with its key.
func (t *Table[K, E]) Set(e E) {
	if 4*(t.n+1) > 3*len(t.cells) {
		t.resize(max(leastCells, 2*len(t.cells)))
	}
	var free E
	i := t.place(e.ID())
	if t.cells[i] == free {
		t.n++
	}
	t.cells[i] = e
}

// Remove removes the entry of k, if there is one.
func (t *Table[K, E]) Remove(k K) {
	var free E
	if t.Get(k) == free {
		return
	}
	t.n--
	hole := t.place(k)
	t.cells[hole] = free
	// Later entries, up to a free cell, are moved up unless they would be before the cell of their hash.
	for i := t.next(hole); t.cells[i] != free; i = t.next(i) {
		home := t.home(t.cells[i].ID())
		if between := (i-home)&(len(t.cells)-1) >= (i-hole)&(len(t.cells)-1); between {
			t.cells[hole], t.cells[i] = t.cells[i], free
			hole = i
		}
	}
	if len(t.cells) > leastCells && 8*t.n < len(t.cells) {
		t.resize(len(t.cells) / 2)
	}
}

func (t *Table[K, E]) resize(n int) {
	old := t.cells
	if old == nil {
		t.seed = maphash.MakeSeed()
	}
	t.cells = make([]E, n)
	var free E
	for _, e := range old {
		if e != free {
			t.cells[t.place(e.ID())] = e
		}
	}
}

// All yields the entries in no particular order. The table must not be changed during the iteration.
func (t *Table[K, E]) All() iter.Seq[E] {
	return func(yield func(E) bool) {
		var free E
		for _, e := range t.cells {
			if e != free && !yield(e) {
				return
			}
		}
	}
}
