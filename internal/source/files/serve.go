package files

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serve makes p the served definition of an object, and notes the change if
// there is one.
func (c *catalog) serve(id ObjectID, p placed, f *file) {
	was, exists := c.served[id]
	now := served{entry: p.Entry, object: p.Object, position: Position{File: f.path, Line: p.at}}
	if exists {
		now.object = withGeneration(p, was.object)
		if was.entry == p.Entry || reflect.DeepEqual(now.object, was.object) {
			now.object = was.object
			c.served[id] = now // only its place changed
			return
		}
	} else {
		c.member(id, 1)
	}
	c.served[id] = now
	c.change.upserts[id] = Object{ID: id, Object: now.object, Position: now.position}
	delete(c.change.deletes, id)
}

func (c *catalog) withdraw(id ObjectID) {
	if _, ok := c.served[id]; !ok {
		return
	}
	delete(c.served, id)
	delete(c.change.upserts, id)
	c.change.deletes[id] = true
	c.member(id, -1)
}

func (c *catalog) member(id ObjectID, by int) {
	ns := id.Namespace
	if ns != "" {
		if c.members[ns] += by; c.members[ns] == 0 {
			delete(c.members, ns)
		}
	} else if id.Kind == "Namespace" && id.Group == "" {
		ns = id.Name
	}
	c.change.touched[ns] = true
}

// withGeneration is the object with the generation that a cluster would give it
// after was: one more if anything but metadata differs.
func withGeneration(p placed, was metav1.Object) metav1.Object {
	generation := was.GetGeneration()
	if p.Stated {
		return p.Object
	}
	if !sameSpec(p.Object, was) {
		generation++
	}
	if generation == p.Object.GetGeneration() {
		return p.Object
	}
	// A shallow copy: objects are shared and never modified.
	v := reflect.ValueOf(p.Object).Elem()
	out := reflect.New(v.Type())
	out.Elem().Set(v)
	object := out.Interface().(metav1.Object)
	object.SetGeneration(generation)
	return object
}

func sameSpec(a, b metav1.Object) bool {
	va, vb := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range va.NumField() {
		switch va.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
			continue
		}
		if !reflect.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			return false
		}
	}
	return true
}

// commit ends a change: Namespaces follow their members, and what changed comes
// out sorted.
func (c *catalog) commit() Change {
	for ns := range c.change.touched {
		c.imply(ns)
	}
	var out Change
	for _, o := range c.change.upserts {
		out.Upserts = append(out.Upserts, o)
	}
	for id := range c.change.deletes {
		out.Deletes = append(out.Deletes, id)
	}
	slices.SortFunc(out.Upserts, func(a, b Object) int { return CompareIDs(a.ID, b.ID) })
	slices.SortFunc(out.Deletes, CompareIDs)
	out.Problems = c.problems()
	return out
}

// imply makes a Namespace exist while objects are in it and no file defines it.
func (c *catalog) imply(ns string) {
	id := ObjectID{Kind: "Namespace", Name: ns}
	_, defined := c.served[id]
	wanted := ns != "" && c.members[ns] > 0 && !defined
	switch {
	case wanted && (!c.implicit[ns] || c.change.deletes[id]):
		c.implicit[ns] = true
		c.change.upserts[id] = Object{ID: id, Object: implicitNamespace(ns)}
		delete(c.change.deletes, id)
	case !wanted && c.implicit[ns]:
		delete(c.implicit, ns)
		if !defined {
			c.change.deletes[id] = true
		}
	}
}

func implicitNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1, Labels: map[string]string{corev1.LabelMetadataName: name}},
	}
}

// problems is the full list, by file and line; ignored kinds come last.
func (c *catalog) problems() []Problem {
	list := slices.Clone(c.scan.problems)
	type key struct{ apiVersion, kind string }
	ignoredAt := map[key]int{}
	counts := map[key]int{}
	var unused []Problem
	for _, f := range c.inOrder() {
		if f.failed != nil {
			p := *f.failed
			p.Kept = len(f.held) > 0
			list = append(list, p)
		}
		for _, p := range f.problems {
			p.Kept = c.kept(f, p)
			list = append(list, p)
		}
		list = append(list, c.duplicates(f)...)
		for _, g := range f.ignored {
			k := key{g.APIVersion, g.ID.Kind}
			if counts[k]++; counts[k] > 1 {
				continue
			}
			ignoredAt[k] = len(unused)
			unused = append(unused, Problem{Position: Position{File: f.path, Line: g.Line}, Reason: Ignored, Ignored: true, Object: g.ID})
		}
	}
	for k, i := range ignoredAt {
		unused[i].Message = fmt.Sprintf("ignored: this kind (%s) is not used here", k.apiVersion)
		if n := counts[k]; n > 1 {
			unused[i].Message = fmt.Sprintf("%d objects ignored: this kind (%s) is not used here", n, k.apiVersion)
		}
		unused[i].Remedy = "nothing needs to be done"
	}
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return append(list, unused...)
}

// kept says that an earlier version of what p is about is still served.
func (c *catalog) kept(f *file, p Problem) bool {
	if p.Reason == Malformed {
		for _, d := range f.held {
			if d.now.Entry == nil {
				return true
			}
		}
		return false
	}
	s, ok := c.served[p.Object]
	return ok && (f.held[p.Object] == nil || f.held[p.Object].now.Entry != s.entry)
}

// duplicates reports the definitions in f that are not the first of their object.
func (c *catalog) duplicates(f *file) []Problem {
	var list []Problem
	report := func(id ObjectID, line int, first Position) {
		used := "which is used"
		if c.served[id].position == (Position{File: f.path, Line: line}) {
			used = "which is invalid, so that this one is used"
		}
		list = append(list, Problem{
			Position: Position{File: f.path, Line: line}, Reason: Duplicate, Object: id,
			Message: "is already defined at " + first.String() + ", " + used, Remedy: "remove one of the two",
		})
	}
	for _, p := range f.repeats {
		if first, n := c.present(p.ID); n > 0 {
			report(p.ID, p.at, first)
		}
	}
	for id, d := range f.held {
		if len(c.owners[id]) < 2 || d.now.Entry == nil {
			continue
		}
		if first, _ := c.present(id); first.File != f.path {
			report(id, d.now.at, first)
		}
	}
	slices.SortFunc(list, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Line, b.Line), CompareIDs(a.Object, b.Object)) })
	return list
}
