// Package policy attaches policies to their targets as GEP-713 and GEP-2648 have it: which policy is in force for an object or a section
// of it, which others lose, and what a policy's status says of that. It exists so that every kind of policy is attached by the same
// rules; what a policy means stays where its kind is translated.
//
// It is pure functions of their arguments. It must never import translate, nor anything that translate must not.
package policy

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Target is what a policy is attached to: an object, or a section of it, such as a port of a Service, a listener of a Gateway or a
// rule of a route.
type Target struct {
	Group, Kind, Namespace, Name string
	Section                      string // "" is the object as a whole
}

// Whole is the object that t is a section of.
func (t Target) Whole() Target {
	t.Section = ""
	return t
}

// Compare orders targets.
func (t Target) Compare(o Target) int {
	return cmp.Or(cmp.Compare(t.Group, o.Group), cmp.Compare(t.Kind, o.Kind), cmp.Compare(t.Namespace, o.Namespace), cmp.Compare(t.Name, o.Name),
		cmp.Compare(t.Section, o.Section))
}

// Levels are the targets whose policies concern t, the most specific first.
func (t Target) Levels() []Target {
	if t.Section == "" {
		return []Target{t}
	}
	return []Target{t, t.Whole()}
}

// Targets are the targetRefs of a policy in a namespace: they have no namespace of their own.
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

// ObjectTargets is Targets for references that have no sections.
func ObjectTargets(namespace string, refs []gwv1.LocalPolicyTargetReference) []Target {
	out := make([]Target, len(refs))
	for i, ref := range refs {
		out[i] = Target{Group: string(ref.Group), Kind: string(ref.Kind), Namespace: namespace, Name: string(ref.Name)}
	}
	return out
}

// Selector selects, beside targetRefs, the objects of a kind in the policy's own namespace that have labels.
type Selector struct {
	Group, Kind, Namespace string
	Labels                 labels.Selector
}

// NewSelector reads a selector of targets. As everywhere in Kubernetes an empty one selects all objects and an absent one none; one
// that is malformed is an error, and selects none.
func NewSelector(namespace, group, kind string, selector *metav1.LabelSelector) (Selector, error) {
	s := Selector{Group: group, Kind: kind, Namespace: namespace, Labels: labels.Nothing()}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err == nil {
		s.Labels = parsed
	}
	return s, err
}

// Selects reports whether the object with those labels is a target. Selectors have no sections.
func (s *Selector) Selects(t Target, set map[string]string) bool {
	return t.Section == "" && t.Group == s.Group && t.Kind == s.Kind && t.Namespace == s.Namespace && s.Labels.Matches(labels.Set(set))
}

// Policy is a policy as its precedence needs it, with what its kind makes of its spec.
type Policy[S any] struct {
	Name    types.NamespacedName
	Created int64 // in nanoseconds since the epoch
	Spec    S
}

// Compare orders policies by precedence: the oldest comes first, then the first by namespace and name.
func (p Policy[S]) Compare(o Policy[S]) int {
	return cmp.Or(cmp.Compare(p.Created, o.Created), CompareNames(p.Name, o.Name))
}

// CompareNames orders objects of one age by precedence, which the specification decides by the text "{namespace}/{name}": team-a/db precedes team/db, because
// '-' sorts before '/', although namespace team precedes team-a.
func CompareNames(a, b types.NamespacedName) int {
	n := min(len(a.Namespace), len(b.Namespace))
	if c := cmp.Compare(a.Namespace[:n], b.Namespace[:n]); c != 0 {
		return c
	}
	switch { // no namespace has a '/', so what follows the common part tells
	case len(a.Namespace) > n:
		return cmp.Compare(a.Namespace[n], '/')
	case len(b.Namespace) > n:
		return cmp.Compare('/', b.Namespace[n])
	}
	return cmp.Compare(a.Name, b.Name)
}

// Winner returns the policy in force among those of one kind that are attached to the same target; all others conflict with it.
func Winner[S any](attached []Policy[S]) (winner Policy[S], ok bool) {
	if len(attached) == 0 {
		return winner, false
	}
	return slices.MinFunc(attached, Policy[S].Compare), true
}

// Merge combines the specs of policies at two levels.
type Merge[S any] func(specific, general S) S

// InForce returns what is in force where policies of one kind are attached at several levels, the most specific first: a port before
// its Service, a rule before its route and that before its Gateway. Of each level only the winner counts. With a nil merge the most
// specific winner is all there is, else each is merged with what is more general.
func InForce[S any](levels [][]Policy[S], merge Merge[S]) (spec S, ok bool) {
	for _, attached := range levels {
		winner, exists := Winner(attached)
		switch {
		case !exists:
			continue
		case !ok:
			spec, ok = winner.Spec, true
		default:
			spec = merge(spec, winner.Spec)
		}
		if merge == nil {
			break
		}
	}
	return spec, ok
}
