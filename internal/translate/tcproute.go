package translate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

var tcpRoutes = &routeKind{
	kind:        kind.TCPRoute.Kind,
	protocols:   []gwv1.ProtocolType{gwv1.TCPProtocolType, gwv1.TLSProtocolType},
	connections: true,
	raw:         true,
	rules:       func(o metav1.Object) []rule.Spec { return specsOf(o.(*gwv1.TCPRoute).Spec.Rules, rule.TCP) },
}
