package cli

import (
	"maps"
	"testing"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
)

// TestProblemsByKind: what is missing because a manifest is wrong is counted by kinds of which there are only so many.
func TestProblemsByKind(t *testing.T) {
	s := newObjectStore()
	if got := s.problemsByKind(); len(got) != 0 {
		t.Errorf("before anything is read: %v", got)
	}
	route := kind.ObjectKey{Kind: "HTTPRoute", Name: "a"}
	s.change(files.Change{Problems: []files.Problem{
		{Object: route}, {Object: route}, {}, {Object: kind.ObjectKey{Kind: "Typo"}},
		{Object: kind.ObjectKey{Kind: "Deployment"}, Ignored: true}, {Object: kind.ObjectKey{Kind: "VirtualService"}, Ignored: true, Warning: true},
	}})
	if got, want := s.problemsByKind(), map[string]int{"HTTPRoute": 2, "": 1, "(other)": 2}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
