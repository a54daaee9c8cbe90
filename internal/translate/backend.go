package translate

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

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
	backendTraffic *backendTrafficPolicies
	routes         *routes
	infrastructure *infrastructure

	users     *incremental.Index[backendID, routePart, *config.Resource]
	l4Users   *incremental.Index[backendID, routePart, *config.Resource] // routes of connections, by what is spoken to without policies
	policied  *incremental.Index[backendID, backendID, struct{}]         // what is spoken to as policies say, by what it is without them
	all       *incremental.Collection[backendKey, *config.Backend]
	slices    *incremental.Index[name, name, *discoveryv1.EndpointSlice]
	labelled  *incremental.Index[name, name, *discoveryv1.EndpointSlice] // of XBackends
	endpoints *incremental.Collection[backendKey, *config.Endpoints]
}

// newBackends keeps a Backend for each Service port and XBackend that an accepted route or a listener uses.
func newBackends(e *incremental.Engine,
	endpointSlices *incremental.Collection[name, *discoveryv1.EndpointSlice],
	services *services, xbackends *xbackends, backendTLSPolicies *backendTLSPolicies, trafficPolicies *trafficPolicies, listenerStates *listenerStates, routes *routes, refusals *refusals, infrastructure *infrastructure,
	backendTraffic *backendTrafficPolicies) *backends {
	bs := &backends{endpointSlices: endpointSlices, services: services, xbackends: xbackends, refusals: refusals, infrastructure: infrastructure, backendTraffic: backendTraffic, routes: routes}
	bs.users = incremental.NewIndex(routes.configs, "routes by backend", usedBackends)
	bs.l4Users = incremental.NewIndex(routes.configs, "routes of connections by backend", func(k routePart, r *config.Resource) (keys []backendID) {
		if r.GetL4Route() == nil {
			return nil
		}
		for _, key := range usedBackends(k, r) {
			base, _ := config.SplitPolicy(string(key))
			keys = append(keys, backendID(base))
		}
		return keys
	})
	bs.policied = incremental.NewIndex(incremental.Keys(bs.users, "backends of routes"), "backends with BackendTrafficPolicies", func(key backendID, _ struct{}) []backendID {
		if base, policies := config.SplitPolicy(string(key)); policies != "" {
			return []backendID{backendID(base)}
		}
		return nil
	})
	ofListeners := listenerBackends(e, listenerStates)
	used := func(v *incremental.View, key backendKey) bool {
		id := backendID(key.String())
		if incremental.Count(v, bs.users, id) > 0 {
			return true
		}
		_, found := slices.BinarySearchFunc(incremental.Lookup(v, ofListeners, name{}), id, backendID.Compare)
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
				if !key.UDP {
					out = bs.each(v, out, passed, incremental.Count(v, bs.users, backendID(passed.String())) > 0, &config.Backend{Namespace: n.Namespace, Name: n.Name, Port: uint32(p.Port)})
				}
				over2 := key
				over2.HTTP2 = true
				own, http2 := used(v, key), p.unspoken() && !key.UDP && used(v, over2)
				policied := incremental.Count(v, bs.policied, backendID(key.String())) > 0
				policied2 := p.unspoken() && !key.UDP && incremental.Count(v, bs.policied, backendID(over2.String())) > 0
				if !own && !http2 && !policied && !policied2 {
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
				protocol, _ := config.BackendProtocolOf(p.AppProtocol) // of an unknown one no route is carried
				b := &config.Backend{Namespace: n.Namespace, Name: n.Name, Port: uint32(p.Port), Protocol: protocol, Tls: tls,
					RetryBudget: traffic.Budget, SessionPersistence: traffic.Sessions}
				out = bs.each(v, out, key, own, b)
				if http2 || policied2 {
					b = proto.CloneOf(b)
					b.Protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
					out = bs.each(v, out, over2, http2, b)
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
				if x.Unsecured != nil && !key.Passthrough {
					continue
				}
				if own, policied := used(v, key), incremental.Count(v, bs.policied, backendID(key.String())) > 0; own || policied {
					out = bs.each(v, out, key, own, bs.ofXBackend(v, key, x, trafficPolicies))
				}
			}
			return out
		}, sameMessage[*config.Backend])
	bs.all = incremental.Union(e, "all backends", ofServices, ofXBackends)
	bs.declareEndpoints(e)
	return bs
}

