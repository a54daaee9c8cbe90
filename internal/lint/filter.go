package lint

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// mirrors reports filters that mirror requests although the rule redirects them.
func (l *linter) mirrors(o metav1.Object) {
	route, ok := o.(*gwv1.HTTPRoute)
	if !ok {
		return
	}
	for i, rule := range route.Spec.Rules {
		if !slices.ContainsFunc(rule.Filters, func(f gwv1.HTTPRouteFilter) bool { return f.Type == gwv1.HTTPRouteFilterRequestRedirect }) {
			continue
		}
		for j, f := range rule.Filters {
			if f.Type == gwv1.HTTPRouteFilterRequestMirror {
				l.add(route, fmt.Sprintf("spec.rules[%d].filters[%d]", i, j), "nothing is mirrored, because the rule redirects all requests", "remove this filter, or mirror in the rule to which the redirect leads")
			}
		}
	}
}
