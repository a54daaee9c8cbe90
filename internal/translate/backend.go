package translate

import (
	"cmp"
	"strings"

	"google.golang.org/protobuf/proto"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// backends contains the ports of Services and the XBackends that routes and listeners use, and their endpoints.
type backends struct {
	endpointSlices     *incremental.Collection[name, *discoveryv1.EndpointSlice]
	services           *services
	xbackends          *xbackends
	backendTLSPolicies *backendTLSPolicies
	trafficPolicies    *trafficPolicies
	refusals           *refusals
	backendTraffic     *backendTrafficPolicies
	routes             *routes
	infrastructure     *infrastructure

	users     *incremental.Index[backendID, routePart, *config.Resource]
	l4Users   *incremental.Index[backendID, routePart, *config.Resource] // L4 routes, by backend without its policies
	all       *incremental.Collection[backendID, *config.Backend]
	slices    *incremental.Index[name, name, *discoveryv1.EndpointSlice]
	labelled  *incremental.Index[name, name, *discoveryv1.EndpointSlice] // of XBackends
	endpoints *incremental.Collection[backendID, *config.Endpoints]
}

// newBackends keeps a Backend for each Service port and XBackend that an accepted route or a listener uses. Unused ones, of which a
// cluster may have many, cost nothing.
func newBackends(e *incremental.Engine,
	endpointSlices *incremental.Collection[name, *discoveryv1.EndpointSlice],
	services *services, xbackends *xbackends, backendTLSPolicies *backendTLSPolicies, trafficPolicies *trafficPolicies, listenerStates *listenerStates, routes *routes, refusals *refusals, infrastructure *infrastructure,
	backendTraffic *backendTrafficPolicies) *backends {
	bs := &backends{endpointSlices: endpointSlices, services: services, xbackends: xbackends, backendTLSPolicies: backendTLSPolicies, trafficPolicies: trafficPolicies,
		refusals: refusals, infrastructure: infrastructure, backendTraffic: backendTraffic, routes: routes}
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
	ofListeners := incremental.NewIndex(listenerStates.serving, "listeners by backend", listenerBackends)
	bs.all = incremental.Map(e, "backend", incremental.Keys(bs.users, "used backends", ofListeners),
		func(v *incremental.View, id backendID, _ struct{}) (*config.Backend, bool) {
			key := parseBackendKey(id)
			var b *config.Backend
			if key.XBackend {
				b = bs.ofXBackend(v, key)
			} else {
				b = bs.ofService(v, key)
			}
			if b == nil {
				return nil, false
			}
			b.Key = string(id)
			if key.Policy != "" {
				p := bs.backendTraffic.read(v, parsePolicyPair(key.Policy))
				if p == nil || p.Compiled == nil {
					return nil, false // its routes change in the same commit
				}
				t := p.Backend
				if _, by := bs.serviceAddress(v, key, p); by {
					t = byService(t)
				}
				b.Traffic = bs.traffic(v, id, key, b, t)
			}
			return b, true
		}, sameMessage[*config.Backend])
	bs.declareEndpoints(e)
	return bs
}

// ofService returns the Backend for a port of a Service, without its key and without BackendTrafficPolicies. It returns nil if the
// port cannot be used in this way.
func (bs *backends) ofService(v *incremental.View, key backendKey) *config.Backend {
	n := key.Name
	s, exists := incremental.Fetch(v, bs.services.all, n)
	if !exists {
		return nil
	}
	port, exists := s.port(key.Port, key.transport())
	if !exists || key.UDP != (port.Protocol == corev1.ProtocolUDP) || key.HTTP2 && !port.lacksProtocol() {
		return nil
	}
	b := &config.Backend{Namespace: n.Namespace, Name: n.Name, Port: uint32(key.Port)}
	if key.Passthrough {
		return b
	}
	b.Protocol, _ = config.BackendProtocolOf(port.AppProtocol) // no rule refers to a port with an unknown appProtocol
	if key.UDP {
		return b
	}
	if b.Tls, exists = bs.backendTLSPolicies.backendTLSConfig(v, n, port.Name); !exists {
		return nil
	}
	if key.HTTP2 {
		b.Protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
	}
	traffic := bs.trafficPolicies.inForce(v, targetOf(n, ""))
	b.RetryBudget, b.SessionPersistence = traffic.Budget, traffic.Sessions
	return b
}

// byService returns the settings for a Backend whose only endpoint is the address of its Service: a check or hash of that address
// concerns any of the Service's endpoints, and an unhealthy one has no replacement.
func byService(t *config.BackendTraffic) *config.BackendTraffic {
	hashed := t.GetLoadBalancer().GetType() == config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH
	if t.GetHealthCheck() == nil && !hashed {
		return t
	}
	t = proto.CloneOf(t)
	if t.HealthCheck = nil; hashed {
		t.LoadBalancer = nil
	}
	if proto.Equal(t, &config.BackendTraffic{Policy: t.Policy}) {
		return nil
	}
	return t
}

// traffic completes what policies set for a Backend with the host of active checks, which only the Backend's routes determine.
func (bs *backends) traffic(v *incremental.View, full backendID, key backendKey, b *config.Backend, t *config.BackendTraffic) *config.BackendTraffic {
	active := t.GetHealthCheck().GetActive()
	switch {
	case t == nil:
		return nil
	case key.UDP:
		// No other setting applies to datagrams.
		t = &config.BackendTraffic{Policy: t.Policy, LoadBalancer: t.LoadBalancer}
		if t.LoadBalancer == nil {
			return nil
		}
		if o := t.LoadBalancer.GetBackendUtilization().GetOutOfBand(); o != nil && o.Port == 0 { // the endpoints' own ports are UDP ports
			t.LoadBalancer = proto.CloneOf(t.LoadBalancer)
			t.LoadBalancer.BackendUtilization.OutOfBand = nil
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

// checkedHost returns the host that active checks of a Backend send: its own, or that of a route to it (of several, the first by
// name), or the name of its Service.
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

// ofXBackend returns the Backend for an XBackend, without its key and without BackendTrafficPolicies. It returns nil if the XBackend
// cannot be used in this way.
func (bs *backends) ofXBackend(v *incremental.View, key backendKey) *config.Backend {
	x, exists := incremental.Fetch(v, bs.xbackends.all, key.Name)
	if !exists || x.Invalid != nil || x.Port != key.Port || key.UDP || x.Unsecured != nil && !key.Passthrough {
		return nil
	}
	b := &config.Backend{Namespace: key.Name.Namespace, Name: key.Name.Name, Port: uint32(x.Port)}
	if x.Hostname != "" {
		var denied []string
		unmerged := key
		unmerged.Policy = ""
		if incremental.Count(v, bs.l4Users, backendID(unmerged.String())) > 0 {
			denied = bs.infrastructure.allRanges(v) // a connection that leads back to a Gateway would be a loop that nothing limits
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
	traffic := bs.trafficPolicies.inForce(v, key.target())
	b.RetryBudget = traffic.Budget
	if x.Hostname == "" { // else only rules can have sessions, which the status of the policy reports
		b.SessionPersistence = traffic.Sessions
	}
	if x.Sessions != nil {
		b.SessionPersistence = x.Sessions // that of the XBackend is more specific
	}
	return b
}

// backendID is Backend.key.
type backendID string

func (b backendID) Compare(o backendID) int { return cmp.Compare(b, o) }

// listenerBackends returns the backends that a listener itself refers to.
func listenerBackends(_ listenerKey, l *config.Listener) (all []backendID) {
	for _, key := range rule.FilterBackends(l.Filters) {
		all = append(all, backendID(key))
	}
	if l.Tracing != nil {
		all = append(all, backendID(l.Tracing.Backend))
	}
	return all
}

// usedBackends returns every backend that a route's config refers to.
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
