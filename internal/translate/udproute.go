package translate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

var udpRoutes = &routeKind{
	kind:        kind.UDPRoute.Kind,
	protocols:   []gwv1.ProtocolType{gwv1.UDPProtocolType},
	connections: true,
	udp:         true,
	rules:       func(o metav1.Object) []rule.Spec { return specsOf(o.(*gwv1.UDPRoute).Spec.Rules, rule.UDP) },
}
