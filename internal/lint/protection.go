package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

// use is a rule of an HTTPRoute or GRPCRoute with a backend.
type use struct {
	route     metav1.Object
	calls     bool // of a GRPCRoute
	rule      int
	name      gwv1.SectionName // of the rule, "" if none
	parents   []gwv1.ParentReference
	hostnames []gwv1.Hostname
	paths     []pathRange // those that the rule may match with method POST, which all gRPC calls have
	// authorized and open report whether some, and whether others, of the rule's backendRefs to the backend have an ExternalAuth
	// filter: their own or that of the rule. Both may be true.
	authorized, open bool
}

// pathRange is a single path, or a path with all paths below it.
type pathRange struct {
	path  string
	exact bool
}

var anyPath = pathRange{path: "/"}

// protections reports backends that can be reached by an HTTPRoute and by a GRPCRoute on one hostname, of which only one has
// external authorization or a rate limit: the content type of a request, which the client sets, selects one of them.
func (l *linter) protections(objects []metav1.Object) {
	uses := map[string][]use{}
	for _, o := range objects {
		for backend, of := range usesOf(o) {
			uses[backend] = append(uses[backend], of...)
		}
	}
	limits := l.rateLimits(objects)
	for backend, list := range uses {
		slices.SortFunc(list, func(a, b use) int {
			return cmp.Or(kind.KeyOf(a.route).Compare(kind.KeyOf(b.route)), cmp.Compare(a.rule, b.rule))
		})
		var calls, others []*use
		for i := range list {
			if u := &list[i]; u.calls {
				calls = append(calls, u)
			} else {
				others = append(others, u)
			}
		}
		l.compare(backend, calls, others, limits)
		l.compare(backend, others, calls, limits)
	}
}

// compare reports uses of a backend that lack the protection of others.
func (l *linter) compare(backend string, uses, others []*use, limits *rateLimits) {
	for _, u := range uses {
		authorization, limit := u.open, len(limits.policies) > 0 // whether to check for it
		for _, other := range others {
			if !authorization && !limit {
				break
			}
			parents := u.meets(other)
			if len(parents) == 0 {
				continue
			}
			if authorization && other.authorized {
				authorization = false
				l.unprotected(u, other, backend, "ExternalAuth filter", "move the filter to filters.requests of the listener, where it applies to all requests")
			}
			if limit && slices.ContainsFunc(parents, func(p parentPair) bool { return limits.limits(other, p.other) && !limits.limits(u, p.own) }) {
				limit = false
				l.unprotected(u, other, backend, "rate limit", "attach the BackendTrafficPolicy to both routes, or to their Gateway")
			}
		}
	}
}

func (l *linter) unprotected(u, protected *use, backend, protection, remedy string) {
	what, contentType := "gRPC calls", "application/grpc"
	if !u.calls {
		what, contentType = "requests", "anything but application/grpc"
	}
	l.add(u.route, fmt.Sprintf("spec.rules[%d]", u.rule), fmt.Sprintf("%s reach %s through this rule without the %s of %s spec.rules[%d]; a client can choose this rule by sending %s as the content type",
		what, backend, protection, kind.KeyOf(protected.route), protected.rule, contentType), remedy)
}

// usesOf returns the rules of a route by their backends.
func usesOf(o metav1.Object) map[string][]use {
	uses := map[string][]use{}
	add := func(u use, ref gwv1.BackendRef, authorized bool) {
		if ref.Weight != nil && *ref.Weight == 0 {
			return
		}
		at := backendName(u.route.GetNamespace(), ref.BackendObjectReference)
		if of := uses[at]; len(of) > 0 && of[len(of)-1].rule == u.rule {
			last := &of[len(of)-1]
			last.authorized, last.open = last.authorized || authorized, last.open || !authorized
			return
		}
		u.authorized, u.open = authorized, !authorized
		uses[at] = append(uses[at], u)
	}
	switch o := o.(type) {
	case *gwv1.HTTPRoute:
		for i, rule := range o.Spec.Rules {
			u := use{route: o, rule: i, parents: o.Spec.ParentRefs, hostnames: o.Spec.Hostnames, paths: requestPaths(rule.Matches)}
			if rule.Name != nil {
				u.name = *rule.Name
			}
			for _, ref := range rule.BackendRefs {
				add(u, ref.BackendRef, slices.ContainsFunc(rule.Filters, isExternalAuth) || slices.ContainsFunc(ref.Filters, isExternalAuth))
			}
		}
	case *gwv1.GRPCRoute:
		for i, rule := range o.Spec.Rules {
			u := use{route: o, calls: true, rule: i, parents: o.Spec.ParentRefs, hostnames: o.Spec.Hostnames, paths: callPaths(rule.Matches)}
			if rule.Name != nil {
				u.name = *rule.Name
			}
			for _, ref := range rule.BackendRefs {
				add(u, ref.BackendRef, false)
			}
		}
	}
	return uses
}

