package translate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// service is what routes and backends need of a Service.
type service struct {
	External bool // type ExternalName
	// Family is the first one of a dual-stack Service, "" for others.
	Family corev1.IPFamily
	Ports  []servicePort
}

type servicePort struct {
	Name        string
	Port        int32
	Protocol    corev1.Protocol
	AppProtocol string // lower case: names of services are told apart so by nobody (RFC 6335 section 5.1)
}

// port finds a port by number, the TCP one where there are several.
func (s *service) port(number int32) (found servicePort, exists bool) {
	for _, p := range s.Ports {
		if p.Port == number && (!exists || p.Protocol == corev1.ProtocolTCP) {
			found, exists = p, true
		}
	}
	return found, exists
}

// appProtocolHTTPS is HTTP over TLS, which needs a BackendTLSPolicy.
const appProtocolHTTPS = "https"

func (t *Translator) declareServices() {
	t.services = incremental.Map(t.engine, "Service", t.in.services.Collection,
		func(_ *incremental.View, _ name, svc *corev1.Service) (*service, bool) {
			s := &service{External: svc.Spec.Type == corev1.ServiceTypeExternalName}
			if len(svc.Spec.IPFamilies) > 1 {
				s.Family = svc.Spec.IPFamilies[0]
			}
			for _, p := range svc.Spec.Ports {
				protocol := p.Protocol
				if protocol == "" {
					protocol = corev1.ProtocolTCP
				}
				s.Ports = append(s.Ports, servicePort{p.Name, p.Port, protocol, strings.ToLower(value(p.AppProtocol, ""))})
			}
			return s, true
		}, sameDeeply[*service])
	t.declareBackendTLSPolicies()
}

// declareBackends keeps a Backend for each Service port that an accepted route uses.
func (t *Translator) declareBackends() {
	t.backendUsers = incremental.NewIndex(t.routes, "routes by backend", usedBackends)
	t.backends = incremental.FlatMap(t.engine, "backend", t.services,
		func(v *incremental.View, n name, s *service) (out []incremental.Entry[backendKey, *config.Backend]) {
			for _, p := range s.Ports {
				if meant, _ := s.port(p.Port); meant != p {
					continue // UDP beside TCP, which routes refer to and policies are for
				}
				key := backendKey{Service: n, Port: p.Port}
				own, http2 := p.spokenTo(incremental.Lookup(v, t.backendUsers, key.String()))
				if !own && !http2 {
					continue
				}
				tls, ok := t.backendTLSConfig(v, n, p.Name)
				if !ok {
					continue
				}
				add := func(protocol config.BackendProtocol) {
					out = append(out, incremental.Entry[backendKey, *config.Backend]{Key: key, Value: &config.Backend{
						Key: key.String(), Namespace: n.Namespace, Name: n.Name, Port: uint32(p.Port), Protocol: protocol, Tls: tls,
					}})
				}
				if own {
					protocol, _ := config.BackendProtocolOf(p.AppProtocol) // of an unknown one no route is carried
					add(protocol)
				}
				if http2 {
					key.HTTP2 = true
					add(config.BackendProtocol_BACKEND_PROTOCOL_H2C)
				}
			}
			return out
		}, sameMessage[*config.Backend])
	t.declareTrusted()
	t.declareEndpoints()
}

// usedBackends is every backend that a route's config refers to, however it is spoken to.
func usedBackends(_ kindName, r *config.Resource) (keys []string) {
	for _, rl := range r.GetRoute().GetRules() {
		for _, key := range rule.Backends(rl) {
			keys = append(keys, config.ServicePort(key))
		}
	}
	for _, ref := range r.GetL4Route().GetBackendRefs() {
		if ref.Backend != "" {
			keys = append(keys, config.ServicePort(ref.Backend))
		}
	}
	return keys
}

// unspoken reports whether the port does not say what is spoken, so that who refers to it decides.
func (p *servicePort) unspoken() bool { return p.AppProtocol == "" }

// spokenTo tells whether any of the routes that refer to the port have it spoken to as it says itself, and whether any in HTTP/2
// because of their kind.
func (p *servicePort) spokenTo(routes []kindName) (own, http2 bool) {
	for _, k := range routes {
		if p.unspoken() && routeKindOf(k.Kind).http2 {
			http2 = true
		} else {
			own = true
		}
		if own && (http2 || !p.unspoken()) {
			break
		}
	}
	return own, http2
}
