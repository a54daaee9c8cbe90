package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/schema"
)

// backendReference is a reference of a route or listener to a backend.
type backendReference struct {
	gwv1.BackendObjectReference
	consequence string // of a backend without endpoints
}

// The consequences of a backend without endpoints.
const (
	answered503 = "requests to it are answered 503"
	unavailable = "calls to it are answered UNAVAILABLE"
	reset       = "connections to it are reset"
	dropped     = "datagrams to it are dropped"
	notMirrored = "no request is mirrored to it"
	notChecked  = "requests that it must authorize are answered 503"
)

// backendsOf returns the backends of the rules of a route, including those of filters, or of the filters of listeners.
func backendsOf(o metav1.Object) (refs []backendReference) {
	switch o := o.(type) {
	case *gwv1.Gateway:
		for _, listener := range o.Spec.Listeners {
			refs = append(refs, listenerBackends(listener.Filters)...)
		}
	case *gwv1.ListenerSet:
		for _, listener := range o.Spec.Listeners {
			refs = append(refs, listenerBackends(listener.Filters)...)
		}
	case *gwv1.HTTPRoute:
		for _, rule := range o.Spec.Rules {
			refs = append(refs, filterBackends(rule.Filters)...)
			for _, ref := range rule.BackendRefs {
				refs = append(refs, backendReference{ref.BackendObjectReference, answered503})
				refs = append(refs, filterBackends(ref.Filters)...)
			}
		}
	case *gwv1.GRPCRoute:
		for _, rule := range o.Spec.Rules {
			refs = append(refs, grpcFilterBackends(rule.Filters)...)
			for _, ref := range rule.BackendRefs {
				refs = append(refs, backendReference{ref.BackendObjectReference, unavailable})
				refs = append(refs, grpcFilterBackends(ref.Filters)...)
			}
		}
	case *gwv1.TLSRoute:
		for _, rule := range o.Spec.Rules {
			refs = append(refs, plain(rule.BackendRefs, reset)...)
		}
	case *gwv1.TCPRoute:
		for _, rule := range o.Spec.Rules {
			refs = append(refs, plain(rule.BackendRefs, reset)...)
		}
	case *gwv1.UDPRoute:
		for _, rule := range o.Spec.Rules {
			refs = append(refs, plain(rule.BackendRefs, dropped)...)
		}
	}
	return refs
}

func filterBackends(filters []gwv1.HTTPRouteFilter) (refs []backendReference) {
	for _, f := range filters {
		if f.RequestMirror != nil {
			refs = append(refs, backendReference{f.RequestMirror.BackendRef, notMirrored})
		}
		if f.ExternalAuth != nil {
			refs = append(refs, backendReference{f.ExternalAuth.BackendRef, notChecked})
		}
	}
	return refs
}

func listenerBackends(filters *gwv1.ListenerFilters) (refs []backendReference) {
	if filters == nil {
		return nil
	}
	for _, f := range filters.Requests {
		if f.ExternalAuth != nil {
			refs = append(refs, backendReference{f.ExternalAuth.BackendRef, notChecked})
		}
	}
	return refs
}

func grpcFilterBackends(filters []gwv1.GRPCRouteFilter) (refs []backendReference) {
	for _, f := range filters {
		if f.RequestMirror != nil {
			refs = append(refs, backendReference{f.RequestMirror.BackendRef, notMirrored})
		}
	}
	return refs
}

func plain(list []gwv1.BackendRef, consequence string) (refs []backendReference) {
	for _, ref := range list {
		refs = append(refs, backendReference{ref.BackendObjectReference, consequence})
	}
	return refs
}

// transport returns the protocol of the port of a Service to which the reference leads; only datagrams are dropped.
func (r backendReference) transport() corev1.Protocol {
	if r.consequence == dropped {
		return corev1.ProtocolUDP
	}
	return corev1.ProtocolTCP
}

