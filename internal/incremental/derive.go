package incremental

import (
	"iter"
	"slices"
)

// Map declares a collection with at most one value per key of source: the result of fn, unless it returns false. If equal is nil,
// every run is a change.
func Map[K Key[K], A, B any](e *Engine, name string, source *Collection[K, A],
	fn func(v *View, k K, a A) (B, bool), equal func(a, b B) bool) *Collection[K, B] {
	m := &mapping[K, A, B]{Collection: newCollection[K](e, name, equal), fn: fn}
	m.level = e.declare(m)
	m.work = newWork(m.engine, m.level, name, source)
	return m.Collection
}

type mapping[K Key[K], A, B any] struct {
	*Collection[K, B]
	work *work[K, A]
	fn   func(*View, K, A) (B, bool)
}

func (m *mapping[K, A, B]) update() {
	m.work.do(func(v *View, k K, a A) {
		if b, ok := m.fn(v, k, a); ok {
			m.put(k, b)
		} else {
			m.remove(k)
		}
	}, m.remove)
	m.sortChanges()
}

// Union declares a collection with the entries of all sources, which must have disjoint keys.
func Union[K Key[K], V any](e *Engine, name string, sources ...*Collection[K, V]) *Collection[K, V] {
	u := &union[K, V]{newCollection[K, V](e, name, nil), sources}
	u.level = e.declare(u)
	view := View{engine: e, level: u.level, name: name}
	for _, source := range sources {
		view.check(source.engine, source.level, source.name)
	}
	return u.Collection
}

type union[K Key[K], V any] struct {
	*Collection[K, V]
	sources []*Collection[K, V]
}

// update treats every change of a source as one: the source has compared the values.
func (u *union[K, V]) update() {
	for _, source := range u.sources {
		for _, ch := range source.changes {
			if ch.Deleted {
				u.remove(ch.Key)
			} else {
				u.put(ch.Key, ch.New)
			}
		}
	}
	u.sortChanges()
}

// Keys declares a collection of the index keys that have members in at least one of the indexes. A FlatMap that returns the same
// keys for each member would have to remember the owners of each.
func Keys[IK Key[IK]](ix Grouped[IK], name string, more ...Grouped[IK]) *Collection[IK, struct{}] {
	e, _, _ := ix.node()
	m := &keySet[IK]{newCollection[IK](e, name, func(_, _ struct{}) bool { return true }), append([]Grouped[IK]{ix}, more...)}
	m.level = e.declare(m)
	view := View{engine: e, level: m.level, name: name}
	for _, each := range m.indexes {
		view.check(each.node())
	}
	return m.Collection
}

// Grouped is an Index regardless of the type of its entries.
type Grouped[IK comparable] interface {
	node() (e *Engine, level int, name string)
	// has reports whether an index key has members.
	has(IK) bool
	// changed yields the index keys whose members the last Commit has changed.
	changed() iter.Seq[IK]
}

type keySet[IK Key[IK]] struct {
	*Collection[IK, struct{}]
	indexes []Grouped[IK]
}

func (m *keySet[IK]) update() {
	for _, ix := range m.indexes {
		for k := range ix.changed() {
			if slices.ContainsFunc(m.indexes, func(ix Grouped[IK]) bool { return ix.has(k) }) {
				m.put(k, struct{}{})
			} else {
				m.remove(k)
			}
		}
	}
	m.sortChanges()
}

// Entry is one result of a FlatMap function.
type Entry[K, V any] struct {
	Key   K
	Value V
}

// FlatMap declares a collection with any number of entries per key of source. A key that several functions return is a programming
// error with a defined result: the first source key wins, and the first entry of each function.
func FlatMap[K Key[K], A any, K2 Key[K2], B any](e *Engine, name string, source *Collection[K, A],
	fn func(v *View, k K, a A) []Entry[K2, B], equal func(a, b B) bool) *Collection[K2, B] {
	m := &flatMapping[K, A, K2, B]{
		Collection: newCollection[K2](e, name, equal), fn: fn,
		results: map[K][]Entry[K2, B]{}, owners: map[K2][]K{},
	}
	m.level = e.declare(m)
	m.work = newWork(m.engine, m.level, name, source)
	return m.Collection
}

type flatMapping[K Key[K], A any, K2 Key[K2], B any] struct {
	*Collection[K2, B]
	work    *work[K, A]
	fn      func(*View, K, A) []Entry[K2, B]
	results map[K][]Entry[K2, B] // of each source key, sorted, distinct keys
	owners  map[K2][]K           // sorted; the first one's entry is the value
}

func (m *flatMapping[K, A, K2, B]) update() {
	touched := map[K2]struct{}{}
	m.work.do(func(v *View, k K, a A) {
		m.replace(k, distinct(m.fn(v, k, a)), touched)
	}, func(k K) { m.replace(k, nil, touched) })
	for k2 := range touched {
		owners := m.owners[k2]
		if len(owners) == 0 {
			delete(m.owners, k2)
			m.remove(k2)
			continue
		}
		entries := m.results[owners[0]]
		i, _ := slices.BinarySearchFunc(entries, k2, func(e Entry[K2, B], k K2) int { return e.Key.Compare(k) })
		m.put(k2, entries[i].Value)
	}
	m.sortChanges()
}

