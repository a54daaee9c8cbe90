package match

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"slices"
	"strings"
)

// seed is random per process, so that an attacker cannot choose hostnames or paths whose hashes collide.
var seed = maphash.MakeSeed()

// pmap is an immutable hash map: a trie over the 64 bits of the hash, five per level. A changed copy shares all nodes
// except those on one path from the root. The zero value is empty.
type pmap[V any] struct {
	root *node[V]
	n    int
}

// node is in canonical form: below the root, no subtree holds only a single leaf. That keeps the tree shallow and makes
// root.leaves[0] the only entry if n is 1.
type node[V any] struct {
	leafBits, kidBits uint32 // which of the 32 slots hold a leaf or a child
	leaves            []leaf[V]
	kids              []*node[V]
	owner             *owner // of the node itself and of the array kids, but not of the array leaves
}

// owner is the series of changes that has created a node. As long as nothing else refers to the node, the series changes it in
// place instead of copying it for each of thousands of entries.
type owner struct{ _ byte } // not empty, so that each has an address of its own

type leaf[V any] struct {
	hash  uint64
	key   string
	value V
}

const (
	bitsPerLevel = 5
	// From this shift on no bits of the hash are left: the leaves of such a node all have the same hash and are in the
	// order of insertion.
	maxShift = 65
)

func slot(hash uint64, shift uint) uint32 { return 1 << (hash >> shift & (1<<bitsPerLevel - 1)) }

func rank(set, bit uint32) int { return bits.OnesCount32(set & (bit - 1)) }

// find returns nil if key is absent.
func (m *pmap[V]) find(key []byte) *V {
	if m.n <= 1 {
		if m.n == 1 && m.root.leaves[0].key == string(key) {
			return &m.root.leaves[0].value
		}
		return nil
	}
	return m.findHash(maphash.Bytes(seed, key), key)
}

func (m *pmap[V]) findHash(hash uint64, key []byte) *V {
	n := m.root
	for shift := uint(0); n != nil && shift < maxShift; shift += bitsPerLevel {
		bit := slot(hash, shift)
		if n.leafBits&bit != 0 {
			l := &n.leaves[rank(n.leafBits, bit)]
			if l.hash == hash && l.key == string(key) {
				return &l.value
			}
			return nil
		}
		if n.kidBits&bit == 0 {
			return nil
		}
		n = n.kids[rank(n.kidBits, bit)]
	}
	if n != nil {
		if i := n.collision(string(key)); i >= 0 {
			return &n.leaves[i].value
		}
	}
	return nil
}

// with returns a copy in which key has the value v.
func (m pmap[V]) with(key string, v V) pmap[V] {
	m.set(key, v, nil)
	return m
}

// set sets the value of key. It changes the nodes of by, which may be nil, in place; copies of m that share them become invalid.
func (m *pmap[V]) set(key string, v V, by *owner) {
	m.setHash(leaf[V]{maphash.String(seed, key), key, v}, by)
}

func (m *pmap[V]) setHash(l leaf[V], by *owner) {
	root, added := m.root.with(l, 0, by)
	if added {
		m.n++
	}
	m.root = root
}

// without returns a copy that lacks key.
func (m pmap[V]) without(key string) pmap[V] {
	return m.withoutHash(maphash.String(seed, key), key)
}

func (m pmap[V]) withoutHash(hash uint64, key string) pmap[V] {
	root, removed := m.root.without(hash, key, 0)
	if removed {
		m.n--
	}
	m.root = root
	return m
}

// all yields the entries in an order that differs between processes.
func (m pmap[V]) all() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) { m.root.each(yield) }
}

// sorted returns the entries by key.
func (m pmap[V]) sorted() []leaf[V] {
	list := make([]leaf[V], 0, m.n)
	m.root.collect(&list)
	slices.SortFunc(list, func(a, b leaf[V]) int { return strings.Compare(a.key, b.key) })
	return list
}

func (n *node[V]) each(yield func(string, V) bool) bool {
	if n == nil {
		return true
	}
	for i := range n.leaves {
		if !yield(n.leaves[i].key, n.leaves[i].value) {
			return false
		}
	}
	for _, kid := range n.kids {
		if !kid.each(yield) {
			return false
		}
	}
	return true
}

func (n *node[V]) collect(list *[]leaf[V]) {
	if n == nil {
		return
	}
	*list = append(*list, n.leaves...)
	for _, kid := range n.kids {
		kid.collect(list)
	}
}

