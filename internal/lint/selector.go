package lint

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
)

// targetSelectors reports selectors of a policy that select nothing. The policy's status does not, because matching objects may be
// created later.
func (l *linter) targetSelectors(p *eg.BackendTrafficPolicy, objects []metav1.Object) {
	for i := range p.Spec.TargetSelectors {
		s := &p.Spec.TargetSelectors[i]
		if k, selector := readSelector(s); k != nil {
			l.targetSelector(p, fmt.Sprintf("spec.targetSelectors[%d]", i), s, k, selector, objects)
		}
	}
}

// readSelector returns the kind and the labels that a selector selects; nil if it is invalid.
func readSelector(s *eg.TargetSelector) (*kind.Kind, labels.Selector) {
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: s.MatchLabels, MatchExpressions: s.MatchExpressions})
	if err != nil {
		return nil, nil
	}
	group := gwv1.Group(gwv1.GroupName)
	if s.Group != nil {
		group = *s.Group
	}
	return kind.Find(string(group), string(s.Kind)), selector
}

func (l *linter) targetSelector(p *eg.BackendTrafficPolicy, field string, s *eg.TargetSelector, k *kind.Kind, selector labels.Selector, objects []metav1.Object) {
	in := l.namespacesOf(s.Namespaces, p.Namespace)
	some, labelled, forbidden := false, false, ""
	for _, o := range objects {
		if kind.Of(o) != k {
			continue
		}
		some = true
		if !selector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		labelled = true
		switch {
		case !in(o.GetNamespace()):
		case l.permitted(kind.KeyOf(p), kind.KeyOf(o)):
			return
		case forbidden == "" || o.GetNamespace()+"/"+o.GetName() < forbidden:
			forbidden = o.GetNamespace() + "/" + o.GetName()
		}
	}
	switch {
	case !some || l.anyRefused(k) || forbidden != "" && l.anyRefused(kind.ReferenceGrant.Kind):
		// They are in other namespaces, or exist and are invalid, which is reported for them.
	case forbidden != "":
		l.add(p, field, fmt.Sprintf("it selects nothing: of other namespaces it may select what a ReferenceGrant there permits, and none permits %s %s", k.Name, forbidden),
			fmt.Sprintf("add a ReferenceGrant there from %s in namespace %s to %s", kind.BackendTrafficPolicy.Name, p.Namespace, k.Name))
	case labelled:
		l.add(p, field, fmt.Sprintf("it selects nothing: no %s with these labels is in its namespaces", k.Name), "correct \"namespaces\", or label objects of them")
	default:
		l.add(p, field, fmt.Sprintf("it selects nothing: no %s has these labels", k.Name), "correct the labels, or label what is meant")
	}
}

// namespacesOf returns a function that reports whether a selector of a policy in a namespace searches a namespace.
func (l *linter) namespacesOf(s *eg.TargetSelectorNamespaces, own string) func(namespace string) bool {
	if s == nil || s.From != "All" && s.From != "Selector" {
		return func(namespace string) bool { return namespace == own }
	}
	if s.From == "All" {
		return func(string) bool { return true }
	}
	selector, err := metav1.LabelSelectorAsSelector(s.Selector)
	return func(namespace string) bool {
		set := labels.Set{corev1.LabelMetadataName: namespace} // of a namespace without an object
		return err == nil && selector.Matches(labels.Merge(l.namespaces[namespace], set))
	}
}

// anyRefused reports whether an object of a kind is invalid.
func (l *linter) anyRefused(k *kind.Kind) bool {
	return slices.ContainsFunc(l.refused, func(o kind.ObjectKey) bool { return o.Group == k.Group && o.Kind == k.Name })
}
