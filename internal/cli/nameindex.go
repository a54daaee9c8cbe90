package cli

import (
	"iter"
	"maps"
	"slices"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/schema"
)

// nameIndex knows objects by their names, so that a reference that leads nowhere is compared with those only that it may mean, and once however many objects have it.
type nameIndex struct {
	names   map[kind.ObjectKey]map[string]bool // by kind and namespace: the key has no name
	places  map[kind.ObjectKey]map[string]bool // the namespaces of a kind: the key has neither
	found   map[kind.ObjectKey]string          // what nearest has answered
	homes   map[kind.ObjectKey][]string        // what namespaces has answered: the key has none
	compare func(name string, candidates []string) string
}

func newNameIndex() *nameIndex {
	return &nameIndex{names: map[kind.ObjectKey]map[string]bool{}, places: map[kind.ObjectKey]map[string]bool{},
		found: map[kind.ObjectKey]string{}, homes: map[kind.ObjectKey][]string{}, compare: schema.Nearest}
}

// placeOf is the key of the objects that are of the kind and in the namespace of one.
func placeOf(id kind.ObjectKey) kind.ObjectKey {
	id.Name = ""
	return id
}

// kindOf is the key of the namespaces that have objects of a kind.
func kindOf(id kind.ObjectKey) kind.ObjectKey {
	id.Namespace, id.Name = "", ""
	return id
}

func (x *nameIndex) has(id kind.ObjectKey) bool { return x.names[placeOf(id)][id.Name] }

// all returns the objects, in no order.
func (x *nameIndex) all() iter.Seq[kind.ObjectKey] {
	return func(yield func(kind.ObjectKey) bool) {
		for id, names := range x.names {
			for id.Name = range names {
				if !yield(id) {
					return
				}
			}
		}
	}
}

func (x *nameIndex) add(id kind.ObjectKey) {
	if x.has(id) {
		return
	}
	clear(x.found)
	clear(x.homes)
	insert(x.names, placeOf(id), id.Name)
	insert(x.places, kindOf(id), id.Namespace)
}

func (x *nameIndex) remove(id kind.ObjectKey) {
	if !x.has(id) {
		return
	}
	clear(x.found)
	clear(x.homes)
	if drop(x.names, placeOf(id), id.Name) {
		drop(x.places, kindOf(id), id.Namespace)
	}
}

func insert(sets map[kind.ObjectKey]map[string]bool, of kind.ObjectKey, member string) {
	if sets[of] == nil {
		sets[of] = map[string]bool{}
	}
	sets[of][member] = true
}

// drop reports whether that was the last member.
func drop(sets map[kind.ObjectKey]map[string]bool, of kind.ObjectKey, member string) bool {
	delete(sets[of], member)
	if len(sets[of]) > 0 {
		return false
	}
	delete(sets, of)
	return true
}

// nearest returns the name that another one of a kind and namespace has which may be meant; "" where none is near.
func (x *nameIndex) nearest(k *kind.Kind, namespace, name string) string {
	asked := k.Key(namespace, name)
	near, known := x.found[asked]
	if !known {
		near = x.compare(name, slices.DeleteFunc(slices.Sorted(maps.Keys(x.names[placeOf(asked)])), func(other string) bool { return other == name }))
		x.found[asked] = near
	}
	return near
}

// elsewhere returns the namespace in which an object of a kind and name is; "" where that is none or several.
func (x *nameIndex) elsewhere(k *kind.Kind, name string) string {
	if in := x.namespaces(k, name); len(in) == 1 {
		return in[0]
	}
	return ""
}

// namespaces returns those in which an object of a kind and name is, sorted.
func (x *nameIndex) namespaces(k *kind.Kind, name string) []string {
	asked := k.Key("", name)
	in, known := x.homes[asked]
	if !known {
		for namespace := range x.places[kindOf(asked)] {
			if x.has(k.Key(namespace, name)) {
				in = append(in, namespace)
			}
		}
		slices.Sort(in)
		x.homes[asked] = in
	}
	return in
}
