package incremental

import (
	"iter"
	"slices"

	"github.com/moongate-dev/moongate/internal/hashtable"
)

// Index groups the keys of a collection by the index keys that keysOf derives from each entry. A change of membership under one
// index key affects only that key's readers.
type Index[IK comparable, K Key[K], V any] struct {
	engine  *Engine
	name    string
	level   int
	source  *Collection[K, V]
	keysOf  func(K, V) []IK
	buckets hashtable.Table[IK, *bucket[IK, K, V]]
	counted map[IK]*watch       // of functions that only depend on the number of members of an index key
	touched []*bucket[IK, K, V] // those whose members the last Commit changed
	// followers are called with each membership that changes, see Members.
	followers []func(IK, K)
	// kept are the index keys of entries for whose value keysOf has panicked: those of the value before.
	kept map[K][]IK
}

// bucket contains the members of one index key; it exists without members if a function has read them.
type bucket[IK comparable, K Key[K], V any] struct {
	key     IK
	members []K    // sorted
	watch   *watch // nil without readers
}

type membership[K any] struct {
	key  K
	join bool
}

// NewIndex declares an index over source; keysOf must be pure.
func NewIndex[IK comparable, K Key[K], V any](source *Collection[K, V], name string,
	keysOf func(k K, v V) []IK) *Index[IK, K, V] {
	ix := &Index[IK, K, V]{engine: source.engine, name: name, source: source, keysOf: keysOf}
	ix.level = source.engine.declare(ix)
	return ix
}

// Lookup returns the sorted keys under ik. The caller depends only on the membership, not on the members' values. The slice is valid
// until the next Commit.
func Lookup[IK comparable, K Key[K], V any](v *View, ix *Index[IK, K, V], ik IK) []K {
	v.check(ix.engine, ix.level, ix.name)
	b := ix.bucket(ik)
	if b.watch == nil {
		b.watch = &watch{unused: func() {
			b.watch = nil
			ix.dropIfUnused(b)
		}}
	}
	v.read(b.watch)
	return b.members
}

// Count returns how many keys are under ik; the caller depends only on that number.
func Count[IK comparable, K Key[K], V any](v *View, ix *Index[IK, K, V], ik IK) int {
	v.check(ix.engine, ix.level, ix.name)
	w := ix.counted[ik]
	if w == nil {
		if ix.counted == nil {
			ix.counted = map[IK]*watch{}
		}
		w = &watch{unused: func() { delete(ix.counted, ik) }}
		ix.counted[ik] = w
	}
	v.read(w)
	return len(ix.Get(ik))
}

// Get returns the sorted keys under ik, as of the last Commit, outside of a function; inside, use Lookup. The slice is
// valid until the next Commit.
func (ix *Index[IK, K, V]) Get(ik IK) []K {
	if b := ix.buckets.Get(ik); b != nil {
		return b.members
	}
	return nil
}

func (ix *Index[IK, K, V]) node() (*Engine, int, string) { return ix.engine, ix.level, ix.name }

func (ix *Index[IK, K, V]) has(ik IK) bool { return len(ix.Get(ik)) > 0 }

func (ix *Index[IK, K, V]) changed() iter.Seq[IK] {
	return func(yield func(IK) bool) {
		for _, b := range ix.touched {
			if !yield(b.key) {
				return
			}
		}
	}
}

func (ix *Index[IK, K, V]) bucket(ik IK) *bucket[IK, K, V] {
	b := ix.buckets.Get(ik)
	if b == nil {
		b = &bucket[IK, K, V]{key: ik}
		ix.buckets.Set(b)
	}
	return b
}

func (b *bucket[IK, K, V]) ID() IK { return b.key }

func (ix *Index[IK, K, V]) dropIfUnused(b *bucket[IK, K, V]) {
	if len(b.members) == 0 && b.watch == nil {
		ix.buckets.Remove(b.key)
	}
}

func (ix *Index[IK, K, V]) reset() { ix.touched = nil }

func (ix *Index[IK, K, V]) update() {
	pending := map[*bucket[IK, K, V]][]membership[K]{}
	note := func(ik IK, m membership[K]) {
		b := ix.bucket(ik)
		if pending[b] == nil {
			ix.touched = append(ix.touched, b)
		}
		pending[b] = append(pending[b], m)
		for _, follow := range ix.followers {
			follow(ik, m.key)
		}
	}
	for _, ch := range ix.source.changes {
		var before, after []IK
		if !ch.Added {
			before = ix.before(ch.Key, ch.Old)
		}
		if ch.Deleted {
			ix.engine.forget(ix.name, func() any { return ch.Key })
		} else if !ix.engine.attempt(ix.name, func() any { return ch.Key }, func() { after = ix.keysOf(ch.Key, ch.New) }) {
			after = before
			if ix.kept == nil {
				ix.kept = map[K][]IK{}
			}
			ix.kept[ch.Key] = slices.Clone(before)
		}
		eachWithout(before, after, func(ik IK) { note(ik, membership[K]{ch.Key, false}) })
		eachWithout(after, before, func(ik IK) { note(ik, membership[K]{ch.Key, true}) })
	}
	for _, b := range ix.touched {
		ix.apply(b, pending[b])
	}
}

// maxScanned is the maximum number of index keys that are compared one by one. Most entries have one or two; some have as many as
// there are objects of a kind, and for those a set is built.
const maxScanned = 16

// eachWithout calls f once for each of list that is not among others, in the order of list.
func eachWithout[T comparable](list, others []T, f func(T)) {
	if len(list)+len(others) <= maxScanned {
		for i, e := range list {
			if !slices.Contains(others, e) && !slices.Contains(list[:i], e) {
				f(e)
			}
		}
		return
	}
	seen := make(map[T]struct{}, len(list)+len(others))
	for _, e := range others {
		seen[e] = struct{}{}
	}
	for _, e := range list {
		if _, known := seen[e]; !known {
			seen[e] = struct{}{}
			f(e)
		}
	}
}

// before returns the index keys of the previous value of an entry, or of an earlier one if keysOf has panicked.
func (ix *Index[IK, K, V]) before(k K, old V) []IK {
	if kept, ok := ix.kept[k]; ok {
		delete(ix.kept, k)
		return kept
	}
	return ix.keysOf(k, old)
}

// apply merges the pending changes of a bucket, which are sorted and distinct because the source's changes are.
func (ix *Index[IK, K, V]) apply(b *bucket[IK, K, V], pending []membership[K]) {
	before := len(b.members)
	if len(pending) == 1 {
		m := pending[0]
		i, _ := slices.BinarySearchFunc(b.members, m.key, func(a, k K) int { return a.Compare(k) })
		if m.join {
			b.members = slices.Insert(b.members, i, m.key)
		} else {
			b.members = slices.Delete(b.members, i, i+1)
		}
	} else {
		b.members = merged(b.members, pending)
	}
	b.watch.wake(ix.engine)
	if len(b.members) != before {
		ix.counted[b.key].wake(ix.engine)
	}
	ix.dropIfUnused(b)
}

func merged[K Key[K]](members []K, pending []membership[K]) []K {
	out := make([]K, 0, len(members)+len(pending))
	for _, m := range pending {
		for len(members) > 0 && members[0].Compare(m.key) < 0 {
			out = append(out, members[0])
			members = members[1:]
		}
		if m.join {
			out = append(out, m.key)
		} else {
			members = members[1:] // the member that is removed
		}
	}
	return append(out, members...)
}
