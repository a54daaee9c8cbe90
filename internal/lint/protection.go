package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
)

// use is a rule of an HTTPRoute or GRPCRoute that leads to a backend.
type use struct {
	route     metav1.Object
	calls     bool // a GRPCRoute
	rule      int
	section   gwv1.SectionName // name of the rule, "" without one
	parents   []gwv1.ParentReference
	hostnames []gwv1.Hostname
	// paths are prefixes of those that the rule may match.
	paths []string
	// asks reports whether the rule has an ExternalAuth filter.
	asks bool
}

// protections looks for backends that an HTTPRoute and a GRPCRoute lead to on one hostname, of which only one asks a server for external authorization, or is limited. Which of
// them a request goes by is said by its content type, so a client can choose the other one.
func (l *linter) protections(objects []metav1.Object) {
	limits := rateLimits(objects)
	uses := map[string][]use{}
	for _, o := range objects {
		for backend, of := range usesOf(o) {
			uses[backend] = append(uses[backend], of...)
		}
	}
	for backend, list := range uses {
		slices.SortFunc(list, func(a, b use) int {
			return cmp.Or(kind.KeyOf(a.route).Compare(kind.KeyOf(b.route)), cmp.Compare(a.rule, b.rule))
		})
		for _, open := range list {
			meets := func(u use) bool { return u.calls != open.calls && u.meets(&open) }
			if !open.asks {
				if i := slices.IndexFunc(list, func(u use) bool { return u.asks && meets(u) }); i >= 0 {
					l.unprotected(&open, &list[i], backend, "its ExternalAuth filter", "put the filter into filters.requests of the listener, which asks about all requests")
				}
			}
			if !l.limited(&open, limits) {
				if i := slices.IndexFunc(list, func(u use) bool { return meets(u) && l.limited(&u, limits) }); i >= 0 {
					l.unprotected(&open, &list[i], backend, "the rateLimit of its BackendTrafficPolicy", "let the policy have both routes as targets, or their Gateway")
				}
			}
		}
	}
}

func (l *linter) unprotected(open, protected *use, backend, by, remedy string) {
	what, other := "calls", "requests that are not gRPC"
	if !open.calls {
		what, other = other, what
	}
	l.add(open.route, fmt.Sprintf("spec.rules[%d]", open.rule), fmt.Sprintf("%s reach %s here without what is asked of %s by %s spec.rules[%d]: %s; a client chooses between them by its content type",
		what, backend, other, kind.KeyOf(protected.route), protected.rule, by), remedy)
}

// usesOf are the rules of a route by the backends that they lead to.
func usesOf(o metav1.Object) map[string][]use {
	uses := map[string][]use{}
	add := func(u use, refs []gwv1.BackendObjectReference) {
		for _, ref := range refs {
			at := backendName(u.route.GetNamespace(), ref)
			if !slices.ContainsFunc(uses[at], func(other use) bool { return other.rule == u.rule }) {
				uses[at] = append(uses[at], u)
			}
		}
	}
	switch o := o.(type) {
	case *gwv1.HTTPRoute:
		for i, rule := range o.Spec.Rules {
			u := use{route: o, rule: i, parents: o.Spec.ParentRefs, hostnames: o.Spec.Hostnames, asks: slices.ContainsFunc(rule.Filters, asks)}
			if rule.Name != nil {
				u.section = *rule.Name
			}
			for _, m := range rule.Matches {
				u.paths = append(u.paths, requestPath(m))
			}
			var refs []gwv1.BackendObjectReference
			for _, ref := range rule.BackendRefs {
				refs = append(refs, ref.BackendObjectReference)
			}
			add(u, refs)
		}
	case *gwv1.GRPCRoute:
		for i, rule := range o.Spec.Rules {
			u := use{route: o, calls: true, rule: i, parents: o.Spec.ParentRefs, hostnames: o.Spec.Hostnames}
			if rule.Name != nil {
				u.section = *rule.Name
			}
			for _, m := range rule.Matches {
				u.paths = append(u.paths, callPath(m))
			}
			var refs []gwv1.BackendObjectReference
			for _, ref := range rule.BackendRefs {
				refs = append(refs, ref.BackendObjectReference)
			}
			add(u, refs)
		}
	}
	return uses
}

func asks(f gwv1.HTTPRouteFilter) bool { return f.Type == gwv1.HTTPRouteFilterExternalAuth }

// backendName is the same for references to the same backend.
func backendName(namespace string, ref gwv1.BackendObjectReference) string {
	name, port := kind.Service.Name, ""
	if ref.Kind != nil {
		name = string(*ref.Kind)
	}
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	if ref.Port != nil {
		port = fmt.Sprintf(":%d", *ref.Port)
	}
	return fmt.Sprintf("%s %s/%s%s", name, namespace, ref.Name, port)
}

