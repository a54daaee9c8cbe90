package translate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
	"github.com/moongate-dev/moongate/internal/translate/policy"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// namedBackends yields the objects that a route names as backends, permitted or not.
func namedBackends(k kindName, o metav1.Object, yield func(policy.Target)) {
	rules := routeKindOf(k.Kind).rules(o)
	for i := range rules {
		for _, ref := range rules[i].Refs() {
			if target := namedBy(ref, k.Name.Namespace); mayName(target, k.Name.Namespace) {
				yield(target)
			}
		}
	}
}

// namedServices returns those of namedBackends that are Services.
func namedServices(k kindName, o metav1.Object) (services []name) {
	namedBackends(k, o, func(t policy.Target) {
		if isService(t) {
			services = append(services, name{t.Namespace, t.Name})
		}
	})
	return services
}

// namedXBackends returns those of namedBackends that are XBackends.
func namedXBackends(k kindName, o metav1.Object) (xbackends []name) {
	namedBackends(k, o, func(t policy.Target) {
		if isXBackend(t) {
			xbackends = append(xbackends, name{t.Namespace, t.Name})
		}
	})
	return xbackends
}

// namedOthers returns those of namedBackends that are neither Services nor XBackends.
func namedOthers(k kindName, o metav1.Object) (others []policy.Target) {
	namedBackends(k, o, func(t policy.Target) {
		if !isService(t) {
			others = append(others, t)
		}
	})
	return others
}

// namedByListener returns the objects that filters of a listener name as backends, permitted or not.
func namedByListener(k listenerKey, l *listener.Listener) (named []policy.Target) {
	for _, f := range l.Filters {
		if auth := f.ExternalAuth; auth != nil {
			namespace := k.Owner().Name.Namespace
			if target := namedBy(auth.BackendRef, namespace); mayName(target, namespace) {
				named = append(named, target)
			}
		}
	}
	return named
}

// namedBy returns the object that a reference from a namespace names.
func namedBy(ref gwv1.BackendObjectReference, namespace string) policy.Target {
	return policy.Target{Group: string(ptr.Deref(ref.Group, corev1.GroupName)), Kind: string(ptr.Deref(ref.Kind, gwv1.Kind(KindService))),
		Namespace: string(ptr.Deref(ref.Namespace, gwv1.Namespace(namespace))), Name: string(ref.Name)}
}

// mayName returns false for an XBackend of another namespace, because nothing can permit that reference: its status must not mention
// the namespace that refers to it.
func mayName(target policy.Target, namespace string) bool {
	return !isXBackend(target) || target.Namespace == namespace
}

// referringTo returns the Gateways of the listeners that name an object as a backend and are permitted to, in order.
func (lis *listeners) referringTo(v *incremental.View, target policy.Target, grants *grants) (gateways []name) {
	for _, k := range incremental.Lookup(v, lis.byBackend, target) {
		if grants.permitted(v, listenerReferrer(k), target.Group, target.Kind, name{target.Namespace, target.Name}) {
			gateways = append(gateways, k.Gateway)
		}
	}
	return slices.Compact(gateways)
}

// backendRefs resolves references of routes and listeners to backends.
type backendRefs struct {
	grants             *grants
	services           *services
	xbackends          *xbackends
	backendTLSPolicies *backendTLSPolicies
}

func newBackendRefs(grants *grants, services *services, xbackends *xbackends, backendTLSPolicies *backendTLSPolicies) *backendRefs {
	return &backendRefs{grants: grants, services: services, xbackends: xbackends, backendTLSPolicies: backendTLSPolicies}
}

// resolveBackend returns the Service port or the XBackend that a reference names. permitted is true if the reference is to a Service
// that from may know about; only then may the problem reveal whether it exists. rk is the kind of route, http2 requires HTTP/2, and
// passthrough is backendKey.Passthrough.
func (br *backendRefs) resolveBackend(v *incremental.View, from referrer, rk *routeKind, ref gwv1.BackendObjectReference, passthrough, http2 bool, field string) (key backendKey, permitted bool, p *condition.Problem) {
	group, kind := string(ptr.Deref(ref.Group, corev1.GroupName)), string(ptr.Deref(ref.Kind, gwv1.Kind(KindService)))
	if group == gwx.GroupName && kind == string(KindXBackend) {
		key, p = br.xbackends.resolve(v, from, rk, ref, passthrough, http2, field)
		return key, false, p
	}
	if group != corev1.GroupName || kind != string(KindService) {
		remedy := "refer to a Service or an XBackend"
		if kind == string(KindXBackend) {
			remedy = "write group: " + gwx.GroupName + " for an XBackend"
		}
		return key, false, condition.NewProblem(gwv1.RouteReasonInvalidKind, field+".kind", remedy,
			"%s of group %q cannot be a backend", kind, group)
	}
	key.Name = name{string(ptr.Deref(ref.Namespace, gwv1.Namespace(from.Name.Namespace))), string(ref.Name)}
	if !br.grants.permitted(v, from, group, kind, key.Name) {
		return key, false, condition.NewProblem(gwv1.RouteReasonRefNotPermitted, field+".namespace", br.grants.grantRemedy(v, from, kind, key.Name),
			"no ReferenceGrant permits the reference to Service %s", key.Name)
	}
	if ref.Port == nil {
		return key, true, condition.NewProblem(gwv1.RouteReasonBackendNotFound, field+".port", "add the port", "a reference to a Service needs a port")
	}
	key.Port, key.Passthrough = *ref.Port, passthrough
	key.UDP = rk.udp
	p = br.checkBackend(v, rk, key, field)
	if p == nil {
		svc, _ := incremental.Fetch(v, br.services.all, key.Name)
		port, _ := svc.port(key.Port, key.transport())
		over2 := rk.http2 || http2
		key.HTTP2 = port.lacksProtocol() && over2
		if over2 && !key.HTTP2 && !br.canHTTP2(v, key.Name, &port) {
			p = condition.NewProblem(gwv1.RouteReasonUnsupportedProtocol, field+".port", "remove appProtocol from the Service's port, or use kubernetes.io/h2c",
				"gRPC needs HTTP/2, and port %d of Service %s has appProtocol %s", key.Port, key.Name, port.AppProtocol)
		}
	}
	return key, true, p
}

