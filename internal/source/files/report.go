package files

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// report maintains the list of all problems. Each file has its own list; all are combined only when one of them has changed.
type report struct {
	problems []Problem
	troubled map[*file]bool // files with problems or unused objects
	scanned  []Problem      // of the paths themselves
}

// updateReport updates the files whose problems may have changed, and reports whether the list has changed.
func (c *catalog) updateReport() (changed bool) {
	r := &c.report
	changed = !slices.Equal(c.scan.problems, r.scanned)
	r.scanned = c.scan.problems
	for f := range c.change.files {
		list := c.problemsOf(f)
		if slices.Equal(list, f.problems) && slices.Equal(f.unused, f.reported) {
			continue
		}
		changed = true
		f.problems, f.reported = list, f.unused
		mark(&r.troubled, f, len(f.problems)+len(f.unused) > 0)
	}
	if !changed {
		return false
	}
	before := r.problems
	r.problems = r.assemble()
	return !slices.Equal(before, r.problems)
}

// assemble returns the full list, by file and line; unused kinds are last.
func (r *report) assemble() []Problem {
	files := make([]*file, 0, len(r.troubled))
	for f := range r.troubled {
		files = append(files, f)
	}
	slices.SortFunc(files, compareFiles)
	list := slices.Clone(r.scanned)
	for _, f := range files {
		list = append(list, f.problems...)
	}
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return append(list, unused(files)...)
}

// unused lists each unused kind once, at its first occurrence.
func unused(files []*file) []Problem {
	type key struct{ apiVersion, kind string }
	type kind struct {
		at    int // index in list
		count int
	}
	kinds := map[key]*kind{}
	var list []Problem
	for _, f := range files {
		for _, u := range f.unused {
			k := kinds[key{u.APIVersion, u.ID.Kind}]
			if k == nil {
				k = &kind{at: len(list)}
				kinds[key{u.APIVersion, u.ID.Kind}] = k
				p := Problem{Position: Position{File: f.path, Line: u.Line}, Reason: Ignored, Ignored: true, Object: u.ID, Remedy: unserved(u.APIVersion, u.ID.Kind)}
				if p.Warning = p.Remedy != ""; !p.Warning {
					p.Remedy = cmp.Or(replaced(u.APIVersion, u.ID.Kind), "nothing needs to be done")
				}
				list = append(list, p)
			}
			k.count++
		}
	}
	for named, k := range kinds {
		p := &list[k.at]
		p.Message = "ignored"
		if k.count > 1 {
			p.Message = fmt.Sprintf("%d objects ignored", k.count)
		}
		p.Message += fmt.Sprintf(": this kind (%s) is not used here", named.apiVersion)
		if p.Warning {
			p.Message += ", and what it asks for has no effect"
		}
	}
	return list
}

// problemsOf returns all problems of one file.
func (c *catalog) problemsOf(f *file) []Problem {
	var list []Problem
	if f.failed != nil {
		p := *f.failed
		p.Kept = f.held > 0
		list = append(list, p)
	}
	for _, p := range f.found {
		p.Kept = c.kept(f, p)
		if o := c.objects[p.Object]; o != nil && o.closing != nil {
			p.Effect = o.closing.Effect()
		}
		if p.Reason == manifest.Foreign && !p.Kept && !slices.Contains(c.paths, f.path) {
			// Folders also contain Helm values and configuration of other programs. The user did not name this file.
			p.Reason, p.Ignored, p.Message, p.Remedy = Ignored, true, "ignored: "+p.Message, "nothing needs to be done"
		}
		list = append(list, p)
	}
	return append(list, f.duplicates()...)
}

// kept reports whether an earlier version of the object of p is still served.
func (c *catalog) kept(f *file, p Problem) bool {
	if p.Reason == Malformed || p.Reason == manifest.Foreign {
		for d := range f.gone {
			if d.good.Entry != nil {
				return true
			}
		}
		return false
	}
	o := c.objects[p.Object]
	if o == nil || o.at.Entry == nil {
		return false
	}
	d := o.in(f)
	return d == nil || d.now().Entry != o.at.Entry
}

// duplicates reports the definitions in f that are not the first of their object, unless they equal the one that is used.
func (f *file) duplicates() []Problem {
	var list []Problem
	report := func(o *object, p place, first Position) {
		if p.Object != nil && o.at.Entry != nil && p.Entry != o.at.Entry && reflect.DeepEqual(p.Object, o.at.Object) {
			return
		}
		used := "which is used"
		if o.at == p {
			used = "which is invalid, so that this one is used"
		}
		list = append(list, Problem{
			Position: Position{File: f.path, Line: p.line()}, Reason: Duplicate, Object: o.id,
			Message: "is already defined at " + first.String() + ", " + used, Remedy: "remove one of the two",
		})
	}
	for d := range f.repeated {
		for _, p := range d.places[1:] {
			report(d.object, p, d.object.first())
		}
	}
	for o := range f.shared {
		p := o.in(f).now()
		if first := o.first(); p.Entry != nil && first.File != f.path {
			report(o, p, first)
		}
	}
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), kind.ObjectKey.Compare(a.Object, b.Object))
	})
	return list
}

// first returns the place in the first file that defines o now.
func (o *object) first() Position {
	for _, d := range o.definitions {
		if p := d.now(); p.Entry != nil {
			return Position{File: d.file.path, Line: p.line()}
		}
	}
	return Position{}
}
