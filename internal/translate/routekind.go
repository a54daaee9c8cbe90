package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// routeKinds are the kinds of route that listeners take, in the order that a listener's status names them in: all those that package kind has.
var routeKinds = []*routeKind{httpRoutes, grpcRoutes, tlsRoutes, tcpRoutes, udpRoutes}

// routeKind is how routes of one kind are read.
type routeKind struct {
	kind *kind.Kind
	// protocols are those of the listeners that take them.
	protocols []gwv1.ProtocolType
	// passthrough says that listeners that do not terminate TLS take them too.
	passthrough bool
	// hostnames are the route's own, none for all of a listener's; nil for a kind without.
	hostnames func(metav1.Object) []gwv1.Hostname
	// http2 says that requests are sent to backends in HTTP/2 where a Service's port does not say what it speaks.
	http2 bool
	// rules are the route's.
	rules func(metav1.Object) []rule.Spec
	// connections says that routes are of connections or datagrams, whose bytes are not looked into: of those on one listener with one hostname only the oldest
	// gets any, and what the port of a Service says it speaks is no matter, unless that is over TLS.
	connections bool
	// raw says that they pass on what clients send, which may be TLS, so that a port over TLS needs no policy.
	raw bool
	// udp says that they are of datagrams, which go to UDP ports of Services.
	udp bool
}

// transport is the protocol of the ports of Services that routes of the kind have as backends.
func (rk *routeKind) transport() corev1.Protocol {
	if rk.udp {
		return corev1.ProtocolUDP
	}
	return corev1.ProtocolTCP
}

// unit is what routes of connections forward, for messages.
func (rk *routeKind) unit() string {
	if rk.udp {
		return "datagram"
	}
	return "connection"
}

// routeKindOf returns how routes of a kind are read; nil for what is no kind of route.
func routeKindOf(k Kind) *routeKind {
	for _, rk := range routeKinds {
		if rk.kind.Name == string(k) {
			return rk
		}
	}
	return nil
}

// routeKindsOf are the kinds of route that listeners of a protocol take; passthrough says that they do not terminate TLS.
func routeKindsOf(protocol gwv1.ProtocolType, passthrough bool) (kinds []gwv1.Kind) {
	for _, rk := range routeKinds {
		if slices.Contains(rk.protocols, protocol) && (rk.passthrough || !passthrough) {
			kinds = append(kinds, gwv1.Kind(rk.kind.Name))
		}
	}
	return kinds
}

// haveHostnames reports whether routes of a kind may have hostnames of their own.
func haveHostnames(k gwv1.RouteGroupKind) bool {
	rk := routeKindOf(Kind(k.Kind))
	return rk != nil && rk.hostnames != nil
}

// specsOf brings the rules of a route into the one form that they are compiled from.
func specsOf[R any](rules []R, lower func(*R) rule.Spec) []rule.Spec {
	specs := make([]rule.Spec, len(rules))
	for i := range rules {
		specs[i] = lower(&rules[i])
	}
	return specs
}
