// Package policy attaches policies to their targets according to GEP-713 and GEP-2648: which policy is in force for an object or a
// section of it, which others conflict, and what a policy's status reports. It exists so that all kinds of policy are attached by
// the same rules; the meaning of a policy is defined where its kind is translated.
//
// It consists of pure functions. It must never import translate, nor anything that translate must not.
package policy

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Target is the target of a policy: an object, or a section of it, such as a port of a Service, a listener of a Gateway or a rule of
// a route.
type Target struct {
	Group, Kind, Namespace, Name string
	Section                      string // "" means the object as a whole
}

// Whole returns the object of which t is a section.
func (t Target) Whole() Target {
	t.Section = ""
	return t
}

// Compare orders targets.
func (t Target) Compare(o Target) int {
	return cmp.Or(cmp.Compare(t.Group, o.Group), cmp.Compare(t.Kind, o.Kind), cmp.Compare(t.Namespace, o.Namespace), cmp.Compare(t.Name, o.Name),
		cmp.Compare(t.Section, o.Section))
}

// Levels returns the targets whose policies apply to t, the most specific first.
func (t Target) Levels() []Target {
	if t.Section == "" {
		return []Target{t}
	}
	return []Target{t, t.Whole()}
}

// Targets returns the targetRefs of a policy in a namespace; they have no namespace of their own.
func Targets(namespace string, refs []gwv1.LocalPolicyTargetReferenceWithSectionName) []Target {
	out := make([]Target, len(refs))
	for i, ref := range refs {
		out[i] = Target{Group: string(ref.Group), Kind: string(ref.Kind), Namespace: namespace, Name: string(ref.Name)}
		if ref.SectionName != nil {
			out[i].Section = string(*ref.SectionName)
		}
	}
	return out
}

// ObjectTargets is Targets for references without sections.
func ObjectTargets(namespace string, refs []gwv1.LocalPolicyTargetReference) []Target {
	out := make([]Target, len(refs))
	for i, ref := range refs {
		out[i] = Target{Group: string(ref.Group), Kind: string(ref.Kind), Namespace: namespace, Name: string(ref.Name)}
	}
	return out
}

// Policy is a policy with what determines its precedence, and with the result of its spec.
type Policy[S any] struct {
	Name    types.NamespacedName
	Created int64 // in nanoseconds since the epoch
	Spec    S
}

// Compare orders policies by precedence: the oldest first, then the first by namespace and name.
func (p Policy[S]) Compare(o Policy[S]) int {
	return cmp.Or(cmp.Compare(p.Created, o.Created), CompareNames(p.Name, o.Name))
}

// CompareNames orders objects of the same age by precedence. The specification compares the text "{namespace}/{name}": team-a/db
// precedes team/db, because '-' sorts before '/', although namespace team precedes team-a.
func CompareNames(a, b types.NamespacedName) int {
	n := min(len(a.Namespace), len(b.Namespace))
	if c := cmp.Compare(a.Namespace[:n], b.Namespace[:n]); c != 0 {
		return c
	}
	switch { // no namespace contains a '/', so the rest after the common part decides
	case len(a.Namespace) > n:
		return cmp.Compare(a.Namespace[n], '/')
	case len(b.Namespace) > n:
		return cmp.Compare('/', b.Namespace[n])
	}
	return cmp.Compare(a.Name, b.Name)
}

// Winner returns the policy in force among those of one kind with the same target; all others conflict with it.
func Winner[S any](attached []Policy[S]) (winner Policy[S], ok bool) {
	if len(attached) == 0 {
		return winner, false
	}
	return slices.MinFunc(attached, Policy[S].Compare), true
}
