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

// target is a possible target of a policy: an object, or a section of it.
type target struct{ kind, namespace, name, section string }

// rateLimits determines which BackendTrafficPolicies are in force, and so which rules have a rate limit.
type rateLimits struct {
	// policies are those in force by target. It is empty if no policy has a limit.
	policies map[target]*eg.BackendTrafficPolicy
	// gateways are those of ListenerSets; other objects have the zero target, which has no policy.
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
	slices.SortFunc(policies, func(a, b *eg.BackendTrafficPolicy) int { // in the order of precedence
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

// targetsOf returns the targets that a policy names or selects.
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
	for i := range p.Spec.TargetSelectors {
		s := &p.Spec.TargetSelectors[i]
		k, selector := readSelector(s)
		if k == nil {
			continue
		}
		in := l.namespacesOf(s.Namespaces, p.Namespace)
		for _, o := range objects {
			if at := kind.KeyOf(o); kind.Of(o) == k && selector.Matches(labels.Set(o.GetLabels())) && in(at.Namespace) && l.permitted(kind.KeyOf(p), at) {
				targets = append(targets, target{kind: at.Kind, namespace: at.Namespace, name: at.Name})
			}
		}
	}
	return targets
}

func hasLimits(p *eg.BackendTrafficPolicy) bool { return p.Spec.RateLimit != nil }

// limits reports whether a rate limit is in force for a rule under a parent of its route: that of the policy closest to the rule
// and, if there is none or it is merged, that of the closest policy above the route.
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
	own, inherited := limits.first(rule, object), limits.first(listener, above, limits.gateways[above])
	switch {
	case own != nil && hasLimits(own):
		return true
	case own != nil && own.Spec.MergeType == nil:
		return false
	}
	return inherited != nil && hasLimits(inherited)
}

// first returns the policy of the first target that has one; nil if none has.
func (limits *rateLimits) first(targets ...target) *eg.BackendTrafficPolicy {
	for _, t := range targets {
		if p := limits.policies[t]; p != nil {
			return p
		}
	}
	return nil
}
