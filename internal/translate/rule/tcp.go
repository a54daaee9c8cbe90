package rule

import (
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// TCP is a rule of a TCPRoute. It takes every connection, so of several rules only the first could ever get any: others, which v1 does not have, are dropped.
func TCP(r *gwv1.TCPRouteRule) Spec {
	s := Spec{
		Name: r.Name,
		matches: func(s *scope) *condition.Problem {
			if s.rule.Index > 0 {
				return s.unsupported("", "make it a route of its own, for another listener", "the first rule of a TCPRoute takes every connection")
			}
			return nil
		},
	}
	for _, ref := range r.BackendRefs {
		s.BackendRefs = append(s.BackendRefs, gwv1.HTTPBackendRef{BackendRef: ref})
	}
	return s
}
