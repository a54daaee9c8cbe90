package rule

import gwv1 "sigs.k8s.io/gateway-api/apis/v1"

// TLS is a rule of a TLSRoute. Its hostnames are the route's, so of several rules only the first could ever get a connection, as of a TCPRoute's.
func TLS(r *gwv1.TLSRouteRule) Spec { return connections("TLSRoute", r.Name, r.BackendRefs) }
