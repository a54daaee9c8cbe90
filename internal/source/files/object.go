package files

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// Types of package manifest that are used in changes.
type (
	// Position is a place in a manifest file.
	Position = manifest.Position
	// Problem is something that is wrong with the input, and the remedy.
	Problem = manifest.Problem
)

// The reasons of a Problem that this package finds.
const (
	Unreadable = manifest.Unreadable
	Malformed  = manifest.Malformed
	Invalid    = manifest.Invalid
	Duplicate  = manifest.Duplicate
	Ignored    = manifest.Ignored
)

// Object is one object that is served.
type Object struct {
	ID kind.ObjectKey
	// Object is a typed object (also a runtime.Object), complete with defaults; or a *kind.Undecoded in place of an object that was
	// never valid. It is shared and must not be modified.
	Object metav1.Object
	// Position is where it is defined; zero for a Namespace that exists only because objects are in it.
	Position Position
	// Older is the apiVersion of its definition if its kind has a newer one; else "".
	Older string
}
