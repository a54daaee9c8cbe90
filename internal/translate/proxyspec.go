package translate

import (
	"cmp"
	"slices"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/listener"
	"github.com/moongate-dev/moongate/internal/translate/parameters"
)

// proxySpecs computes what Gateways need to run in a cluster.
type proxySpecs struct {
	o *Options

	all            *incremental.Collection[name, *ProxySpec] // nil outside of a cluster
	portsByGateway *incremental.Index[name, proxyPort, struct{}]
	merged         *incremental.Collection[name, *ProxySpec] // of merged Gateways; nil outside of a cluster
	portsByMerged  *incremental.Index[name, proxyPort, struct{}]
}

// newProxySpecs makes a ProxySpec for each Gateway of a managed class. It reads nothing that proxies report, so that a port which
// one proxy cannot bind is not taken from the others.
func newProxySpecs(e *incremental.Engine, o *Options,
	classObjects *incremental.Collection[name, *gwv1.GatewayClass],
	gatewayObjects *incremental.Collection[name, *gwv1.Gateway],
	gatewayClasses *gatewayClasses, gateways *gateways, listeners *listeners) *proxySpecs {
	ps := &proxySpecs{o: o}
	if !ps.o.Cluster {
		return ps
	}
	ports := incremental.NewIndex(listeners.all, "valid listeners by port",
		func(k listenerKey, l *listener.Listener) []proxyPort {
			if !l.Valid() {
				return nil
			}
			return []proxyPort{{k.Gateway, l.Port, l.Protocol == gwv1.UDPProtocolType}}
		})
	ps.portsByGateway = incremental.NewIndex(incremental.Keys(ports, "ports of Gateways"), "ports by Gateway",
		func(p proxyPort, _ struct{}) []name { return []name{p.Gateway} })
	ps.all = incremental.Map(e, "proxy spec", gatewayObjects,
		func(v *incremental.View, n name, gw *gwv1.Gateway) (*ProxySpec, bool) {
			g, managed := incremental.Fetch(v, gateways.all, n)
			if !managed || g.Merged.Name != "" {
				return nil, false
			}
			p := &ProxySpec{
				Namespace: n.Namespace, Name: n.Name, UID: gw.UID, Class: string(gw.Spec.GatewayClassName),
				Parameters: g.Parameters,
				// Dependents of a Gateway that is being deleted must not be created again.
				Paused:      g.ParametersUnknown || gw.DeletionTimestamp != nil,
				Unaddressed: g.Unaddressed(),
			}
			for _, a := range g.Addresses {
				if a.Unsatisfiable == "" {
					p.Addresses = append(p.Addresses, gwv1.GatewaySpecAddress{Type: new(gwv1.IPAddressType), Value: a.Value, Routability: a.Routability})
				}
			}
			if infra := gw.Spec.Infrastructure; infra != nil {
				p.Labels, p.Annotations, _ = parameters.Allowed(g.Parameters.ClassOnly, plain(infra.Labels), plain(infra.Annotations))
			}
			for _, port := range incremental.Lookup(v, ps.portsByGateway, n) {
				p.Ports = append(p.Ports, ProxyPort{port.Port, port.UDP})
			}
			return p, true
		}, sameDeeply[*ProxySpec])
	ps.declareMerged(e, classObjects, gatewayClasses, gateways, listeners)
	return ps
}

// mergedSpec is the name of the function that makes the ProxySpecs of merged Gateways from their classes.
const mergedSpec = "proxy spec of merged Gateways"

// declareMerged makes a ProxySpec for each class whose Gateways are served together, while it has any.
func (ps *proxySpecs) declareMerged(e *incremental.Engine, classObjects *incremental.Collection[name, *gwv1.GatewayClass],
	gatewayClasses *gatewayClasses, gateways *gateways, listeners *listeners) {
	// It does not matter which listener wins a port, because one does.
	ports := incremental.NewIndex(listeners.claims, "ports of merged Gateways",
		func(_ listenerKey, c claim) []proxyPort {
			return []proxyPort{{c.Shared, c.Listener.Port, c.Listener.Protocol == gwv1.UDPProtocolType}}
		})
	ps.portsByMerged = incremental.NewIndex(incremental.Keys(ports, "ports of merged proxies"), "ports by merged proxies",
		func(p proxyPort, _ struct{}) []name { return []name{p.Gateway} })
	ps.merged = incremental.FlatMap(e, mergedSpec, classObjects,
		func(v *incremental.View, n name, gc *gwv1.GatewayClass) []incremental.Entry[name, *ProxySpec] {
			c, managed := incremental.Fetch(v, gatewayClasses.all, n)
			if !managed || c.Merged == (name{}) {
				return nil
			}
			p := &ProxySpec{
				Namespace: c.Merged.Namespace, Name: c.Merged.Name, UID: gc.UID, Class: n.Name,
				Parameters: parameters.Merge(c.Parameters, nil),
				Paused:     c.Problem != nil || gc.DeletionTimestamp != nil,
			}
			for _, gateway := range incremental.Lookup(v, gateways.byMerged, c.Merged) {
				g, _ := incremental.Fetch(v, gateways.managed, gateway)
				p.Merged = append(p.Merged, MergedGateway{gateway.Namespace, gateway.Name, g.UID})
			}
			if len(p.Merged) == 0 {
				return nil
			}
			for _, port := range incremental.Lookup(v, ps.portsByMerged, c.Merged) {
				if _, excess := incremental.Fetch(v, listeners.excessPorts, sharedPort{c.Merged, port.Port}); excess {
					continue
				}
				p.Ports = append(p.Ports, ProxyPort{port.Port, port.UDP})
			}
			return []incremental.Entry[name, *ProxySpec]{{Key: c.Merged, Value: p}}
		}, sameDeeply[*ProxySpec])
}

// proxyPort is a ProxyPort of a Gateway, or of merged ones.
type proxyPort struct {
	Gateway name
	Port    int32
	UDP     bool
}

func (p proxyPort) Compare(o proxyPort) int {
	return cmp.Or(p.Gateway.Compare(o.Gateway), cmp.Compare(p.Port, o.Port), compareBool(p.UDP, o.UDP))
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func plain[K, V ~string](m map[K]V) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[string(k)] = string(v)
	}
	return out
}

func (ps *proxySpecs) changes() (out []ProxySpecChange) {
	if !ps.o.Cluster {
		return nil
	}
	for _, specs := range []*incremental.Collection[name, *ProxySpec]{ps.all, ps.merged} {
		for _, ch := range specs.Changes() {
			out = append(out, ProxySpecChange{ch.Key.Namespace, ch.Key.Name, ch.New})
		}
	}
	slices.SortFunc(out, func(a, b ProxySpecChange) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}
