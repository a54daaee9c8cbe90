package translate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

var tlsRoutes = &routeKind{
	kind:        kind.TLSRoute.Kind,
	protocols:   []gwv1.ProtocolType{gwv1.TLSProtocolType},
	passthrough: true,
	hostnames:   func(o metav1.Object) []gwv1.Hostname { return o.(*gwv1.TLSRoute).Spec.Hostnames },
	connections: true,
	rules:       func(o metav1.Object) []rule.Spec { return specsOf(o.(*gwv1.TLSRoute).Spec.Rules, rule.TLS) },
}
