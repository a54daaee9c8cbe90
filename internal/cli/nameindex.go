package cli

import (
	"iter"
	"maps"
	"slices"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/schema"
)

// nameIndex indexes objects by name. A reference that leads nowhere is compared only with names that it may mean, and only once,
// however many objects have it.
type nameIndex struct {
	names   map[kind.ObjectKey]map[string]bool // by kind and namespace: the Name of the key is empty
	places  map[kind.ObjectKey]map[string]bool // the namespaces by kind: Name and Namespace of the key are empty
	found   map[kind.ObjectKey]string          // results of nearest
	homes   map[kind.ObjectKey][]string        // results of namespaces: the Namespace of the key is empty
	compare func(name string, candidates []string) string
}

func newNameIndex() *nameIndex {
	return &nameIndex{names: map[kind.ObjectKey]map[string]bool{}, places: map[kind.ObjectKey]map[string]bool{},
		found: map[kind.ObjectKey]string{}, homes: map[kind.ObjectKey][]string{}, compare: schema.Nearest}
}

// placeOf returns the key of names for the kind and namespace of an object.
func placeOf(id kind.ObjectKey) kind.ObjectKey {
	id.Name = ""
	return id
}

// kindOf returns the key of places for the kind of an object.
func kindOf(id kind.ObjectKey) kind.ObjectKey {
	id.Namespace, id.Name = "", ""
	return id
}

func (x *nameIndex) has(id kind.ObjectKey) bool { return x.names[placeOf(id)][id.Name] }

// all returns the objects in no particular order.
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

// drop removes a member and reports whether it was the last one.
func drop(sets map[kind.ObjectKey]map[string]bool, of kind.ObjectKey, member string) bool {
	delete(sets[of], member)
	if len(sets[of]) > 0 {
		return false
	}
	delete(sets, of)
	return true
}

// nearest returns a similar name of an object with that kind and namespace; "" if there is none.
func (x *nameIndex) nearest(k *kind.Kind, namespace, name string) string {
	asked := k.Key(namespace, name)
	near, known := x.found[asked]
	if !known {
		near = x.compare(name, slices.DeleteFunc(slices.Sorted(maps.Keys(x.names[placeOf(asked)])), func(other string) bool { return other == name }))
		x.found[asked] = near
	}
	return near
}

// elsewhere returns the only other namespace that has an object with that kind and name; "" if there are none or several.
func (x *nameIndex) elsewhere(k *kind.Kind, name string) string {
	if in := x.namespaces(k, name); len(in) == 1 {
		return in[0]
	}
	return ""
}

// namespaces returns the namespaces that have an object with that kind and name, sorted.
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
