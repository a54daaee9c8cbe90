// Package refcount shares values by key and drops each one when its last user has released it. Buckets and windows of
// rules are kept that way, because an edit of a rule must not reset them.
//
// It imports nothing of Moongate.
package refcount

import "sync"

// Set holds values by key as long as they are in use. The zero value is an empty set. It is safe for concurrent use.
type Set[T any] struct {
	mu  sync.Mutex
	all map[string]*entry[T]
}

type entry[T any] struct {
	value *T
	users int
}

// Take returns the value with a key, which is made by create if it is not in use yet, and a function that releases it;
// calls after the first do nothing. create must not call methods of the set. A new configuration takes its values
// before the one that it replaces releases them, so that what both use is kept.
func (s *Set[T]) Take(key string, create func() *T) (value *T, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[key]
	if e == nil {
		if s.all == nil {
			s.all = make(map[string]*entry[T])
		}
		e = &entry[T]{value: create()}
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

// Each calls f with each value in use, in no particular order. f must not call methods of the set.
func (s *Set[T]) Each(f func(key string, value *T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range s.all {
		f(key, e.value)
	}
}

// Len returns how many values are in use.
func (s *Set[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
