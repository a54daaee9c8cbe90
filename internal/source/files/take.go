package files

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/moongate-dev/moongate/internal/kind"
)

// maxGrace is how many grace periods an object may outlive its definition in a file that keeps changing.
const maxGrace = 10

// take replaces the content of a file. Sections in removed that are in added too have only moved.
func (c *catalog) take(f *file, sections, removed, added []*section, now time.Time) {
	touched := map[*definition]bool{}
	for _, s := range removed {
		for _, e := range s.Entries {
			d := c.objects[e.ID].in(f)
			d.places = slices.DeleteFunc(d.places, func(p place) bool { return p.section == s })
			touched[d] = true
		}
	}
	held := f.heldSince
	f.sections, f.heldSince = sections, time.Time{}
	c.holdBack(f, nil)
	malformed := f.gather()
	for _, s := range added {
		for _, e := range s.Entries {
			d := c.define(f, e.ID)
			at, _ := slices.BinarySearchFunc(d.places, s.index+1, func(p place, index int) int { return cmp.Compare(p.section.index, index) })
			d.places = slices.Insert(d.places, at, place{e, s})
			touched[d] = true
		}
	}
	for d := range touched {
		f.note(d)
	}
	c.settle(f, malformed, held, now)
	for d := range touched {
		c.resolve(d.object)
	}
	for o := range f.shared { // their duplicates may have other lines now
		c.change.objects[o] = true
	}
	c.change.files[f] = true
}

// gather collects the problems of the sections, and reports whether one of them cannot be assigned to an object.
func (f *file) gather() (malformed bool) {
	f.found, f.unused = nil, nil
	for _, s := range f.sections {
		if s.clean() {
			continue
		}
		for _, p := range s.Problems {
			malformed = true
			f.found = append(f.found, located(p, f.path, s.line))
		}
		for _, u := range s.Unused {
			u.Line += s.line
			f.unused = append(f.unused, u)
		}
		for _, e := range s.Entries {
			for _, p := range e.Problems {
				f.found = append(f.found, located(p, f.path, s.line))
			}
		}
	}
	return malformed
}

func (s *section) clean() bool {
	for _, e := range s.Entries {
		if len(e.Problems) > 0 {
			return false
		}
	}
	return len(s.Problems)+len(s.Unused) == 0
}

// located returns a problem whose line counts from 0 at a chunk's first line with its line in the file.
func located(p Problem, path string, base int) Problem {
	p.File = path
	p.Line += base
	return p
}

// note must be called after a change of d.places.
func (f *file) note(d *definition) {
	mark(&f.gone, d, len(d.places) == 0)
	mark(&f.repeated, d, len(d.places) > 1)
	if p := d.now(); p.Entry != nil {
		d.missing = time.Time{}
		if p.Object != nil {
			d.good = p
		}
		if d.closing = nil; d.good.Entry == nil {
			d.closing = p.Leftover
		}
	}
}

// mark adds k to a set or removes it; an empty set is nil.
func mark[K comparable](set *map[K]bool, k K, member bool) {
	switch {
	case !member:
		delete(*set, k)
	case *set == nil:
		*set = map[K]bool{k: true}
	default:
		(*set)[k] = true
	}
}

// swapped reports whether the path of f leads to another destination now through a link: that of the file, as in a mounted ConfigMap,
// or that of a folder, as git-sync has it. That file is complete, and so are the others of the mount or folder, so objects that it
// lacks are removed at once. It records the destination.
func (c *catalog) swapped(f *file, now stamp) bool {
	target := ""
	if c.scan.indirect(f.path) {
		target, _ = filepath.EvalSymlinks(f.path)
	}
	before := f.target
	f.target = target
	return f.stamp.info != nil && now.info != nil && !os.SameFile(f.stamp.info, now.info) && target != "" && target != before
}

// hold reports whether everything that was read of a file must wait until the grace period of missing objects is over. If only the
// removals waited, new objects would be served next to removed ones, a state that was never in the file. A text that ends within a
// line waits too: its last object may be incomplete.
func (c *catalog) hold(r *reading, now time.Time) bool {
	f := r.file
	if f.swapped || len(r.added) == 0 || !f.ragged && !c.loses(r) {
		return false
	}
	c.late(f, now)
	if f.heldSince.IsZero() {
		f.heldSince = now
	}
	end := c.graceOf(f, f.heldSince, now, c.writing(f))
	if !now.Before(end) {
		return false
	}
	has := map[kind.ObjectKey]bool{}
	for _, s := range r.added {
		for _, e := range s.Entries {
			has[e.ID] = true
		}
	}
	c.holdBack(f, has)
	c.unawait(f)
	c.await(f, end)
	return true
}

// holdBack records which objects the held version of a file contains; has is nil if none is held.
func (c *catalog) holdBack(f *file, has map[kind.ObjectKey]bool) {
	for id := range f.heldHas {
		if files := c.holders[id]; len(files) > 1 {
			delete(files, f)
		} else {
			delete(c.holders, id)
		}
	}
	f.heldHas = has
	for id := range has {
		files := c.holders[id]
		mark(&files, f, true)
		c.holders[id] = files
	}
}