// requestPath is a prefix of the paths that a match may match.
func requestPath(m gwv1.HTTPRouteMatch) string {
	if m.Path == nil || m.Path.Value == nil || m.Path.Type != nil && *m.Path.Type == gwv1.PathMatchRegularExpression {
		return "/"
	}
	return *m.Path.Value
}

// callPath is requestPath for calls.
func callPath(m gwv1.GRPCRouteMatch) string {
	if m.Method == nil || m.Method.Service == nil || m.Method.Type != nil && *m.Method.Type == gwv1.GRPCMethodMatchRegularExpression {
		return "/"
	}
	path := "/" + *m.Method.Service + "/"
	if m.Method.Method != nil {
		path += *m.Method.Method
	}
	return path
}

// meets reports whether the same request, but for its content type, may go by both.
func (u *use) meets(other *use) bool {
	return anyPair(u.parents, other.parents, []gwv1.ParentReference{{}}, func(a, b gwv1.ParentReference) bool { return sameParent(u.route, a, other.route, b) }) &&
		anyPair(u.hostnames, other.hostnames, []gwv1.Hostname{""}, func(a, b gwv1.Hostname) bool { return strings.EqualFold(string(a), string(b)) }) &&
		anyPair(u.paths, other.paths, []string{"/"}, func(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) })
}

// anyPair reports whether an element of one list and one of the other are alike; an empty list is as none.
func anyPair[T any](a, b, none []T, alike func(a, b T) bool) bool {
	if len(a) == 0 {
		a = none
	}
	if len(b) == 0 {
		b = none
	}
	return slices.ContainsFunc(a, func(x T) bool { return slices.ContainsFunc(b, func(y T) bool { return alike(x, y) }) })
}

// sameParent reports whether two routes may be attached to the same listener.
func sameParent(route metav1.Object, a gwv1.ParentReference, other metav1.Object, b gwv1.ParentReference) bool {
	if a.SectionName == nil || b.SectionName == nil {
		a.SectionName, b.SectionName = nil, nil
	}
	if a.Port == nil || b.Port == nil {
		a.Port, b.Port = nil, nil
	}
	return parentKey(route.GetNamespace(), a) == parentKey(other.GetNamespace(), b)
}

// rateLimits are the policies with rate limits.
func rateLimits(objects []metav1.Object) (policies []*eg.BackendTrafficPolicy) {
	for _, o := range objects {
		if p, ok := o.(*eg.BackendTrafficPolicy); ok && p.Spec.RateLimit != nil {
			policies = append(policies, p)
		}
	}
	return policies
}

// limited reports whether one of the policies is for a rule: by its own name, that of its route, or that of a Gateway.
func (l *linter) limited(u *use, policies []*eg.BackendTrafficPolicy) bool {
	return slices.ContainsFunc(policies, func(p *eg.BackendTrafficPolicy) bool {
		refs := slices.Clone(p.Spec.TargetRefs)
		if p.Spec.TargetRef != nil {
			refs = append(refs, *p.Spec.TargetRef)
		}
		return slices.ContainsFunc(refs, func(ref eg.PolicyTargetReference) bool { return u.isTarget(p, ref) }) ||
			slices.ContainsFunc(p.Spec.TargetSelectors, func(s eg.TargetSelector) bool { return l.selects(p, &s, u.route) })
	})
}

func (u *use) isTarget(p *eg.BackendTrafficPolicy, ref eg.PolicyTargetReference) bool {
	route := kind.KeyOf(u.route)
	if string(ref.Kind) == route.Kind {
		return p.Namespace == route.Namespace && string(ref.Name) == route.Name && (ref.SectionName == nil || *ref.SectionName == u.section)
	}
	return slices.ContainsFunc(u.parents, func(parent gwv1.ParentReference) bool {
		of, namespace := kind.Gateway.Name, route.Namespace
		if parent.Kind != nil {
			of = string(*parent.Kind)
		}
		if parent.Namespace != nil {
			namespace = string(*parent.Namespace)
		}
		return string(ref.Kind) == of && ref.Name == gwv1.ObjectName(parent.Name) && p.Namespace == namespace
	})
}

// selects reports whether a selector of a policy selects an object.
func (l *linter) selects(p *eg.BackendTrafficPolicy, s *eg.TargetSelector, o metav1.Object) bool {
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: s.MatchLabels, MatchExpressions: s.MatchExpressions})
	return err == nil && string(s.Kind) == kind.KeyOf(o).Kind && selector.Matches(labels.Set(o.GetLabels())) &&
		l.namespacesOf(s.Namespaces, p.Namespace)(o.GetNamespace()) && l.permitted(kind.KeyOf(p), kind.KeyOf(o))
}