func isExternalAuth(f gwv1.HTTPRouteFilter) bool { return f.Type == gwv1.HTTPRouteFilterExternalAuth }

// backendName returns the same name for references to the same backend.
func backendName(namespace string, ref gwv1.BackendObjectReference) string {
	name, port := kind.Service.Name, ""
	if ref.Kind != nil {
		name = string(*ref.Kind)
	}
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	if ref.Port != nil {
		port = fmt.Sprintf(" port %d", *ref.Port)
	}
	return fmt.Sprintf("%s %s/%s%s", name, namespace, ref.Name, port)
}

// requestPaths returns the paths that matches may match with POST.
func requestPaths(matches []gwv1.HTTPRouteMatch) (paths []pathRange) {
	if len(matches) == 0 {
		return []pathRange{anyPath}
	}
	for _, m := range matches {
		switch {
		case m.Method != nil && *m.Method != gwv1.HTTPMethodPost:
		case m.Path == nil || m.Path.Value == nil || m.Path.Type != nil && *m.Path.Type == gwv1.PathMatchRegularExpression:
			paths = append(paths, anyPath)
		default:
			paths = append(paths, pathRange{*m.Path.Value, m.Path.Type != nil && *m.Path.Type == gwv1.PathMatchExact})
		}
	}
	return paths
}

// callPaths is requestPaths for gRPC calls.
func callPaths(matches []gwv1.GRPCRouteMatch) (paths []pathRange) {
	if len(matches) == 0 {
		return []pathRange{anyPath}
	}
	for _, m := range matches {
		switch {
		case m.Method == nil || m.Method.Service == nil || m.Method.Type != nil && *m.Method.Type == gwv1.GRPCMethodMatchRegularExpression:
			paths = append(paths, anyPath)
		case m.Method.Method == nil:
			paths = append(paths, pathRange{"/" + *m.Method.Service, false})
		default:
			paths = append(paths, pathRange{"/" + *m.Method.Service + "/" + *m.Method.Method, true})
		}
	}
	return paths
}

// overlaps reports whether a path is in both.
func (p pathRange) overlaps(other pathRange) bool {
	return p.path == other.path || p.contains(other.path) || other.contains(p.path)
}

func (p pathRange) contains(path string) bool {
	return !p.exact && strings.HasPrefix(path, strings.TrimSuffix(p.path, "/")+"/")
}

// parentPair are references of two routes to what may be the same listeners: if one of them names a listener, it is that.
type parentPair struct{ own, other gwv1.ParentReference }

// meets returns the parents at which requests that differ only in their content type may match one or the other use; nil if there
// are none. Hostnames must be equal: of two that overlap, the more specific takes precedence for any content type.
func (u *use) meets(other *use) (parents []parentPair) {
	if !anyPair(orAny(u.hostnames), orAny(other.hostnames), func(a, b gwv1.Hostname) bool { return strings.EqualFold(string(a), string(b)) }) || !anyPair(u.paths, other.paths, pathRange.overlaps) {
		return nil
	}
	for _, own := range u.parents {
		for _, its := range other.parents {
			if sameParent(u.route, own, other.route, its) {
				pair := parentPair{own, its}
				pair.own.SectionName, pair.other.SectionName = cmp.Or(own.SectionName, its.SectionName), cmp.Or(its.SectionName, own.SectionName)
				parents = append(parents, pair)
			}
		}
	}
	return parents
}

// orAny replaces an empty list of hostnames by its meaning.
func orAny(hostnames []gwv1.Hostname) []gwv1.Hostname {
	if len(hostnames) == 0 {
		return []gwv1.Hostname{""}
	}
	return hostnames
}

// anyPair reports whether alike returns true for an element of one list and one of the other.
func anyPair[T any](a, b []T, alike func(a, b T) bool) bool {
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