// each adds a Backend without policies, if it is used, and with each of those that routes to it have in force.
func (bs *backends) each(v *incremental.View, out []incremental.Entry[backendKey, *config.Backend], key backendKey, used bool, b *config.Backend) []incremental.Entry[backendKey, *config.Backend] {
	base := backendID(key.String())
	if used {
		b.Key = string(base)
		out = append(out, incremental.Entry[backendKey, *config.Backend]{Key: key, Value: b})
	}
	for _, full := range incremental.Lookup(v, bs.policied, base) {
		_, key.Policy = config.SplitPolicy(string(full))
		p := bs.backendTraffic.read(v, parsePolicyPair(key.Policy))
		if p == nil || p.Compiled == nil {
			continue // its routes change in the same commit
		}
		by := proto.CloneOf(b)
		by.Key, by.Traffic = string(full), bs.traffic(v, full, key, b, p.Backend)
		out = append(out, incremental.Entry[backendKey, *config.Backend]{Key: key, Value: by})
	}
	return out
}

// traffic is what policies say of the way to a Backend, as far as they cannot say it themselves: whom active checks are for.
func (bs *backends) traffic(v *incremental.View, full backendID, key backendKey, b *config.Backend, t *config.BackendTraffic) *config.BackendTraffic {
	active := t.GetHealthCheck().GetActive()
	switch {
	case t == nil:
		return nil
	case key.UDP:
		// Nothing else is about datagrams.
		t = &config.BackendTraffic{Policy: t.Policy, LoadBalancer: t.LoadBalancer}
		if t.LoadBalancer == nil {
			return nil
		}
		return t
	case active.GetGrpc() != nil:
		t = proto.CloneOf(t)
		t.HealthCheck.Active.GetGrpc().Authority = bs.checkedHost(v, full, b)
	case active.GetHttp() != nil && active.GetHttp().Host == "":
		t = proto.CloneOf(t)
		t.HealthCheck.Active.GetHttp().Host = bs.checkedHost(v, full, b)
	}
	return t
}

// checkedHost is the host that active checks of a Backend ask for: its own, or that of a route to it, of several the first by name, or the name of its Service.
func (bs *backends) checkedHost(v *incremental.View, full backendID, b *config.Backend) string {
	if b.ExternalHostname != nil {
		return b.ExternalHostname.Name
	}
	host := ""
	for _, part := range incremental.Lookup(v, bs.users, full) {
		r, _ := incremental.Fetch(v, bs.routes.configs, part)
		for _, a := range r.Attachments() {
			for _, h := range a.Hostnames {
				if h.Effective != "" && !strings.HasPrefix(h.Effective, "*.") && (host == "" || h.Effective < host) {
					host = h.Effective
				}
			}
		}
	}
	return cmp.Or(host, b.Name+"."+b.Namespace)
}

// ofXBackend is an XBackend as it is spoken to, without its key.
func (bs *backends) ofXBackend(v *incremental.View, key backendKey, x *xbackend, trafficPolicies *trafficPolicies) *config.Backend {
	b := &config.Backend{Namespace: key.Name.Namespace, Name: key.Name.Name, Port: uint32(x.Port)}
	if x.Hostname != "" {
		var denied []string
		if incremental.Count(v, bs.l4Users, backendID(key.String())) > 0 {
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
func usedBackends(_ routePart, r *config.Resource) (keys []backendID) {
	for _, rl := range r.GetRoute().GetRules() {
		for _, key := range rule.Backends(rl) {
			keys = append(keys, backendID(key))
		}
	}
	for _, ref := range r.GetL4Route().GetBackendRefs() {
		if ref.Backend != "" {
			keys = append(keys, backendID(ref.Backend))
		}
	}
	for _, ref := range r.GetL4Route().GetPassthroughBackendRefs() {
		if ref.Backend != "" {
			keys = append(keys, backendID(ref.Backend))
		}
	}
	return keys
}
