package files

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

// changeSet is what has happened since begin.
type changeSet struct {
	upserts    map[kind.ObjectKey]Object
	deletes    map[kind.ObjectKey]bool
	namespaces map[string]bool // namespaces whose objects have changed
	objects    map[*object]bool
	files      map[*file]bool // files whose problems may have changed, in addition to those with objects
}

// resolve decides which definition of an object is served. If none was ever valid, it emits what the first of them denies instead: a
// mistake must not remove a protection.
func (c *catalog) resolve(o *object) {
	c.change.objects[o] = true
	var missing, closing *definition
	present := false
	for _, d := range o.definitions {
		if closing == nil && d.closing != nil {
			closing = d
		}
		if d.now().Entry == nil {
			if missing == nil && d.good.Entry != nil {
				missing = d
			}
			continue
		}
		present = true
		if d.good.Entry != nil {
			c.serve(d)
			return
		}
	}
	switch {
	case missing != nil:
		c.serve(missing)
	case present && o.at.Entry != nil:
		// It has moved to another file and is invalid there: the served version is kept.
	case closing != nil:
		c.close(closing)
	default:
		c.withdraw(o)
	}
}

// close emits what d denies in place of its object, and records the change if there is one.
func (c *catalog) close(d *definition) {
	o := d.object
	if reflect.DeepEqual(o.closing, d.closing) {
		return
	}
	c.withdraw(o)
	closing := Object{ID: o.id, Object: d.closing}
	if p := d.now(); p.Entry != nil {
		closing.Position = Position{File: d.file.path, Line: p.line()}
	}
	o.closing = d.closing
	c.change.upserts[o.id] = closing
	delete(c.change.deletes, o.id)
}

// serve makes d the served definition of its object, and records the change if there is one.
func (c *catalog) serve(d *definition) {
	o, p := d.object, d.good
	was := o.at
	o.at, o.file = p, d.file
	if was.Entry == p.Entry {
		return // only its place has changed
	}
	typed := p.Object
	if was.Entry == nil {
		c.member(o.id, 1)
	} else if typed = withGeneration(p, o.typed); reflect.DeepEqual(typed, o.typed) {
		return
	}
	o.typed, o.closing = typed, nil
	c.change.upserts[o.id] = Object{ID: o.id, Object: typed, Position: o.position(), Older: p.Older}
	delete(c.change.deletes, o.id)
}

// position returns the place of what is served; zero if nothing is.
func (o *object) position() Position {
	if o == nil || o.at.Entry == nil {
		return Position{}
	}
	return Position{File: o.file.path, Line: o.at.line()}
}

func (c *catalog) withdraw(o *object) {
	if o.at.Entry == nil && o.closing == nil {
		return
	}
	if o.at.Entry != nil {
		c.member(o.id, -1)
	}
	o.at, o.file, o.typed, o.closing = place{}, nil, nil, nil
	delete(c.change.upserts, o.id)
	c.change.deletes[o.id] = true
}

func (c *catalog) member(id kind.ObjectKey, by int) {
	ns := id.Namespace
	if ns != "" {
		if c.members[ns] += by; c.members[ns] == 0 {
			delete(c.members, ns)
		}
	} else if id.Kind == "Namespace" && id.Group == "" {
		ns = id.Name
	}
	c.change.namespaces[ns] = true
}

// withGeneration returns the object with the generation that a cluster would set after was: one more if anything except metadata
// differs.
func withGeneration(p place, was metav1.Object) metav1.Object {
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
	// A shallow copy, because objects are shared and never modified.
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

// commit ends a change: it updates implicit Namespaces, and returns what has changed, sorted.
func (c *catalog) commit() Change {
	for ns := range c.change.namespaces {
		c.imply(ns)
	}
	var out Change
	for _, o := range c.change.upserts {
		out.Upserts = append(out.Upserts, o)
	}
	for id := range c.change.deletes {
		out.Deletes = append(out.Deletes, id)
	}
	slices.SortFunc(out.Upserts, func(a, b Object) int { return a.ID.Compare(b.ID) })
	slices.SortFunc(out.Deletes, kind.ObjectKey.Compare)
	for o := range c.change.objects {
		for _, d := range o.definitions {
			c.change.files[d.file] = true
		}
		if len(o.definitions) == 0 && o.at.Entry == nil {
			delete(c.objects, o.id)
		}
	}
	out.ProblemsChanged = c.updateReport()
	out.Problems = c.report.problems
	c.change = changeSet{}
	return out
}

// imply makes a Namespace exist while objects are in it and no file defines it.
func (c *catalog) imply(ns string) {
	id := kind.ObjectKey{Kind: "Namespace", Name: ns}
	o := c.objects[id]
	defined := o != nil && o.at.Entry != nil
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
