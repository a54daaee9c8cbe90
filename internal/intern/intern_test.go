package intern

import (
	"slices"
	"testing"
)

func TestOf(t *testing.T) {
	var vs Values[*[]string]
	value := func(s ...string) *[]string { return &s }
	first := vs.Of(value("a", "b"))
	if second := vs.Of(value("a", "b")); second != first {
		t.Error("an equal value is another one")
	}
	if other := vs.Of(value("a")); other == first || !slices.Equal(*other, []string{"a"}) {
		t.Errorf("another value is %v", *other)
	}
	if empty, none := vs.Of(&[]string{}), vs.Of(new([]string)); empty == none || *empty == nil || *none != nil {
		t.Error("an empty list and none are the same, which are written in different ways")
	}
}

// TestLeastRecentGoes checks that values that are asked for stay while others come and go, and that no more than kept are kept.
func TestLeastRecentGoes(t *testing.T) {
	var vs Values[*int]
	often, once := vs.Of(new(-1)), vs.Of(new(-2))
	for i := range 3 * kept {
		vs.Of(new(i))
		if vs.Of(new(-1)) != often {
			t.Fatalf("after %d others the value is another one", i+1)
		}
	}
	if vs.Of(new(-2)) == once {
		t.Error("a value that nobody asked for is still kept")
	}
	if len(vs.last) != kept {
		t.Errorf("%d are kept, want %d", len(vs.last), kept)
	}
}

func TestEqual(t *testing.T) {
	vs := Values[*[2]int]{Equal: func(a, b *[2]int) bool { return a[0] == b[0] }}
	first := vs.Of(&[2]int{1, 2})
	if vs.Of(&[2]int{1, 3}) != first || vs.Of(&[2]int{2, 2}) == first {
		t.Error("values are not compared by Equal")
	}
}
