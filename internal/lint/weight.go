package lint

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// unserved reports rules of a route without a backend, so that all their requests fail.
func (l *linter) unserved(o metav1.Object) {
	switch o := o.(type) {
	case *gwv1.HTTPRoute:
		for i, rule := range o.Spec.Rules {
			if slices.ContainsFunc(rule.Filters, func(f gwv1.HTTPRouteFilter) bool {
				return f.Type == gwv1.HTTPRouteFilterRequestRedirect || f.Type == gwv1.HTTPRouteFilterExtensionRef // the latter may respond itself
			}) {
				continue
			}
			refs := each(rule.BackendRefs, func(ref gwv1.HTTPBackendRef) gwv1.BackendRef { return ref.BackendRef })
			what := "request"
			if slices.ContainsFunc(rule.Filters, func(f gwv1.HTTPRouteFilter) bool { return f.Type == gwv1.HTTPRouteFilterCORS }) {
				what = "request but preflight requests"
			}
			l.weightless(o, i, refs, what, "answered 500 unless a policy or a filter of the listener answers it", "a RequestRedirect filter")
		}
	case *gwv1.GRPCRoute:
		for i, rule := range o.Spec.Rules {
			if slices.ContainsFunc(rule.Filters, func(f gwv1.GRPCRouteFilter) bool { return f.Type == gwv1.GRPCRouteFilterExtensionRef }) {
				continue
			}
			refs := each(rule.BackendRefs, func(ref gwv1.GRPCBackendRef) gwv1.BackendRef { return ref.BackendRef })
			l.weightless(o, i, refs, "call", "answered UNAVAILABLE unless a policy or a filter of the listener answers it", "")
		}
	case *gwv1.TLSRoute:
		for i, rule := range o.Spec.Rules {
			l.weightless(o, i, rule.BackendRefs, "connection", "reset", "")
		}
	case *gwv1.TCPRoute:
		for i, rule := range o.Spec.Rules {
			l.weightless(o, i, rule.BackendRefs, "connection", "reset", "")
		}
	case *gwv1.UDPRoute:
		for i, rule := range o.Spec.Rules {
			l.weightless(o, i, rule.BackendRefs, "datagram", "dropped", "")
		}
	}
}

// weightless examines the backendRefs of a rule. what and fate are used in the message; instead is what a rule may have instead, ""
// if nothing.
func (l *linter) weightless(o metav1.Object, i int, refs []gwv1.BackendRef, what, fate, instead string) {
	if slices.ContainsFunc(refs, func(ref gwv1.BackendRef) bool { return ref.Weight == nil || *ref.Weight > 0 }) {
		return
	}
	field, consequence := fmt.Sprintf("spec.rules[%d]", i), fmt.Sprintf("so every %s of the rule is %s", what, fate)
	switch {
	case len(refs) == 1:
		l.add(o, field+".backendRefs[0].weight", "the only backendRef of the rule has weight 0, "+consequence, "remove weight, or make it more than 0")
	case len(refs) > 0:
		l.add(o, field+".backendRefs", "all of them have weight 0, "+consequence, "make the weight of one of them more than 0")
	case instead != "":
		l.add(o, field, "it has neither backendRefs nor "+instead+", "+consequence, "add backendRefs, or such a filter")
	default:
		l.add(o, field, "it has no backendRefs, "+consequence, "add backendRefs")
	}
}
