package files

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// The words of package manifest that changes are told in.
type (
	// Position is a place in a manifest file.
	Position = manifest.Position
	// Problem is one thing that is wrong with the input, and what to do about it.
	Problem = manifest.Problem
)

// The reasons of a Problem that a reader of files finds.
const (
	Unreadable = manifest.Unreadable
	Malformed  = manifest.Malformed
	Invalid    = manifest.Invalid
	Duplicate  = manifest.Duplicate
	Ignored    = manifest.Ignored
)

// Object is one object as it is to be served.
type Object struct {
	ID kind.ObjectKey
	// Object is a typed object (it is a runtime.Object too), complete with
	// defaults; or a *kind.Undecoded in the place of one that was never valid. It is shared: nobody may modify it.
	Object metav1.Object
	// Position is where it is defined; zero for a Namespace that exists only
	// because objects are in it.
	Position Position
	// Older is the apiVersion that it is defined with where there is a newer one of its kind; "" where it is of the newest.
	Older string
}
