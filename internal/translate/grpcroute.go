package translate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

var grpcRoutes = &routeKind{
	kind:      kind.GRPCRoute.Kind,
	protocols: []gwv1.ProtocolType{gwv1.HTTPProtocolType, gwv1.HTTPSProtocolType},
	hostnames: func(o metav1.Object) []gwv1.Hostname { return o.(*gwv1.GRPCRoute).Spec.Hostnames },
	http2:     true, // gRPC requires HTTP/2
	rules:     func(o metav1.Object) []rule.Spec { return specsOf(o.(*gwv1.GRPCRoute).Spec.Rules, rule.GRPC) },
}
