package translate

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// backends are the ports of Services and the XBackends that routes and listeners use, and their endpoints.
type backends struct {
	endpointSlices *incremental.Collection[name, *discoveryv1.EndpointSlice]
	services       *services
	xbackends      *xbackends
	refusals       *refusals
	infrastructure *infrastructure

	users     *incremental.Index[string, kindName, *config.Resource]
	l4Users   *incremental.Index[string, kindName, *config.Resource] // those of them that are of connections
	all       *incremental.Collection[backendKey, *config.Backend]
	slices    *incremental.Index[name, name, *discoveryv1.EndpointSlice]
	labelled  *incremental.Index[name, name, *discoveryv1.EndpointSlice] // of XBackends
	endpoints *incremental.Collection[backendKey, *config.Endpoints]
}

// newBackends keeps a Backend for each Service port and XBackend that an accepted route or a listener uses.
func newBackends(e *incremental.Engine,
	endpointSlices *incremental.Collection[name, *discoveryv1.EndpointSlice],
	services *services, xbackends *xbackends, backendTLSPolicies *backendTLSPolicies, trafficPolicies *trafficPolicies, listenerStates *listenerStates, routes *routes, refusals *refusals, infrastructure *infrastructure) *backends {
	bs := &backends{endpointSlices: endpointSlices, services: services, xbackends: xbackends, refusals: refusals, infrastructure: infrastructure}
	bs.users = incremental.NewIndex(routes.configs, "routes by backend", usedBackends)
	bs.l4Users = incremental.NewIndex(routes.configs, "routes of connections by backend", func(k kindName, r *config.Resource) []string {
		if r.GetL4Route() == nil {
			return nil
		}
		return usedBackends(k, r)
	})
	ofListeners := listenerBackends(e, listenerStates)
	used := func(v *incremental.View, key backendKey) bool {
		if incremental.Count(v, bs.users, key.String()) > 0 {
			return true
		}
		_, found := slices.BinarySearchFunc(incremental.Lookup(v, ofListeners, name{}), backendID(key.String()), backendID.Compare)
		return found
	}
	ofServices := incremental.FlatMap(e, "backend", bs.services.all,
		func(v *incremental.View, n name, s *service) (out []incremental.Entry[backendKey, *config.Backend]) {
			for _, p := range s.Ports {
				key := backendKey{Name: n, Port: p.Port, UDP: p.Protocol == corev1.ProtocolUDP}
				if meant, _ := s.port(p.Port, key.transport()); meant != p {
					continue // of a protocol that no route is for
				}
				passed := backendKey{Name: n, Port: p.Port, Passthrough: true}
				if !key.UDP && incremental.Count(v, bs.users, passed.String()) > 0 {
					out = append(out, incremental.Entry[backendKey, *config.Backend]{Key: passed, Value: &config.Backend{
						Key: passed.String(), Namespace: n.Namespace, Name: n.Name, Port: uint32(p.Port),
					}})
				}
				over2 := key
				over2.HTTP2 = true
				own, http2 := used(v, key), p.unspoken() && !key.UDP && used(v, over2)
				if !own && !http2 {
					continue
				}
				var tls *config.BackendTLS
				if !key.UDP {
					var ok bool
					if tls, ok = backendTLSPolicies.backendTLSConfig(v, n, p.Name); !ok {
						continue
					}
				}
				var traffic trafficPolicy
				if !key.UDP {
					traffic = trafficPolicies.inForce(v, targetOf(n, ""))
				}
				add := func(protocol config.BackendProtocol) {
					out = append(out, incremental.Entry[backendKey, *config.Backend]{Key: key, Value: &config.Backend{
						Key: key.String(), Namespace: n.Namespace, Name: n.Name, Port: uint32(p.Port), Protocol: protocol, Tls: tls,
						RetryBudget: traffic.Budget, SessionPersistence: traffic.Sessions,
					}})
				}
				if own {
					protocol, _ := config.BackendProtocolOf(p.AppProtocol) // of an unknown one no route is carried
					add(protocol)
				}
				if http2 {
					key = over2
					add(config.BackendProtocol_BACKEND_PROTOCOL_H2C)
				}
			}
			return out
		}, sameMessage[*config.Backend])
	ofXBackends := incremental.FlatMap(e, "backend of XBackend", xbackends.all,
		func(v *incremental.View, n name, x *xbackend) (out []incremental.Entry[backendKey, *config.Backend]) {
			if x.Invalid != nil {
				return nil
			}
			own := backendKey{XBackend: true, Name: n, Port: x.Port}
			over2, passed := own, own
			over2.HTTP2, passed.Passthrough = true, true
			for _, key := range []backendKey{own, over2, passed} {
				if used(v, key) {
					out = append(out, incremental.Entry[backendKey, *config.Backend]{Key: key, Value: bs.ofXBackend(v, key, x, trafficPolicies)})
				}
			}
			return out
		}, sameMessage[*config.Backend])
	bs.all = incremental.Union(e, "all backends", ofServices, ofXBackends)
	bs.declareEndpoints(e)
	return bs
}