// canHTTP2 reports whether a Service's port is reached over HTTP/2, or can select it.
func (br *backendRefs) canHTTP2(v *incremental.View, svc name, port *servicePort) bool {
	protocol, _ := config.BackendProtocolOf(port.AppProtocol)
	if protocol != config.BackendProtocol_BACKEND_PROTOCOL_HTTP || port.needsTLS() {
		return protocol.Info().HTTP2 || protocol == config.BackendProtocol_BACKEND_PROTOCOL_HTTP
	}
	_, overTLS, _ := br.backendTLSPolicies.inForce(v, svc, port.Name, "")
	return overTLS
}

// named returns a backend in the form that rules need.
func (br *backendRefs) named(v *incremental.View, key backendKey) rule.Backend {
	b := rule.Backend{Key: key.String(), Authority: fmt.Sprintf("%s.%s.svc:%d", key.Name.Name, key.Name.Namespace, key.Port)}
	if !key.XBackend {
		return b
	}
	b.Authority = fmt.Sprintf("%s.%s:%d", key.Name.Name, key.Name.Namespace, key.Port) // it is not the name of a Service
	if x, exists := incremental.Fetch(v, br.xbackends.all, key.Name); exists && x.Hostname != "" {
		b.Authority = fmt.Sprintf("%s:%d", x.Hostname, key.Port)
	}
	return b
}

// checkBackend returns why routes of a kind cannot use a port of a Service as a backend, or nil.
func (br *backendRefs) checkBackend(v *incremental.View, rk *routeKind, key backendKey, field string) *condition.Problem {
	svc, exists := incremental.Fetch(v, br.services.all, key.Name)
	if !exists {
		return condition.NewProblem(gwv1.RouteReasonBackendNotFound, field+".name", "create it or correct the name",
			"Service %s does not exist", key.Name)
	}
	if svc.External {
		return condition.NewProblem(gwv1.RouteReasonInvalidKind, field+".name", "refer to a Service with EndpointSlices, or to an XBackend of type ExternalHostname",
			"Service %s has type ExternalName, which is not supported", key.Name)
	}
	port, exists := svc.port(key.Port, rk.transport())
	if !exists {
		return condition.NewProblem(gwv1.RouteReasonBackendNotFound, field+".port", "add the port to the Service or correct the number",
			"Service %s has no port %d", key.Name, key.Port)
	}
	if port.Protocol != rk.transport() {
		return condition.NewProblem(gwv1.RouteReasonUnsupportedProtocol, field+".port", fmt.Sprintf("refer to a %s port", rk.transport()),
			"port %d of Service %s has protocol %s", key.Port, key.Name, port.Protocol)
	}
	if _, known := config.BackendProtocolOf(port.AppProtocol); !known && !rk.connections {
		return condition.NewProblem(gwv1.RouteReasonUnsupportedProtocol, field+".port", "remove appProtocol from the Service's port, or use "+condition.AnyOf(config.AppProtocols()),
			"port %d of Service %s has appProtocol %q, which is not supported yet", key.Port, key.Name, port.AppProtocol)
	}
	if key.Passthrough || rk.udp {
		return nil
	}
	return br.backendTLSPolicies.checkBackendTLS(v, rk, key.Name, &port, field)
}

// clientIP returns why a rule that compiled to config.Rule cannot have session persistence, or nil: a Service with sessionAffinity
// ClientIP already identifies clients in its own way, and a route that combines both must be rejected (GEP-1619).
func (br *backendRefs) clientIP(v *incremental.View, namespace string, index int, spec *rule.Spec, compiled *config.Rule) *condition.Problem {
	if compiled.GetSessionPersistence() == nil {
		return nil
	}
	for i, ref := range compiled.BackendRefs {
		target := namedBy(spec.BackendRefs[i].BackendObjectReference, namespace)
		if ref.Backend == "" || !isService(target) {
			continue
		}
		svc := name{target.Namespace, target.Name}
		if s, _ := incremental.Fetch(v, br.services.all, svc); s == nil || !s.ClientIP {
			continue
		}
		return condition.NewProblem(gwv1.RouteReasonUnsupportedValue, fmt.Sprintf("spec.rules[%d].sessionPersistence", index),
			"remove it, or set the Service's sessionAffinity to None", "Service %s of backendRefs[%d] has sessionAffinity ClientIP, and sessions cannot persist by both", svc, i)
	}
	return nil
}
