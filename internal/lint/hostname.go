package lint

import (
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
)

// hostnames reports IP addresses instead of hostnames, which the Gateway API does not allow, although its CustomResourceDefinitions
// accept them.
func (l *linter) hostnames(o metav1.Object) {
	switch o := o.(type) {
	case *gwv1.HTTPRoute:
		l.routeHostnames(o, o.Spec.Hostnames)
	case *gwv1.GRPCRoute:
		l.routeHostnames(o, o.Spec.Hostnames)
	case *gwv1.TLSRoute:
		l.routeHostnames(o, o.Spec.Hostnames)
	case *gwv1.Gateway:
		for i, listener := range o.Spec.Listeners {
			l.listenerHostname(o, i, listener.Hostname)
		}
	case *gwv1.ListenerSet:
		for i, listener := range o.Spec.Listeners {
			l.listenerHostname(o, i, listener.Hostname)
		}
	case *gwx.XListenerSet:
		for i, listener := range o.Spec.Listeners {
			l.listenerHostname(o, i, listener.Hostname)
		}
	}
}

func (l *linter) routeHostnames(o metav1.Object, list []gwv1.Hostname) {
	for i, hostname := range list {
		l.hostname(o, fmt.Sprintf("spec.hostnames[%d]", i), string(hostname))
	}
}

func (l *linter) listenerHostname(o metav1.Object, i int, hostname *gwv1.Hostname) {
	if hostname != nil {
		l.hostname(o, fmt.Sprintf("spec.listeners[%d].hostname", i), string(*hostname))
	}
}

func (l *linter) hostname(o metav1.Object, field, hostname string) {
	if _, err := netip.ParseAddr(hostname); err == nil {
		l.add(o, field, fmt.Sprintf("%q is an IP address, which the Gateway API does not allow as a hostname, so other versions and implementations may refuse it", hostname),
			"use a name, or no hostname, which is every host; the addresses of a Gateway are its spec.addresses")
	}
}
