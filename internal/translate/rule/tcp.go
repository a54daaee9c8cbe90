package rule

import (
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// TCP is a rule of a TCPRoute. It takes every connection, so of several rules only the first could ever get any: others, which v1 does not have, are dropped.
func TCP(r *gwv1.TCPRouteRule) Spec { return connections("TCPRoute", r.Name, r.BackendRefs) }

// connections is a rule without matches and filters of routes of a kind.
func connections(of string, name *gwv1.SectionName, refs []gwv1.BackendRef) Spec {
	s := Spec{
		Name: name,
		matches: func(s *scope) *condition.Problem {
			if s.rule.Index > 0 {
				return s.unsupported("", "make it a route of its own, for another listener", "the first rule of a %s takes every connection", of)
			}
			return nil
		},
	}
	for _, ref := range refs {
		s.BackendRefs = append(s.BackendRefs, gwv1.HTTPBackendRef{BackendRef: ref})
	}
	return s
}