func (m *flatMapping[K, A, K2, B]) replace(k K, entries []Entry[K2, B], touched map[K2]struct{}) {
	compare := func(a, b K) int { return a.Compare(b) }
	for _, e := range m.results[k] {
		touched[e.Key] = struct{}{}
		if i, found := slices.BinarySearchFunc(m.owners[e.Key], k, compare); found {
			m.owners[e.Key] = slices.Delete(m.owners[e.Key], i, i+1)
		}
	}
	for _, e := range entries {
		touched[e.Key] = struct{}{}
		if i, found := slices.BinarySearchFunc(m.owners[e.Key], k, compare); !found {
			m.owners[e.Key] = slices.Insert(m.owners[e.Key], i, k)
		}
	}
	if len(entries) == 0 {
		delete(m.results, k)
	} else {
		m.results[k] = entries
	}
}

// Parts declares a collection of what fn returns for each key of source; key returns the key of the i-th result, which must be
// unique. It needs less memory than FlatMap, which has to remember the owners of entries.
func Parts[K Key[K], A any, P Key[P], B any](e *Engine, name string, source *Collection[K, A],
	fn func(v *View, k K, a A) []B, key func(k K, i int) P, equal func(a, b B) bool) *Collection[P, B] {
	m := &parts[K, A, P, B]{Collection: newCollection[P](e, name, equal), fn: fn, key: key}
	m.level = e.declare(m)
	m.work = newWork(m.engine, m.level, name, source)
	return m.Collection
}

type parts[K Key[K], A any, P Key[P], B any] struct {
	*Collection[P, B]
	work *work[K, A]
	fn   func(*View, K, A) []B
	key  func(K, int) P
}

func (m *parts[K, A, P, B]) update() {
	m.work.do(func(v *View, k K, a A) { m.replace(k, m.fn(v, k, a)) }, func(k K) { m.replace(k, nil) })
	m.sortChanges()
}

func (m *parts[K, A, P, B]) replace(k K, results []B) {
	for i, b := range results {
		m.put(m.key(k, i), b)
	}
	for i := len(results); ; i++ {
		p := m.key(k, i)
		if _, before := m.Get(p); !before {
			return
		}
		m.remove(p)
	}
}

// distinct keeps the first entry of each key, and sorts the entries.
func distinct[K Key[K], V any](entries []Entry[K, V]) []Entry[K, V] {
	slices.SortStableFunc(entries, func(a, b Entry[K, V]) int { return a.Key.Compare(b.Key) })
	return slices.CompactFunc(entries, func(a, b Entry[K, V]) bool { return a.Key == b.Key })
}

// work runs one function per key of a source, when the source's value or something that the function has read has changed.
type work[K Key[K], A any] struct {
	source *Collection[K, A]
	view   View
}

// job is the function of one key. The slot of the key refers to it.
type job[K Key[K], A any] struct {
	task
	slot *slot[K, A]
	next *job[K, A] // of the same slot
}

func (j *job[K, A]) name() any { return j.slot.key }

func (j *job[K, A]) key() K { return j.slot.key }

func newWork[K Key[K], A any](e *Engine, level int, name string, source *Collection[K, A]) *work[K, A] {
	w := &work[K, A]{source: source, view: View{engine: e, level: level, name: name}}
	w.view.check(source.engine, source.level, source.name)
	w.view.wake = func(k K) {
		if s := source.slots.Get(k); s != nil {
			if j := s.job(level); j != nil {
				e.wake(&j.task)
			}
		}
	}
	return w
}

// do calls run for every key that must be computed again and gone for every key that has left the source.
func (w *work[K, A]) do(run func(*View, K, A), gone func(K)) {
	e, level := w.view.engine, w.view.level
	for _, ch := range w.source.changes {
		s := w.source.slots.Get(ch.Key)
		if s == nil {
			continue // it was added and removed, and nothing was computed from it
		}
		j := s.job(level)
		if j == nil && !ch.Deleted {
			j = &job[K, A]{task: task{level: uint16(level)}, slot: s, next: s.jobs} //nolint:gosec // there are fewer collections
			j.task.job = j
			s.jobs = j
		}
		if j != nil {
			e.wake(&j.task)
		}
	}
	for _, t := range e.queues[level] {
		j := t.job.(*job[K, A])
		j.queued = false
		old := j.begin()
		if s := j.slot; s.present {
			w.view.task = &j.task
			e.attempt(w.view.name, j.name, func() { run(&w.view, s.key, s.value) })
			w.view.task = nil
			j.end()
			e.ran(w.view.name, len(j.deps))
		} else {
			e.forget(w.view.name, j.name)
			gone(s.key)
			s.unlink(j)
			w.source.dropIfUnused(s)
		}
		finish(old)
	}
	e.queues[level] = emptied(e.queues[level])
}
