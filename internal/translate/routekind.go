package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// routeKinds are the kinds of route that listeners support, all those in package kind, in the order in which a listener's status
// lists them.
var routeKinds = []*routeKind{httpRoutes, grpcRoutes, tlsRoutes, tcpRoutes, udpRoutes}

// routeKind defines how routes of one kind are read.
type routeKind struct {
	kind *kind.Kind
	// protocols are those of the listeners that support the kind.
	protocols []gwv1.ProtocolType
	// passthrough is set if listeners that do not terminate TLS support it too.
	passthrough bool
	// hostnames returns the route's own hostnames, none for all of a listener's; nil if the kind has no hostnames.
	hostnames func(metav1.Object) []gwv1.Hostname
	// http2 is set if requests are sent to backends over HTTP/2 when a Service's port has no appProtocol.
	http2 bool
	// rules returns the route's rules.
	rules func(metav1.Object) []rule.Spec
	// connections is set for L4 routes, of connections or datagrams whose payload is not inspected: of those on one listener with
	// one hostname only one is selected, and the appProtocol of a Service's port is ignored, unless it requires TLS.
	connections bool
	// raw is set if the data of clients, which may be TLS, is forwarded unchanged, so that a port that requires TLS needs no policy.
	raw bool
	// udp is set for routes of datagrams, which go to UDP ports of Services.
	udp bool
}

// transport returns the protocol of the Service ports that routes of the kind can have as backends.
func (rk *routeKind) transport() corev1.Protocol {
	if rk.udp {
		return corev1.ProtocolUDP
	}
	return corev1.ProtocolTCP
}

// unit names what L4 routes forward, for messages.
func (rk *routeKind) unit() string {
	if rk.udp {
		return "datagram"
	}
	return "connection"
}

// routeKindOf returns how routes of a kind are read; nil if it is not a kind of route.
func routeKindOf(k Kind) *routeKind {
	for _, rk := range routeKinds {
		if rk.kind.Name == string(k) {
			return rk
		}
	}
	return nil
}

// routeKindsOf returns the kinds of route that listeners of a protocol support; passthrough means that they do not terminate TLS.
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

// specsOf converts the rules of a route to the form from which they are compiled.
func specsOf[R any](rules []R, lower func(*R) rule.Spec) []rule.Spec {
	specs := make([]rule.Spec, len(rules))
	for i := range rules {
		specs[i] = lower(&rules[i])
	}
	return specs
}
