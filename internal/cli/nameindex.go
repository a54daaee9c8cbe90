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
	keys       map[kind.ObjectKey]bool
	byPlace    map[kind.ObjectKey]map[string]bool // names, by kind and namespace: the key has no name
	namespaces map[kind.ObjectKey][]string        // by kind and name: the key has no namespace; few, mostly one
	found      map[kind.ObjectKey]string          // what nearest has answered
	compare    func(name string, candidates []string) string
}

func newNameIndex() *nameIndex {
	return &nameIndex{keys: map[kind.ObjectKey]bool{}, byPlace: map[kind.ObjectKey]map[string]bool{}, namespaces: map[kind.ObjectKey][]string{}, found: map[kind.ObjectKey]string{}, compare: schema.Nearest}
}

func (x *nameIndex) has(id kind.ObjectKey) bool { return x.keys[id] }

// all returns the objects, in no order.
func (x *nameIndex) all() iter.Seq[kind.ObjectKey] { return maps.Keys(x.keys) }

func (x *nameIndex) add(id kind.ObjectKey) {
	if x.keys[id] {
		return
	}
	x.keys[id] = true
	clear(x.found)
	place, name := id, id
	place.Name, name.Namespace = "", ""
	if x.byPlace[place] == nil {
		x.byPlace[place] = map[string]bool{}
	}
	x.byPlace[place][id.Name] = true
	x.namespaces[name] = append(x.namespaces[name], id.Namespace)
}

func (x *nameIndex) remove(id kind.ObjectKey) {
	if !x.keys[id] {
		return
	}
	delete(x.keys, id)
	clear(x.found)
	place, name := id, id
	place.Name, name.Namespace = "", ""
	if delete(x.byPlace[place], id.Name); len(x.byPlace[place]) == 0 {
		delete(x.byPlace, place)
	}
	in := x.namespaces[name]
	if i := slices.Index(in, id.Namespace); len(in) > 1 {
		x.namespaces[name] = slices.Delete(in, i, i+1)
	} else {
		delete(x.namespaces, name)
	}
}

// nearest returns the name that one of a kind and namespace has which may be meant; "" where none is near.
func (x *nameIndex) nearest(k *kind.Kind, namespace, name string) string {
	asked := k.Key(namespace, name)
	near, known := x.found[asked]
	if !known {
		near = x.compare(name, slices.Sorted(maps.Keys(x.byPlace[k.Key(namespace, "")])))
		x.found[asked] = near
	}
	return near
}

// elsewhere returns the namespace in which an object of a kind and name is; "" where that is none or several.
func (x *nameIndex) elsewhere(k *kind.Kind, name string) string {
	if in := x.namespaces[k.Key("", name)]; len(in) == 1 {
		return in[0]
	}
	return ""
}