// ofXBackend is an XBackend as it is spoken to.
func (bs *backends) ofXBackend(v *incremental.View, key backendKey, x *xbackend, trafficPolicies *trafficPolicies) *config.Backend {
	b := &config.Backend{Key: key.String(), Namespace: key.Name.Namespace, Name: key.Name.Name, Port: uint32(x.Port)}
	if x.Hostname != "" {
		var denied []string
		if incremental.Count(v, bs.l4Users, b.Key) > 0 {
			denied = bs.infrastructure.allRanges(v) // nobody counts the passes of a connection that leads back to a Gateway
		}
		b.ExternalHostname = bs.refusals.hostname(v, x.Hostname, denied)
	}
	if key.Passthrough {
		return b
	}
	b.Protocol, b.Tls = x.Protocol, x.TLS
	if key.HTTP2 {
		b.Protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
	}
	traffic := trafficPolicies.inForce(v, key.target())
	b.RetryBudget, b.SessionPersistence = traffic.Budget, traffic.Sessions
	if x.Sessions != nil {
		b.SessionPersistence = x.Sessions // which is the more specific
	}
	return b
}

// backendID is Backend.key.
type backendID string

func (b backendID) Compare(o backendID) int { return cmp.Compare(b, o) }

// listenerBackends are the backends that listeners refer to themselves, all under the empty name: they are few, and what asks of each Service's port whether it is one
// of them should not have to be remembered for each.
func listenerBackends(e *incremental.Engine, listenerStates *listenerStates) *incremental.Index[name, backendID, struct{}] {
	users := incremental.NewIndex(listenerStates.serving, "listeners by backend", func(_ listenerKey, l *config.Listener) (all []backendID) {
		for _, key := range rule.FilterBackends(l.Filters) {
			all = append(all, backendID(key))
		}
		if l.Tracing != nil {
			all = append(all, backendID(l.Tracing.Backend))
		}
		return all
	})
	return incremental.NewIndex(incremental.Keys(users, "backends of listeners"), "all backends of listeners",
		func(backendID, struct{}) []name { return []name{{}} })
}

// usedBackends is every backend that a route's config refers to, as it is spoken to.
func usedBackends(_ kindName, r *config.Resource) (keys []string) {
	for _, rl := range r.GetRoute().GetRules() {
		keys = append(keys, rule.Backends(rl)...)
	}
	for _, ref := range r.GetL4Route().GetBackendRefs() {
		if ref.Backend != "" {
			keys = append(keys, ref.Backend)
		}
	}
	for _, ref := range r.GetL4Route().GetPassthroughBackendRefs() {
		if ref.Backend != "" {
			keys = append(keys, ref.Backend)
		}
	}
	return keys
}
