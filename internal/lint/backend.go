package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/schema"
)

// backendsOf returns the backends of the rules of a route.
func backendsOf(o metav1.Object) (refs []gwv1.BackendObjectReference) {
	switch o := o.(type) {
	case *gwv1.HTTPRoute:
		for _, rule := range o.Spec.Rules {
			for _, ref := range rule.BackendRefs {
				refs = append(refs, ref.BackendObjectReference)
			}
		}
	case *gwv1.GRPCRoute:
		for _, rule := range o.Spec.Rules {
			for _, ref := range rule.BackendRefs {
				refs = append(refs, ref.BackendObjectReference)
			}
		}
	case *gwv1.TLSRoute:
		for _, rule := range o.Spec.Rules {
			refs = append(refs, plain(rule.BackendRefs)...)
		}
	case *gwv1.TCPRoute:
		for _, rule := range o.Spec.Rules {
			refs = append(refs, plain(rule.BackendRefs)...)
		}
	case *gwv1.UDPRoute:
		for _, rule := range o.Spec.Rules {
			refs = append(refs, plain(rule.BackendRefs)...)
		}
	}
	return refs
}

func plain(list []gwv1.BackendRef) (refs []gwv1.BackendObjectReference) {
	for _, ref := range list {
		refs = append(refs, ref.BackendObjectReference)
	}
	return refs
}

// backend examines the endpoints of a Service that a route in a namespace names.
func (l *linter) backend(namespace string, ref gwv1.BackendObjectReference) {
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
	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == int32(*ref.Port) })
	if i < 0 {
		return // a condition of the route reports it
	}
	list := l.slices[at]
	if len(list) == 0 {
		// A cluster creates the EndpointSlices of Services with a selector.
		if len(s.Spec.Selector) == 0 && !l.slicesRefused(s.Namespace) {
			l.add(s, "", "no EndpointSlice is for this Service, so requests to it are answered 503",
				fmt.Sprintf("add one with the label %s: %s", discoveryv1.LabelServiceName, s.Name))
		}
		return
	}
	list = slices.DeleteFunc(slices.Clone(list), func(slice *discoveryv1.EndpointSlice) bool { return slice.AddressType == discoveryv1.AddressTypeFQDN })
	if len(list) == 0 {
		l.add(s, "", "its EndpointSlices have addressType FQDN, which is not supported, so requests to it are answered 503",
			"write IP addresses with addressType IPv4 or IPv6, or refer to an XBackend of type ExternalHostname in its place")
		return
	}
	var names []string
	some, ready, found := false, false, false
	for _, slice := range list {
		for _, port := range slice.Ports {
			name := ""
			if port.Name != nil {
				name = *port.Name
			}
			if found = found || name == s.Spec.Ports[i].Name; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		some = some || len(slice.Endpoints) > 0
		ready = ready || slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
			return len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready)
		})
	}
	switch {
	case !some: // as in a cluster if the selector selects no pod; such a slice has no ports either
		l.add(s, "", "this Service has no endpoints, so requests to it are answered 503", "start pods that its spec.selector selects, or add endpoints to its EndpointSlices")
	case !found:
		slices.Sort(names)
		l.add(s, fmt.Sprintf("spec.ports[%d].name", i), fmt.Sprintf("no EndpointSlice of this Service has a port named %q (they have %s), so requests to port %d are answered 503", s.Spec.Ports[i].Name, quoted(names), *ref.Port),
			"let its targetPort be a port that its pods have, or give the port of an EndpointSlice that you write the same name")
	case !ready:
		l.add(s, "", "no endpoint of this Service is ready, so requests to it are answered 503", "see why its pods are not ready, or set conditions.ready in EndpointSlices that you write")
	}
}

func quoted(names []string) string {
	if len(names) == 0 {
		return "no ports"
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