func (n *node[V]) collision(key string) int {
	return slices.IndexFunc(n.leaves, func(l leaf[V]) bool { return l.key == key })
}

func (n *node[V]) with(l leaf[V], shift uint, by *owner) (_ *node[V], added bool) {
	next := n.editable(by)
	if shift >= maxShift {
		if i := next.collision(l.key); i >= 0 {
			next.leaves = replaced(next.leaves, i, l)
			return next, false
		}
		next.leaves = inserted(next.leaves, len(next.leaves), l)
		return next, true
	}
	bit := slot(l.hash, shift)
	switch {
	case next.kidBits&bit != 0:
		i := rank(next.kidBits, bit)
		kid, added := next.kids[i].with(l, shift+bitsPerLevel, by)
		if by == nil {
			next.kids = slices.Clone(next.kids)
		}
		next.kids[i] = kid
		return next, added
	case next.leafBits&bit == 0:
		next.leafBits |= bit
		next.leaves = inserted(next.leaves, rank(next.leafBits, bit), l)
		return next, true
	}
	i := rank(next.leafBits, bit)
	if next.leaves[i].key == l.key {
		next.leaves = replaced(next.leaves, i, l)
		return next, false
	}
	// Two leaves share the slot: both move one level down.
	kid, _ := (*node[V])(nil).with(next.leaves[i], shift+bitsPerLevel, by)
	kid, _ = kid.with(l, shift+bitsPerLevel, by)
	next.leafBits &^= bit
	next.leaves = removed(next.leaves, i)
	next.kidBits |= bit
	next.kids = inserted(next.kids, rank(next.kidBits, bit), kid)
	return next, true
}

// editable returns n if by owns it, otherwise a copy that by owns. Without an owner, the copy shares both arrays with n, which may be
// nil.
func (n *node[V]) editable(by *owner) *node[V] {
	if n == nil {
		return &node[V]{owner: by}
	}
	if by != nil && n.owner == by {
		return n
	}
	next := *n
	if next.owner = by; by != nil {
		next.kids = slices.Clone(n.kids)
	}
	return &next
}

func (n *node[V]) without(hash uint64, key string, shift uint) (_ *node[V], found bool) {
	if n == nil {
		return nil, false
	}
	next := *n // owned as n is, which nothing refers to then
	bit, i := uint32(0), -1
	switch {
	case shift >= maxShift:
		i = n.collision(key)
	default:
		bit = slot(hash, shift)
		if n.kidBits&bit != 0 {
			return n.withoutBelow(hash, key, shift, bit)
		}
		if n.leafBits&bit != 0 && n.leaves[rank(n.leafBits, bit)].key == key {
			i = rank(n.leafBits, bit)
		}
	}
	if i < 0 {
		return n, false
	}
	if len(n.leaves) == 1 && len(n.kids) == 0 {
		return nil, true
	}
	next.leafBits &^= bit
	next.leaves = removed(n.leaves, i)
	return &next, true
}

// withoutBelow removes from a child, and moves the child's last leaf up.
func (n *node[V]) withoutBelow(hash uint64, key string, shift uint, bit uint32) (*node[V], bool) {
	i := rank(n.kidBits, bit)
	kid, found := n.kids[i].without(hash, key, shift+bitsPerLevel)
	if !found {
		return n, false
	}
	next := *n
	if len(kid.kids) > 0 || len(kid.leaves) > 1 {
		next.kids = replaced(n.kids, i, kid)
		return &next, true
	}
	next.kidBits &^= bit
	next.kids = removed(n.kids, i)
	next.leafBits |= bit
	next.leaves = inserted(n.leaves, rank(n.leafBits, bit), kid.leaves[0])
	return &next, true
}

// replaced, inserted and removed do not change the given slice, because older maps share it.

func replaced[E any](s []E, i int, e E) []E {
	s = slices.Clone(s)
	s[i] = e
	return s
}

func inserted[E any](s []E, i int, e E) []E {
	out := make([]E, len(s)+1)
	copy(out, s[:i])
	out[i] = e
	copy(out[i+1:], s[i:])
	return out
}

func removed[E any](s []E, i int) []E {
	if len(s) == 1 {
		return nil
	}
	out := make([]E, len(s)-1)
	copy(out, s[:i])
	copy(out[i:], s[i+1:])
	return out
}
