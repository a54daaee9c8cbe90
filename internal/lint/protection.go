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

// use is a rule of an HTTPRoute or GRPCRoute that leads to a backend.
type use struct {
	route     metav1.Object
	calls     bool // of a GRPCRoute
	rule      int
	name      gwv1.SectionName // of the rule, "" without one
	parents   []gwv1.ParentReference
	hostnames []gwv1.Hostname
	paths     []pathRange // that the rule may match with POST, as all calls have it
	// some and all report whether an ExternalAuth filter is passed on some ways and on all ways to the backend.
	some, all bool
}

// pathRange is a path, or with all that is below it.
type pathRange struct {
	path  string
	exact bool
}

var anyPath = pathRange{path: "/"}

// protections looks for backends to which an HTTPRoute and a GRPCRoute lead on one hostname, of which only one has external authorization or a rate limit: a client chooses between them by the
// content type of its request.
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

// compare looks for uses of a backend that lack what protects others.
func (l *linter) compare(backend string, open, others []*use, limits *rateLimits) {
	for _, u := range open {
		asks, limited := u.all, len(limits.policies) == 0
		for _, other := range others {
			if asks && limited {
				break
			}
			parents := u.meets(other)
			if len(parents) == 0 {
				continue
			}
			if !asks && other.some {
				asks = true
				l.unprotected(u, other, backend, "the ExternalAuth filter", "move the filter into filters.requests of the listener, which asks about all requests")
			}
			if !limited && slices.ContainsFunc(parents, func(p parentPair) bool { return limits.limits(other, p.other) && !limits.limits(u, p.own) }) {
				limited = true
				l.unprotected(u, other, backend, "the rate limit", "let the BackendTrafficPolicy have both routes as targets, or their Gateway")
			}
		}
	}
}

func (l *linter) unprotected(open, protected *use, backend, by, remedy string) {
	what, chosen := "gRPC calls reach", "sending content type application/grpc"
	if !open.calls {
		what, chosen = "requests reach", "sending another content type than application/grpc"
	}
	l.add(open.route, fmt.Sprintf("spec.rules[%d]", open.rule), fmt.Sprintf("%s %s by this rule without %s that %s spec.rules[%d] has for it; a client can choose this rule by %s",
		what, backend, by, kind.KeyOf(protected.route), protected.rule, chosen), remedy)
}

// usesOf are the rules of a route by the backends that they lead to.
func usesOf(o metav1.Object) map[string][]use {
	uses := map[string][]use{}
	add := func(u use, ref gwv1.BackendRef, asks bool) {
		if ref.Weight != nil && *ref.Weight == 0 {
			return
		}
		at := backendName(u.route.GetNamespace(), ref.BackendObjectReference)
		if of := uses[at]; len(of) > 0 && of[len(of)-1].rule == u.rule {
			last := &of[len(of)-1]
			last.some, last.all = last.some || asks, last.all && asks
			return
		}
		u.some, u.all = asks, asks
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
				add(u, ref.BackendRef, slices.ContainsFunc(rule.Filters, asks) || slices.ContainsFunc(ref.Filters, asks))
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
		port = fmt.Sprintf(" port %d", *ref.Port)
	}
	return fmt.Sprintf("%s %s/%s%s", name, namespace, ref.Name, port)
}

// requestPaths are those that matches may match with POST.
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

// callPaths is requestPaths for calls.
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

// parentPair are references of two routes to what may be the same listeners: where one of them names a listener, it is that.
type parentPair struct{ own, other gwv1.ParentReference }

// meets returns where the same request, but for its content type, may go by both; nothing is nowhere.
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

// orAny is what an empty list of hostnames means.
func orAny(hostnames []gwv1.Hostname) []gwv1.Hostname {
	if len(hostnames) == 0 {
		return []gwv1.Hostname{""}
	}
	return hostnames
}

// anyPair reports whether an element of one list and one of the other are alike.
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
