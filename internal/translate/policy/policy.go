// Package policy attaches policies to their targets according to GEP-713 and GEP-2648: which policy is in force for an object or a
// section of it, which others conflict, and what a policy's status reports. It exists so that all kinds of policy are attached by
// the same rules; the meaning of a policy is defined where its kind is translated.
//
// It consists of pure functions. It must never import translate, nor anything that translate must not.
package policy

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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

// Selector selects, in addition to targetRefs, objects of a kind in the policy's own namespace by their labels.
type Selector struct {
	Group, Kind, Namespace string
	Labels                 labels.Selector
}

// NewSelector reads a selector of targets. As everywhere in Kubernetes, an empty selector selects all objects and an absent one
// none; it returns an error if the selector is malformed, and then selects none.
func NewSelector(namespace, group, kind string, selector *metav1.LabelSelector) (Selector, error) {
	s := Selector{Group: group, Kind: kind, Namespace: namespace, Labels: labels.Nothing()}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err == nil {
		s.Labels = parsed
	}
	return s, err
}

// Selects reports whether the object with those labels is a target. Selectors do not select sections.
func (s *Selector) Selects(t Target, set map[string]string) bool {
	return t.Section == "" && t.Group == s.Group && t.Kind == s.Kind && t.Namespace == s.Namespace && s.Labels.Matches(labels.Set(set))
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

// Merge merges the specs of policies at two levels.
type Merge[S any] func(specific, general S) S

// InForce returns the spec in force if policies of one kind are attached at several levels, the most specific first: a port before
// its Service, a rule before its route, and the route before its Gateway. At each level only the winner counts. If merge is nil, the
// most specific winner is returned; else each winner is merged with the more general ones.
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
