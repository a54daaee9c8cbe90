package kept

import (
	"sync"
	"testing"
)

func TestSet(t *testing.T) {
	var s Set[int]
	made := 0
	mk := func() *int { made++; return new(int) }
	a, releaseA := s.Take("k", mk)
	b, releaseB := s.Take("k", mk)
	other, releaseOther := s.Take("o", mk)
	if a != b || a == other || made != 2 || s.Len() != 2 {
		t.Errorf("two users of a key have %p and %p, another key %p; %d made, %d kept", a, b, other, made, s.Len())
	}
	releaseA()
	releaseA() // is nothing
	if c, releaseC := s.Take("k", mk); c != a {
		t.Error("a value in use was made anew")
	} else {
		releaseC()
	}
	releaseB()
	if c, releaseC := s.Take("k", mk); made != 3 {
		t.Errorf("a value that nobody used is there again: %p", c)
	} else {
		releaseC()
	}
	releaseOther()
	if n := s.Len(); n != 0 {
		t.Errorf("%d values are left", n)
	}
}

func TestSetConcurrently(t *testing.T) {
	var s Set[int]
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				_, release := s.Take("k", func() *int { return new(int) })
				release()
			}
		})
	}
	wg.Wait()
	if n := s.Len(); n != 0 {
		t.Errorf("%d values are left", n)
	}
}
