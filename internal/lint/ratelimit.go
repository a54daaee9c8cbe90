package lint

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
)

// target is what a policy may be for: an object, or a section of it.
type target struct{ kind, namespace, name, section string }

// rateLimits knows which BackendTrafficPolicy is for what, and so what is limited.
type rateLimits struct {
	// policies are those in force, by their targets. There are none where no policy has a limit.
	policies map[target]*eg.BackendTrafficPolicy
	// gateways are those of ListenerSets.
	gateways map[target]target
}

func (l *linter) rateLimits(objects []metav1.Object) *rateLimits {
	limits := &rateLimits{policies: map[target]*eg.BackendTrafficPolicy{}, gateways: map[target]target{}}
	var policies []*eg.BackendTrafficPolicy
	for _, o := range objects {
		switch o := o.(type) {
		case *eg.BackendTrafficPolicy:
			policies = append(policies, o)
		case *gwv1.ListenerSet:
			limits.gateways[target{kind: kind.ListenerSet.Name, namespace: o.Namespace, name: o.Name}] = gatewayOf(o.Namespace, o.Spec.ParentRef)
		case *gwx.XListenerSet:
			limits.gateways[target{kind: kind.XListenerSet.Name, namespace: o.Namespace, name: o.Name}] = gatewayOf(o.Namespace, o.Spec.ParentRef)
		}
	}
	if !slices.ContainsFunc(policies, hasLimits) {
		return limits
	}
	slices.SortFunc(policies, func(a, b *eg.BackendTrafficPolicy) int { // as it is decided which of several is in force
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range policies {
		for _, t := range l.targetsOf(p, objects) {
			if limits.policies[t] == nil {
				limits.policies[t] = p
			}
		}
	}
	return limits
}

func gatewayOf(namespace string, ref gwv1.ParentGatewayReference) target {
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	return target{kind: kind.Gateway.Name, namespace: namespace, name: string(ref.Name)}
}

// targetsOf are those that a policy names or selects.
func (l *linter) targetsOf(p *eg.BackendTrafficPolicy, objects []metav1.Object) (targets []target) {
	refs := p.Spec.TargetRefs
	if p.Spec.TargetRef != nil {
		refs = append(slices.Clone(refs), *p.Spec.TargetRef)
	}
	for _, ref := range refs {
		t := target{kind: string(ref.Kind), namespace: p.Namespace, name: string(ref.Name)}
		if ref.SectionName != nil {
			t.section = string(*ref.SectionName)
		}
		targets = append(targets, t)
	}
	for _, s := range p.Spec.TargetSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: s.MatchLabels, MatchExpressions: s.MatchExpressions})
		if err != nil {
			continue
		}
		in := l.namespacesOf(s.Namespaces, p.Namespace)
		for _, o := range objects {
			if at := kind.KeyOf(o); at.Kind == string(s.Kind) && selector.Matches(labels.Set(o.GetLabels())) && in(at.Namespace) && l.permitted(kind.KeyOf(p), at) {
				targets = append(targets, target{kind: at.Kind, namespace: at.Namespace, name: at.Name})
			}
		}
	}
	return targets
}

func hasLimits(p *eg.BackendTrafficPolicy) bool { return p.Spec.RateLimit != nil }

// limits reports whether a rate limit is in force for a rule on what a reference of its route names: the policy closest to the rule, and those above it as far as it is merged with them.
func (limits *rateLimits) limits(u *use, parent gwv1.ParentReference) bool {
	route := kind.KeyOf(u.route)
	object := target{kind: route.Kind, namespace: route.Namespace, name: route.Name}
	above := target{kind: kind.Gateway.Name, namespace: route.Namespace, name: string(parent.Name)}
	if parent.Kind != nil {
		above.kind = string(*parent.Kind)
	}
	if parent.Namespace != nil {
		above.namespace = string(*parent.Namespace)
	}
	rule, listener := object, above
	rule.section = string(u.name)
	if parent.SectionName != nil {
		listener.section = string(*parent.SectionName)
	}
	for _, level := range []target{rule, object, listener, above, limits.gateways[above]} {
		p := limits.policies[level]
		if p == nil {
			continue
		}
		if hasLimits(p) {
			return true
		}
		if p.Spec.MergeType == nil {
			return false
		}
	}
	return false
}
