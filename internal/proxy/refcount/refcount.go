// Package refcount shares values by key and forgets each one when its last user is gone. Buckets and windows of rules are kept so, because an edit of a rule must not start them anew.
//
// It imports nothing of Moongate.
package refcount

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

// Take returns the value of a key, which create makes if nobody uses it yet, and a function that releases it; calls after the first do nothing. create must not call the set.
// A new configuration takes its values before the one that it replaces releases them, so that what both use stays.
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

// Each calls f with each value in use, in no order. f must not call the set.
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
