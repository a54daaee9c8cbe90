package translate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

var httpRoutes = &routeKind{
	kind:      kind.HTTPRoute.Kind,
	protocols: []gwv1.ProtocolType{gwv1.HTTPProtocolType, gwv1.HTTPSProtocolType},
	hostnames: func(o metav1.Object) []gwv1.Hostname { return o.(*gwv1.HTTPRoute).Spec.Hostnames },
	rules: func(o metav1.Object) []rule.Spec {
		rules := o.(*gwv1.HTTPRoute).Spec.Rules
		if len(rules) == 0 {
			rules = []gwv1.HTTPRouteRule{{}} // the default that the API server sets for an HTTPRoute without rules
		}
		return specsOf(rules, rule.HTTP)
	},
}
