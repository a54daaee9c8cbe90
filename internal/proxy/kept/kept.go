// Package kept keeps what outlives the configuration that asks for it, by keys: counters and buckets of rules, which an edit of a rule must not begin anew.
//
// It imports nothing of Moongate.
package kept

import "sync"

// Set holds values by key for as long as somebody uses them. The zero value is an empty set; it is safe for concurrent use.
type Set[T any] struct {
	mu  sync.Mutex
	all map[string]*entry[T]
}

type entry[T any] struct {
	value *T
	users int
}

// Take returns the value of a key, which it makes where nobody uses it yet, and what gives it back: call that once. A configuration takes what it needs before the one that it replaces
// gives back, so that what both use stays.
func (s *Set[T]) Take(key string, make func() *T) (value *T, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[key]
	if e == nil {
		if s.all == nil {
			s.all = map[string]*entry[T]{}
		}
		e = &entry[T]{value: make()}
		s.all[key] = e
	}
	e.users++
	return e.value, sync.OnceFunc(func() { s.release(key, e) })
}

func (s *Set[T]) release(key string, e *entry[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.users--; e.users == 0 {
		delete(s.all, key)
	}
}

// Len is how many values are in use.
func (s *Set[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
