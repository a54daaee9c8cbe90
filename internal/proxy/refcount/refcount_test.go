package refcount

import (
	"sync"
	"testing"
)

// TestSet: users of a key share one value, which is forgotten with the last of them, however often one of them releases it.
func TestSet(t *testing.T) {
	var s Set[int]
	made := 0
	create := func() *int { made++; return new(int) }
	a, releaseA := s.Take("k", create)
	b, releaseB := s.Take("k", create)
	other, releaseOther := s.Take("o", create)
	if a != b || a == other || made != 2 || s.Len() != 2 {
		t.Errorf("two users of a key have %p and %p, another key %p; %d made, %d kept", a, b, other, made, s.Len())
	}
	seen := map[string]*int{}
	s.Each(func(key string, value *int) { seen[key] = value })
	if len(seen) != 2 || seen["k"] != a || seen["o"] != other {
		t.Errorf("in use are %v", seen)
	}
	releaseA()
	releaseA()
	c, releaseC := s.Take("k", create)
	if c != b || made != 2 {
		t.Error("a value in use was made anew")
	}
	releaseC()
	releaseB()
	_, releaseD := s.Take("k", create)
	if made != 3 {
		t.Error("a value that nobody used is there again")
	}
	releaseD()
	releaseOther()
	if n := s.Len(); n != 0 {
		t.Errorf("%d values are left", n)
	}
}

// TestSetConcurrently: users who come and go disturb neither one who stays nor, without one, the count.
func TestSetConcurrently(t *testing.T) {
	var s Set[int]
	create := func() *int { return new(int) }
	staying, release := s.Take("k", create)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				value, release := s.Take("k", create)
				if value != staying {
					t.Error("a value in use was made anew")
				}
				release()
				_, release = s.Take("o", create)
				release()
			}
		})
	}
	wg.Wait()
	if n := s.Len(); n != 1 {
		t.Errorf("%d values are in use, want 1", n)
	}
	release()
	if n := s.Len(); n != 0 {
		t.Errorf("%d values are left", n)
	}
}
