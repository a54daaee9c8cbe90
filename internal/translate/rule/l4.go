package rule

import (
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// TCP returns the Spec of a rule of a TCPRoute. It matches every connection.
func TCP(r *gwv1.TCPRouteRule) Spec {
	return l4(r.Name, r.BackendRefs, "the first rule of a TCPRoute takes every connection")
}

// TLS returns the Spec of a rule of a TLSRoute. It matches every connection for the route's hostnames.
func TLS(r *gwv1.TLSRouteRule) Spec {
	return l4(r.Name, r.BackendRefs, "the first rule of a TLSRoute takes every connection")
}

// UDP returns the Spec of a rule of a UDPRoute. It matches every datagram.
func UDP(r *gwv1.UDPRouteRule) Spec {
	return l4(r.Name, r.BackendRefs, "the first rule of a UDPRoute takes every datagram")
}

// l4 returns a rule without matches. Only the first of several rules could ever be used: the others, which v1 does not allow, are
// dropped, with why as the reason.
func l4(name *gwv1.SectionName, refs []gwv1.BackendRef, why string) Spec {
	s := Spec{
		Name: name,
		matches: func(s *scope) *condition.Problem {
			if s.rule.Index > 0 {
				return s.unsupported("", "make it a route of its own, for another listener", "%s", why)
			}
			return nil
		},
	}
	for _, ref := range refs {
		s.BackendRefs = append(s.BackendRefs, gwv1.HTTPBackendRef{BackendRef: ref})
	}
	return s
}