// backend examines the endpoints of a Service that a route or listener in a namespace names.
func (l *linter) backend(namespace string, ref backendReference) {
	consequence := ref.consequence
	if ref.Kind != nil && string(*ref.Kind) != kind.Service.Name || ref.Group != nil && *ref.Group != "" || ref.Port == nil {
		return
	}
	at := key{namespace, string(ref.Name)}
	if ref.Namespace != nil {
		at.namespace = string(*ref.Namespace)
	}
	s := l.services[at]
	if s == nil || s.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	// A Service may have the same number for TCP and for UDP.
	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Port == int32(*ref.Port) && cmp.Or(p.Protocol, corev1.ProtocolTCP) == ref.transport()
	})
	if i < 0 {
		return // a condition of the route reports it
	}
	list := l.slices[at]
	if len(list) == 0 {
		// A cluster creates the EndpointSlices of Services with a selector.
		if len(s.Spec.Selector) == 0 && !l.slicesRefused(s.Namespace) {
			l.add(s, "", "no EndpointSlice is for this Service, so "+consequence,
				fmt.Sprintf("add one with the label %s: %s", discoveryv1.LabelServiceName, s.Name))
		}
		return
	}
	list = slices.DeleteFunc(slices.Clone(list), func(slice *discoveryv1.EndpointSlice) bool { return slice.AddressType == discoveryv1.AddressTypeFQDN })
	if len(list) == 0 {
		l.add(s, "", "its EndpointSlices have addressType FQDN, which is not supported, so "+consequence,
			"write IP addresses with addressType IPv4 or IPv6, or refer to an XBackend of type ExternalHostname in its place")
		return
	}
	var names []string
	some, ready, found := false, false, false
	ports := "port" // what is looked for; with the protocol if there are ports of another one
	for _, slice := range list {
		for _, port := range slice.Ports {
			name := ""
			if port.Name != nil {
				name = *port.Name
			}
			if ptr.Deref(port.Protocol, corev1.ProtocolTCP) != ref.transport() {
				ports = string(ref.transport()) + " port"
				continue
			}
			if found = found || name == s.Spec.Ports[i].Name; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		some = some || len(slice.Endpoints) > 0
		ready = ready || slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
			return len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready || endsServing(e.Conditions))
		})
	}
	switch {
	case !some: // as in a cluster if the selector selects no pod; such a slice has no ports either
		l.add(s, "", "this Service has no endpoints, so "+consequence, "start pods that its spec.selector selects, or add endpoints to its EndpointSlices")
	case !found:
		slices.Sort(names)
		l.add(s, fmt.Sprintf("spec.ports[%d].name", i), fmt.Sprintf("no EndpointSlice of this Service has a %s named %q (they have %s), so %s", ports, s.Spec.Ports[i].Name, quoted(names, ports), strings.Replace(consequence, "to it", fmt.Sprintf("to port %d", *ref.Port), 1)),
			"let its targetPort be a port that its pods have, or give the port of an EndpointSlice that you write the same name")
	case !ready:
		l.add(s, "", "no endpoint of this Service is ready, so "+consequence, "see why its pods are not ready, or set conditions.ready in EndpointSlices that you write")
	}
}

// endsServing reports whether an endpoint that is not ready is terminating and still serves; it is used if none is ready.
func endsServing(c discoveryv1.EndpointConditions) bool {
	return c.Terminating != nil && *c.Terminating && c.Serving != nil && *c.Serving
}

func quoted(names []string, ports string) string {
	if len(names) == 0 {
		return "no " + ports + "s"
	}
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = strconv.Quote(name)
	}
	return strings.Join(list, ", ")
}

// slicesRefused reports whether an EndpointSlice of a namespace is invalid; then it is not known to which Service it belongs.
func (l *linter) slicesRefused(namespace string) bool {
	return slices.ContainsFunc(l.refused, func(k kind.ObjectKey) bool {
		return k.Kind == kind.EndpointSlice.Name && k.Group == kind.EndpointSlice.Group && k.Namespace == namespace
	})
}

// endpointSlice reports a slice that belongs to no Service.
func (l *linter) endpointSlice(o *discoveryv1.EndpointSlice) {
	const field = "metadata.labels"
	name := o.Labels[discoveryv1.LabelServiceName]
	if o.Labels[v1alpha1.LabelXBackend] != "" {
		return // it is not missing
	}
	if name == "" {
		l.add(o, field, "it does not have the label "+discoveryv1.LabelServiceName+", so it belongs to no Service", "add the label with the Service's name")
		return
	}
	if l.services[key{o.Namespace, name}] != nil || slices.Contains(l.refused, kind.Service.Key(o.Namespace, name)) {
		return
	}
	var names []string
	for at := range l.services {
		if at.namespace == o.Namespace {
			names = append(names, at.name)
		}
	}
	remedy := "add the Service, or correct the label"
	if near := schema.Nearest(name, names); near != "" {
		remedy = fmt.Sprintf("did you mean %s?", near)
	}
	l.add(o, field, fmt.Sprintf("its label names Service %s/%s, which does not exist", o.Namespace, name), remedy)
}
