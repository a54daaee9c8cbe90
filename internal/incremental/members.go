package incremental

import "slices"

// Members declares a collection of the members of an index, each with its index key, for the index keys that are in keys. A FlatMap
// over keys would return all members of a key again whenever one is added or removed. pair must return a unique key for each index
// key and member.
func Members[IK Key[IK], K Key[K], V, W any, P Key[P]](ix *Index[IK, K, V], name string, keys *Collection[IK, W], pair func(IK, K) P) *Collection[P, struct{}] {
	m := &memberSet[IK, K, V, W, P]{
		Collection: newCollection[P](ix.engine, name, func(_, _ struct{}) bool { return true }),
		index:      ix, keys: keys, pair: pair, followed: map[IK]struct{}{},
	}
	m.level = ix.engine.declare(m)
	view := View{engine: ix.engine, level: m.level, name: name}
	view.check(keys.engine, keys.level, keys.name)
	ix.followers = append(ix.followers, m.note)
	return m.Collection
}

type memberSet[IK Key[IK], K Key[K], V, W any, P Key[P]] struct {
	*Collection[P, struct{}]
	index    *Index[IK, K, V]
	keys     *Collection[IK, W]
	pair     func(IK, K) P
	followed map[IK]struct{} // the index keys of keys at the last update
	noted    []member[IK, K]
}

type member[IK, K any] struct {
	under IK
	key   K
}

// note is called by the index when a member is added or removed. For index keys that are not followed yet all members are read
// later.
func (m *memberSet[IK, K, V, W, P]) note(ik IK, k K) {
	if _, ok := m.followed[ik]; ok {
		m.noted = append(m.noted, member[IK, K]{ik, k})
	}
}

func (m *memberSet[IK, K, V, W, P]) update() {
	for _, ch := range m.keys.changes {
		if !ch.Added && !ch.Deleted {
			continue
		}
		if ch.Deleted {
			delete(m.followed, ch.Key)
		} else {
			m.followed[ch.Key] = struct{}{}
		}
		for _, k := range m.index.Get(ch.Key) {
			m.noted = append(m.noted, member[IK, K]{ch.Key, k})
		}
	}
	seen := make(map[P]struct{}, len(m.noted))
	for _, n := range m.noted {
		p := m.pair(n.under, n.key)
		if _, again := seen[p]; again {
			continue
		}
		seen[p] = struct{}{}
		_, followed := m.followed[n.under]
		if _, is := slices.BinarySearchFunc(m.index.Get(n.under), n.key, K.Compare); is && followed {
			m.put(p, struct{}{})
		} else {
			m.remove(p)
		}
	}
	m.noted = emptied(m.noted)
	m.sortChanges()
}
