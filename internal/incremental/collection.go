package incremental

import (
	"iter"
	"slices"

	"github.com/moongate-dev/moongate/internal/hashtable"
)

// Collection is a keyed set of values: that of an Input, or the result of Map, FlatMap or another function of this package.
type Collection[K Key[K], V any] struct {
	engine     *Engine
	name       string
	comparison string // name of equal if it panics
	level      int
	equal      func(a, b V) bool
	slots      hashtable.Table[K, *slot[K, V]]
	size       int
	changes    []Change[K, V]
	joined     []func(K) // wake the functions that read a value under their own key
}

// Change is the effect of a Commit on one key.
type Change[K, V any] struct {
	Key     K
	Old     V    // zero if Added
	New     V    // zero if Deleted
	Added   bool // there was no value before
	Deleted bool // there is none now
}

// slot is the value of one key, or its absence if a function has read it.
type slot[K Key[K], V any] struct {
	key     K
	value   V
	present bool
	watch   *watch     // nil without readers
	jobs    *job[K, V] // those that compute from the value, as a linked list
}

func (s *slot[K, V]) ID() K { return s.key }

// job returns the job of the collection at that level, nil if there is none.
func (s *slot[K, V]) job(level int) *job[K, V] {
	j := s.jobs
	for j != nil && int(j.level) != level {
		j = j.next
	}
	return j
}

// unlink removes a job.
func (s *slot[K, V]) unlink(j *job[K, V]) {
	at := &s.jobs
	for *at != j {
		at = &(*at).next
	}
	*at = j.next
}

func newCollection[K Key[K], V any](e *Engine, name string, equal func(a, b V) bool) *Collection[K, V] {
	return &Collection[K, V]{engine: e, name: name, comparison: name + ", comparison", equal: equal}
}

// Get returns a value outside of a function; inside, use Fetch.
func (c *Collection[K, V]) Get(k K) (V, bool) {
	if s := c.slots.Get(k); s != nil && s.present {
		return s.value, true
	}
	var zero V
	return zero, false
}

// Len returns the number of entries.
func (c *Collection[K, V]) Len() int { return c.size }

// All yields the entries in order of their keys.
func (c *Collection[K, V]) All() iter.Seq2[K, V] {
	keys := make([]K, 0, c.size)
	for s := range c.slots.All() {
		if s.present {
			keys = append(keys, s.key)
		}
	}
	slices.SortFunc(keys, func(a, b K) int { return a.Compare(b) })
	return func(yield func(K, V) bool) {
		for _, k := range keys {
			if !yield(k, c.slots.Get(k).value) {
				return
			}
		}
	}
}

// Changes returns what the last Commit has changed, sorted by key; valid until Release or the next Commit.
func (c *Collection[K, V]) Changes() []Change[K, V] { return c.changes }

func (c *Collection[K, V]) reset() { c.changes = emptied(c.changes) }

// maxKept is the maximum capacity that a list keeps from one Commit to the next: the first one, with all entries, is by far the
// largest.
const maxKept = 64

// emptied returns an empty list with the capacity of list, unless that is larger than a usual Commit needs.
func emptied[T any](list []T) []T {
	if cap(list) > maxKept {
		return nil
	}
	clear(list)
	return list[:0]
}

func (c *Collection[K, V]) slot(k K) *slot[K, V] {
	s := c.slots.Get(k)
	if s == nil {
		s = &slot[K, V]{key: k}
		c.slots.Set(s)
	}
	return s
}

func (c *Collection[K, V]) watch(s *slot[K, V]) *watch {
	if s.watch == nil {
		s.watch = &watch{unused: func() {
			s.watch = nil
			c.dropIfUnused(s)
		}}
	}
	return s.watch
}

func (c *Collection[K, V]) wake(s *slot[K, V]) {
	s.watch.wake(c.engine)
	for _, wake := range c.joined {
		wake(s.key)
	}
}

func (c *Collection[K, V]) dropIfUnused(s *slot[K, V]) {
	if !s.present && s.watch == nil && s.jobs == nil {
		c.slots.Remove(s.key)
	}
}

// same reports whether a and b are equal; it returns false if equal panics.
func (c *Collection[K, V]) same(k K, a, b V) (equal bool) {
	if c.equal != nil {
		c.engine.attempt(c.comparison, func() any { return k }, func() { equal = c.equal(a, b) })
	}
	return equal
}

// put must be called at most once per key and Commit, as must remove.
func (c *Collection[K, V]) put(k K, v V) {
	s := c.slot(k)
	if s.present && c.same(k, s.value, v) {
		return
	}
	c.changes = append(c.changes, Change[K, V]{Key: k, Old: s.value, New: v, Added: !s.present})
	if !s.present {
		s.present = true
		c.size++
	}
	s.value = v
	c.wake(s)
}

func (c *Collection[K, V]) remove(k K) {
	s := c.slots.Get(k)
	if s == nil || !s.present {
		return
	}
	c.engine.forget(c.comparison, func() any { return k })
	c.changes = append(c.changes, Change[K, V]{Key: k, Old: s.value, Deleted: true})
	var zero V
	s.value, s.present = zero, false
	c.size--
	c.wake(s)
	c.dropIfUnused(s)
}

func (c *Collection[K, V]) sortChanges() {
	slices.SortFunc(c.changes, func(a, b Change[K, V]) int { return a.Key.Compare(b.Key) })
}

// Fetch reads one value of c and records the read.
func Fetch[K Key[K], V any](v *View, c *Collection[K, V], k K) (V, bool) {
	v.check(c.engine, c.level, c.name)
	s := c.slot(k)
	v.read(c.watch(s))
	return s.value, s.present
}

// Join reads the value of c under the key for which the function runs; it panics if c's keys are of another type. Unlike Fetch it
// records nothing for each key: once a function has joined c for any key, each change of c runs it for the key that has changed,
// even if it had not read the value.
func Join[K Key[K], V any](v *View, c *Collection[K, V]) (V, bool) {
	v.check(c.engine, c.level, c.name)
	if of := v.engine.nodes[c.level]; !slices.Contains(v.joined, of) {
		c.joined = append(c.joined, v.wake.(func(K)))
		v.joined = append(v.joined, of)
	}
	return c.Get(v.task.job.(interface{ key() K }).key())
}

// Input is a Collection that is set from outside.
type Input[K Key[K], V any] struct {
	*Collection[K, V]
	staged map[K]staged[V]
}

type staged[V any] struct {
	value  V
	delete bool
}

// NewInput declares an Input. If equal is nil, every Set is a change.
func NewInput[K Key[K], V any](e *Engine, name string, equal func(a, b V) bool) *Input[K, V] {
	in := &Input[K, V]{Collection: newCollection[K](e, name, equal), staged: map[K]staged[V]{}}
	in.level = e.declare(in)
	return in
}

// Set takes effect at the next Commit; setting an equal value has no effect.
func (in *Input[K, V]) Set(k K, v V) { in.staged[k] = staged[V]{value: v} }

// Delete takes effect at the next Commit.
func (in *Input[K, V]) Delete(k K) { in.staged[k] = staged[V]{delete: true} }

func (in *Input[K, V]) update() {
	for k, s := range in.staged {
		if s.delete {
			in.remove(k)
		} else {
			in.put(k, s.value)
		}
	}
	if len(in.staged) > 0 {
		in.staged = map[K]staged[V]{} // a new map, because a cleared one keeps its largest size
	}
	in.sortChanges()
}
