// Package incremental computes values from values and keeps them up to date: a change of one input runs only the functions that have
// read it, and a result that equals the previous one causes no further runs. It exists so that translation is written as pure
// functions without hand-written invalidation.
//
// Collections and indexes are declared in order, and a function may read only what was declared before its own collection (anything
// else panics). Therefore one pass in the order of declaration updates everything: there is no recursion, no cycle and no stale
// read.
//
// Functions must be pure: the result depends on the key, the source's value and
// what is read through the View. Values are shared and must not be modified.
//
// An Engine is not safe for concurrent use. The package does not depend on gateways and imports only the standard library and hashtable.
package incremental

import (
	"fmt"
	"iter"
	"maps"
)

// Key is the type of keys of collections. Compare makes every order that the engine exposes deterministic.
type Key[K any] interface {
	comparable
	Compare(K) int
}

// Engine owns the collections and the order in which they were declared.
type Engine struct {
	// Panicked is called when a function panics, by the deferred function that has recovered v. The last result of the function for
	// the key is kept, and the function runs again when its source's value, or something that it had read before it panicked, has
	// changed. If Panicked is nil, panics are not recovered.
	Panicked func(p Panic, v any)

	nodes  []node
	queues [][]*task // of each node, the tasks that must run
	stats  Stats
	failed map[Panic]struct{}
}

// Panic names a function that panicked for one key.
type Panic struct {
	Function string // the name of its collection or index
	Key      any
}

// Panics yields the functions whose last run panicked, in no particular order.
func (e *Engine) Panics() iter.Seq[Panic] { return maps.Keys(e.failed) }

// attempt runs f, which is the function with that name for a key, and reports whether it returned.
func (e *Engine) attempt(name string, key func() any, f func()) (returned bool) {
	if e.Panicked == nil {
		f()
		return true
	}
	defer func() {
		if v := recover(); v != nil {
			p := Panic{name, key()}
			if e.failed == nil {
				e.failed = map[Panic]struct{}{}
			}
			e.failed[p] = struct{}{}
			e.Panicked(p, v)
		} else {
			e.forget(name, key)
		}
	}()
	f()
	return true
}

// forget is called when the function no longer has the key.
func (e *Engine) forget(name string, key func() any) {
	if len(e.failed) > 0 {
		delete(e.failed, Panic{name, key()})
	}
}

// Stats counts what one Commit did.
type Stats struct {
	Runs       int            // functions run
	RunsByName map[string]int // the same by the collection's name
	// Reads is the number of entries that these runs fetched and of index keys that they looked up. Each costs memory until the
	// function runs again, and may cause it to run.
	Reads       int
	ReadsByName map[string]int // the same by the name of the collection that reads
}

// node is a collection or an index at its place in the order of declaration.
type node interface {
	// reset drops the changes of the last Commit.
	reset()
	// update updates the node from the nodes before it.
	update()
}

// New returns an Engine without collections.
func New() *Engine { return &Engine{} }

// Commit applies what was set and deleted since the last Commit and runs everything that depends on it.
func (e *Engine) Commit() Stats {
	e.stats = Stats{RunsByName: map[string]int{}, ReadsByName: map[string]int{}}
	for _, n := range e.nodes {
		n.reset()
	}
	for _, n := range e.nodes {
		n.update()
	}
	return e.stats
}

// Release drops the changes of the last Commit, as the next Commit would: after the first one these are all entries, and the next
// may come much later.
func (e *Engine) Release() {
	for _, n := range e.nodes {
		n.reset()
	}
}

func (e *Engine) declare(n node) (level int) {
	e.nodes, e.queues = append(e.nodes, n), append(e.queues, nil)
	return len(e.nodes) - 1
}

// wake queues a task unless it is queued already.
func (e *Engine) wake(t *task) {
	if !t.queued {
		t.queued = true
		e.queues[t.level] = append(e.queues[t.level], t)
	}
}

func (e *Engine) ran(name string, reads int) {
	e.stats.Runs++
	e.stats.RunsByName[name]++
	if reads > 0 {
		e.stats.Reads += reads
		e.stats.ReadsByName[name] += reads
	}
}

// View is how a function reads; it records each read, also of an absent entry. It must not be used after the function has returned.
type View struct {
	engine *Engine
	level  int // only lower levels may be read
	name   string
	task   *task  // of the function that runs
	wake   any    // a func(K) that runs the function again for a key of its source; any, because a View does not know the type of the keys
	joined []node // that the function has joined for some key, see Join
}

func (v *View) check(e *Engine, level int, name string) {
	if v.engine != e {
		panic(fmt.Sprintf("incremental: %s reads %s of another engine", v.name, name))
	}
	if level >= v.level {
		panic(fmt.Sprintf("incremental: %s reads %s, which is not declared before it", v.name, name))
	}
}

// read registers the running function with w.
func (v *View) read(w *watch) {
	if w.add(v.task) {
		v.task.deps = append(v.task.deps, w)
	}
}

// task is one function for one key: what the engine remembers of its last run. There are many tasks, and many more dependencies, so
// both are as small as possible.
type task struct {
	job    any      // the *job that the task is part of, whose type depends on the collection
	deps   []*watch // of what the function has read
	run    uint32   // incremented by each run; a reader registered with an older one is stale
	level  uint16   // of the function's collection
	queued bool
}

// begin starts a new run and returns what the last one has read, which must be passed to finish.
func (t *task) begin() (old []*watch) {
	old = t.deps
	t.deps = make([]*watch, 0, len(old))
	t.run++
	return old
}

// end drops unused capacity of the list of what a run has read: most functions run once.
func (t *task) end() {
	if len(t.deps) < cap(t.deps) {
		t.deps = append(make([]*watch, 0, len(t.deps)), t.deps...)
	}
}

func finish(old []*watch) {
	for _, w := range old {
		w.forget()
	}
}

// watch is a list of readers from which stale ones are removed once they are the majority, so that adding and forgetting cost O(1)
// amortized. Most of what could be read never is, so what can be read has a watch only while it has readers.
type watch struct {
	unused  func() // called when no reader is left
	readers []reader
	stale   int
}

type reader struct {
	task *task
	run  uint32
}

func (r reader) live() bool { return r.task.run == r.run }

// add registers a reader once per run: runs never interleave, so in a repeated read it is the last in the list.
func (w *watch) add(t *task) bool {
	r := reader{t, t.run}
	if n := len(w.readers); n > 0 && w.readers[n-1] == r {
		return false
	}
	w.readers = append(w.readers, r)
	return true
}

// wake queues every reader that is not stale. The watch may be nil.
func (w *watch) wake(e *Engine) {
	if w == nil {
		return
	}
	for _, r := range w.readers {
		if r.live() {
			e.wake(r.task)
		}
	}
}

// forget records that one registered reader has become stale.
func (w *watch) forget() {
	w.stale++
	if w.stale*2 > len(w.readers) {
		live := w.readers[:0]
		for _, r := range w.readers {
			if r.live() {
				live = append(live, r)
			}
		}
		clear(w.readers[len(live):])
		w.readers = live
		w.stale = 0
	}
	if len(w.readers) == 0 {
		w.unused()
	}
}
