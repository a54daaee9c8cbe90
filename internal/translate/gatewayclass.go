package translate

import (
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/features"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// class is one of our GatewayClasses.
type class struct{ Accepted bool }

// supported is what this version can do; conformance suites choose their tests by it.
// GatewayHTTPSListenerDetectMisdirectedRequests is missing because its test speaks HTTP/2,
// although misdirected requests are answered as it wants.
var supported = []features.FeatureName{
	features.SupportGateway,
	features.SupportGatewayAddressEmpty,
	features.SupportGatewayHTTPListenerIsolation,
	features.SupportGatewayPort8080,
	features.SupportGatewayRouteHostnameIntersectionPrecedence,
	features.SupportGatewayStaticAddresses,
	features.SupportHTTPRoute,
	features.SupportHTTPRoute303RedirectStatusCode,
	features.SupportHTTPRoute307RedirectStatusCode,
	features.SupportHTTPRoute308RedirectStatusCode,
	features.SupportHTTPRouteBackendRequestHeaderModification,
	features.SupportHTTPRouteBackendTimeout,
	features.SupportHTTPRouteBackendURLRewrite,
	features.SupportHTTPRouteDestinationPortMatching,
	features.SupportHTTPRouteHostRewrite,
	features.SupportHTTPRouteMethodMatching,
	features.SupportHTTPRouteNamedRouteRule,
	features.SupportHTTPRouteParentRefPort,
	features.SupportHTTPRoutePathRedirect,
	features.SupportHTTPRoutePathRewrite,
	features.SupportHTTPRoutePortRedirect,
	features.SupportHTTPRouteQueryParamMatching,
	features.SupportHTTPRouteRequestMirror,
	features.SupportHTTPRouteRequestMultipleMirrors,
	features.SupportHTTPRouteRequestPercentageMirror,
	features.SupportHTTPRouteRequestTimeout,
	features.SupportHTTPRouteResponseHeaderModification,
	features.SupportHTTPRouteSchemeRedirect,
	features.SupportReferenceGrant,
}

func supportedFeatures() []gwv1.SupportedFeature {
	out := make([]gwv1.SupportedFeature, len(supported))
	for i, f := range supported {
		out[i].Name = gwv1.FeatureName(f)
	}
	slices.SortFunc(out, func(a, b gwv1.SupportedFeature) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return out
}

func (t *Translator) declareGatewayClasses() {
	t.classes = incremental.Map(t.engine, "GatewayClass", t.in.classes.Collection,
		func(_ *incremental.View, _ name, gc *gwv1.GatewayClass) (class, bool) {
			return class{Accepted: gc.Spec.ParametersRef == nil}, t.ours(gc)
		}, same[class])
}

func (t *Translator) ours(gc *gwv1.GatewayClass) bool {
	return string(gc.Spec.ControllerName) == t.options.ControllerName
}

func (t *Translator) declareGatewayClassStatuses() {
	t.classStatuses = incremental.Map(t.engine, "GatewayClass status", t.in.classes.Collection,
		func(_ *incremental.View, _ name, gc *gwv1.GatewayClass) (*status[gwv1.GatewayClassStatus], bool) {
			if !t.ours(gc) {
				return nil, false
			}
			accepted := condition.True(gwv1.GatewayClassConditionStatusAccepted, gwv1.GatewayClassReasonAccepted)
			if ref := gc.Spec.ParametersRef; ref != nil {
				p := condition.NewProblem(gwv1.GatewayClassReasonInvalidParameters, "spec.parametersRef", "remove parametersRef",
					"%s %q cannot be used: no kind of parameters is supported", ref.Kind, ref.Name)
				accepted = condition.False(gwv1.GatewayClassConditionStatusAccepted, gwv1.GatewayClassReasonInvalidParameters, p.String())
			}
			generation := generationOf(gc)
			return &status[gwv1.GatewayClassStatus]{generation, gwv1.GatewayClassStatus{
				Conditions: condition.Observed(generation, accepted,
					condition.True(gwv1.GatewayClassConditionStatusSupportedVersion, gwv1.GatewayClassReasonSupportedVersion)),
				SupportedFeatures: supportedFeatures(),
			}}, true
		}, sameDeeply[*status[gwv1.GatewayClassStatus]])
}
