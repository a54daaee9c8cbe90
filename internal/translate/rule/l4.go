package rule

import (
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// TCP is a rule of a TCPRoute. It takes every connection.
func TCP(r *gwv1.TCPRouteRule) Spec {
	return l4(r.Name, r.BackendRefs, "the first rule of a TCPRoute takes every connection")
}

// TLS is a rule of a TLSRoute. Its hostnames are the route's, so it takes every connection for them.
func TLS(r *gwv1.TLSRouteRule) Spec {
	return l4(r.Name, r.BackendRefs, "the first rule of a TLSRoute takes every connection")
}

// UDP is a rule of a UDPRoute. It takes every datagram.
func UDP(r *gwv1.UDPRouteRule) Spec {
	return l4(r.Name, r.BackendRefs, "the first rule of a UDPRoute takes every datagram")
}

// l4 is a rule without matches. Of several rules only the first could ever get anything: others, which v1 does not have, are dropped, and why says so.
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