// loses reports whether a file has lost objects that are served.
func (c *catalog) loses(r *reading) bool {
	kept := map[kind.ObjectKey]bool{}
	for _, s := range r.added {
		for _, e := range s.Entries {
			kept[e.ID] = true
		}
	}
	lost := func(d *definition) bool {
		return d.good.Entry != nil && d.object.file == r.file && !kept[d.object.id]
	}
	for d := range r.file.gone { // those of a file that itself was gone for a moment
		if lost(d) {
			return true
		}
	}
	places := map[*definition]int{}
	for _, s := range r.removed {
		for _, e := range s.Entries {
			d := c.objects[e.ID].in(r.file)
			if d == nil || !lost(d) {
				continue
			}
			if places[d]++; places[d] == len(d.places) {
				return true
			}
		}
	}
	return false
}

// late restarts the grace period of a file if it is checked late: on a host that is so busy, the writer may have been delayed too.
func (c *catalog) late(f *file, now time.Time) {
	if !f.pending.IsZero() && now.Sub(f.pending) > c.grace/4 {
		f.changed = now
	}
}

// writing returns a function that reports whether a process has a file open for writing; it asks the kernel at most once.
func (c *catalog) writing(f *file) func() bool {
	return sync.OnceValue(func() bool {
		c.effort.asked++
		return openForWriting(f.path)
	})
}

// graceOf returns until when something that is missing in a file since a given time may still be written. While a process has the
// file open for writing, this is extended by a second at a time.
func (c *catalog) graceOf(f *file, since, now time.Time, writing func() bool) time.Time {
	end := f.changed.Add(c.grace)
	if last := since.Add(maxGrace * c.grace); last.Before(end) {
		end = last
	}
	if c.grace > 0 && !now.Before(end) && now.Sub(since) < maxWriting && writing() {
		end = now.Add(pollInterval)
	}
	return end
}

// moving returns until when an object that f has lost may appear in another file: one that was not read since it changed, or whose
// held version contains the object. It returns now if there is none, or if it has taken too long. If f was swapped, only files below
// the same link count: what it leads to is complete, so whatever else is written does not concern its objects.
func (c *catalog) moving(f *file, d *definition, now time.Time) time.Time {
	if now.Sub(d.missing) >= maxGrace*c.grace {
		return now
	}
	for path, w := range c.unquiet {
		if path != f.path && (!f.swapped || c.scan.together(f.path, path)) {
			return w.due.Add(settle)
		}
	}
	for other := range c.holders[d.object.id] {
		c.effort.looked++
		if other != f && c.waiting[other] && now.Before(other.pending) {
			return other.pending.Add(settle)
		}
	}
	return now
}

// settle decides about objects that f no longer contains. An object is removed only if its file parses without it, and was unchanged
// in that state for the grace period: a file that is being written passes through such states. If what was read was held back since
// held, that time counts.
func (c *catalog) settle(f *file, malformed bool, held, now time.Time) {
	c.late(f, now)
	c.unawait(f)
	writing := c.writing(f)
	for d := range f.gone {
		if malformed {
			d.missing = time.Time{} // it may be in the part that does not parse
			continue
		}
		if d.missing.IsZero() {
			if d.missing = now; !held.IsZero() {
				d.missing = held
			}
		}
		end := now
		if !f.swapped {
			end = c.graceOf(f, d.missing, now, writing)
		}
		if !now.Before(end) {
			end = c.moving(f, d, now)
		}
		if (d.good.Entry != nil || d.closing != nil) && now.Before(end) {
			c.await(f, end)
			continue
		}
		c.forget(d)
		c.resolve(d.object)
	}
}

// in returns the definition of o in f; nil if there is none.
func (o *object) in(f *file) *definition {
	if o == nil {
		return nil
	}
	at, ok := slices.BinarySearchFunc(o.definitions, f, compareDefinition)
	if !ok {
		return nil
	}
	return o.definitions[at]
}

func compareDefinition(d *definition, f *file) int { return compareFiles(d.file, f) }

// define returns the definition of an object in f, which it creates if there is none.
func (c *catalog) define(f *file, id kind.ObjectKey) *definition {
	o := c.objects[id]
	if o == nil {
		o = &object{id: id}
		c.objects[id] = o
	}
	at, ok := slices.BinarySearchFunc(o.definitions, f, compareDefinition)
	if ok {
		return o.definitions[at]
	}
	d := &definition{object: o, file: f}
	if len(o.definitions) == 1 {
		mark(&o.definitions[0].file.shared, o, true)
	}
	o.definitions = slices.Insert(o.definitions, at, d)
	f.held++
	mark(&f.shared, o, len(o.definitions) > 1)
	return d
}

func (c *catalog) forget(d *definition) {
	o, f := d.object, d.file
	o.definitions = slices.DeleteFunc(o.definitions, func(other *definition) bool { return other == d })
	f.held--
	delete(f.gone, d)
	delete(f.shared, o)
	if len(o.definitions) == 1 {
		delete(o.definitions[0].file.shared, o)
	}
}
